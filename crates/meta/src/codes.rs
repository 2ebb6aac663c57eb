//! Where the error codes lie inside each response.

use std::iter::{empty, once};

use strandline_conn::Recovery;
use strandline_protocol::messages::{
    ApiVersionsResponse, CreatePartitionsResponse, CreateTopicsResponse, DeleteRecordsResponse,
    DeleteTopicsResponse, DescribeClusterResponse, DescribeConfigsResponse, DescribeGroupsResponse,
    DescribeLogDirsResponse, DescribeProducersResponse, DescribeTopicPartitionsResponse,
    DescribeTransactionsResponse, EndTxnResponse, FetchResponse, FindCoordinatorResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, ListGroupsResponse, ListOffsetsResponse,
    ListTransactionsResponse, MetadataResponse, OffsetCommitResponse, OffsetFetchResponse,
    OffsetForLeaderEpochResponse, ProduceResponse,
};
use strandline_protocol::{ErrorCode, Response};

use crate::hints::LeaderHints;

/// A response that can be asked for every error code in it, also those deep inside.
pub trait Codes: Response {
    /// Calls `visit` with each code of the response, [`ErrorCode::None`] included.
    fn visit_codes(&self, visit: &mut dyn FnMut(ErrorCode));

    /// Leaders that the broker names beside its refusals (KIP-951); most responses have no room for them.
    fn leader_hints(&self) -> LeaderHints {
        LeaderHints::default()
    }

    /// The first code that says that the caller's view of the cluster is old, or that a coordinator is not ready yet; `None`
    /// if there is none.
    fn stale_view(&self) -> Option<ErrorCode> {
        let mut stale = None;
        self.visit_codes(&mut |code| {
            let says_so = match Recovery::of(code) {
                Recovery::RefreshMetadata
                | Recovery::FindController
                | Recovery::FindCoordinator
                | Recovery::Rebootstrap => true,
                // The right coordinator, which has yet to read its state.
                Recovery::Retry => code == ErrorCode::CoordinatorLoadInProgress,
                Recovery::Proceed
                | Recovery::RestartSession
                | Recovery::Redial
                | Recovery::Authenticate
                | Recovery::Forbidden
                | Recovery::Fail => false,
            };
            if stale.is_none() && says_so {
                stale = Some(code);
            }
        });
        stale
    }
}

fn is_about_the_coordinator(code: ErrorCode) -> bool {
    code == ErrorCode::CoordinatorLoadInProgress || Recovery::of(code) == Recovery::FindCoordinator
}

macro_rules! codes {
    ($($(#[$why:meta])* $name:ident: |$response:ident| $codes:expr $(, hints: $hints:expr)?;)*) => {$(
        $(#[$why])*
        impl Codes for $name {
            fn visit_codes(&self, visit: &mut dyn FnMut(ErrorCode)) {
                let $response = self;
                $codes.for_each(visit);
            }

            $(fn leader_hints(&self) -> LeaderHints {
                let $response = self;
                $hints
            })?
        }
    )*};
}

codes! {
    ApiVersionsResponse: |answer| once(answer.error_code);
    DescribeClusterResponse: |answer| once(answer.error_code);
    /// Only the code of the whole answer: what is said about a topic is the answer, not a reason to ask again.
    MetadataResponse: |answer| once(answer.error_code);
    /// As with Metadata, and there is no code of the whole.
    DescribeTopicPartitionsResponse: |_answer| empty();

    FetchResponse: |answer| once(answer.error_code)
        .chain(answer.responses.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code)),
        hints: LeaderHints::of_fetch(answer);
    ProduceResponse: |answer| answer.responses.iter()
        .flat_map(|topic| &topic.partition_responses).map(|partition| partition.error_code),
        hints: LeaderHints::of_produce(answer);
    ListOffsetsResponse: |answer| answer.topics.iter()
        .flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
    OffsetForLeaderEpochResponse: |answer| answer.topics.iter()
        .flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
    DeleteRecordsResponse: |answer| answer.topics.iter()
        .flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
    DescribeProducersResponse: |answer| answer.topics.iter()
        .flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);

    CreateTopicsResponse: |answer| answer.topics.iter().map(|topic| topic.error_code);
    DeleteTopicsResponse: |answer| answer.responses.iter().map(|topic| topic.error_code);
    CreatePartitionsResponse: |answer| answer.results.iter().map(|topic| topic.error_code);
    DescribeConfigsResponse: |answer| answer.results.iter().map(|resource| resource.error_code);
    IncrementalAlterConfigsResponse: |answer| answer.responses.iter().map(|resource| resource.error_code);

    /// Codes of directories are the caller's: a failed disk (56) is what was asked about, not a stale view.
    DescribeLogDirsResponse: |answer| once(answer.error_code);

    FindCoordinatorResponse: |answer| once(answer.error_code)
        .chain(answer.coordinators.iter().map(|coordinator| coordinator.error_code));
    ListGroupsResponse: |answer| once(answer.error_code);
    DescribeGroupsResponse: |answer| answer.groups.iter().map(|group| group.error_code);
    /// Of the codes of partitions only those about the coordinator, which version 1 has no other room for: a topic that is
    /// gone (3) is what was asked about.
    OffsetFetchResponse: |answer| once(answer.error_code)
        .chain(answer.groups.iter().map(|group| group.error_code))
        .chain(answer.topics.iter().flat_map(|topic| &topic.partitions)
            .map(|partition| partition.error_code).filter(|code| is_about_the_coordinator(*code)));
    ListTransactionsResponse: |answer| once(answer.error_code);
    DescribeTransactionsResponse: |answer| answer.transaction_states.iter().map(|state| state.error_code);
    InitProducerIdResponse: |answer| once(answer.error_code);
    EndTxnResponse: |answer| once(answer.error_code);
    OffsetCommitResponse: |answer| answer.topics.iter()
        .flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
}

