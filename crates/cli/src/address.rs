//! The one grammar for what a command looks at: topics, partitions, positions, segments, object keys.

use std::fmt;

use globset::{Glob, GlobMatcher};
use regex::Regex;
use strandline_protocol::Uuid;

use crate::exit::Failure;
use crate::moment::{Clock, Millis, rfc3339};

/// One address as it stands on the command line.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// `TOPIC`, a glob, or `/regex/`.
    Topic(TopicPattern),
    /// `TOPIC:P`.
    Partition(TopicPattern, i32),
    /// `TOPIC:P@OFFSET` or `TOPIC:P@TIME`.
    Position(TopicPattern, i32, At),
    /// 22 characters that could be a segment id: a topic if one has that name.
    TopicOrSegment(String, Uuid),
    /// A segment id, forced by `id:`.
    Segment(Uuid),
    /// An object key: holds a `/`, or is forced by `key:`.
    Key(String),
}

/// A place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The record with this offset.
    Offset(i64),
    /// The first record at or after this time, in milliseconds since 1970.
    Time(Millis),
}

/// Which topics are meant.
#[derive(Clone, Debug)]
pub(crate) enum TopicPattern {
    /// Exactly this name.
    Exact(String),
    /// Every name that the glob matches.
    Glob(GlobMatcher),
    /// Every name that the regular expression finds something in.
    Regex(Regex),
}

impl TopicPattern {
    /// A topic name, a glob, or a regular expression between slashes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix('/') {
            let pattern =
                pattern.strip_suffix('/').ok_or_else(|| format!("{text:?} lacks the closing slash"))?;
            return Regex::new(pattern).map(Self::Regex).map_err(|error| {
                // The crate's message draws the pattern; its last line says what is wrong.
                let error = error.to_string();
                format!(
                    "{text:?} is not a regular expression: {}",
                    error.lines().last().unwrap_or_default().trim()
                )
            });
        }
        if text.contains(['*', '?', '[', '{']) {
            let glob =
                Glob::new(text).map_err(|error| format!("{text:?} is not a glob: {}", error.kind()))?;
            return Ok(Self::Glob(glob.compile_matcher()));
        }
        if text.is_empty() {
            return Err("a topic name is missing".to_owned());
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.len() > 249 || !text.chars().all(legal) {
            return Err(format!(
                "{text:?} is not a topic name: up to 249 letters, digits, '.', '_' and '-' (globs and /regex/ work too)"
            ));
        }
        Ok(Self::Exact(text.to_owned()))
    }

    /// True when the topic called `name` is meant.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Glob(glob) => glob.is_match(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Glob(glob) => f.write_str(glob.glob().glob()),
            Self::Regex(regex) => write!(f, "/{regex}/"),
        }
    }
}

impl fmt::Display for Address {
    /// The address as it can be given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => topic.fmt(f),
            Self::Partition(topic, partition) => write!(f, "{topic}:{partition}"),
            Self::Position(topic, partition, At::Offset(offset)) => write!(f, "{topic}:{partition}@{offset}"),
            Self::Position(topic, partition, At::Time(ms)) => {
                let time = rfc3339(*ms).unwrap_or_else(|| ms.to_string());
                write!(f, "{topic}:{partition}@{time}")
            }
            Self::TopicOrSegment(name, _) => f.write_str(name),
            Self::Segment(id) => id.fmt(f),
            Self::Key(key) => f.write_str(key),
        }
    }
}

impl Address {
    /// Reads one address; spans count back from `clock`.
    pub(crate) fn parse(text: &str, clock: &Clock) -> Result<Self, Failure> {
        Self::parse_inner(text, clock).map_err(|reason| {
            Failure::usage(reason).hint(
                "an address is TOPIC, TOPIC:P, TOPIC:P@OFFSET, TOPIC:P@TIME, a segment id of 22 characters, or an object key",
            )
        })
    }

