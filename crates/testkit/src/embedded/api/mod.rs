//! What each API answers: one file per API, and one table of the versions served.
//!
//! Rights are checked as Kafka's `StandardAuthorizer` does.

mod add_partitions_to_txn;
mod api_versions;
mod configs;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod describe_transactions;
mod end_txn;
mod fetch;
mod find_coordinator;
mod incremental_alter_configs;
mod init_producer_id;
mod list_groups;
mod list_offsets;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sasl_authenticate;
mod sasl_handshake;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use strandline_protocol::{ApiKey, ErrorCode, Request, VersionRange};

pub(crate) use fetch::FetchSession;

use super::Shared;
use super::acl::{self, Operation, Resource};
use super::sasl::Admission;
use super::server::Connection;
use super::state::State;

/// Whose version ranges a cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KafkaVersion {
    /// Kafka 3.9 in KRaft mode.
    V3_9,
    /// Kafka 4.0.
    V4_0,
    /// Kafka 4.3.
    V4_3,
    /// Kafka 4.4.
    V4_4,
}

impl KafkaVersion {
    /// All of them, the oldest first.
    pub const ALL: [Self; 4] = [Self::V3_9, Self::V4_0, Self::V4_3, Self::V4_4];
}

/// What is told about a request beside its body.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) broker: i32,
    pub(crate) connection: Arc<Connection>,
    pub(crate) version: i16,
    /// The code that the script wants in the answer.
    pub(crate) error: Option<ErrorCode>,
    pub(crate) throttle_ms: i32,
}

impl Call {
    /// The script's error, if it has one. Asked for each item before anything is done about it.
    fn check(&self) -> Result<(), ErrorCode> {
        self.error.map_or(Ok(()), Err)
    }
}

impl Call {
    /// The script's error, or that of a missing right.
    fn check_right(&self, state: &State, resource: &Resource, operation: Operation) -> Result<(), ErrorCode> {
        self.check()?;
        let authentication = self.connection.authentication();
        let principal = authentication.principal().unwrap_or(acl::ANONYMOUS);
        let is_super = self.shared.super_users.iter().any(|user| user == principal);
        match is_super || acl::allows(state.acls.as_deref(), principal, resource, operation) {
            true => Ok(()),
            false => Err(resource.refusal()),
        }
    }

    fn check_topic(&self, state: &State, topic: &str, operation: Operation) -> Result<(), ErrorCode> {
        self.check_right(state, &Resource::Topic(topic.to_owned()), operation)
    }

    fn check_group(&self, state: &State, group: &str, operation: Operation) -> Result<(), ErrorCode> {
        self.check_right(state, &Resource::Group(group.to_owned()), operation)
    }

    fn check_transactional_id(&self, state: &State, id: &str, operation: Operation) -> Result<(), ErrorCode> {
        self.check_right(state, &Resource::TransactionalId(id.to_owned()), operation)
    }

    /// The script's error wins; then `Some` if the right is given on any topic.
    fn may_somewhere(&self, state: &State, operation: Operation) -> Option<()> {
        let topic = |acl: &&acl::Acl| matches!(acl.resource, Resource::Topic(_));
        let mut topics = state.acls.iter().flatten().filter(topic);
        let found = topics.any(|acl| self.check_right(state, &acl.resource, operation).is_ok());
        (found && self.error.is_none()).then_some(())
    }

    fn check_cluster(&self, state: &State, operation: Operation) -> Result<(), ErrorCode> {
        self.check_right(state, &Resource::Cluster, operation)
    }
}

/// What a broker does about a request.
pub(crate) enum Answer {
    Body(Bytes),
    /// A body in version 0, whatever the request's version was.
    OldestBody(Bytes),
    /// A body after which the connection closes.
    LastBody(Bytes),
    /// Nothing, as after a Produce with acks=0.
    Nothing,
    Close,
}

/// The versions of an API in each Kafka, and the function that answers it.
macro_rules! apis {
    ($($api:ident $v3_9:tt $v4_0:tt $v4_3:tt $v4_4:tt $module:ident;)*) => {
        /// The versions that a broker of this Kafka serves, without those that this crate's messages do not have;
        /// `None` for an API that is not served.
        ///
        /// Source: the schemas of Kafka 3.9.1, 4.0.0, 4.3.1 and 4.4.0, without versions marked as unstable.
        pub(crate) fn versions(kafka: KafkaVersion, api: ApiKey) -> Option<VersionRange> {
            let range = match (api, kafka) {
                $(
                    (ApiKey::$api, KafkaVersion::V3_9) => apis!(@range $v3_9),
                    (ApiKey::$api, KafkaVersion::V4_0) => apis!(@range $v4_0),
                    (ApiKey::$api, KafkaVersion::V4_3) => apis!(@range $v4_3),
                    (ApiKey::$api, KafkaVersion::V4_4) => apis!(@range $v4_4),
                )*
                _ => return None,
            };
            api.versions().and_then(|known| known.intersect(range))
        }

        /// Answers a request.
        pub(crate) async fn answer(call: &mut Call, api: ApiKey, body: Bytes) -> Answer {
            let admission = call.connection.authentication().admission(api);
            match admission {
                Admission::Answer => {}
                Admission::Close => return Answer::Close,
                Admission::Refuse => call.error = Some(ErrorCode::IllegalSaslState),
            }
            let served = served_by(call, &call.shared.state(), api);
            if !served.is_some_and(|range| range.contains(call.version)) {
                return match api {
                    ApiKey::ApiVersions => api_versions::unknown_version(call),
                    // A broker closes the connection: it cannot even say the error in an unknown version.
                    _ => Answer::Close,
                };
            }
            let answer = match api {
                $(ApiKey::$api => $module::answer(call, body).await,)*
                _ => Answer::Close,
            };
            if admission == Admission::Refuse { last(answer) } else { answer }
        }
    };
    (@range ($first:literal - $last:literal)) => { VersionRange { first: $first, last: $last } };
}