#[cfg(test)]
mod tests {
    use strandline_protocol::messages::*;

    use super::*;

    /// A response with one item at the end of the path, which has the code.
    macro_rules! with {
        ($code:expr, $response:ident) => {
            $response { error_code: $code, ..Default::default() }
        };
        ($code:expr, $response:ident . $items:ident: $item:path) => {
            $response {
                $items: vec![{
                    let mut item = <$item>::default();
                    item.error_code = $code;
                    item
                }],
                ..Default::default()
            }
        };
        ($code:expr, $response:ident . $topics:ident: $topic:path, $items:ident: $item:path) => {
            $response {
                $topics: vec![{
                    let mut topic = <$topic>::default();
                    let mut item = <$item>::default();
                    item.error_code = $code;
                    topic.$items = vec![item];
                    topic
                }],
                ..Default::default()
            }
        };
    }

    fn told(response: &impl Codes) -> (Option<ErrorCode>, usize) {
        let mut codes = 0;
        response.visit_codes(&mut |_| codes += 1);
        (response.stale_view(), codes)
    }

    #[test]
    fn every_response_that_is_sent_tells_its_codes() {
        for code in [
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::NotController,
            ErrorCode::NotCoordinator,
            ErrorCode::CoordinatorLoadInProgress,
            ErrorCode::RebootstrapRequired,
        ] {
            let all: Vec<(&str, (Option<ErrorCode>, usize))> = vec![
                ("ApiVersions", told(&with!(code, ApiVersionsResponse))),
                ("DescribeCluster", told(&with!(code, DescribeClusterResponse))),
                ("Metadata", told(&with!(code, MetadataResponse))),
                ("DescribeLogDirs", told(&with!(code, DescribeLogDirsResponse))),
                ("FindCoordinator", told(&with!(code, FindCoordinatorResponse))),
                ("ListGroups", told(&with!(code, ListGroupsResponse))),
                ("ListTransactions", told(&with!(code, ListTransactionsResponse))),
                ("InitProducerId", told(&with!(code, InitProducerIdResponse))),
                ("EndTxn", told(&with!(code, EndTxnResponse))),
                ("Fetch", told(&with!(code, FetchResponse))),
                ("OffsetFetch", told(&with!(code, OffsetFetchResponse))),
                (
                    "Fetch, a partition",
                    told(&with!(
                        code,
                        FetchResponse.responses: fetch::FetchableTopicResponse,
                        partitions: fetch::PartitionData
                    )),
                ),
                (
                    "Produce",
                    told(&with!(
                        code,
                        ProduceResponse.responses: produce::TopicProduceResponse,
                        partition_responses: produce::PartitionProduceResponse
                    )),
                ),
                (
                    "ListOffsets",
                    told(&with!(
                        code,
                        ListOffsetsResponse.topics: list_offsets::ListOffsetsTopicResponse,
                        partitions: list_offsets::ListOffsetsPartitionResponse
                    )),
                ),
                (
                    "OffsetForLeaderEpoch",
                    told(&with!(
                        code,
                        OffsetForLeaderEpochResponse.topics: offset_for_leader_epoch::OffsetForLeaderTopicResult,
                        partitions: offset_for_leader_epoch::EpochEndOffset
                    )),
                ),
                (
                    "DeleteRecords",
                    told(&with!(
                        code,
                        DeleteRecordsResponse.topics: delete_records::DeleteRecordsTopicResult,
                        partitions: delete_records::DeleteRecordsPartitionResult
                    )),
                ),
                (
                    "DescribeProducers",
                    told(&with!(
                        code,
                        DescribeProducersResponse.topics: describe_producers::TopicResponse,
                        partitions: describe_producers::PartitionResponse
                    )),
                ),
                (
                    "OffsetCommit",
                    told(&with!(
                        code,
                        OffsetCommitResponse.topics: offset_commit::OffsetCommitResponseTopic,
                        partitions: offset_commit::OffsetCommitResponsePartition
                    )),
                ),
                (
                    "CreateTopics",
                    told(&with!(code, CreateTopicsResponse.topics: create_topics::CreatableTopicResult)),
                ),
                (
                    "DeleteTopics",
                    told(&with!(code, DeleteTopicsResponse.responses: delete_topics::DeletableTopicResult)),
                ),
                (
                    "CreatePartitions",
                    told(&with!(
                        code,
                        CreatePartitionsResponse.results: create_partitions::CreatePartitionsTopicResult
                    )),
                ),
                (
                    "DescribeConfigs",
                    told(&with!(
                        code,
                        DescribeConfigsResponse.results: describe_configs::DescribeConfigsResult
                    )),
                ),
                (
                    "IncrementalAlterConfigs",
                    told(&with!(
                        code,
                        IncrementalAlterConfigsResponse.responses:
                            incremental_alter_configs::AlterConfigsResourceResponse
                    )),
                ),
                (
                    "FindCoordinator, a key",
                    told(&with!(code, FindCoordinatorResponse.coordinators: find_coordinator::Coordinator)),
                ),
                (
                    "DescribeGroups",
                    told(&with!(code, DescribeGroupsResponse.groups: describe_groups::DescribedGroup)),
                ),
                (
                    "OffsetFetch, a group",
                    told(&with!(code, OffsetFetchResponse.groups: offset_fetch::OffsetFetchResponseGroup)),
                ),
                (
                    "DescribeTransactions",
                    told(&with!(
                        code,
                        DescribeTransactionsResponse.transaction_states: describe_transactions::TransactionState
                    )),
                ),
            ];
            for (what, (stale, codes)) in all {
                assert_eq!(stale, Some(code), "{what}");
                assert!((1..=2).contains(&codes), "{what}: {codes} codes");
            }
        }
    }

    #[test]
    fn what_was_asked_about_is_an_answer_and_no_reason_to_ask_again() {
        // A disk that failed, a topic that is gone: said of what the request names.
        let disk = with!(
            ErrorCode::KafkaStorageError,
            DescribeLogDirsResponse.results: describe_log_dirs::DescribeLogDirsResult
        );
        assert_eq!(disk.stale_view(), None);
        let topic = with!(
            ErrorCode::UnknownTopicOrPartition,
            MetadataResponse.topics: metadata::MetadataResponseTopic
        );
        assert_eq!(topic.stale_view(), None);
        let gone = |code| {
            with!(
                code,
                OffsetFetchResponse.topics: offset_fetch::OffsetFetchResponseTopic,
                partitions: offset_fetch::OffsetFetchResponsePartition
            )
        };
        assert_eq!(gone(ErrorCode::UnknownTopicOrPartition).stale_view(), None);
        assert_eq!(gone(ErrorCode::NotCoordinator).stale_view(), Some(ErrorCode::NotCoordinator));
        let refused = with!(ErrorCode::GroupAuthorizationFailed, ListGroupsResponse);
        assert_eq!(refused.stale_view(), None);
    }
}
