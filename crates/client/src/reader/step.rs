//! What a reader does next after an error code in a Fetch answer: the one table, for every reader of this project.

use strandline_meta::{ErrorCode, Recovery};

/// What a reader does next after a code in a Fetch answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the records.
    Read,
    /// Ask the same broker again after back-off.
    Retry,
    /// Ask the same broker again after back-off, a few times: a damage on the way passes, one on its disk does not.
    RetryFewTimes,
    /// The view is old: refresh it, then follow the leader that it names. If the view shows the topic under another
    /// id by then, that is a typed end.
    Follow,
    /// Compare with the log's bounds: outside is a typed end, inside the broker lags behind and is asked again, a few times.
    OutOfRange,
    /// The right READ is missing: a typed end.
    Forbidden,
    /// A typed end that names the code.
    Fail,
}

impl Step {
    /// The row of a code. What is special about Fetch stands here; all else follows the table of every request.
    pub fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::OffsetOutOfRange => Self::OutOfRange,
            ErrorCode::CorruptMessage => Self::RetryFewTimes,
            // A broker that lags behind, or a topic created anew: only the view can tell.
            ErrorCode::UnknownTopicId | ErrorCode::InconsistentTopicId => Self::Follow,
            code => match Recovery::of(code) {
                Recovery::Proceed => Self::Read,
                Recovery::Retry => Self::Retry,
                Recovery::RefreshMetadata => Self::Follow,
                Recovery::Forbidden => Self::Forbidden,
                _ => Self::Fail,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_that_a_fetch_answer_can_hold_has_its_next_step() {
        // The codes that Kafka's broker and its FetchResponse name.
        let codes = [
            ErrorCode::None,
            ErrorCode::OffsetOutOfRange,
            ErrorCode::CorruptMessage,
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::ReplicaNotAvailable,
            ErrorCode::TopicAuthorizationFailed,
            ErrorCode::UnsupportedVersion,
            ErrorCode::KafkaStorageError,
            ErrorCode::FencedLeaderEpoch,
            ErrorCode::UnknownLeaderEpoch,
            ErrorCode::UnsupportedCompressionType,
            ErrorCode::OffsetNotAvailable,
            ErrorCode::UnknownTopicId,
            ErrorCode::InconsistentTopicId,
            ErrorCode::UnknownServerError,
        ];
        let shown: Vec<_> = codes.iter().map(|code| format!("{code} {:?}", Step::of(*code))).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        NONE Read
        OFFSET_OUT_OF_RANGE OutOfRange
        CORRUPT_MESSAGE RetryFewTimes
        UNKNOWN_TOPIC_OR_PARTITION Follow
        NOT_LEADER_OR_FOLLOWER Follow
        REPLICA_NOT_AVAILABLE Follow
        TOPIC_AUTHORIZATION_FAILED Forbidden
        UNSUPPORTED_VERSION Fail
        KAFKA_STORAGE_ERROR Follow
        FENCED_LEADER_EPOCH Follow
        UNKNOWN_LEADER_EPOCH Retry
        UNSUPPORTED_COMPRESSION_TYPE Fail
        OFFSET_NOT_AVAILABLE Retry
        UNKNOWN_TOPIC_ID Follow
        INCONSISTENT_TOPIC_ID Follow
        UNKNOWN_SERVER_ERROR Fail
        ");
    }
}