    fn parse_inner(text: &str, clock: &Clock) -> Result<Self, String> {
        if let Some(id) = text.strip_prefix("id:") {
            return id.parse().map(Self::Segment).map_err(|error| error.to_string());
        }
        if let Some(key) = text.strip_prefix("key:") {
            return match key {
                "" => Err("an object key is missing after key:".to_owned()),
                key => Ok(Self::Key(key.to_owned())),
            };
        }
        // A regular expression may hold ':' and '@', so its end is looked for first.
        let (pattern, rest) = match text.strip_prefix('/').and_then(|_| text.rfind('/')) {
            Some(end) if end > 0 => text.split_at(end + 1),
            _ if text.contains('/') && !text.contains(['*', '{', '[']) => {
                return Ok(Self::Key(text.to_owned()));
            }
            _ => text.split_at(text.find([':', '@']).unwrap_or(text.len())),
        };
        if rest.is_empty() {
            if let Ok(id) = text.parse::<Uuid>() {
                return Ok(Self::TopicOrSegment(text.to_owned(), id));
            }
            return TopicPattern::parse(pattern).map(Self::Topic);
        }
        let topic = TopicPattern::parse(pattern)?;
        let Some(rest) = rest.strip_prefix(':') else {
            return Err(format!("{text:?} names a position without a partition: TOPIC:P{rest}"));
        };
        let (partition, at) = match rest.split_once('@') {
            Some((partition, at)) => (partition, Some(at)),
            None => (rest, None),
        };
        let number = |partition: &str| -> Option<i32> {
            partition.bytes().all(|byte| byte.is_ascii_digit()).then(|| partition.parse().ok())?
        };
        let partition = number(partition).ok_or_else(|| {
            format!("{partition:?} in {text:?} is not a partition: a number from 0 is expected")
        })?;
        let Some(at) = at else { return Ok(Self::Partition(topic, partition)) };
        let at = if !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit()) {
            At::Offset(at.parse().map_err(|_| format!("{at:?} in {text:?} is beyond the largest offset"))?)
        } else {
            At::Time(clock.parse(at)?)
        };
        Ok(Self::Position(topic, partition, at))
    }
}

/// What a command was asked to look at: some addresses, less the excluded topics. No address means everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    addresses: Vec<Address>,
    exclude: Vec<TopicPattern>,
}

