//! Event files: JSON lines of events, facts, headers and summaries. The form is that of `events -o jsonl`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use strandline_tier::RecordValue;
use strandline_tier::json::{EventPosition, parse_event};

use crate::exit::Failure;
use crate::output::Incomplete;

/// How much of a file is taken at once.
const BLOCK_BYTES: usize = 1 << 20;
/// The longest line: no event comes near, and a line end that never comes must not fill the memory.
const LINE_BYTES_MAX: usize = 1 << 26;

/// An event file, read in blocks of whole lines.
pub(crate) struct EventFile {
    /// How messages call it.
    name: String,
    input: Box<dyn Read + Send>,
    carried: Vec<u8>,
    line: u64,
    ended: bool,
    /// The size, where it is known.
    pub(crate) size_bytes: Option<u64>,
}

/// Whole lines of a file, and the number of the first.
pub(crate) struct Block {
    /// The lines with their ends.
    pub(crate) bytes: Vec<u8>,
    /// The number of the first line, from 1.
    pub(crate) first_line: u64,
}

/// A line that holds something.
pub(crate) enum Line<'a> {
    /// A record of the metadata topic.
    Event(EventPosition, RecordValue<'a>),
    /// A line `{"kind":"fact"…}`, not looked into yet.
    Fact(&'a [u8]),
    /// A header or a summary.
    Envelope(Envelope),
}

/// What stands around the events that one run of a command wrote.
pub(crate) enum Envelope {
    /// The first line of a run.
    Header(Header),
    /// The last line of a run.
    Summary {
        /// What that run could not read.
        incomplete: Vec<Incomplete>,
        /// What its reader should know.
        warnings: Vec<String>,
    },
}

/// What a run says before its events, as far as it says it.
#[derive(Default)]
pub(crate) struct Header {
    /// The cluster that they were read from.
    pub(crate) cluster_id: Option<String>,
    /// How many partitions its metadata topic had.
    pub(crate) metadata_partitions: Option<i32>,
    /// Up to where each metadata partition was read, exclusive.
    pub(crate) metadata_offsets: BTreeMap<i32, i64>,
}

/// Whether a file is complete, by what it says of itself.
///
/// Lines without a header and a summary, as one writes them by hand, are complete. A header wants its summary.
#[derive(Default)]
pub(crate) struct Completeness {
    any_line: bool,
    open: bool,
    headers: Vec<Header>,
    incomplete: Vec<Incomplete>,
    warnings: Vec<String>,
}

impl Completeness {
    /// Notes that a block was read, and the headers and summaries in it; blocks come in the order of the file.
    pub(crate) fn push(&mut self, name: &str, any_line: bool, envelopes: Vec<Envelope>) {
        self.any_line |= any_line;
        for envelope in envelopes {
            match envelope {
                Envelope::Header(header) => {
                    self.cut(name);
                    self.open = true;
                    self.headers.push(header);
                }
                Envelope::Summary { incomplete, warnings } => {
                    self.open = false;
                    self.incomplete.extend(incomplete.into_iter().map(|missing| Incomplete {
                        what: format!("{name}: {}", missing.what),
                        reason: missing.reason,
                    }));
                    self.warnings.extend(warnings.into_iter().map(|warning| format!("{name}: {warning}")));
                }
            }
        }
    }

    /// How many partitions the metadata topic has, where every header says the same.
    pub(crate) fn metadata_partitions(&self) -> Option<i32> {
        let first = self.headers.first()?.metadata_partitions;
        first.filter(|_| self.headers.iter().all(|header| header.metadata_partitions == first))
    }

    /// The cluster, where every header says the same.
    pub(crate) fn cluster_id(&self) -> Option<&str> {
        let first = self.headers.first()?.cluster_id.as_deref();
        first.filter(|_| self.headers.iter().all(|header| header.cluster_id.as_deref() == first))
    }

    /// Up to where each metadata partition was read, by the first header.
    pub(crate) fn metadata_offsets(&self) -> BTreeMap<i32, i64> {
        self.headers.first().map(|header| header.metadata_offsets.clone()).unwrap_or_default()
    }

    /// How many headers there are.
    pub(crate) fn headers(&self) -> usize {
        self.headers.len()
    }

    /// What is missing from the file that was read to its end, and what its reader should know.
    pub(crate) fn finish(mut self, name: &str) -> (Vec<Incomplete>, Vec<String>) {
        self.cut(name);
        if !self.any_line {
            let reason = "it holds no event, and no summary that says that there is none".to_owned();
            self.incomplete.push(Incomplete { what: name.to_owned(), reason });
        }
        (self.incomplete, self.warnings)
    }

    fn cut(&mut self, name: &str) {
        if self.open {
            let what = format!("the end of {name}");
            let reason = "it was cut: a header has no summary behind its events".to_owned();
            self.incomplete.push(Incomplete { what, reason });
        }
    }
}

impl EventFile {
    /// Opens the file; `-` is stdin.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::new("stdin".to_owned(), Box::new(io::stdin()), None));
        }
        let name = path.display().to_string();
        let unreadable =
            |error: io::Error| Failure::usage(format!("event file {name} cannot be read: {error}"));
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(Failure::usage(format!("event file {name} is a directory"))
                .hint("--log-dir reads a broker's data directory"));
        }
        let size = metadata.is_file().then_some(metadata.len());
        Ok(Self::new(name, Box::new(file), size))
    }

    fn new(name: String, input: Box<dyn Read + Send>, size_bytes: Option<u64>) -> Self {
        Self { name, input, carried: Vec::new(), line: 1, ended: false, size_bytes }
    }

    /// How messages call the file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn read_block(&mut self) -> Result<Option<Block>, Failure> {
        let mut bytes = std::mem::take(&mut self.carried);
        while !self.ended {
            let before = bytes.len();
            let mut limited = (&mut self.input).take(BLOCK_BYTES as u64);
            let read = limited.read_to_end(&mut bytes).map_err(|error| {
                Failure::usage(format!("event file {} cannot be read to its end: {error}", self.name))
            })?;
            self.ended = read == 0;
            if let Some(end) = bytes[before..].iter().rposition(|&byte| byte == b'\n') {
                self.carried = bytes.split_off(before + end + 1);
                break;
            }
            if bytes.len() > LINE_BYTES_MAX {
                return Err(bad_line(&self.name, self.line, "the line is longer than 64 MiB"));
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let first_line = self.line;
        self.line += bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Ok(Some(Block { bytes, first_line }))
    }
}

