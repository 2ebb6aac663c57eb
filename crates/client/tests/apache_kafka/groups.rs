//! Groups and transactions of a real Apache Kafka, held against what Kafka's own tools print.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use strandline_client::admin::{Admin, PartitionQuery};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig, ErrorCode};
use strandline_testkit::apache::{ApacheKafka, Options};

use crate::soon;
use crate::writer::Transactions;

/// `GROUP TOPIC PARTITION OFFSET` of every offset that Kafka's tool prints.
fn described(kafka: &ApacheKafka) -> anyhow::Result<BTreeSet<String>> {
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let stdout = kafka.admin_tool(class, &["--describe", "--all-groups", "--offsets"])?;
    let rows = stdout.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>());
    let rows =
        rows.filter(|words| words.len() == 4 && words[0] != "GROUP" && words[3].parse::<i64>().is_ok());
    Ok(rows.map(|words| words.join(" ")).collect())
}

#[test]
#[ignore = "needs a real Apache Kafka: cargo xtask test runs it"]
fn groups_and_transactions_are_told_as_kafkas_own_tools_tell_them() -> anyhow::Result<()> {
    let kafka = ApacheKafka::start(Options { brokers: 3, tiered: false, ..Options::default() })?;
    let create = ["--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "3"];
    kafka.admin_tool("org.apache.kafka.tools.TopicCommand", &create)?;
    kafka.produce("orders", 300, 100)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let read_only =
        ClusterConfig::new(BrokerAddress::parse_list(&kafka.bootstrap())?, ConnectionConfig::default());
    runtime.block_on(async {
        let admin = Admin::new(&Cluster::connect(read_only.clone(), soon()).await?);
        let none = admin.groups_with_offsets(None, soon()).await?;
        ensure!(none.groups.is_empty() && none.failed_brokers.is_empty(), "{none:?}");
        let listed = admin.all_topics(soon()).await?;
        ensure!(listed.topic("__consumer_offsets").is_none(), "asking has created the coordinators' topic");
        anyhow::Ok(())
    })?;

    // Several ids, so that several brokers coordinate; two of them of the protocol of KIP-848.
    for (number, group) in ["billing", "search", "mail", "audit", "fraud", "stock"].into_iter().enumerate() {
        let records = (number * 20 + 10).to_string();
        let protocol = if number % 3 == 0 { "group.protocol=consumer" } else { "group.protocol=classic" };
        let arguments =
            ["--topic", "orders", "--from-beginning", "--max-messages", &records, "--group", group];
        let arguments = [&arguments[..], &["--timeout-ms", "30000", "--command-property", protocol]].concat();
        kafka.admin_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", &arguments)?;
    }
    runtime.block_on(async {
        let admin = Admin::new(&Cluster::connect(read_only.clone(), soon()).await?);
        let found = admin.groups_with_offsets(None, soon()).await?;
        ensure!(found.failed_brokers.is_empty(), "{:?}", found.failed_brokers);
        let mut ours = BTreeSet::new();
        for (group, offsets) in &found.groups {
            let offsets =
                offsets.as_ref().map_err(|error| anyhow::anyhow!("{}: {error:?}", group.group_id))?;
            for offset in offsets {
                let committed = offset.committed.as_ref().map_err(|code| anyhow::anyhow!("{code}"))?;
                let (topic, partition) = (&offset.topic, offset.partition);
                ours.insert(format!("{} {topic} {partition} {}", group.group_id, committed.next_offset));
            }
        }
        assert_eq!(ours, described(&kafka)?);
        ensure!(ours.len() >= 6, "{ours:?}");
        let types: BTreeSet<Option<&str>> =
            found.groups.iter().map(|(group, _)| group.group_type.as_deref()).collect();
        assert_eq!(types, BTreeSet::from([Some("classic"), Some("consumer")]));

        // For some partitions only.
        let one = [PartitionQuery { topic: "orders".into(), partition: 1 }];
        let of_one = admin.committed_offsets(&["search".to_owned()], Some(&one), soon()).await?.remove(0)?;
        ensure!(of_one.iter().all(|offset| offset.partition == 1) && of_one.len() == 1, "{of_one:?}");

        let asked = ["search", "billing", "nobody"].map(str::to_owned);
        let described = admin.describe_groups(&asked, soon()).await?;
        assert_eq!(described[0].as_ref().map(|group| group.state.as_str()).ok(), Some("Empty"));
        for (group, described) in asked.iter().zip(&described).skip(1) {
            // Of the new protocol, and none at all.
            let code = described.as_ref().err().and_then(strandline_meta::SendError::code);
            assert_eq!(code, Some(ErrorCode::GroupIdNotFound), "{group}");
        }

        let cluster = Cluster::connect(read_only.clone().read_write(), soon()).await?;
        let mut transaction = Transactions::begin(&cluster, "mover", "orders").await?;
        transaction.write(&["x"]).await?;
        let described =
            admin.describe_transactions(&["mover".to_owned(), "nobody".to_owned()], soon()).await?;
        let mover = described[0].as_ref().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        assert_eq!(
            (mover.state.as_str(), mover.producer_id, mover.timeout_ms),
            ("Ongoing", transaction.producer_id(), 600_000)
        );
        ensure!(mover.start_ms.is_some() && mover.partitions.len() == 1, "{mover:?}");
        let nobody = described[1].as_ref().err().and_then(strandline_meta::SendError::code);
        assert_eq!(nobody, Some(ErrorCode::TransactionalIdNotFound));
        let listed = admin.list_transactions(&["Ongoing"], soon()).await?;
        let coordinator =
            listed.iter().find(|(_, listed)| listed.as_ref().is_ok_and(|listed| !listed.is_empty()));
        let (coordinator, _) = coordinator.context("somebody lists it")?;
        let tool = "org.apache.kafka.tools.TransactionsCommand";
        let told = kafka.admin_tool(tool, &["describe", "--transactional-id", "mover"])?;
        let row: Vec<&str> = told.lines().nth(1).context("a row")?.split_whitespace().collect();
        assert_eq!(row.first().copied(), Some(coordinator.to_string().as_str()), "{told}");
        transaction.end(true).await
    })
}
