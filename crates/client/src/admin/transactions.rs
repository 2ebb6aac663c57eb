//! What holds a partition's last stable offset: DescribeProducers of its leader, ListTransactions of every broker,
//! DescribeTransactions of a transaction's coordinator.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use strandline_meta::routing::Subject;
use strandline_meta::{Call, ErrorCode, ItemAnswer, Routed, SendError};
use strandline_protocol::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerState, TopicRequest,
};
use strandline_protocol::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionState,
};
use strandline_protocol::messages::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use tokio::time::Instant;

use super::{Admin, Results, by_topic, known};

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionQuery {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
}

/// A producer that a partition's leader remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// The producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i32,
    /// The last sequence number; `None` before the first.
    pub last_sequence: Option<i32>,
    /// Time of the last record, in milliseconds since 1970.
    pub last_timestamp_ms: Option<i64>,
    /// First offset of the transaction that is open in this partition; `None` if none is.
    pub transaction_start_offset: Option<i64>,
}

/// A transactional id that a coordinator knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionListing {
    /// The transactional id.
    pub transactional_id: String,
    /// Its producer id.
    pub producer_id: i64,
    /// Its state as Kafka names it, for example `Ongoing`.
    pub state: String,
}

/// A transaction as its coordinator tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The transactional id.
    pub transactional_id: String,
    /// Its state as Kafka names it, for example `Ongoing`.
    pub state: String,
    /// When it began, in milliseconds since 1970; `None` while none is under way.
    pub start_ms: Option<i64>,
    /// How long it may take before the coordinator aborts it, in milliseconds.
    pub timeout_ms: i32,
    /// Its producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The partitions that take part, as far as this principal may describe them.
    pub partitions: Vec<PartitionQuery>,
}

impl Admin {
    /// The producers that each partition's leader remembers.
    ///
    /// # Errors
    /// Per partition, as for [`list_offsets`](Self::list_offsets); READ on the topic is needed (29).
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_producers(
        &self,
        partitions: &[PartitionQuery],
        deadline: Instant,
    ) -> Results<Vec<ActiveProducer>> {
        self.cluster().send_each(&DescribeProducers, partitions, deadline).await
    }

    /// The transactions that each broker coordinates, by broker; those in one of `states`, or all if it is empty. Of a
    /// transaction whose transactional id this principal may not describe nothing is said.
    ///
    /// # Errors
    /// The list of brokers could not be had. Per broker, always named: it cannot be reached until `deadline`, or answers
    /// with a code.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn list_transactions(
        &self,
        states: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<i32, Result<Vec<TransactionListing>, SendError>>, SendError> {
        let view = self.cluster().refresh_topics::<&str>(&[], deadline).await?;
        let brokers: Vec<i32> = view.brokers().map(|broker| broker.node_id).collect();
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let results = self.cluster().send_each(&ListTransactions { states }, &brokers, deadline).await?;
        for (broker, listed) in brokers.iter().zip(&results) {
            let ids = listed.iter().flatten().map(|listed| listed.transactional_id.clone());
            self.cluster().learn_coordinator(*broker, ids.map(|id| Subject::Transaction(Some(id))));
        }
        Ok(brokers.into_iter().zip(results).collect())
    }
}

impl Admin {
    /// Transactions by their transactional ids, each asked of its coordinator.
    ///
    /// # Errors
    /// Per id: nobody has it (105), it may not be described (53), or its coordinator cannot be found or reached until
    /// `deadline`.
    ///
    /// # Cancel safety
    /// A dropped call loses its answer and nothing else.
    pub async fn describe_transactions(
        &self,
        transactional_ids: &[String],
        deadline: Instant,
    ) -> Results<TransactionDescription> {
        self.cluster().send_each(&DescribeTransactions, transactional_ids, deadline).await
    }
}

struct DescribeTransactions;

impl Call for DescribeTransactions {
    type Request = DescribeTransactionsRequest;
    type Item = String;
    type Answer = TransactionDescription;

    fn subject(&self, transactional_id: &String) -> Subject {
        Subject::Transaction(Some(transactional_id.clone()))
    }