impl Iterator for EventFile {
    type Item = Result<Block, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_block().transpose()
    }
}

impl Block {
    /// The lines that hold something, each with its number; `name` is how errors call the file.
    pub(crate) fn lines<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = Result<(u64, Line<'a>), Failure>> + 'a {
        let numbered = (self.first_line..).zip(self.bytes.split(|&byte| byte == b'\n'));
        numbered.filter(|(_, bytes)| !bytes.trim_ascii().is_empty()).map(move |(number, bytes)| {
            let line = line(bytes).map_err(|reason| bad_line(name, number, reason))?;
            Ok((number, line))
        })
    }
}

/// The failure for a line that cannot be used.
pub(crate) fn bad_line(name: &str, number: u64, reason: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{name} line {number}: {reason}"))
}

fn line(bytes: &[u8]) -> Result<Line<'_>, String> {
    let reason = match parse_event(bytes) {
        Ok((position, value)) => return Ok(Line::Event(position, value)),
        Err(error) => error,
    };
    // What is no event may be one of the rarer lines; only then is it worth a second look.
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    let kind = serde_json::from_slice::<Kind<'_>>(bytes).ok().filter(|_| is_object);
    match kind.as_ref().map(|line| &*line.kind) {
        Some("fact") => Ok(Line::Fact(bytes)),
        Some("header") => header(bytes).map(Line::Envelope),
        Some("summary") => summary(bytes).map(Line::Envelope),
        _ => {
            let mut text = reason.to_string();
            let mut cause = std::error::Error::source(&reason);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            Err(text)
        }
    }
}

