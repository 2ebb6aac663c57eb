//! The questions of [`Admin`], put to a real Apache Kafka of three brokers, while its leaders move; and a partition of it, read.

mod groups;
mod producer;
mod reader;
mod writer;

use std::time::Duration;

use strandline_client::admin::{
    Admin, ConfigQuery, EpochEnd, EpochQuery, Isolation, OffsetQuery, OffsetSpec, PartitionQuery,
};
use strandline_meta::{
    BrokerAddress, Cluster, ClusterConfig, ConnectionConfig, ErrorCode, RefreshError, SendError,
};
use strandline_testkit::apache::{ApacheKafka, Options, READER};
use tokio::time::Instant;

const PARTITIONS: i32 = 3;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

async fn admin(addresses: &str, connection: ConnectionConfig) -> anyhow::Result<Admin> {
    let addresses = BrokerAddress::parse_list(addresses)?;
    Ok(Admin::new(&Cluster::connect(ClusterConfig::new(addresses, connection), soon()).await?))
}

fn every_partition(spec: OffsetSpec) -> Vec<OffsetQuery> {
    (0..PARTITIONS).map(|partition| OffsetQuery { topic: "orders".into(), partition, spec }).collect()
}

async fn ends(admin: &Admin) -> Result<Vec<Option<i64>>, SendError> {
    let queries = every_partition(OffsetSpec::Latest);
    let ends = admin.list_offsets(&queries, Isolation::ReadUncommitted, soon()).await?;
    ends.into_iter().map(|end| end.map(|end| end.offset)).collect()
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn every_question_is_answered_before_and_after_a_leader_is_killed() -> anyhow::Result<()> {
    let kafka = ApacheKafka::start(Options { brokers: 3, ..Options::default() })?;
    kafka.create_tiered_topic("orders", PARTITIONS as u32, &[])?;
    kafka.produce("orders", 10_000, 500)?;
    let tiered = kafka.wait_until_copied("orders")?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let admin = admin(&kafka.bootstrap(), ConnectionConfig::default()).await?;
        let before = ends(&admin).await?;
        assert_eq!(before.iter().flatten().sum::<i64>(), 10_000);
        let last_tiered = admin
            .list_offsets(&every_partition(OffsetSpec::LatestTiered), Isolation::ReadUncommitted, soon())
            .await?;
        for (listed, partition) in last_tiered.into_iter().zip(0..) {
            assert_eq!(listed?.offset, tiered.get(&partition).copied().filter(|offset| *offset >= 0));
        }
        facts(&admin).await?;

        let view = admin.all_topics(soon()).await?;
        let leader =
            view.partition("orders", 0).and_then(|partition| partition.leader).expect("it has a leader");
        kafka.kill_broker(leader.try_into()?)?;
        assert_eq!(ends(&admin).await?, before);
        let view = admin.cluster().snapshot();
        let moved = view.partition("orders", 0).expect("the partition is known");
        assert!(moved.leader != Some(leader) && moved.leader_epoch > Some(0), "{moved:?}");
        let epochs = [0, moved.leader_epoch.expect("a leader has an epoch")].map(|leader_epoch| EpochQuery {
            topic: "orders".into(),
            partition: 0,
            leader_epoch,
        });
        let mut found = Vec::new();
        for end in admin.offsets_for_leader_epochs(&epochs, soon()).await? {
            found.push(end?);
        }
        // Nothing was written in the new epoch: both end where the log does.
        let end_offset = before[0].expect("it has records");
        let expected = epochs.map(|query| Some(EpochEnd { leader_epoch: query.leader_epoch, end_offset }));
        assert_eq!(found, expected);
        anyhow::Ok(())
    })
}

async fn facts(admin: &Admin) -> anyhow::Result<()> {
    let cluster = admin.describe_cluster(soon()).await?;
    assert_eq!(cluster.brokers.iter().map(|broker| broker.node_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(Some(cluster.cluster_id.as_str()), admin.cluster().snapshot().cluster_id());

    let log_dirs = admin.describe_log_dirs(None, soon()).await?;
    assert_eq!(log_dirs.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    for dirs in log_dirs.into_values() {
        assert!(dirs?.iter().flat_map(|dir| &dir.replicas).any(|replica| replica.topic == "orders"));
    }

    let queries = [
        ConfigQuery::topic("orders").only(["remote.storage.enable"]),
        ConfigQuery::broker(3).only(["node.id"]),
    ];
    let mut values = Vec::new();
    for configs in admin.describe_configs(&queries, soon()).await? {
        values.extend(configs?.into_iter().map(|config| config.value));
    }
    assert_eq!(values, [Some("true".to_owned()), Some("3".to_owned())]);
    let unknown = admin.describe_configs(&[ConfigQuery::topic("ordres")], soon()).await?.remove(0);
    assert_eq!(unknown.expect_err("there is no such topic").code(), Some(ErrorCode::UnknownTopicOrPartition));

    let partition = PartitionQuery { topic: "orders".into(), partition: 0 };
    assert!(admin.describe_producers(&[partition], soon()).await?.remove(0).is_ok());
    assert_eq!(admin.list_transactions(&[], soon()).await?.len(), 3);

    // Asking for a topic by a wrong name must not create it.
    assert!(admin.topics_by_name(&["ordres"], soon()).await?["ordres"].is_err());
    assert!(admin.all_topics(soon()).await?.topic("ordres").is_none());
    Ok(())
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn without_rights_each_question_names_what_is_missing() -> anyhow::Result<()> {
    let kafka = ApacheKafka::start(Options::default())?;
    kafka.create_tiered_topic("orders", PARTITIONS as u32, &[])?;
    let credentials = |password: &str| strandline_conn::Credentials {
        username: READER.0.to_owned(),
        password: strandline_conn::Password::new(password),
    };
    let connection = |password| ConnectionConfig {
        sasl: Some(strandline_conn::SaslConfig::Plain(credentials(password))),
        ..ConnectionConfig::default()
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let wrong = admin(&kafka.sasl(), connection("wrong")).await.expect_err("the password is wrong");
        let wrong = wrong.downcast::<RefreshError>()?;
        assert_eq!(wrong.recovery(), strandline_meta::Recovery::Authenticate);

        let admin = admin(&kafka.sasl(), connection(READER.1)).await?;
        let listed = admin.all_topics(soon()).await?;
        assert!(listed.topic("orders").is_none(), "a full list leaves it out without a word");
        let named = admin.topics_by_name(&["orders"], soon()).await?;
        assert_eq!(named["orders"], Err(ErrorCode::TopicAuthorizationFailed));
        let offsets = admin
            .list_offsets(&every_partition(OffsetSpec::Latest), Isolation::ReadUncommitted, soon())
            .await?;
        for offset in offsets {
            assert_eq!(offset.expect_err("no right").code(), Some(ErrorCode::TopicAuthorizationFailed));
        }
        let configs = admin.describe_configs(&[ConfigQuery::topic("orders")], soon()).await?.remove(0);
        assert_eq!(configs.expect_err("no right").code(), Some(ErrorCode::TopicAuthorizationFailed));
        let log_dirs = admin.describe_log_dirs(None, soon()).await?.remove(&1).expect("broker 1 is named");
        assert_eq!(log_dirs.expect_err("no right").code(), Some(ErrorCode::ClusterAuthorizationFailed));
        anyhow::Ok(())
    })
}
