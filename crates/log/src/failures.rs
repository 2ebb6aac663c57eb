#![doc = include_str!("failures.md")]

#[cfg(test)]
mod tests {
    use std::path::Path;

    use strandline_testkit::sources;

    #[test]
    fn every_test_that_the_table_names_exists() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = [here.to_owned(), here.join("../client")];
        sources::assert_tests_exist(
            &[include_str!("failures.md")],
            &crates.each_ref().map(|dir| dir.as_path()),
        );
    }
}
