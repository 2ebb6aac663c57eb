//! krabka-client-core: a snapshot of all topics.

use std::time::Instant;

use krabka_client_core::Client;
use krabka_protocol::owned::metadata_request::MetadataRequest;

#[tokio::main]
async fn main() {
    let began = Instant::now();
    let client =
        Client::builder().bootstrap(bench_peers::bootstrap()).client_id("bench").build().await.unwrap();
    let mut all = MetadataRequest::default();
    all.topics = None;
    let held = client.refresh_metadata_with(all).await.unwrap();
    let partitions = held.topics.iter().map(|topic| topic.partitions.len()).sum();
    bench_peers::snapshot_held("krabka-client-core", began, held.topics.len(), partitions);
}
