//! The table of layouts: per storage plugin, the objects of a segment and the shape of their keys.
//!
//! Only layouts that work stand here. A new one is a row in [`LAYOUTS`] and two functions below it.

use std::fmt;

use strandline_protocol::{TopicId, Uuid};

/// How one storage plugin names its objects.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The name that `--layout` takes.
    pub name: &'static str,
    /// The plugin, as its users know it.
    pub plugin: &'static str,
    /// The objects that a segment has.
    pub roles: &'static [RoleRow],
    /// The directory below the store's URL that holds all objects, where the plugin makes one.
    pub root_directory: Option<&'static str>,
    parse: fn(&str) -> Option<ObjectKey<'_>>,
    write: fn(&ObjectKey<'_>, &'static str) -> String,
}

/// One object of a segment: what it holds, how its key ends, and whether each segment has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleRow {
    /// What the object holds.
    pub role: ObjectRole,
    /// What the key ends with.
    pub suffix: &'static str,
    /// True when a segment in state COPY_SEGMENT_FINISHED always has this object.
    pub required: bool,
}

/// What an object of a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectRole {
    /// The segment file itself: the data object.
    Log,
    /// The offset index.
    OffsetIndex,
    /// The time index.
    TimeIndex,
    /// The producer state snapshot at the segment's end offset + 1.
    ProducerSnapshot,
    /// The leader epochs up to the segment's end.
    LeaderEpochCheckpoint,
    /// The index of aborted transactions.
    TransactionIndex,
}

/// An object's key, taken apart: the segment that it names, and the object's role.
///
/// Every value that [`Layout::parse`] gives is written back by [`Layout::key`] to the very same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition; never negative where it was parsed.
    pub partition: i32,
    /// The topic's id.
    pub topic_id: TopicId,
    /// The segment's id.
    pub segment_id: Uuid,
    /// The first offset of the segment; never negative where it was parsed.
    pub start_offset: i64,
    /// What the object holds.
    pub role: ObjectRole,
}

/// No layout has this name. The user chooses another; the message lists those that work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layout {name:?} is not supported; these are: {}", LAYOUTS.iter().map(|layout| layout.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownLayout {
    /// The name that was asked for.
    pub name: String,
}

/// Every layout that works.
pub const LAYOUTS: &[Layout] = &[Layout {
    name: "local",
    plugin: "LocalTieredStorage (org.apache.kafka.server.log.remote.storage)",
    roles: &[
        RoleRow { role: ObjectRole::Log, suffix: ".log", required: true },
        RoleRow { role: ObjectRole::OffsetIndex, suffix: ".index", required: true },
        RoleRow { role: ObjectRole::TimeIndex, suffix: ".timeindex", required: true },
        RoleRow { role: ObjectRole::ProducerSnapshot, suffix: ".snapshot", required: true },
        RoleRow { role: ObjectRole::LeaderEpochCheckpoint, suffix: LEADER_EPOCH_CHECKPOINT, required: true },
        // Absent when the segment has no aborted transaction, and events written by older brokers do not tell.
        RoleRow { role: ObjectRole::TransactionIndex, suffix: ".txnindex", required: false },
    ],
    root_directory: Some("kafka-tiered-storage"),
    parse: parse_local,
    write: write_local,
}];

const LEADER_EPOCH_CHECKPOINT: &str = ".leader_epoch_checkpoint";

impl Layout {
    /// The layout of that name; an unknown name is an error that lists the known ones.
    pub fn by_name(name: &str) -> Result<&'static Self, UnknownLayout> {
        let unknown = || UnknownLayout { name: name.chars().take(64).collect() };
        LAYOUTS.iter().find(|layout| layout.name == name).ok_or_else(unknown)
    }

    /// Takes a key apart. `None` means that this plugin never makes such a key.
    pub fn parse<'a>(&self, key: &'a str) -> Option<ObjectKey<'a>> {
        (self.parse)(key)
    }

    /// The key of an object, below the store's URL and without a leading slash.
    pub fn key(&self, object: &ObjectKey<'_>) -> String {
        (self.write)(object, self.row(object.role).suffix)
    }

    /// What the table says about a role.
    pub fn row(&self, role: ObjectRole) -> &'static RoleRow {
        self.roles.iter().find(|row| row.role == role).expect("every layout has a row for every role")
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Layout {}

