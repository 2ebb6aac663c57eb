//! With READ and DESCRIBE on the topic alone everything is read, and nothing is sent that would write.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use strandline_conn::{Credentials, Observer, Password, RequestEvent, SaslConfig};
use strandline_log::{KafkaMetadataEventLog, KafkaMetadataLogConfig, METADATA_TOPIC, OpenLogError};
use strandline_meta::{BrokerAddress, Cluster, ClusterConfig, ConnectionConfig};
use strandline_rlmm::RemoteLogMetadataManagerConfig;
use strandline_testkit::apache::{ApacheKafka, READER};
use tokio::task::block_in_place;

use crate::agreement::Told;
use crate::history::History;
use crate::java_writes::WITH_RETENTION;
use crate::topic::{self, Manager, events, while_nobody_writes};
use crate::{soon, we_write};

/// Which requests went out.
#[derive(Debug, Default)]
struct Journal(Mutex<BTreeSet<String>>);

impl Observer for Journal {
    fn on_request(&self, event: &RequestEvent<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(event.api.to_string());
    }
}

pub(crate) async fn suffice_for_reading(kafka: &ApacheKafka, cluster: &Cluster) -> anyhow::Result<()> {
    let principal = format!("User:{}", READER.0);
    let arguments =
        ["--add", "--allow-principal", &principal, "--operation", "Read", "--operation", "Describe"];
    let arguments = [&arguments[..], &["--topic", METADATA_TOPIC]].concat();
    block_in_place(|| kafka.admin_tool("org.apache.kafka.tools.AclCommand", &arguments))?;

    let journal = Arc::<Journal>::default();
    let credentials = Credentials { username: READER.0.to_owned(), password: Password::new(READER.1) };
    let connection = ConnectionConfig {
        sasl: Some(SaslConfig::Plain(credentials)),
        observer: Arc::<Journal>::clone(&journal),
        ..ConnectionConfig::default()
    };
    let config = ClusterConfig::new(BrokerAddress::parse_list(&kafka.sasl())?, connection);
    let reader = Cluster::connect(config, soon()).await?;
    let log = opened(&reader).await?;
    let with_every_right = topic::log(cluster).await?;
    let manager = Manager::start(log.clone(), RemoteLogMetadataManagerConfig::default())?;
    while_nobody_writes(kafka, async || {
        let read = events(&log).await.context("high_water_marks and visit_ranges")?;
        ensure!(!read.is_empty() && read == events(&with_every_right).await?, "the same events");
        Told::by_java(kafka)?.hold_against(&manager).await
    })
    .await?;
    let partition = topic::partitions(cluster, WITH_RETENTION).await?.remove(0);
    let event = History::new(partition, 1).next();
    let refused =
        we_write::write(&manager, event).await.err().context("a log that is only read takes nothing")?;
    ensure!(!refused.may_be_written(), "{refused}");
    manager.close().await;

    let sent = journal.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let may_be_sent = [
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "Metadata",
        "ListOffsets",
        "Fetch",
        "OffsetForLeaderEpoch",
    ];
    let others: Vec<_> = sent.iter().filter(|api| !may_be_sent.contains(&&***api)).collect();
    ensure!(others.is_empty(), "it sends {others:?}");
    ensure!(sent.contains("Fetch") && sent.contains("ListOffsets"), "the journal holds {sent:?}");
    Ok(())
}

/// A right takes a moment to reach every broker.
async fn opened(reader: &Cluster) -> anyhow::Result<KafkaMetadataEventLog> {
    let deadline = soon();
    loop {
        match KafkaMetadataEventLog::open_read_only(reader, KafkaMetadataLogConfig::default(), soon()).await {
            Err(OpenLogError::Forbidden { .. }) if tokio::time::Instant::now() < deadline => {}
            opened => return Ok(opened?),
        }
    }
}
