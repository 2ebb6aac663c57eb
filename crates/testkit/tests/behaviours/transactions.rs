//! Transactions: how they open and end, what holds readers back meanwhile, and what is told of them.

use strandline_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use strandline_protocol::messages::fetch::FetchPartition;
use strandline_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use strandline_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, EndTxnRequest, InitProducerIdRequest,
    ListTransactionsRequest, describe_producers,
};
use strandline_protocol::records::{BatchBuilder, BatchOptions, NewRecord, Producer};
use strandline_protocol::{ErrorCode, Uuid};
use tokio::time::{Duration, sleep};

use crate::trace::{LEDGER, Trace, WAITS_MAX, say};

const ID: &str = "writer";
const TOPIC: &str = "ledger";

/// Producer id and epoch.
type Who = (i64, i16);

/// A transaction that is aborted, one that is committed, one that is fenced.
pub(crate) async fn compare_transactions(address: &str) {
    let mut trace = Trace::connect(address).await;
    let ledger = trace.create(TOPIC, LEDGER).await;
    trace.transactions(ledger).await;
    trace.delete(TOPIC).await;
    insta::allow_duplicates! { insta::assert_snapshot!(trace.lines, @r#"
InitProducerId v4 with no time at all: INVALID_TRANSACTION_TIMEOUT
InitProducerId v4 with too long a time: INVALID_TRANSACTION_TIMEOUT
InitProducerId v4: NONE epoch=0
DescribeTransactions v0 before the first: NONE "Empty" epoch=0 started=false timeout=60000 []
EndTxn v3 nothing: INVALID_TXN_STATE same=false epoch=-1
AddPartitionsToTxn v3 of an unknown id: [("ledger", 0, INVALID_PRODUCER_ID_MAPPING)]
AddPartitionsToTxn v3 of another producer: [("ledger", 0, INVALID_PRODUCER_ID_MAPPING)]
AddPartitionsToTxn v3 of a newer epoch: [("ledger", 0, PRODUCER_FENCED)]
AddPartitionsToTxn v3 of one that there is and one that is not: [("ledger", 0, OPERATION_NOT_ATTEMPTED), ("ledger", 9, UNKNOWN_TOPIC_OR_PARTITION), ("nothing", 0, UNKNOWN_TOPIC_OR_PARTITION)]
AddPartitionsToTxn v3 of one: [("ledger", 0, NONE)]
AddPartitionsToTxn v0 of the same: [("ledger", 0, NONE)]
AddPartitionsToTxn v5 in the brokers' form: NONE [("stranger", INVALID_PRODUCER_ID_MAPPING), ("writer", NONE)]
DescribeTransactions v0 with a partition: NONE "Ongoing" epoch=0 started=true timeout=60000 [("ledger", [0])]
Produce v11 what was added to ledger-0: NONE base=0 start=0
Produce v11 without the id to ledger-0: TRANSACTIONAL_ID_AUTHORIZATION_FAILED base=-1 start=-1
Produce v11 with another id to ledger-0: NONE base=1 start=0
Produce v11 what was not added to ledger-1: TRANSACTION_ABORTABLE base=-1 start=-1
Produce v9 what was not added, by an older client to ledger-1: INVALID_TXN_STATE base=-1 start=-1
Produce v12 with an id that nobody has to ledger-1: INVALID_PRODUCER_ID_MAPPING base=-1 start=-1
Produce v12 of another producer to ledger-1: INVALID_PRODUCER_ID_MAPPING base=-1 start=-1
Produce v12 what was not added, by a newer client to ledger-1: NONE base=0 start=0
Fetch v17 in a transaction ledger-0 isolation=0: NONE hw=2 lso=0 bytes=Some(146) aborted=None
Fetch v17 in a transaction ledger-0 isolation=1: NONE hw=2 lso=0 bytes=Some(0) aborted=Some([])
ListOffsets v7 ledger-0 isolation=1 -1: NONE timestamp=-1 offset=0
ListOffsets v7 ledger-0 isolation=0 -1: NONE timestamp=-1 offset=2
ListOffsets v7 ledger-0 isolation=1 0: NONE timestamp=-1 offset=-1
ListOffsets v7 ledger-0 isolation=1 -3: NONE timestamp=-1 offset=-1
DescribeTransactions v0 with two partitions: NONE "Ongoing" epoch=0 started=true timeout=60000 [("ledger", [0, 1])]
DescribeProducers v0 ledger-0: epoch=0 last=1 coordinator=-1 open=0 time=false
DescribeProducers v0 ledger-1: epoch=0 last=0 coordinator=-1 open=0 time=false
ListTransactions v0 all: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v0 those that are open: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v1 those that are empty: NONE unknown=[] []
ListTransactions v1 in lower case: NONE unknown=["ongoing"] []
ListTransactions v1 this producer's: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v1 another producer's: NONE unknown=[] []
ListTransactions v1 older than an hour: NONE unknown=[] []
ListTransactions v1 any age: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v2 like wri.*: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v2 like wri: NONE unknown=[] []
ListTransactions v2 like the empty one: NONE unknown=[] [("writer", "Ongoing", true)]
ListTransactions v2 like (: INVALID_REGULAR_EXPRESSION unknown=[] []
EndTxn v3 another producer's: INVALID_PRODUCER_ID_MAPPING same=false epoch=-1
EndTxn v3 an unknown id's: INVALID_PRODUCER_ID_MAPPING same=false epoch=-1
EndTxn v3 of a newer epoch: PRODUCER_FENCED same=false epoch=-1
EndTxn v3 abort: NONE same=false epoch=-1
EndTxn v3 abort again: NONE same=false epoch=-1
EndTxn v3 commit what is aborted: INVALID_TXN_STATE same=false epoch=-1
Fetch v17 after an abort ledger-0 isolation=0: NONE hw=3 lso=3 bytes=Some(224) aborted=None
Fetch v17 after an abort ledger-0 isolation=1: NONE hw=3 lso=3 bytes=Some(224) aborted=Some([0])
ListOffsets v7 ledger-0 isolation=1 -1: NONE timestamp=-1 offset=3
ListOffsets v7 ledger-0 isolation=0 -1: NONE timestamp=-1 offset=3
ListOffsets v7 ledger-0 isolation=1 0: NONE timestamp=0 offset=0
Fetch v17 after an abort ledger-1 isolation=0: NONE hw=2 lso=2 bytes=Some(151) aborted=None
Fetch v17 after an abort ledger-1 isolation=1: NONE hw=2 lso=2 bytes=Some(151) aborted=Some([0])
ListOffsets v7 ledger-1 isolation=1 -1: NONE timestamp=-1 offset=2
ListOffsets v7 ledger-1 isolation=0 -1: NONE timestamp=-1 offset=2
ListOffsets v7 ledger-1 isolation=1 0: NONE timestamp=0 offset=0
DescribeTransactions v0 after an abort: NONE "CompleteAbort" epoch=0 started=true timeout=60000 []
DescribeProducers v0 ledger-0: epoch=0 last=1 coordinator=0 open=-1 time=true
DescribeProducers v0 ledger-1: epoch=0 last=0 coordinator=0 open=-1 time=true
Produce v12 the next transaction to ledger-0: NONE base=1 start=0
EndTxn v5 commit, by a newer client: NONE same=true epoch=1
DescribeTransactions v0 after a commit: NONE "CompleteCommit" epoch=1 started=true timeout=60000 []
EndTxn v5 commit again: INVALID_TXN_STATE same=false epoch=-1
EndTxn v5 commit, whose answer was lost: NONE same=true epoch=1
EndTxn v5 abort, whose answer was lost: INVALID_TXN_STATE same=false epoch=-1
EndTxn v5 abort nothing: NONE same=true epoch=2
DescribeTransactions v0 after nothing was aborted: NONE "CompleteAbort" epoch=2 started=true timeout=60000 []
Produce v12 a third to ledger-0: NONE base=4 start=0
Fetch v17 in the third ledger-0 isolation=0: NONE hw=5 lso=4 bytes=Some(375) aborted=None
Fetch v17 in the third ledger-0 isolation=1: NONE hw=5 lso=4 bytes=Some(302) aborted=Some([0])
ListOffsets v7 ledger-0 isolation=1 -1: NONE timestamp=-1 offset=4
ListOffsets v7 ledger-0 isolation=0 -1: NONE timestamp=-1 offset=5
ListOffsets v7 ledger-0 isolation=1 0: NONE timestamp=0 offset=0
InitProducerId v4 in a transaction: epoch +2
DescribeTransactions v0 after the next initialisation: NONE "Empty" epoch=4 started=false timeout=60000 []
Fetch v17 after the next initialisation ledger-0 isolation=0: NONE hw=6 lso=6 bytes=Some(453) aborted=None
Fetch v17 after the next initialisation ledger-0 isolation=1: NONE hw=6 lso=6 bytes=Some(453) aborted=Some([0, 4])
ListOffsets v7 ledger-0 isolation=1 -1: NONE timestamp=-1 offset=6
ListOffsets v7 ledger-0 isolation=0 -1: NONE timestamp=-1 offset=6
ListOffsets v7 ledger-0 isolation=1 0: NONE timestamp=0 offset=0
Produce v12 by the fenced one to ledger-0: INVALID_PRODUCER_EPOCH base=-1 start=-1
EndTxn v3 by the fenced one: PRODUCER_FENCED same=false epoch=-1
InitProducerId v4 by the fenced one: PRODUCER_FENCED
InitProducerId v4 by the present one: NONE epoch +1
DescribeProducers v0 ledger-0: epoch=3 last=-1 coordinator=0 open=-1 time=true
DescribeProducers v0 ledger-1: epoch=0 last=0 coordinator=0 open=-1 time=true
"#) };
}

impl Trace {
    async fn transactions(&mut self, ledger: Uuid) {
        self.until_coordinated(1, ID).await;
        for (name, id, timeout_ms) in [("no time at all", "hasty", 0), ("too long a time", "slow", 900_001)] {
            let (code, _) = self.init(id, timeout_ms, (-1, -1)).await;
            say!(self, "InitProducerId v4 with {name}: {code:?}");
        }
        let (code, mut who) = self.init(ID, 60_000, (-1, -1)).await;
        let first = who;
        say!(self, "InitProducerId v4: {code:?} epoch={}", who.1);
        self.describe_transaction("before the first").await;
        self.end("nothing", 3, ID, who, true).await;

        let (id, epoch) = who;
        for (name, version, transactional_id, who, partitions) in [
            ("an unknown id", 3, "stranger", who, &[(TOPIC, 0)][..]),
            ("another producer", 3, ID, (id + 1, epoch), &[(TOPIC, 0)]),
            ("a newer epoch", 3, ID, (id, epoch + 1), &[(TOPIC, 0)]),
            ("one that there is and one that is not", 3, ID, who, &[(TOPIC, 0), ("nothing", 0), (TOPIC, 9)]),
            ("one", 3, ID, who, &[(TOPIC, 0)]),
            ("the same", 0, ID, who, &[(TOPIC, 0)]),
        ] {
            self.add(name, version, transactional_id, who, partitions).await;
        }
        self.add_many("in the brokers' form", who).await;
        self.describe_transaction("with a partition").await;
        self.write("what was added", 11, Some(ID), 0, who, 0).await;
        self.write("without the id", 11, None, 0, who, 1).await;
        self.write("with another id", 11, Some("stranger"), 0, who, 1).await;
        self.write("what was not added", 11, Some(ID), 1, who, 0).await;
        self.write("what was not added, by an older client", 9, Some(ID), 1, who, 0).await;
        self.write("with an id that nobody has", 12, Some("stranger"), 1, who, 0).await;
        self.write("of another producer", 12, Some(ID), 1, (id + 1, epoch), 0).await;
        self.write("what was not added, by a newer client", 12, Some(ID), 1, who, 0).await;
        self.stable("in a transaction", ledger, 0).await;
        self.list_offset_isolated(TOPIC, 0, 1, -3).await;
        self.describe_transaction("with two partitions").await;
        self.producers().await;
        self.lists(who).await;

        self.end("another producer's", 3, ID, (id + 1, epoch), false).await;
        self.end("an unknown id's", 3, "stranger", who, false).await;
        self.end("of a newer epoch", 3, ID, (id, epoch + 1), false).await;
        self.end("abort", 3, ID, who, false).await;
        self.until_state("CompleteAbort").await;
        self.end("abort again", 3, ID, who, false).await;
        self.end("commit what is aborted", 3, ID, who, true).await;
        self.stable("after an abort", ledger, 0).await;
        self.stable("after an abort", ledger, 1).await;
        self.describe_transaction("after an abort").await;
        self.producers().await;

        self.write("the next transaction", 12, Some(ID), 0, who, 1).await;
        who = self.end("commit, by a newer client", 5, ID, who, true).await;
        self.until_state("CompleteCommit").await;
        self.describe_transaction("after a commit").await;
        self.end("commit again", 5, ID, who, true).await;
        self.end("commit, whose answer was lost", 5, ID, (who.0, who.1 - 1), true).await;
        self.end("abort, whose answer was lost", 5, ID, (who.0, who.1 - 1), false).await;
        who = self.end("abort nothing", 5, ID, who, false).await;
        self.until_state("CompleteAbort").await;
        self.describe_transaction("after nothing was aborted").await;
        self.write("a third", 12, Some(ID), 0, who, 0).await;
        self.stable("in the third", ledger, 0).await;
        let again = self.until_initialised(who).await;
        say!(self, "InitProducerId v4 in a transaction: epoch +{}", again.1 - who.1);
        self.describe_transaction("after the next initialisation").await;
        self.stable("after the next initialisation", ledger, 0).await;
        self.write("by the fenced one", 12, Some(ID), 0, who, 1).await;
        self.end("by the fenced one", 3, ID, who, true).await;
        let (code, _) = self.init(ID, 60_000, (first.0, first.1)).await;
        say!(self, "InitProducerId v4 by the fenced one: {code:?}");
        let (code, now) = self.init(ID, 60_000, again).await;
        say!(self, "InitProducerId v4 by the present one: {code:?} epoch +{}", now.1 - again.1);
        self.producers().await;
    }

    async fn init(&mut self, id: &str, timeout_ms: i32, known: Who) -> (ErrorCode, Who) {
        let request = InitProducerIdRequest {
            transactional_id: Some(id.to_owned()),
            transaction_timeout_ms: timeout_ms,
            producer_id: known.0,
            producer_epoch: known.1,
            ..InitProducerIdRequest::default()
        };
        let mut code = ErrorCode::None;
        for _ in 0..WAITS_MAX {
            let response = self.peer.call(4, &request).await;
            code = response.error_code;
            if code != ErrorCode::CoordinatorLoadInProgress {
                return (code, (response.producer_id, response.producer_epoch));
            }
            // A real broker fetches a block of ids first.
            sleep(Duration::from_millis(50)).await;
        }
        panic!("still {code:?}");
    }

    /// A transaction that is open is aborted first, which takes a real broker a moment.
    async fn until_initialised(&mut self, was: Who) -> Who {
        for _ in 0..WAITS_MAX {
            let (code, who) = self.init(ID, 60_000, (-1, -1)).await;
            match code {
                ErrorCode::None => return who,
                ErrorCode::ConcurrentTransactions => sleep(Duration::from_millis(50)).await,
                other => panic!("{other:?} after {was:?}"),
            }
        }
        panic!("the transaction of {was:?} does not end");
    }

    async fn add(&mut self, name: &str, version: i16, id: &str, who: Who, partitions: &[(&str, i32)]) {
        let topics = partitions.iter().map(|(name, partition)| AddPartitionsToTxnTopic {
            name: name.to_string(),
            partitions: vec![*partition],
            ..AddPartitionsToTxnTopic::default()
        });
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id.to_owned(),
            v3_and_below_producer_id: who.0,
            v3_and_below_producer_epoch: who.1,
            v3_and_below_topics: topics.collect(),
            ..AddPartitionsToTxnRequest::default()
        };
        let response = self.peer.call(version, &request).await;
        let mut results = Vec::new();
        for topic in response.results_by_topic_v3_and_below {
            for it in topic.results_by_partition {
                let code = ErrorCode::from_code(it.partition_error_code);
                results.push((topic.name.clone(), it.partition_index, code));
            }
        }
        results.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        say!(self, "AddPartitionsToTxn v{version} of {name}: {results:?}");
    }

    async fn add_many(&mut self, name: &str, who: Who) {
        let transaction = |id: &str| AddPartitionsToTxnTransaction {
            transactional_id: id.to_owned(),
            producer_id: who.0,
            producer_epoch: who.1,
            verify_only: false,
            topics: vec![AddPartitionsToTxnTopic {
                name: TOPIC.to_owned(),
                partitions: vec![0],
                ..AddPartitionsToTxnTopic::default()
            }],
            ..AddPartitionsToTxnTransaction::default()
        };
        let request = AddPartitionsToTxnRequest {
            transactions: vec![transaction(ID), transaction("stranger")],
            ..AddPartitionsToTxnRequest::default()
        };
        let response = self.peer.call(5, &request).await;
        let mut results = Vec::new();
        for transaction in response.results_by_transaction {
            for topic in transaction.topic_results {
                for it in topic.results_by_partition {
                    let code = ErrorCode::from_code(it.partition_error_code);
                    results.push((transaction.transactional_id.clone(), code));
                }
            }
        }
        results.sort_by(|a, b| a.0.cmp(&b.0));
        say!(self, "AddPartitionsToTxn v5 {name}: {:?} {results:?}", response.error_code);
    }

    /// Writes one record in a transaction.
    async fn write(
        &mut self,
        name: &str,
        version: i16,
        transactional_id: Option<&str>,
        index: i32,
        (id, epoch): Who,
        base_sequence: i32,
    ) {
        let options = BatchOptions {
            producer: Some(Producer { id, epoch, base_sequence }),
            transactional: true,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        builder.push(NewRecord { value: Some(b"value"), ..NewRecord::default() }).unwrap();
        let mut records = Vec::new();
        builder.finish(&mut records).unwrap();
        let data =
            PartitionProduceData { index, records: Some(records.into()), ..PartitionProduceData::default() };
        let topic = TopicProduceData {
            name: TOPIC.to_owned(),
            partition_data: vec![data],
            ..TopicProduceData::default()
        };
        let request = ProduceRequest {
            transactional_id: transactional_id.map(str::to_owned),
            acks: -1,
            timeout_ms: 10_000,
            topic_data: vec![topic],
            ..ProduceRequest::default()
        };
        let mut told = None;
        for _ in 0..WAITS_MAX {
            let response = self.peer.call(version, &request).await;
            let partition = response.responses[0].partition_responses[0].clone();
            // The one before is still being ended.
            let ending = [
                ErrorCode::ConcurrentTransactions,
                ErrorCode::NotEnoughReplicas,
                ErrorCode::CoordinatorLoadInProgress,
            ];
            if !ending.contains(&partition.error_code) {
                told = Some((partition.error_code, partition.base_offset, partition.log_start_offset));
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let (code, base, start) = told.expect("the transaction before ends");
        say!(self, "Produce v{version} {name} to {TOPIC}-{index}: {code:?} base={base} start={start}");
    }

    /// The producer as it is afterwards.
    async fn end(&mut self, name: &str, version: i16, id: &str, who: Who, committed: bool) -> Who {
        let request = EndTxnRequest {
            transactional_id: id.to_owned(),
            producer_id: who.0,
            producer_epoch: who.1,
            committed,
            ..EndTxnRequest::default()
        };
        for _ in 0..WAITS_MAX {
            let response = self.peer.call(version, &request).await;
            if response.error_code == ErrorCode::ConcurrentTransactions {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            let told = (response.producer_id, response.producer_epoch);
            let (same, epoch) = (told.0 == who.0, told.1);
            say!(self, "EndTxn v{version} {name}: {:?} same={same} epoch={epoch}", response.error_code);
            return if told.0 >= 0 { told } else { who };
        }
        panic!("the transaction does not end");
    }

    async fn stable(&mut self, name: &str, ledger: Uuid, partition: i32) {
        let asked = FetchPartition { partition, partition_max_bytes: 1 << 20, ..FetchPartition::default() };
        for isolation_level in [0, 1] {
            let data = self.fetch_isolated(17, ledger, asked.clone(), isolation_level).await;
            let aborted: Option<Vec<i64>> =
                data.aborted_transactions.map(|aborted| aborted.iter().map(|it| it.first_offset).collect());
            say!(
                self,
                "Fetch v17 {name} {TOPIC}-{partition} isolation={isolation_level}: {:?} hw={} lso={} bytes={:?} aborted={aborted:?}",
                data.error_code,
                data.high_watermark,
                data.last_stable_offset,
                data.records.map(|records| records.len()),
            );
        }
        for (isolation_level, timestamp) in [(1, -1), (0, -1), (1, 0)] {
            self.list_offset_isolated(TOPIC, partition, isolation_level, timestamp).await;
        }
    }

    async fn describe_transaction(&mut self, name: &str) {
        let request = DescribeTransactionsRequest {
            transactional_ids: vec![ID.to_owned()],
            ..DescribeTransactionsRequest::default()
        };
        let state = self.peer.call(0, &request).await.transaction_states.remove(0);
        let mut topics: Vec<_> = state
            .topics
            .into_iter()
            .map(|mut topic| {
                topic.partitions.sort_unstable();
                (topic.topic, topic.partitions)
            })
            .collect();
        topics.sort();
        say!(
            self,
            "DescribeTransactions v0 {name}: {:?} {:?} epoch={} started={} timeout={} {topics:?}",
            state.error_code,
            state.transaction_state,
            state.producer_epoch,
            state.transaction_start_time_ms > 0,
            state.transaction_timeout_ms
        );
    }

    async fn until_state(&mut self, wanted: &str) {
        let request = DescribeTransactionsRequest {
            transactional_ids: vec![ID.to_owned()],
            ..DescribeTransactionsRequest::default()
        };
        let mut state = String::new();
        for _ in 0..WAITS_MAX {
            state = self.peer.call(0, &request).await.transaction_states.remove(0).transaction_state;
            if state == wanted {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("not {wanted} but {state}");
    }

    async fn producers(&mut self) {
        let request = DescribeProducersRequest {
            topics: vec![describe_producers::TopicRequest {
                name: TOPIC.to_owned(),
                partition_indexes: vec![0, 1],
                ..describe_producers::TopicRequest::default()
            }],
            ..DescribeProducersRequest::default()
        };
        for partition in self.peer.call(0, &request).await.topics.remove(0).partitions {
            for it in partition.active_producers {
                say!(
                    self,
                    "DescribeProducers v0 {TOPIC}-{}: epoch={} last={} coordinator={} open={} time={}",
                    partition.partition_index,
                    it.producer_epoch,
                    it.last_sequence,
                    it.coordinator_epoch,
                    it.current_txn_start_offset,
                    it.last_timestamp > 1_000_000
                );
            }
        }
    }

    async fn lists(&mut self, who: Who) {
        let all = ListTransactionsRequest { duration_filter: -1, ..ListTransactionsRequest::default() };
        let states = |states: &[&str]| ListTransactionsRequest {
            state_filters: states.iter().map(|state| state.to_string()).collect(),
            ..all.clone()
        };
        let ids = |ids: &[i64]| ListTransactionsRequest { producer_id_filters: ids.to_vec(), ..all.clone() };
        let matching = |pattern: &str| ListTransactionsRequest {
            transactional_id_pattern: Some(pattern.to_owned()),
            ..all.clone()
        };
        for (name, version, request) in [
            ("all", 0, ListTransactionsRequest::default()),
            ("those that are open", 0, states(&["Ongoing"])),
            ("those that are empty", 1, states(&["Empty"])),
            ("in lower case", 1, states(&["ongoing"])),
            ("this producer's", 1, ids(&[who.0])),
            ("another producer's", 1, ids(&[who.0 + 1])),
            ("older than an hour", 1, ListTransactionsRequest { duration_filter: 3_600_000, ..all.clone() }),
            ("any age", 1, ListTransactionsRequest { duration_filter: 0, ..all.clone() }),
            ("like wri.*", 2, matching("wri.*")),
            ("like wri", 2, matching("wri")),
            ("like the empty one", 2, matching("")),
            ("like (", 2, matching("(")),
        ] {
            let version = self.at_most(strandline_protocol::ApiKey::ListTransactions, version);
            let response = self.peer.call(version, &request).await;
            let mut listed: Vec<_> = response
                .transaction_states
                .into_iter()
                .map(|it| (it.transactional_id, it.transaction_state, it.producer_id == who.0))
                .collect();
            listed.sort();
            let (code, unknown) = (response.error_code, response.unknown_state_filters);
            say!(self, "ListTransactions v{version} {name}: {code:?} unknown={unknown:?} {listed:?}");
        }
    }
}
