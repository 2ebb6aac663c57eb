//! Each measurement runs to its end, and tells what it is asked for.

use std::process::Stdio;
use std::time::Duration;

use strandline_testkit::embedded::{ClusterOptions, EmbeddedCluster};

/// What one measurement says on its last line.
async fn told(cluster: &EmbeddedCluster, topic: &str, arguments: &[&str]) -> serde_json::Value {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_strandline-bench"));
    command.args(arguments).env("BOOTSTRAP", cluster.bootstrap()).env("TOPIC", topic).env_remove("DATA_DIR");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(300), command.output()).await;
    let output = ended.expect("it ends").expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("the last line is JSON")
}

fn is_above_zero(told: &serde_json::Value, fields: &[&str]) {
    for field in fields {
        assert!(told[field].as_f64().is_some_and(|value| value > 0.0), "{field} in {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_measurement_tells_its_fields() {
    let cluster = EmbeddedCluster::start(ClusterOptions::default()).unwrap();
    cluster.create_topic("publish", 50);
    cluster.create_topic("write", 50);
    let waits = ["events_s", "p50_us", "p99_us", "hwm_kb"];
    is_above_zero(&told(&cluster, "publish", &["publish", "one", "20"]).await, &waits);
    is_above_zero(&told(&cluster, "publish", &["publish", "many", "2000"]).await, &["events_s", "hwm_kb"]);
    is_above_zero(&told(&cluster, "write", &["write", "20"]).await, &waits);
    let replay = told(&cluster, "write", &["replay"]).await;
    is_above_zero(&replay, &["ms", "hwm_kb"]);
    // What `write` has written, its warm-up included.
    assert_eq!((&replay["events"], &replay["segments"]), (&520.into(), &260.into()), "{replay}");
    let lookup = told(&cluster, "", &["lookup", "50"]).await;
    // So few take neither a tick of the clock on a CPU nor a page of memory.
    for field in ["ns_min", "bytes_per_segment", "ns_min_manager", "ns_min_manager_owned"] {
        assert!(lookup[field].is_f64(), "{field} in {lookup}");
    }
}
