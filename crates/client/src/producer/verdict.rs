//! What an error code in a Produce answer comes to: the one table of the producer.

use strandline_meta::{ErrorCode, Recovery};

/// What is done next with the batch that a code is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is in the log.
    Done,
    /// Send it again to the same broker after back-off.
    Retry,
    /// The view is old: refresh it, then send it again to whoever leads now.
    Follow,
    /// Send it again in two halves.
    Split,
    /// The sequence does not follow what the log holds, so the batch is not in it: send it in the next epoch.
    BumpEpoch,
    /// The broker knows nothing of this producer (KIP-360): send it in the next epoch, if it was not appended before.
    StateLost,
    /// Somebody else writes under this producer id.
    Fenced,
    /// Repeating it does not help.
    Fail,
}

/// What a code says of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) next: Next,
    /// The broker may have appended the batch and failed afterwards.
    pub(super) in_doubt: bool,
}

impl Verdict {
    /// The row of a code.
    ///
    /// A code leaves no doubt where a broker gives it before it appends, and only before. NOT_LEADER_OR_FOLLOWER is not of
    /// that kind: a leader that is deposed while it waits for its followers says so, too, and the record may live on.
    ///
    /// Source: `UnifiedLog#append`, `LogValidator`, `ProducerAppendInfo`, `ReplicaManager#appendRecords`, `DelayedProduce`.
    pub(super) fn of(code: ErrorCode) -> Self {
        let certain = |next| Self { next, in_doubt: false };
        match code {
            // The broker has it from an earlier try.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => certain(Next::Done),
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => certain(Next::Split),
            ErrorCode::OutOfOrderSequenceNumber => certain(Next::BumpEpoch),
            ErrorCode::UnknownProducerId => certain(Next::StateLost),
            ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced => certain(Next::Fenced),
            ErrorCode::CorruptMessage
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
            | ErrorCode::ThrottlingQuotaExceeded
            | ErrorCode::InvalidTopicException
            | ErrorCode::InvalidRequiredAcks
            | ErrorCode::TopicAuthorizationFailed
            | ErrorCode::ClusterAuthorizationFailed
            | ErrorCode::InvalidTimestamp
            | ErrorCode::UnsupportedVersion
            | ErrorCode::InvalidRequest
            | ErrorCode::UnsupportedForMessageFormat
            | ErrorCode::PolicyViolation
            | ErrorCode::UnsupportedCompressionType
            | ErrorCode::InvalidRecord => certain(Self::next(code)),
            code => Self { next: Self::next(code), in_doubt: true },
        }
    }

    fn next(code: ErrorCode) -> Next {
        match Recovery::of(code) {
            Recovery::Proceed => Next::Done,
            Recovery::Retry => Next::Retry,
            Recovery::RefreshMetadata
            | Recovery::FindCoordinator
            | Recovery::FindController
            | Recovery::Redial
            | Recovery::Rebootstrap => Next::Follow,
            Recovery::RestartSession | Recovery::Authenticate | Recovery::Forbidden | Recovery::Fail => {
                Next::Fail
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_that_a_produce_answer_can_hold_has_its_verdict() {
        // The codes that Kafka's broker and its ProduceResponse name, and one that no Kafka has.
        let codes = [
            ErrorCode::None,
            ErrorCode::UnknownServerError,
            ErrorCode::CorruptMessage,
            ErrorCode::UnknownTopicOrPartition,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::RequestTimedOut,
            ErrorCode::MessageTooLarge,
            ErrorCode::InvalidTopicException,
            ErrorCode::RecordListTooLarge,
            ErrorCode::NotEnoughReplicas,
            ErrorCode::NotEnoughReplicasAfterAppend,
            ErrorCode::InvalidRequiredAcks,
            ErrorCode::TopicAuthorizationFailed,
            ErrorCode::ClusterAuthorizationFailed,
            ErrorCode::InvalidTimestamp,
            ErrorCode::UnsupportedForMessageFormat,
            ErrorCode::OutOfOrderSequenceNumber,
            ErrorCode::DuplicateSequenceNumber,
            ErrorCode::InvalidProducerEpoch,
            ErrorCode::KafkaStorageError,
            ErrorCode::UnknownProducerId,
            ErrorCode::UnsupportedCompressionType,
            ErrorCode::InvalidRecord,
            ErrorCode::ProducerFenced,
            ErrorCode::UnknownTopicId,
            ErrorCode::InconsistentTopicId,
            ErrorCode::Unknown(9999),
        ];
        let shown: Vec<_> = codes
            .iter()
            .map(|code| {
                let Verdict { next, in_doubt } = Verdict::of(*code);
                format!("{code} {next:?}{}", if in_doubt { ", perhaps appended" } else { "" })
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        NONE Done
        UNKNOWN_SERVER_ERROR Fail, perhaps appended
        CORRUPT_MESSAGE Retry
        UNKNOWN_TOPIC_OR_PARTITION Follow, perhaps appended
        NOT_LEADER_OR_FOLLOWER Follow, perhaps appended
        REQUEST_TIMED_OUT Retry, perhaps appended
        MESSAGE_TOO_LARGE Split
        INVALID_TOPIC_EXCEPTION Fail
        RECORD_LIST_TOO_LARGE Split
        NOT_ENOUGH_REPLICAS Retry
        NOT_ENOUGH_REPLICAS_AFTER_APPEND Retry, perhaps appended
        INVALID_REQUIRED_ACKS Fail
        TOPIC_AUTHORIZATION_FAILED Fail
        CLUSTER_AUTHORIZATION_FAILED Fail
        INVALID_TIMESTAMP Fail
        UNSUPPORTED_FOR_MESSAGE_FORMAT Fail
        OUT_OF_ORDER_SEQUENCE_NUMBER BumpEpoch
        DUPLICATE_SEQUENCE_NUMBER Done
        INVALID_PRODUCER_EPOCH Fenced
        KAFKA_STORAGE_ERROR Follow, perhaps appended
        UNKNOWN_PRODUCER_ID StateLost
        UNSUPPORTED_COMPRESSION_TYPE Fail
        INVALID_RECORD Fail
        PRODUCER_FENCED Fenced
        UNKNOWN_TOPIC_ID Follow
        INCONSISTENT_TOPIC_ID Follow
        error code 9999 Fail, perhaps appended
        ");
    }
}