impl Selection {
    /// Reads the addresses and the `--exclude` patterns of a command line.
    pub(crate) fn parse(addresses: &[String], exclude: &[String], clock: &Clock) -> Result<Self, Failure> {
        let addresses =
            addresses.iter().map(|text| Address::parse(text, clock)).collect::<Result<Vec<_>, _>>()?;
        let exclude = exclude
            .iter()
            .map(|text| TopicPattern::parse(text).map_err(Failure::usage))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { addresses, exclude })
    }

    /// True when no address narrows what is looked at.
    pub(crate) fn is_everything(&self) -> bool {
        self.addresses.is_empty() && self.exclude.is_empty()
    }

    /// The addresses as given.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// True when the partition is looked at. A segment id selects no partition by itself.
    pub(crate) fn has_partition(&self, topic: &str, partition: i32) -> bool {
        let meant = |address: &Address| match address {
            Address::Topic(pattern) => pattern.matches(topic),
            Address::Partition(pattern, number) | Address::Position(pattern, number, _) => {
                *number == partition && pattern.matches(topic)
            }
            Address::TopicOrSegment(name, _) => name == topic,
            Address::Segment(_) | Address::Key(_) => false,
        };
        !self.exclude.iter().any(|pattern| pattern.matches(topic))
            && (self.addresses.is_empty() || self.addresses.iter().any(meant))
    }

    /// True when the topic, or a partition of it, is looked at.
    pub(crate) fn has_topic(&self, topic: &str) -> bool {
        let meant = |address: &Address| match address {
            Address::Topic(pattern) | Address::Partition(pattern, _) | Address::Position(pattern, ..) => {
                pattern.matches(topic)
            }
            Address::TopicOrSegment(name, _) => name == topic,
            Address::Segment(_) | Address::Key(_) => false,
        };
        !self.exclude.iter().any(|pattern| pattern.matches(topic))
            && (self.addresses.is_empty() || self.addresses.iter().any(meant))
    }

    /// True when the topic, or one of its first `count` partitions, is looked at.
    pub(crate) fn has_some_partition(&self, topic: &str, count: i32) -> bool {
        // No partition has the number -1: only an address of the whole topic matches it.
        let named = self.addresses.iter().filter_map(|address| match address {
            Address::Partition(_, number) | Address::Position(_, number, _) => Some(*number),
            _ => None,
        });
        let mut numbers = std::iter::once(-1).chain(named.filter(|number| (0..count).contains(number)));
        numbers.any(|number| self.has_partition(topic, number))
    }

    /// True when the segment is looked at: by its partition or by its own id.
    pub(crate) fn has_segment(&self, topic: &str, partition: i32, segment_id: Uuid) -> bool {
        let named = |address: &Address| matches!(address, Address::TopicOrSegment(_, id) | Address::Segment(id) if *id == segment_id);
        self.addresses.iter().any(named) || self.has_partition(topic, partition)
    }

    /// The same with each position replaced by what `segments` gives for it.
    pub(crate) fn with_positions(&self, segments: impl Fn(&TopicPattern, i32, At) -> Vec<Uuid>) -> Self {
        let mut addresses = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            match address {
                Address::Position(topic, partition, at) => {
                    addresses.extend(segments(topic, *partition, *at).into_iter().map(Address::Segment));
                }
                other => addresses.push(other.clone()),
            }
        }
        Self { addresses, exclude: self.exclude.clone() }
    }

    /// The segments that are looked at by their own ids.
    pub(crate) fn segment_ids(&self) -> impl Iterator<Item = Uuid> {
        self.addresses.iter().filter_map(|address| match address {
            Address::TopicOrSegment(_, id) | Address::Segment(id) => Some(*id),
            _ => None,
        })
    }

    /// The exact partitions that are looked at, where every address names one: only the metadata partitions that
    /// these hash to have to be read.
    pub(crate) fn exact_partitions(&self) -> Option<Vec<(&str, i32)>> {
        if self.addresses.is_empty() {
            return None;
        }
        let exact = |address| match address {
            &Address::Partition(TopicPattern::Exact(ref name), partition)
            | &Address::Position(TopicPattern::Exact(ref name), partition, _) => {
                Some((name.as_str(), partition))
            }
            _ => None,
        };
        self.addresses.iter().map(exact).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock::new(Some("2026-01-02T00:00:00Z"), None).unwrap()
    }

    fn shown(text: &str) -> String {
        match Address::parse(text, &clock()) {
            Err(failure) => format!("error: {failure}"),
            Ok(address) => {
                let pattern = |pattern: &TopicPattern| match pattern {
                    TopicPattern::Exact(name) => name.clone(),
                    TopicPattern::Glob(glob) => format!("glob {}", glob.glob()),
                    TopicPattern::Regex(regex) => format!("regex {regex}"),
                };
                match &address {
                    Address::Topic(topic) => format!("topic {}", pattern(topic)),
                    Address::Partition(topic, number) => format!("partition {} {number}", pattern(topic)),
                    Address::Position(topic, number, at) => {
                        format!("position {} {number} {at:?}", pattern(topic))
                    }
                    Address::TopicOrSegment(name, _) => format!("topic or segment {name}"),
                    Address::Segment(id) => format!("segment {id}"),
                    Address::Key(key) => format!("key {key}"),
                }
            }
        }
    }

    #[test]
    fn an_address_says_what_it_means() {
        let lines = [
            "orders",
            "orders:3",
            "orders:3@42",
            "orders:0@2h",
            "orders:0@2026-01-01T00:00:00Z",
            "ord*",
            "ord*:1",
            "/^ord(ers)?$/",
            "/a:b@/:7",
            "uZ0Wkrd9RjCy4w8cr8Qh5Q",
            "id:uZ0Wkrd9RjCy4w8cr8Qh5Q",
            "key:plain.log",
            "kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w/00000000000000000000-uZ0Wkrd9RjCy4w8cr8Qh5Q.log",
            "orders@5",
            "orders:x",
            "orders:-1",
            "orders:+1",
            "orders:",
            "orders:1@",
            "orders:1@99999999999999999999",
            "orders:99999999999",
            "größe",
            "/(/",
            "/open",
            "id:short",
            "key:",
            "",
            ":1",
        ]
        .map(|text| format!("{text} -> {}", shown(text)));
        insta::assert_snapshot!(lines.join("\n"), @r#"
        orders -> topic orders
        orders:3 -> partition orders 3
        orders:3@42 -> position orders 3 Offset(42)
        orders:0@2h -> position orders 0 Time(1767304800000)
        orders:0@2026-01-01T00:00:00Z -> position orders 0 Time(1767225600000)
        ord* -> topic glob ord*
        ord*:1 -> partition glob ord* 1
        /^ord(ers)?$/ -> topic regex ^ord(ers)?$
        /a:b@/:7 -> partition regex a:b@ 7
        uZ0Wkrd9RjCy4w8cr8Qh5Q -> topic or segment uZ0Wkrd9RjCy4w8cr8Qh5Q
        id:uZ0Wkrd9RjCy4w8cr8Qh5Q -> segment uZ0Wkrd9RjCy4w8cr8Qh5Q
        key:plain.log -> key plain.log
        kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w/00000000000000000000-uZ0Wkrd9RjCy4w8cr8Qh5Q.log -> key kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w/00000000000000000000-uZ0Wkrd9RjCy4w8cr8Qh5Q.log
        orders@5 -> error: "orders@5" names a position without a partition: TOPIC:P@5
        orders:x -> error: "x" in "orders:x" is not a partition: a number from 0 is expected
        orders:-1 -> error: "-1" in "orders:-1" is not a partition: a number from 0 is expected
        orders:+1 -> error: "+1" in "orders:+1" is not a partition: a number from 0 is expected
        orders: -> error: "" in "orders:" is not a partition: a number from 0 is expected
        orders:1@ -> error: "" is not a TIME: RFC 3339 such as 2026-01-31T12:00:00Z, or a span back from now such as 2h
        orders:1@99999999999999999999 -> error: "99999999999999999999" in "orders:1@99999999999999999999" is beyond the largest offset
        orders:99999999999 -> error: "99999999999" in "orders:99999999999" is not a partition: a number from 0 is expected
        größe -> error: "größe" is not a topic name: up to 249 letters, digits, '.', '_' and '-' (globs and /regex/ work too)
        /(/ -> error: "/(/" is not a regular expression: error: unclosed group
        /open -> key /open
        id:short -> error: "short" is not a Kafka UUID: 22 characters of URL-safe base64 are expected
        key: -> error: an object key is missing after key:
         -> error: a topic name is missing
        :1 -> error: a topic name is missing
        "#);
    }

    #[test]
    fn a_selection_holds_what_its_addresses_name_less_what_is_excluded() {
        let id: Uuid = "uZ0Wkrd9RjCy4w8cr8Qh5Q".parse().unwrap();
        let selection = |addresses: &[&str], exclude: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
            Selection::parse(&owned(addresses), &owned(exclude), &clock()).unwrap()
        };
        assert!(selection(&[], &[]).has_partition("orders", 0));
        assert!(!selection(&[], &["ord*"]).has_partition("orders", 0));
        assert!(selection(&["orders:1", "pay*"], &[]).has_partition("payments", 7));
        assert!(!selection(&["orders:1"], &[]).has_partition("orders", 0));
        assert!(selection(&["uZ0Wkrd9RjCy4w8cr8Qh5Q"], &[]).has_segment("orders", 0, id));
        assert!(!selection(&["uZ0Wkrd9RjCy4w8cr8Qh5Q"], &[]).has_segment("orders", 0, Uuid::ZERO));
        assert_eq!(
            selection(&["orders:1", "orders:2@5"], &[]).exact_partitions(),
            Some(vec![("orders", 1), ("orders", 2)])
        );
        assert_eq!(selection(&["orders:1", "orders"], &[]).exact_partitions(), None);
        assert_eq!(selection(&[], &[]).exact_partitions(), None);
    }
}
