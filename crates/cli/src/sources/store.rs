//! A store as a source: its listing, and second looks at single objects.

use std::time::Duration;

use strandline_audit::{Finding, ObjectFact, ObjectRole, ParsedKey, StoreFact};
use strandline_store::{Layout, ObjectInfo, ObjectKey, OpenError, Store, StoreUrl, StoreUrlError};

use super::chain;
use crate::args::{ProgressKind, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::Incomplete;
use crate::progress::{Progress, Unit};

/// A store that was opened.
pub(crate) struct StoreSource {
    store: Store,
    runtime: tokio::runtime::Runtime,
}

/// What a listing showed.
pub(crate) struct StoreListing {
    /// The listing as a whole.
    pub(crate) store: StoreFact,
    /// Its objects.
    pub(crate) objects: Vec<ObjectFact>,
    /// What it could not see.
    pub(crate) incomplete: Vec<Incomplete>,
    /// The signal that ended it early.
    pub(crate) ended_by: Option<Exit>,
}

impl StoreSource {
    /// Opens the store that the flags name, if they name one.
    pub(crate) fn open(args: &StoreArgs) -> Result<Option<Self>, Failure> {
        let Some(url) = &args.url else { return Ok(None) };
        let Some(layout) = &args.layout else {
            return Err(
                Failure::usage("--store needs --layout").hint("--layout local is Kafka's LocalTieredStorage")
            );
        };
        let layout = Layout::by_name(layout).map_err(|error| Failure::unsupported(error.to_string()))?;
        let url: StoreUrl = url.parse().map_err(|error: StoreUrlError| match error {
            StoreUrlError::NotSupported { .. } => Failure::unsupported(error.to_string()),
            _ => Failure::usage(error.to_string()),
        })?;
        let store = Store::open(&url, layout).map_err(|error| {
            let not_found = matches!(error, OpenError::NotFound { .. });
            let failure = Failure::unreachable(anyhow::Error::new(error));
            if not_found {
                return failure.hint(
                    "--store names the directory of the plugin's setting `dir`, as this machine sees it",
                );
            }
            failure
        })?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                Failure::unreachable(anyhow::Error::new(error).context("no runtime for the store"))
            })?;
        Ok(Some(Self { store, runtime }))
    }

    /// Lists every object. What could not be seen is named, and the listing is then not complete.
    pub(crate) fn list(&self, progress: ProgressKind) -> Result<StoreListing, Failure> {
        let progress = Progress::start(progress, "listing the store", Unit::Objects);
        let layout = self.store.layout();
        let mut listing = StoreListing {
            store: store_fact(layout),
            objects: Vec::new(),
            incomplete: Vec::new(),
            ended_by: None,
        };
        self.runtime.block_on(async {
            let mut pages = self.store.list();
            loop {
                let page = tokio::select! {
                    page = pages.next_page() => page,
                    exit = interrupt::wait() => {
                        listing.ended_by = Some(exit);
                        let what = format!("the store after {}", progress.covered());
                        listing.incomplete.push(Incomplete { what, reason: exit.meaning().to_owned() });
                        return;
                    }
                };
                match page {
                    Some(Ok(objects)) => {
                        progress.add(objects.len() as u64);
                        listing.objects.extend(objects.iter().map(|object| object_fact(layout, object)));
                    }
                    Some(Err(error)) => listing
                        .incomplete
                        .push(Incomplete { what: "a part of the store".to_owned(), reason: chain(&error) }),
                    None => return,
                }
            }
        });
        listing.store.complete = listing.incomplete.is_empty();
        Ok(listing)
    }

    /// Lists until one object is seen; gives its key, and whether the layout can read it. `None` in a store without any.
    pub(crate) fn first_object(&self, within: Duration) -> Result<Option<(String, bool)>, Failure> {
        let page = self.runtime.block_on(async {
            let mut pages = self.store.list();
            tokio::select! {
                page = tokio::time::timeout(within, pages.next_page()) => Ok(page),
                exit = interrupt::wait() => Err(exit),
            }
        });
        match page {
            Ok(Ok(None)) => Ok(None),
            Ok(Ok(Some(Ok(page)))) => Ok(page.into_iter().next().map(|object| {
                let parses = self.store.layout().parse(&object.key).is_some();
                (object.key, parses)
            })),
            Ok(Ok(Some(Err(error)))) => Err(Failure::unreachable(anyhow::Error::new(error))),
            Ok(Err(_)) => Err(Failure::unreachable(format!("no listing within {within:?}"))),
            Err(exit) => Err(Failure { exit, ..Failure::unreachable(exit.meaning()) }),
        }
    }

    /// Looks at one object again; `None` means that it is gone.
    pub(crate) fn look(&self, key: &str) -> Result<Option<ObjectFact>, Incomplete> {
        let seen = self.runtime.block_on(self.store.head(key));
        match seen {
            Ok(object) => Ok(object.map(|object| object_fact(self.store.layout(), &object))),
            Err(error) => Err(Incomplete { what: format!("object {key}"), reason: chain(&error) }),
        }
    }

    /// The keys of the objects that a finding about missing ones misses, or could miss; none for other findings.
    pub(crate) fn required_keys(&self, finding: &Finding) -> Vec<String> {
        let layout = self.store.layout();
        let about_missing = matches!(finding.code, "obj.missing" | "obj.partial-set");
        let (Some(topic), Some(topic_id), Some(partition), Some(segment_id), Some(start_offset), true) = (
            finding.topic.as_deref(),
            finding.topic_id,
            finding.partition,
            finding.segment_id,
            finding.start_offset,
            about_missing,
        ) else {
            return Vec::new();
        };
        let required = layout.roles.iter().filter(|row| row.required);
        required
            .map(|row| {
                let role = row.role;
                layout.key(&ObjectKey { topic, partition, topic_id, segment_id, start_offset, role })
            })
            // An event can name what no topic is called; no store has a key for it.
            .filter(|key| layout.parse(key).is_some())
            .collect()
    }

    /// What the store's layout makes of a key.
    pub(crate) fn parse_key(&self, key: &str) -> Option<ParsedKey> {
        parsed(self.store.layout(), key)
    }

    /// What a layout makes of a key, without a store.
    pub(crate) fn parse_with(layout: Option<&Layout>, key: &str) -> Option<ParsedKey> {
        parsed(layout?, key)
    }
}