const LOCAL_PREFIX: &str = "kafka-tiered-storage/";
const UUID_LENGTH: usize = 22;
const OFFSET_DIGITS: usize = 20;
/// Kafka's limit: a topic's directory name has to fit a file system.
const TOPIC_LENGTH_MAX: usize = 249;

/// `kafka-tiered-storage/<topic>-<partition>-<topic id>/<start offset, 20 digits>-<segment id><suffix>`.
///
/// Both ids can hold `-`, so the parts are cut off from the right by their length.
fn parse_local(key: &str) -> Option<ObjectKey<'_>> {
    let (directory, file) = key.strip_prefix(LOCAL_PREFIX)?.split_once('/')?;

    let (rest, topic_id) = split_id(directory)?;
    let (topic, partition) = rest.rsplit_once('-')?;
    if !is_topic_name(topic) || (partition.len() > 1 && partition.starts_with('0')) {
        return None;
    }
    let partition = decimal(partition)?.try_into().ok()?;

    // Ids hold no dot, so the first one begins the suffix.
    let (name, suffix) = file.split_at(file.find('.')?);
    let role = LAYOUTS[0].roles.iter().find(|row| row.suffix == suffix)?.role;
    let (offset, segment_id) = split_id(name)?;
    if offset.len() != OFFSET_DIGITS {
        return None;
    }
    let start_offset = decimal(offset)?;
    Some(ObjectKey { topic, partition, topic_id: TopicId(topic_id), segment_id, start_offset, role })
}

fn write_local(object: &ObjectKey<'_>, suffix: &'static str) -> String {
    let ObjectKey { topic, partition, topic_id, segment_id, start_offset, .. } = object;
    format!("{LOCAL_PREFIX}{topic}-{partition}-{topic_id}/{start_offset:020}-{segment_id}{suffix}")
}

/// Cuts `-` and an id off the end.
fn split_id(text: &str) -> Option<(&str, Uuid)> {
    let (rest, id) = text.split_at_checked(text.len().checked_sub(UUID_LENGTH)?)?;
    Some((rest.strip_suffix('-')?, id.parse().ok()?))
}

