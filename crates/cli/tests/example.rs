//! The directories under `examples/` show what their README says.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The exit code, and the codes of the findings above info.
fn audit(arguments: &[&str]) -> (i32, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(["audit", "-o", "json", "--log-dir", "examples/crashed-broker/broker-1"])
        // The copy is stuck once it is older than its limit, and the example may be younger.
        .args(["--now", "2030-01-01T00:00:00Z"])
        .args(arguments)
        .current_dir(root)
        .output()
        .expect("the command runs");
    let envelope: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let items = envelope["items"].as_array().expect("an array").iter();
    let above_info = items.filter(|finding| finding["severity"] != "info");
    let codes = above_info.map(|finding| finding["code"].as_str().expect("a code").to_owned());
    (output.status.code().expect("no signal"), codes.collect())
}

#[test]
fn the_crashed_brokers_directories_hold_a_stuck_copy() {
    assert_eq!(audit(&[]), (1, vec!["seg.copy-stuck".to_owned()]));
}

#[test]
fn its_tier_lacks_a_data_object_as_well() {
    let (code, mut codes) = audit(&["--store", "file://examples/crashed-broker/tier", "--layout", "local"]);
    codes.sort();
    assert_eq!((code, codes), (1, vec!["obj.missing".to_owned(), "seg.copy-stuck".to_owned()]));
}
