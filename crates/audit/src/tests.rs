//! Rules tested by data: a script of events and facts, and the findings that it must give.

mod dsl;
mod fires;
mod legal;
mod many;
mod not_checked;
mod soup;
mod view;

use dsl::World;

/// Findings of a script, one line each: severity, code, where.
pub(crate) fn findings(script: &str) -> String {
    World::parse(script).report().findings.iter().map(|finding| dsl::line(finding) + "\n").collect()
}

/// Findings above info.
pub(crate) fn above_info(script: &str) -> String {
    findings(script)
        .lines()
        .filter(|line| !line.starts_with("info"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Tests from a table: a sentence, a script, and the findings expected, in the order of the report.
/// The table is kept as well, so that a test can walk it.
macro_rules! scripts {
    ($check:path, $all:ident: $($name:ident: $script:literal => [$($line:literal),* $(,)?];)*) => {
        pub(crate) const $all: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $(
            #[test]
            fn $name() {
                let expected: &[&str] = &[$($line),*];
                let found = $check($script);
                let found: Vec<&str> = found.lines().collect();
                assert_eq!(found, expected, "\nscript:{}", $script);
            }
        )*
    };
}
pub(crate) use legal::LEGAL as LEGAL_SCRIPTS;
pub(crate) use scripts;