fn decimal(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Source: `org.apache.kafka.common.internals.Topic#isValid`.
fn is_topic_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty()
        && text.len() <= TOPIC_LENGTH_MAX
        && text != "."
        && text != ".."
        && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIRECTORY: &str = "kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w";

    fn local() -> &'static Layout {
        Layout::by_name("local").unwrap()
    }

    fn roles() -> impl Iterator<Item = ObjectRole> {
        local().roles.iter().map(|row| row.role)
    }

    #[test]
    fn a_key_that_the_plugin_made_is_taken_apart_and_written_back() {
        let key = format!("{DIRECTORY}/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg.log");
        let object = local().parse(&key).unwrap();
        assert_eq!(
            object,
            ObjectKey {
                topic: "orders",
                partition: 0,
                topic_id: "vaZwr6blSEWMAbm7z-tW-w".parse().unwrap(),
                segment_id: "bI-hfDx_TbelfaFXX2nvqg".parse().unwrap(),
                start_offset: 2048,
                role: ObjectRole::Log,
            }
        );
        let keys: Vec<_> = roles().map(|role| local().key(&ObjectKey { role, ..object })).collect();
        let stem = key.strip_suffix(".log").unwrap();
        assert_eq!(
            keys,
            [".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint", ".txnindex"]
                .map(|suffix| format!("{stem}{suffix}"))
        );
    }

    #[test]
    fn a_topic_that_looks_like_a_partition_directory_is_cut_from_the_right() {
        let key = "kafka-tiered-storage/a-1-vaZwr6blSEWMAbm7z-tW-w-7----------------------A/\
                   00000000000000000000----------------------A.index";
        let object = local().parse(key).unwrap();
        assert_eq!((object.topic, object.partition), ("a-1-vaZwr6blSEWMAbm7z-tW-w", 7));
        assert_eq!(local().key(&object), key);
    }

    #[test]
    fn a_key_that_the_plugin_never_makes_does_not_parse() {
        let good = "/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg.log";
        let bad = [
            "",
            "kafka-tiered-storage",
            "kafka-tiered-storage/",
            "stray.txt",
            &good[1..],
            DIRECTORY,
            &format!("{DIRECTORY}/"),
            &format!("elsewhere/{DIRECTORY}{good}"),
            &format!("{DIRECTORY}/deeper{good}"),
            &format!("{DIRECTORY}/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg"),
            &format!("{DIRECTORY}/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg.log.tmp"),
            &format!("{DIRECTORY}/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg.LOG"),
            &format!("{DIRECTORY}/2048-bI-hfDx_TbelfaFXX2nvqg.log"),
            &format!("{DIRECTORY}/+0000000000000002048-bI-hfDx_TbelfaFXX2nvqg.log"),
            &format!("{DIRECTORY}/99999999999999999999-bI-hfDx_TbelfaFXX2nvqg.log"),
            &format!("{DIRECTORY}/00000000000000002048-bI+hfDx/TbelfaFXX2nvqg.log"),
            // The last character of an id holds two bits; the others of this one are not zero.
            &format!("{DIRECTORY}/00000000000000002048-bI-hfDx_TbelfaFXX2nvqh.log"),
            &format!("{DIRECTORY}/00000000000000002048-äI-hfDx_TbelfaFXX2nvqg.log"),
            &format!("kafka-tiered-storage/orders-00-vaZwr6blSEWMAbm7z-tW-w{good}"),
            &format!("kafka-tiered-storage/orders-2147483648-vaZwr6blSEWMAbm7z-tW-w{good}"),
            &format!("kafka-tiered-storage/-0-vaZwr6blSEWMAbm7z-tW-w{good}"),
            &format!("kafka-tiered-storage/..-0-vaZwr6blSEWMAbm7z-tW-w{good}"),
            &format!("kafka-tiered-storage/or ders-0-vaZwr6blSEWMAbm7z-tW-w{good}"),
            &format!("kafka-tiered-storage/{}-0-vaZwr6blSEWMAbm7z-tW-w{good}", "a".repeat(250)),
        ];
        for key in bad {
            assert_eq!(local().parse(key), None, "{key}");
        }
    }

    #[test]
    fn an_unknown_layout_is_refused_with_the_names_that_work() {
        let error = Layout::by_name("aiven").unwrap_err();
        assert_eq!(error.to_string(), "layout \"aiven\" is not supported; these are: local");
    }

    #[test]
    fn every_layout_has_each_role_once_and_requires_the_data_object() {
        for layout in LAYOUTS {
            let mut roles: Vec<_> = layout.roles.iter().map(|row| row.role).collect();
            roles.sort();
            assert!(roles.is_sorted_by(|a, b| a < b) && roles.len() == 6, "{}", layout.name);
            assert!(
                layout.row(ObjectRole::Log).required && !layout.row(ObjectRole::TransactionIndex).required
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_parses_to_the_same_object(
            topic in "[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,40}",
            partition in 0..=i32::MAX,
            topic_id: [u8; 16],
            segment_id: [u8; 16],
            start_offset in 0..=i64::MAX,
            role in 0..6usize,
        ) {
            let object = ObjectKey {
                topic: &topic,
                partition,
                topic_id: TopicId(Uuid(topic_id)),
                segment_id: Uuid(segment_id),
                start_offset,
                role: local().roles[role].role,
            };
            let key = local().key(&object);
            prop_assert_eq!(local().parse(&key), Some(object));
        }

        #[test]
        fn what_parses_is_written_back_as_it_was(
            directory in "[a.-]{1,3}-[0-9]{1,2}-[aA_-]{21}[AQgw]",
            file in "[0-9]{20}-[aA_-]{21}[AQgwb]\\.(log|index|timeindex|snapshot|txnindex|tmp)",
        ) {
            let key = format!("kafka-tiered-storage/{directory}/{file}");
            if let Some(object) = local().parse(&key) {
                prop_assert_eq!(local().key(&object), key);
            }
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(key in "(kafka-tiered-storage/)?\\PC{0,80}(/\\PC{0,60}(\\.log)?)?") {
            if let Some(object) = local().parse(&key) {
                prop_assert_eq!(local().key(&object), key);
            }
        }
    }
}