    fn request(&self, items: &[Routed<'_, String>], _version: i16) -> DescribeTransactionsRequest {
        let transactional_ids = items.iter().map(|routed| routed.item.clone()).collect();
        DescribeTransactionsRequest { transactional_ids, ..DescribeTransactionsRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, String>],
        response: DescribeTransactionsResponse,
    ) -> Vec<ItemAnswer<TransactionDescription>> {
        let states = response.transaction_states.iter();
        let told: HashMap<&str, _> = states.map(|state| (state.transactional_id.as_str(), state)).collect();
        let answer = |routed: &Routed<'_, String>| match told.get(routed.item.as_str()) {
            None => ItemAnswer::LeftOut,
            Some(state) if state.error_code != ErrorCode::None => ItemAnswer::Code(state.error_code, None),
            Some(state) => ItemAnswer::Answer(transaction(state)),
        };
        items.iter().map(answer).collect()
    }
}

fn transaction(state: &TransactionState) -> TransactionDescription {
    let partitions = state.topics.iter().flat_map(|topic| {
        let name: Arc<str> = topic.topic.as_str().into();
        let of = move |partition: &i32| PartitionQuery { topic: Arc::clone(&name), partition: *partition };
        topic.partitions.iter().map(of)
    });
    TransactionDescription {
        transactional_id: state.transactional_id.clone(),
        state: state.transaction_state.clone(),
        start_ms: known(state.transaction_start_time_ms),
        timeout_ms: state.transaction_timeout_ms,
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        partitions: partitions.collect(),
    }
}

struct DescribeProducers;

impl Call for DescribeProducers {
    type Request = DescribeProducersRequest;
    type Item = PartitionQuery;
    type Answer = Vec<ActiveProducer>;

    fn subject(&self, item: &PartitionQuery) -> Subject {
        Subject::Partition { topic: item.topic.clone(), partition: item.partition }
    }

    fn request(&self, items: &[Routed<'_, PartitionQuery>], _version: i16) -> DescribeProducersRequest {
        let topics = by_topic(items.iter().map(|routed| &*routed.item.topic));
        let topics = topics.into_iter().map(|(topic, positions)| TopicRequest {
            name: topic.to_owned(),
            partition_indexes: positions.iter().map(|&at| items[at].item.partition).collect(),
            ..TopicRequest::default()
        });
        DescribeProducersRequest { topics: topics.collect(), ..DescribeProducersRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, PartitionQuery>],
        response: DescribeProducersResponse,
    ) -> Vec<ItemAnswer<Vec<ActiveProducer>>> {
        let mut told = HashMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                told.insert((topic.name.as_str(), partition.partition_index), partition);
            }
        }
        let answer = |routed: &Routed<'_, PartitionQuery>| match told
            .get(&(&*routed.item.topic, routed.item.partition))
        {
            None => ItemAnswer::LeftOut,
            Some(partition) if partition.error_code != ErrorCode::None => {
                ItemAnswer::Code(partition.error_code, partition.error_message.clone())
            }
            Some(partition) => {
                ItemAnswer::Answer(partition.active_producers.iter().map(active_producer).collect())
            }
        };
        items.iter().map(answer).collect()
    }
}

fn active_producer(state: &ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        last_sequence: (state.last_sequence >= 0).then_some(state.last_sequence),
        last_timestamp_ms: known(state.last_timestamp),
        transaction_start_offset: known(state.current_txn_start_offset),
    }
}

pub(super) struct ListTransactions {
    pub(super) states: Vec<String>,
}

impl Call for ListTransactions {
    type Request = ListTransactionsRequest;
    type Item = i32;
    type Answer = Vec<TransactionListing>;

    fn subject(&self, node_id: &i32) -> Subject {
        Subject::Broker(*node_id)
    }

    fn request(&self, _items: &[Routed<'_, i32>], _version: i16) -> ListTransactionsRequest {
        ListTransactionsRequest { state_filters: self.states.clone(), ..ListTransactionsRequest::default() }
    }

    fn answers(
        &self,
        items: &[Routed<'_, i32>],
        response: ListTransactionsResponse,
    ) -> Vec<ItemAnswer<Vec<TransactionListing>>> {
        let answer = match (response.error_code, response.unknown_state_filters.is_empty()) {
            (ErrorCode::None, true) => {
                let listed = response.transaction_states.into_iter().map(|state| TransactionListing {
                    transactional_id: state.transactional_id,
                    producer_id: state.producer_id,
                    state: state.transaction_state,
                });
                ItemAnswer::Answer(listed.collect())
            }
            (ErrorCode::None, false) => {
                let unknown = response.unknown_state_filters.join(", ");
                let message = format!("the broker knows no transaction state {unknown}");
                ItemAnswer::Code(ErrorCode::InvalidRequest, Some(message))
            }
            (code, _) => ItemAnswer::Code(code, None),
        };
        vec![answer; items.len()]
    }
}
