//! The cluster behind the bootstrap addresses: who belongs to it, and whether each broker can be reached where it says.

use std::sync::Arc;

use futures::future::join_all;
use strandline_client::admin::Admin;
use strandline_conn::{ConnectError, Connection, ConnectionConfig, PeerIdentity, Target};
use strandline_meta::{Broker, Cluster};
use tokio::time::Instant;

use super::check::{Check, Section};
use super::connection::{kafka, millis};
use crate::sources::{chain, connect_exit, connect_hint};

/// Most brokers that are dialled at the same time.
const AT_ONCE: usize = 32;

/// The cluster itself, then each broker.
pub(super) async fn check(cluster: &Cluster, config: &Arc<ConnectionConfig>, bootstrap: &str) -> Vec<Check> {
    let view = cluster.snapshot();
    let cluster_id = view.cluster_id().map(str::to_owned);
    let brokers: Vec<Broker> = view.brokers().cloned().collect();
    let controller = view.controller_id().map_or("no controller".to_owned(), |id| format!("controller {id}"));
    let id = cluster_id.as_deref().unwrap_or("without an id");
    let count = crate::text::count(brokers.len() as u64, "broker");
    let mut checks = vec![match view.controller_id() {
        Some(_) => Check::ok(Section::Cluster, "cluster", format!("{id}: {count}, {controller}")),
        None => Check::warning(Section::Cluster, "cluster", format!("{id}: {count}, {controller}")).help(
            "without a controller nothing changes in the cluster: no leader moves, no topic is created",
        ),
    }];
    checks.extend(fenced(cluster, config).await);
    let mut releases = Vec::new();
    for some in brokers.chunks(AT_ONCE) {
        let reached = some.iter().map(|broker| reach(broker, cluster_id.clone(), config, bootstrap));
        for (check, release) in join_all(reached).await {
            releases.extend(release);
            checks.push(check);
        }
    }
    releases.sort_unstable();
    releases.dedup();
    if releases.len() > 1 {
        let check = Check::warning(
            Section::Cluster,
            "releases",
            format!("the brokers differ: {}", releases.join(", ")),
        );
        checks.push(check.help("finish the upgrade: until then every request is made for the older ones"));
    }
    checks
}

/// Brokers that are registered and kept from serving; only Kafka 4.0 and newer tell of them.
async fn fenced(cluster: &Cluster, config: &ConnectionConfig) -> Vec<Check> {
    let deadline = Instant::now() + config.connect_timeout;
    let Ok(description) = Admin::new(cluster).describe_cluster(deadline).await else { return Vec::new() };
    let fenced = description.brokers.iter().filter(|broker| broker.is_fenced);
    fenced
        .map(|broker| {
            let name = format!("broker {}", broker.node_id);
            Check::warning(Section::Cluster, name, "fenced: registered, and not serving")
                .help("it is starting, or it is dead: look at its log")
        })
        .collect()
}

/// Dials the address that a broker advertises. Its release as well, where it answers.
async fn reach(
    broker: &Broker,
    cluster_id: Option<String>,
    config: &Arc<ConnectionConfig>,
    bootstrap: &str,
) -> (Check, Option<&'static str>) {
    let since = Instant::now();
    let identity = PeerIdentity { cluster_id, node_id: Some(broker.node_id) };
    let target = Target::new(broker.address.clone()).with_identity(identity);
    let name = format!("broker {}", broker.node_id);
    match Connection::connect(target, config, since + config.connect_timeout).await {
        Ok(connection) => {
            let release = kafka(connection.versions());
            let detail = format!("{}, after {}; {release}", broker.address, millis(since.elapsed()));
            (Check::ok(Section::Cluster, name, detail), Some(release))
        }
        Err(error) => {
            let check = Check::failed(Section::Cluster, name, connect_exit(&error), chain(&error));
            (check.help(advice(&error, bootstrap)), None)
        }
    }
}

fn advice(error: &ConnectError, bootstrap: &str) -> String {
    let advertised =
        "the address comes from the broker's advertised.listeners, and has to work from this machine";
    let found = format!("the cluster was found through {bootstrap}");
    match (error, connect_hint(error)) {
        (ConnectError::Resolve { .. }, _) => format!("{advertised}; {found}"),
        (ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. }, _) => {
            format!("is the broker running? if it is: {advertised}; {found}")
        }
        (_, Some(hint)) => hint.to_owned(),
        (_, None) => format!("{advertised}; {found}"),
    }
}
