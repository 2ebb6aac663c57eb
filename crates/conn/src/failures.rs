#![doc = include_str!("failures.md")]

#[cfg(test)]
mod tests {
    use std::path::Path;

    use strandline_testkit::sources;

    #[test]
    fn every_test_that_the_table_names_exists() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        sources::assert_tests_exist(&[include_str!("failures.md")], &[here]);
    }

    #[test]
    fn no_clock_is_read_but_the_monotonic_one() {
        sources::assert_monotonic_clock_only(Path::new(env!("CARGO_MANIFEST_DIR")));
    }
}