apis! {
    // API                  3.9      4.0      4.3      4.4      answered in
    Produce                 (0 - 11) (3 - 12) (3 - 13) (3 - 13) produce;
    Fetch                   (0 - 17) (4 - 17) (4 - 18) (4 - 18) fetch;
    ListOffsets             (0 - 9)  (1 - 10) (1 - 11) (1 - 11) list_offsets;
    Metadata                (0 - 12) (0 - 13) (0 - 13) (0 - 13) metadata;
    OffsetCommit            (0 - 9)  (2 - 9)  (2 - 10) (2 - 10) offset_commit;
    OffsetFetch             (0 - 9)  (1 - 9)  (1 - 10) (1 - 10) offset_fetch;
    FindCoordinator         (0 - 6)  (0 - 6)  (0 - 6)  (0 - 6)  find_coordinator;
    DescribeGroups          (0 - 5)  (0 - 6)  (0 - 6)  (0 - 6)  describe_groups;
    ListGroups              (0 - 5)  (0 - 5)  (0 - 5)  (0 - 5)  list_groups;
    SaslHandshake           (0 - 1)  (0 - 1)  (0 - 1)  (0 - 1)  sasl_handshake;
    ApiVersions             (0 - 4)  (0 - 4)  (0 - 4)  (0 - 5)  api_versions;
    CreateTopics            (0 - 7)  (2 - 7)  (2 - 7)  (2 - 7)  create_topics;
    DeleteTopics            (0 - 6)  (1 - 6)  (1 - 6)  (1 - 6)  delete_topics;
    DeleteRecords           (0 - 2)  (0 - 2)  (0 - 2)  (0 - 2)  delete_records;
    InitProducerId          (0 - 5)  (0 - 5)  (0 - 5)  (0 - 5)  init_producer_id;
    OffsetForLeaderEpoch    (0 - 4)  (2 - 4)  (2 - 4)  (2 - 4)  offset_for_leader_epoch;
    AddPartitionsToTxn      (0 - 5)  (0 - 5)  (0 - 5)  (0 - 5)  add_partitions_to_txn;
    EndTxn                  (0 - 4)  (0 - 5)  (0 - 5)  (0 - 5)  end_txn;
    DescribeConfigs         (0 - 4)  (1 - 4)  (1 - 4)  (1 - 4)  describe_configs;
    DescribeLogDirs         (0 - 4)  (1 - 4)  (1 - 5)  (1 - 5)  describe_log_dirs;
    SaslAuthenticate        (0 - 2)  (0 - 2)  (0 - 2)  (0 - 2)  sasl_authenticate;
    CreatePartitions        (0 - 3)  (0 - 3)  (0 - 3)  (0 - 3)  create_partitions;
    IncrementalAlterConfigs (0 - 1)  (0 - 1)  (0 - 1)  (0 - 1)  incremental_alter_configs;
    DescribeCluster         (0 - 1)  (0 - 2)  (0 - 2)  (0 - 2)  describe_cluster;
    DescribeProducers       (0 - 0)  (0 - 0)  (0 - 0)  (0 - 0)  describe_producers;
    DescribeTransactions    (0 - 0)  (0 - 0)  (0 - 0)  (0 - 0)  describe_transactions;
    ListTransactions        (0 - 1)  (0 - 1)  (0 - 2)  (0 - 2)  list_transactions;
    DescribeTopicPartitions (0 - 0)  (0 - 0)  (0 - 0)  (0 - 0)  describe_topic_partitions;
}

/// The versions of an API that the broker of this call serves.
fn served_by(call: &Call, state: &State, api: ApiKey) -> Option<VersionRange> {
    let broker = state.brokers.get(&call.broker);
    if let Some(served) = broker.and_then(|broker| broker.versions.get(&api)) {
        return *served;
    }
    versions(broker.and_then(|broker| broker.kafka).unwrap_or(call.shared.version), api)
}

/// Answers from the state alone, without a wait.
fn from_state<R: Request>(
    call: &Call,
    body: Bytes,
    respond: impl FnOnce(&Call, &mut State, R) -> R::Response,
) -> Answer {
    let Ok(request) = R::decode(body, call.version) else { return Answer::Close };
    let response = respond(call, &mut call.shared.state(), request);
    encoded(call, &response)
}

/// A response in the version of the request.
fn encoded<M: strandline_protocol::Response>(call: &Call, response: &M) -> Answer {
    let mut out = BytesMut::new();
    match response.encode(call.version, &mut out) {
        Ok(()) => Answer::Body(out.freeze()),
        Err(error) => {
            panic!("the embedded broker cannot say its answer in version {}: {error}", call.version)
        }
    }
}

/// The same answer, after which the connection closes.
fn last(answer: Answer) -> Answer {
    match answer {
        Answer::Body(body) => Answer::LastBody(body),
        other => other,
    }
}