fn store_fact(layout: &Layout) -> StoreFact {
    StoreFact {
        layout: layout.name.to_owned(),
        prefix: String::new(),
        complete: false,
        required: layout.roles.iter().filter(|row| row.required).map(|row| role(row.role)).collect(),
        sizes_exact: layout.name == "local",
    }
}

fn object_fact(layout: &Layout, object: &ObjectInfo) -> ObjectFact {
    ObjectFact {
        key: object.key.clone(),
        size_bytes: Some(i64::try_from(object.size_bytes).unwrap_or(i64::MAX)),
        last_modified_ms: Some(object.last_modified_ms),
        parsed: parsed(layout, &object.key),
    }
}

fn parsed(layout: &Layout, key: &str) -> Option<ParsedKey> {
    let key = layout.parse(key)?;
    Some(ParsedKey {
        topic: key.topic.to_owned(),
        topic_id: key.topic_id,
        partition: key.partition,
        segment_id: key.segment_id,
        start_offset: Some(key.start_offset),
        role: role(key.role),
    })
}

fn role(role: strandline_store::ObjectRole) -> ObjectRole {
    match role {
        strandline_store::ObjectRole::Log => ObjectRole::Log,
        strandline_store::ObjectRole::OffsetIndex => ObjectRole::OffsetIndex,
        strandline_store::ObjectRole::TimeIndex => ObjectRole::TimeIndex,
        strandline_store::ObjectRole::ProducerSnapshot => ObjectRole::ProducerSnapshot,
        strandline_store::ObjectRole::LeaderEpochCheckpoint => ObjectRole::LeaderEpochCheckpoint,
        strandline_store::ObjectRole::TransactionIndex => ObjectRole::TransactionIndex,
    }
}

#[cfg(test)]
mod tests {
    use strandline_audit::{Facts, Flags, Limits, Position, TierViewBuilder, audit};
    use strandline_tier::{EpochEntry, RawEvent, RawSegmentMetadata, RawSegmentUpdate, RawTopicIdPartition};
    use strandline_tier::{RecordValue, TopicId, Uuid};

    use super::*;

    /// The finding about a finished segment of that topic in a store without any object.
    fn missing(store: &StoreSource, topic: &'static str) -> Finding {
        let of = RawTopicIdPartition { topic: topic.into(), topic_id: TopicId(Uuid([1; 16])), partition: 0 };
        let started = RawSegmentMetadata {
            topic_id_partition: of.clone(),
            segment_id: Uuid([2; 16]),
            start_offset: 7,
            end_offset: 9,
            broker_id: 1,
            max_timestamp_ms: 0,
            event_timestamp_ms: 0,
            segment_leader_epochs: [EpochEntry { epoch: 0, start_offset: 7 }].into_iter().collect(),
            segment_size_in_bytes: 3,
            custom_metadata: None,
            state_id: 0,
            txn_index_empty: true,
        };
        let finished = RawSegmentUpdate {
            topic_id_partition: of,
            segment_id: Uuid([2; 16]),
            broker_id: 1,
            event_timestamp_ms: 0,
            custom_metadata: None,
            state_id: 1,
        };
        let mut builder = TierViewBuilder::new();
        for event in [RawEvent::SegmentMetadata(started), RawEvent::SegmentMetadataUpdate(finished)] {
            builder.push(Position::default(), Flags::default(), &RecordValue::Event(event));
        }
        let listing = store.list(ProgressKind::None).unwrap();
        let facts = Facts { store: Some(listing.store), objects: listing.objects, ..Facts::default() };
        let report = audit(&builder.finish(None), &facts, &Limits::default(), 0);
        report.findings.into_iter().find(|finding| finding.code == "obj.missing").unwrap()
    }

    #[test]
    fn an_object_said_to_be_missing_is_looked_for_under_its_own_key() {
        let directory = tempfile::tempdir().unwrap();
        let url: StoreUrl = format!("file://{}", directory.path().display()).parse().unwrap();
        let store = Store::open(&url, Layout::by_name("local").unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = StoreSource { store, runtime };
        let keys = store.required_keys(&missing(&store, "orders"));
        let data = "kafka-tiered-storage/orders-0-AQEBAQEBAQEBAQEBAQEBAQ/\
                    00000000000000000007-AgICAgICAgICAgICAgICAg.log";
        assert!(keys.iter().any(|key| key == data), "{keys:?}");
        // It was written after the listing: the second look sees it.
        assert!(store.look(data).unwrap().is_none());
        let path = directory.path().join(data);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "abc").unwrap();
        assert_eq!(store.look(data).unwrap().unwrap().size_bytes, Some(3));
        // What no topic is called has no key.
        assert_eq!(store.required_keys(&missing(&store, "a/../b")), Vec::<String>::new());
    }
}
