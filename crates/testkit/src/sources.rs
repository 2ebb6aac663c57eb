//! What a crate's own sources say: for tests that keep a document true to them.

use std::path::Path;

/// The Rust of a crate, its tests included, as path and text.
///
/// # Panics
/// If a folder or file cannot be read.
pub fn of(crate_dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["src", "tests"] {
        collect(&crate_dir.join(folder), &mut found);
    }
    found
}

fn collect(folder: &Path, into: &mut Vec<(String, String)>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a folder of sources can be listed").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("sources are text");
            into.push((path.display().to_string(), text));
        }
    }
}

/// Holds tables of failures against the tests that they name: the last column of each row names at least one, between
/// backticks, and each is a function of one of these crates.
///
/// # Panics
/// If a row names no test, or one that is not there; if a table has no rows.
pub fn assert_tests_exist(tables: &[&str], crate_dirs: &[&Path]) {
    let sources: Vec<_> = crate_dirs.iter().flat_map(|dir| of(dir)).collect();
    for table in tables {
        // The head of the table, and the line below it.
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
        assert!(!rows.is_empty(), "no rows in {table}");
        for row in rows {
            let last = row.trim_end().trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
            let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "no test is named in {row}");
            for name in names {
                let declared = [format!("fn {name}("), format!("fn {name}<")];
                let there = |(_, text): &(String, String)| declared.iter().any(|it| text.contains(it));
                assert!(sources.iter().any(there), "there is no test {name}, named in {row}");
            }
        }
    }
}

/// Holds the sources of a crate to the monotonic clock: waits and deadlines must not follow a wall clock that jumps.
///
/// # Panics
/// If a file under `src` names the wall clock.
pub fn assert_monotonic_clock_only(crate_dir: &Path) {
    for (path, text) in of(crate_dir).iter().filter(|(path, _)| path.contains("/src/")) {
        assert!(!text.contains("SystemTime"), "{path} reads the wall clock");
    }
}
