//! The store: whether it can be listed, and holds what its layout says.

use std::time::Duration;

use super::check::{Check, Section};
use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::sources::StoreSource;
use crate::text::escape;

/// Lists one object of the store that the flags name; no row where they name none.
pub(super) fn check(args: &StoreArgs, within: Duration) -> Option<Check> {
    let url = args.url.as_ref()?;
    let check = match StoreSource::open(args) {
        Ok(Some(store)) => listed(store.first_object(within)),
        Ok(None) => return None,
        Err(failure) => failed("open", &failure),
    };
    Some(check.subject(url))
}

fn listed(first: Result<Option<(String, bool)>, Failure>) -> Check {
    let (section, name) = (Section::Store, "listing");
    match first {
        Ok(Some((key, true))) => Check::ok(
            section,
            name,
            format!("the first object that is seen fits the layout: {}", escape(&key)),
        ),
        Ok(Some((key, false))) => {
            let detail = format!("the first object that is seen is none of the layout: {}", escape(&key));
            Check::warning(section, name, detail)
                .help("do --store and --layout name where the storage plugin writes, and how?")
        }
        Ok(None) => Check::warning(section, name, "there is no object")
            .help("nothing was ever copied, or this is not the directory that the storage plugin writes to"),
        Err(failure) => failed(name, &failure),
    }
}

fn failed(name: &str, failure: &Failure) -> Check {
    let help = (!failure.hints.is_empty()).then(|| failure.hints.join("; "));
    Check::failed(Section::Store, name, failure.exit, failure.to_string()).maybe_help(help)
}
