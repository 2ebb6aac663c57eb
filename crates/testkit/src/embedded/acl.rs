//! Who may do what: rights on topics, groups, transactional ids and the cluster.

use strandline_protocol::ErrorCode;

/// Who a connection without SASL is.
pub(crate) const ANONYMOUS: &str = "User:ANONYMOUS";

/// What a right is about. The name `*` stands for every one, as in Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A topic by its name.
    Topic(String),
    /// A consumer group by its id.
    Group(String),
    /// A transactional id.
    TransactionalId(String),
    /// The cluster.
    Cluster,
}

/// What may be done. As in Kafka, `Read`, `Write`, `Delete` and `Alter` hold `Describe`, and `AlterConfigs` holds
/// `DescribeConfigs`.
#[expect(missing_docs, reason = "Kafka's names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
    ClusterAction,
}

/// A right that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// `User:NAME`; without SASL a client is `User:ANONYMOUS`.
    pub principal: String,
    /// About what.
    pub resource: Resource,
    /// To do what.
    pub operation: Operation,
}

impl Acl {
    /// A right on a topic.
    pub fn topic(principal: &str, topic: &str, operation: Operation) -> Self {
        let resource = Resource::Topic(topic.to_owned());
        Self { principal: principal.to_owned(), resource, operation }
    }

    /// A right on a group.
    pub fn group(principal: &str, group: &str, operation: Operation) -> Self {
        let resource = Resource::Group(group.to_owned());
        Self { principal: principal.to_owned(), resource, operation }
    }

    /// A right on a transactional id.
    pub fn transactional_id(principal: &str, id: &str, operation: Operation) -> Self {
        let resource = Resource::TransactionalId(id.to_owned());
        Self { principal: principal.to_owned(), resource, operation }
    }

    /// A right on the cluster.
    pub fn cluster(principal: &str, operation: Operation) -> Self {
        Self { principal: principal.to_owned(), resource: Resource::Cluster, operation }
    }
}

impl Operation {
    /// Source: `AclEntry`, `StandardAuthorizerData`.
    fn holds(self, wanted: Self) -> bool {
        let describe = matches!(self, Self::Read | Self::Write | Self::Delete | Self::Alter);
        self == wanted
            || (wanted == Self::Describe && describe)
            || (wanted == Self::DescribeConfigs && self == Self::AlterConfigs)
    }
}

/// True if one of the rights allows it; `None` allows everything.
pub(crate) fn allows(
    acls: Option<&[Acl]>,
    principal: &str,
    resource: &Resource,
    operation: Operation,
) -> bool {
    let holds = |acl: &Acl| {
        acl.principal == principal && acl.resource.covers(resource) && acl.operation.holds(operation)
    };
    acls.is_none_or(|acls| acls.iter().any(holds))
}

impl Resource {
    fn covers(&self, other: &Self) -> bool {
        let every = match (self, other) {
            (Self::Topic(name), Self::Topic(_))
            | (Self::Group(name), Self::Group(_))
            | (Self::TransactionalId(name), Self::TransactionalId(_)) => name == "*",
            _ => false,
        };
        every || self == other
    }

    /// What a broker answers who may not.
    pub(crate) fn refusal(&self) -> ErrorCode {
        match self {
            Self::Topic(_) => ErrorCode::TopicAuthorizationFailed,
            Self::Group(_) => ErrorCode::GroupAuthorizationFailed,
            Self::TransactionalId(_) => ErrorCode::TransactionalIdAuthorizationFailed,
            Self::Cluster => ErrorCode::ClusterAuthorizationFailed,
        }
    }
}
