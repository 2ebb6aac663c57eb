//! Groups and transactions.

use crate::trace::{Trace, say};
use strandline_protocol::messages::offset_fetch::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use strandline_protocol::messages::{
    DescribeGroupsRequest, DescribeTransactionsRequest, FindCoordinatorRequest, ListGroupsRequest,
    ListTransactionsRequest, OffsetFetchRequest,
};
use strandline_protocol::{ApiKey, ErrorCode};
use tokio::time::{Duration, sleep};

impl Trace {
    pub(crate) async fn groups_and_transactions(&mut self) {
        let coordinator = |key_type| FindCoordinatorRequest {
            key: String::new(),
            key_type,
            coordinator_keys: vec!["some".to_owned()],
            ..FindCoordinatorRequest::default()
        };
        for kind in [0, 1] {
            let first = self.peer.call(4, &coordinator(kind)).await;
            say!(self, "FindCoordinator v4 of kind {kind}: {:?}", first.coordinators[0].error_code);
            loop {
                let found = self.peer.call(4, &coordinator(kind)).await.coordinators.remove(0);
                if found.error_code == ErrorCode::None {
                    say!(self, "  then {} {}", found.key, found.node_id);
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        loop {
            // A real broker takes a moment to load what it coordinates.
            let groups = self.peer.call(5, &ListGroupsRequest::default()).await;
            let transactions = self.peer.call(0, &describe_transaction()).await;
            let loading = [ErrorCode::CoordinatorLoadInProgress, ErrorCode::NotCoordinator];
            let codes = [groups.error_code, transactions.transaction_states[0].error_code];
            if !codes.iter().any(|code| loading.contains(code)) {
                say!(self, "ListGroups v5: {:?} {}", groups.error_code, groups.groups.len());
                let state = &transactions.transaction_states[0];
                say!(self, "DescribeTransactions v0: {:?} {:?}", state.error_code, state.transaction_state);
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        for version in [5, self.at_most(ApiKey::DescribeGroups, 6)] {
            let request =
                DescribeGroupsRequest { groups: vec!["some".to_owned()], ..DescribeGroupsRequest::default() };
            let group = self.peer.call(version, &request).await.groups.remove(0);
            say!(
                self,
                "DescribeGroups v{version}: {:?} {:?} {:?}",
                group.error_code,
                group.group_state,
                group.protocol_type
            );
        }
        let topic = OffsetFetchRequestTopics {
            name: "orders".to_owned(),
            partition_indexes: vec![0],
            ..OffsetFetchRequestTopics::default()
        };
        for topics in [None, Some(vec![topic])] {
            let group = OffsetFetchRequestGroup {
                group_id: "some".to_owned(),
                topics,
                member_epoch: -1,
                ..OffsetFetchRequestGroup::default()
            };
            let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
            let group = self.peer.call(9, &request).await.groups.remove(0);
            say!(self, "OffsetFetch v9: {:?}", group.error_code);
            for topic in group.topics {
                for it in topic.partitions {
                    let (code, offset, epoch) =
                        (it.error_code, it.committed_offset, it.committed_leader_epoch);
                    say!(self, "  {}: {code:?} {offset} {epoch} {:?}", topic.name, it.metadata);
                }
            }
        }
        for filter in [vec![], vec!["Ongoing".to_owned(), "Odd".to_owned()]] {
            let request = ListTransactionsRequest {
                state_filters: filter,
                duration_filter: -1,
                ..ListTransactionsRequest::default()
            };
            let response = self.peer.call(1, &request).await;
            let (unknown, count) = (response.unknown_state_filters, response.transaction_states.len());
            say!(self, "ListTransactions v1: {:?} unknown={unknown:?} {count}", response.error_code);
        }
    }
}

fn describe_transaction() -> DescribeTransactionsRequest {
    DescribeTransactionsRequest {
        transactional_ids: vec!["some".to_owned()],
        ..DescribeTransactionsRequest::default()
    }
}
