#![doc = include_str!("failures.md")]
#![doc = include_str!("producer/failures.md")]

#[cfg(test)]
mod tests {
    use std::path::Path;

    use strandline_testkit::sources;

    #[test]
    fn every_test_that_the_tables_name_exists() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = [here.to_owned(), here.join("../protocol")];
        let tables = [include_str!("failures.md"), include_str!("producer/failures.md")];
        sources::assert_tests_exist(&tables, &crates.each_ref().map(|dir| dir.as_path()));
    }
}