/// The kind of a line; one that names two kinds has none.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

fn header(bytes: &[u8]) -> Result<Envelope, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct AsOf {
        metadata_offsets: BTreeMap<i32, i64>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Told {
        cluster_id: Option<String>,
        metadata_partitions: Option<i32>,
        as_of: AsOf,
    }
    let told: Told = serde_json::from_slice(bytes).map_err(|error| format!("the header: {error}"))?;
    let Told { cluster_id, metadata_partitions, as_of: AsOf { metadata_offsets } } = told;
    match metadata_partitions {
        Some(..=0) => Err("the header: metadata_partitions is not positive".to_owned()),
        _ => Ok(Envelope::Header(Header { cluster_id, metadata_partitions, metadata_offsets })),
    }
}

fn summary(bytes: &[u8]) -> Result<Envelope, String> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(default)]
        incomplete: Vec<Incomplete>,
        #[serde(default)]
        warnings: Vec<String>,
    }
    let told: Told = serde_json::from_slice(bytes).map_err(|error| format!("the summary: {error}"))?;
    Ok(Envelope::Summary { incomplete: told.incomplete, warnings: told.warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<String>, Failure> {
        let mut seen = Vec::new();
        let mut file = EventFile::new("test".to_owned(), Box::new(text.as_bytes()), None);
        while let Some(block) = file.next().transpose()? {
            for line in block.lines("test") {
                let (number, line) = line?;
                seen.push(match line {
                    Line::Event(position, _) => format!("{number} event {:?}", position.offset),
                    Line::Fact(_) => format!("{number} fact"),
                    Line::Envelope(Envelope::Header(_)) => format!("{number} header"),
                    Line::Envelope(Envelope::Summary { .. }) => format!("{number} summary"),
                });
            }
        }
        Ok(seen)
    }

    #[test]
    fn every_kind_of_line_is_told_apart_and_blank_ones_are_passed_over() {
        let text = "{\"kind\":\"header\",\"schema\":\"x\"}\n\n{\"offset\":7,\"kind\":\"null_value\"}\r\n{\"kind\":\"fact\",\"fact\":\"topics\",\"complete\":true}\n{\"kind\":\"summary\"}";
        assert_eq!(read(text).unwrap(), ["1 header", "3 event Some(7)", "4 fact", "5 summary"]);
        assert_eq!(read("").unwrap(), [""; 0]);
    }

    #[test]
    fn a_bad_line_is_an_error_with_its_number() {
        for (text, number) in [
            ("nonsense\n", 1),
            ("\n{\"kind\":\"null_value\"}\n{\"kind\":\"nul_value\"}\n", 3),
            ("{\"kind\":\"null_value\"}\n[]\n", 2),
            ("{\"kind\":\"null_value\"}\n{\"kind\":\"null_va", 2),
            ("{\"kind\":\"segment_metadata\"}\n", 1),
            ("{\"kind\":\"header\"}\n{\"kind\":\"summary\",\"incomplete\":7}\n", 2),
            ("{\"kind\":\"null_value\",\"kind\":\"fact\"}\n", 1),
            ("{\"kind\":\"fact\",\"kind\":\"null_value\"}\n", 1),
            ("[\"fact\"]\n", 1),
            ("{\"kind\":\"header\",\"metadata_partitions\":0}\n", 1),
            ("{\"kind\":\"header\",\"metadata_partitions\":\"five\"}\n", 1),
        ] {
            let failure = read(text).unwrap_err();
            assert_eq!(failure.exit.code(), 2);
            assert!(failure.to_string().starts_with(&format!("test line {number}: ")), "{failure}");
        }
    }
}
