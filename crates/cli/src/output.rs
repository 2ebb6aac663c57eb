//! What goes to stdout: tables for people, one JSON envelope or JSON lines for machines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};

use serde::{Deserialize, Serialize};
use strandline_audit::{NotChecked, Severity};

use crate::args::{DisplayArgs, OutputKind};
use crate::moment::{Clock, rfc3339};
use crate::text::{Sizes, escape};

/// How much is gathered before it goes to stdout.
const BUFFER_BYTES: usize = 1 << 16;

/// Where paragraphs break.
const LINE_WIDTH: u16 = 110;

/// What results look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tables and lines, for people.
    Table,
    /// One JSON document.
    Json,
    /// JSON lines.
    Jsonl,
}

/// How results are shown, and where they go.
pub(crate) struct Output {
    /// The form.
    pub(crate) kind: Form,
    /// True where tables have all their columns (`-o wide`).
    pub(crate) wide: bool,
    /// How sizes read.
    pub(crate) sizes: Sizes,
    /// Now, and the zone of times on screens.
    pub(crate) clock: Clock,
    colour: bool,
    width: Option<u16>,
    writer: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// The output that the flags, the environment and the terminal ask for.
    pub(crate) fn new(args: &DisplayArgs, clock: Clock) -> Self {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        let wide = args.output == OutputKind::Wide;
        let width = (terminal && !wide).then(terminal_size::terminal_size).flatten();
        Self {
            kind: match args.output {
                OutputKind::Table | OutputKind::Wide => Form::Table,
                OutputKind::Json => Form::Json,
                OutputKind::Jsonl => Form::Jsonl,
            },
            wide,
            sizes: if args.bytes { Sizes::Exact } else { Sizes::Iec },
            clock,
            colour: colour_wanted(terminal, |name| std::env::var(name).ok()),
            width: width.map(|(width, _)| width.0),
            writer: BufWriter::with_capacity(BUFFER_BYTES, stdout),
        }
    }

    /// How many columns the terminal has; none where the output is no terminal, or is not to be cut.
    pub(crate) fn width(&self) -> Option<u16> {
        self.width
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(text.as_bytes())
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes a heading: what a reader looks for who looks for a place.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        if self.colour { self.line(&format!("\x1b[1m{text}\x1b[0m")) } else { self.line(text) }
    }

    /// Forgets what is written and not handed on yet.
    pub(crate) fn discard(&mut self) {
        let stdout = io::stdout().lock();
        let old = std::mem::replace(&mut self.writer, BufWriter::with_capacity(BUFFER_BYTES, stdout));
        drop(old.into_parts());
    }

    /// Hands everything on to the reader.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Writes text broken into lines of readable length, each after `indent`.
    pub(crate) fn paragraph(&mut self, text: &str, indent: &str) -> io::Result<()> {
        let width = self.width.unwrap_or(LINE_WIDTH).min(LINE_WIDTH);
        self.text(&broken_lines(&escape(text), indent, usize::from(width)))
    }

    /// Writes a line that a terminal gets broken into lines that fit it, and a pipe whole. The text must be harmless.
    pub(crate) fn wrapped(&mut self, text: &str, indent: &str) -> io::Result<()> {
        let width = self.width.map_or(usize::MAX, usize::from);
        self.text(&broken_lines(text, indent, width))
    }

    /// Writes text broken into lines of readable length, the first after `before`, which takes `indent` columns, the
    /// others below it.
    pub(crate) fn hanging(&mut self, before: &str, indent: usize, text: &str) -> io::Result<()> {
        let width = self.width.unwrap_or(LINE_WIDTH).min(LINE_WIDTH);
        self.below(before, indent, &escape(text), usize::from(width))
    }

    /// As [`Output::wrapped`], the first line after `before`, the others below it. The text must be harmless.
    pub(crate) fn wrapped_below(&mut self, before: &str, text: &str) -> io::Result<()> {
        let width = self.width.map_or(usize::MAX, usize::from);
        self.below(before, display_width(before), text, width)
    }

    fn below(&mut self, before: &str, indent: usize, text: &str, width: usize) -> io::Result<()> {
        let mut before = before.to_owned();
        for line in broken_lines(text, "", width.saturating_sub(indent)).lines() {
            self.line(format!("{before}{line}").trim_end())?;
            before = " ".repeat(indent);
        }
        Ok(())
    }

    /// Text in a colour of the terminal, by its number; as it is where colour is off.
    pub(crate) fn coloured(&self, text: &str, colour: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// As [`Output::wrapped`], after a severity word, which carries its colour where colour is on.
    pub(crate) fn severity_line(&mut self, severity: Severity, text: &str) -> io::Result<()> {
        let width = self.width.map_or(usize::MAX, usize::from);
        let lines = broken_lines(&format!("{severity} {text}"), "", width);
        let lines = lines.replacen(severity.as_str(), &self.severity(severity), 1);
        self.text(&lines)
    }

    /// Writes a table; nothing at all without rows.
    pub(crate) fn table(&mut self, grid: &Grid) -> io::Result<()> {
        let text = grid.render(self.width);
        if !self.colour {
            return self.text(&text);
        }
        for line in text.lines() {
            self.coloured_line(line)?;
        }
        Ok(())
    }

    /// Writes a line whose first word may be a severity; where colour is on, that word carries it.
    fn coloured_line(&mut self, line: &str) -> io::Result<()> {
        let word = line.trim_start().split(' ').next().unwrap_or_default();
        let code = match word {
            "damage" => "31",
            "risk" => "33",
            "cost" => "36",
            "info" => "2",
            _ if !line.is_empty() && word.chars().all(|c| c.is_ascii_uppercase()) => "1",
            _ => return self.line(line),
        };
        let (before, after) = line.split_once(word).unwrap_or((line, ""));
        // A heading is one colour over the whole line.
        if code == "1" {
            return self.line(&format!("\x1b[1m{line}\x1b[0m"));
        }
        self.line(&format!("{before}\x1b[{code}m{word}\x1b[0m{after}"))
    }

    /// A severity word, coloured where colour is on.
    pub(crate) fn severity(&self, severity: Severity) -> String {
        let code = match severity {
            Severity::Damage => "31",
            Severity::Risk => "33",
            Severity::Cost => "36",
            Severity::Info => "2",
        };
        if self.colour { format!("\x1b[{code}m{severity}\x1b[0m") } else { severity.to_string() }
    }

    /// Writes rows as the envelope (json) or as header, rows and summary (jsonl). Rows are written one by one.
    pub(crate) fn machine<T: Serialize>(
        &mut self,
        about: &About,
        items: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        match self.kind {
            Form::Jsonl => {
                self.json_line(&about.header())?;
                let mut count = 0_u64;
                for item in items {
                    self.json_line(&item)?;
                    count += 1;
                }
                self.json_line(&about.summary(count))
            }
            Form::Json | Form::Table => {
                self.envelope_items(about, items)?;
                self.text(&about.envelope_tail())
            }
        }
    }

    /// Writes the envelope up to the end of its items; [`About::envelope_tail`] is still due.
    pub(crate) fn envelope_items<T: Serialize>(
        &mut self,
        about: &About,
        items: impl IntoIterator<Item = T>,
    ) -> io::Result<()> {
        self.text(&about.envelope_head())?;
        let mut separator = "\n    ";
        for item in items {
            self.text(separator)?;
            separator = ",\n    ";
            write_json(&mut self.writer, &item)?;
        }
        self.text(if separator.starts_with(',') { "\n  ]" } else { "]" })
    }

    /// Writes one value as a line of JSON.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        write_json(&mut self.writer, value)?;
        self.text("\n")
    }
}

/// Text as lines of at most `width` characters, as far as its words allow, each after `indent`.
fn broken_lines(text: &str, indent: &str, width: usize) -> String {
    let width = width.saturating_sub(indent.len()).max(20);
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push_str(&format!("{indent}{line}\n"));
    lines
}

/// Colour: never with `NO_COLOR` or a dumb terminal, always with `CLICOLOR_FORCE`, else on a terminal.
fn colour_wanted(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| variable(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") || variable("TERM").as_deref() == Some("dumb") {
        return false;
    }
    let forced = variable("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    forced || terminal
}

/// Data that was asked for and could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Incomplete {
    /// What is missing.
    pub(crate) what: String,
    /// Why.
    pub(crate) reason: String,
}

/// What every machine output says beside its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// `strandline.audit/v1` and the like.
    pub(crate) schema: &'static str,
    /// The cluster, where the sources name it.
    pub(crate) cluster_id: Option<String>,
    /// When the facts were true.
    pub(crate) as_of_ms: i64,
    /// Per metadata partition the offset up to which it was read, exclusive.
    pub(crate) metadata_offsets: BTreeMap<i32, i64>,
    /// How many partitions the metadata topic has, said where rows are events: only with it can a reader tell which of
    /// them lie where they belong.
    pub(crate) metadata_partitions: Option<i32>,
    /// What the reader should know.
    pub(crate) warnings: Vec<String>,
    /// Rules that these sources cannot decide.
    pub(crate) not_checked: Vec<NotChecked>,
    /// What could not be read.
    pub(crate) incomplete: Vec<Incomplete>,
}

#[derive(Serialize)]
struct AsOf<'a> {
    time: Option<String>,
    metadata_offsets: &'a BTreeMap<i32, i64>,
}

#[derive(Serialize)]
pub(crate) struct Header<'a> {
    kind: &'static str,
    schema: &'static str,
    cluster_id: Option<&'a str>,
    as_of: AsOf<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_partitions: Option<i32>,
}

#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    kind: &'static str,
    count: u64,
    warnings: &'a [String],
    not_checked: &'a [NotChecked],
    incomplete: &'a [Incomplete],
}

impl About {
    fn as_of(&self) -> AsOf<'_> {
        AsOf { time: rfc3339(self.as_of_ms), metadata_offsets: &self.metadata_offsets }
    }

    /// The first line of jsonl.
    pub(crate) fn header(&self) -> Header<'_> {
        Header {
            kind: "header",
            schema: self.schema,
            cluster_id: self.cluster_id.as_deref(),
            as_of: self.as_of(),
            metadata_partitions: self.metadata_partitions,
        }
    }

    /// The last line of jsonl.
    pub(crate) fn summary(&self, count: u64) -> Summary<'_> {
        Summary {
            kind: "summary",
            count,
            warnings: &self.warnings,
            not_checked: &self.not_checked,
            incomplete: &self.incomplete,
        }
    }

    /// The envelope up to and with the opening bracket of `items`.
    pub(crate) fn envelope_head(&self) -> String {
        let partitions = self.metadata_partitions;
        let partitions = partitions.map(|count| format!("\n  \"metadata_partitions\": {count},"));
        format!(
            "{{\n  \"schema\": {},\n  \"cluster_id\": {},\n  \"as_of\": {},{}\n  \"items\": [",
            json(&self.schema),
            json(&self.cluster_id),
            json(&self.as_of()),
            partitions.unwrap_or_default(),
        )
    }

    /// The envelope after the closing bracket of `items`.
    pub(crate) fn envelope_tail(&self) -> String {
        format!(
            ",\n  \"warnings\": {},\n  \"not_checked\": {},\n  \"incomplete\": {}\n}}\n",
            json(&self.warnings),
            json(&self.not_checked),
            json(&self.incomplete),
        )
    }
}

/// JSON text of a value that cannot fail to be written: strings, numbers, lists and maps of them.
fn json<T: Serialize>(value: &T) -> String {
    let mut text = Vec::new();
    write_json(&mut text, value).expect("strings, numbers, lists and maps have a JSON form");
    String::from_utf8(text).expect("JSON is text")
}

/// Writes JSON in which all control characters are escaped, more than JSON asks for: a terminal obeys some of them.
fn write_json<T: Serialize>(writer: impl io::Write, value: &T) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, Harmless)).map_err(io::Error::from)
}

/// Compact JSON. The serializer itself escapes what lies below U+0020.
struct Harmless;

impl serde_json::ser::Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        mut fragment: &str,
    ) -> io::Result<()> {
        while let Some(at) = fragment.find(|c| matches!(c, '\x7f'..='\u{9f}')) {
            let (harmless, rest) = fragment.split_at(at);
            let mut rest = rest.chars();
            let control = rest.next().map_or(0, u32::from);
            write!(writer, "{harmless}\\u{control:04x}")?;
            fragment = rest.as_str();
        }
        writer.write_all(fragment.as_bytes())
    }
}

/// The rows of a table.
pub(crate) struct Grid {
    headings: Vec<String>,
    numeric: Vec<usize>,
    rows: Vec<Vec<String>>,
    prose: bool,
}

impl Grid {
    /// A table with these headings; a heading that ends in `>` is a column of numbers, aligned right.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let numeric = headings.iter().enumerate().filter(|(_, text)| text.ends_with('>')).map(|(at, _)| at);
        Self {
            numeric: numeric.collect(),
            headings: headings.iter().map(|text| text.trim_end_matches('>').to_owned()).collect(),
            rows: Vec::new(),
            prose: false,
        }
    }

    /// A table whose headings are the names of a row's fields; fields that hold numbers are aligned right.
    pub(crate) fn of_fields(row: &serde_json::Map<String, serde_json::Value>) -> Self {
        let numeric = row.values().enumerate().filter(|(_, value)| value.is_number()).map(|(at, _)| at);
        Self {
            numeric: numeric.collect(),
            headings: row.keys().map(|name| name.to_uppercase()).collect(),
            rows: Vec::new(),
            prose: false,
        }
    }

    /// The same with a last column of sentences, which are broken into lines below each other instead of being cut.
    pub(crate) fn with_prose(self) -> Self {
        Self { prose: true, ..self }
    }

    /// Adds a row; foreign text is made harmless here.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells.into_iter().map(|cell| escape(&cell).into_owned()).collect());
    }

    /// True without rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines. Where they would be longer than `width`, the columns at the right end are left out, and a last one of
    /// long text is cut; a line at the end says so.
    pub(crate) fn render(&self, width: Option<u16>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let columns = self.headings.iter().enumerate();
        let natural: Vec<usize> = columns
            .map(|(at, heading)| {
                let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| display_width(cell));
                cells.chain([display_width(heading)]).max().unwrap_or(0)
            })
            .collect();
        let widths = fitting(&natural, width.map_or(usize::MAX, usize::from));
        // Every column is there, and only the last one narrower than it would be.
        let broken = self.prose && widths.len() == natural.len() && widths != natural;
        let mut text = String::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            if let (true, Some((prose, cells))) = (broken, row.split_last()) {
                text.push_str(&self.broken_row(cells, prose, &widths));
                continue;
            }
            text.push_str(self.line(row, &widths).trim_end());
            text.push('\n');
        }
        if widths != natural && !broken {
            text.push_str("(cut to fit: -o wide shows all)\n");
        }
        text
    }
}

impl Grid {
    /// Cells beside each other, each as wide as its column.
    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if at > 0 {
                line.push_str(COLUMN_GAP);
            }
            let cell = cut(cell, *width);
            let gap = " ".repeat(width - display_width(&cell));
            let (before, after) =
                if self.numeric.contains(&at) { (gap, String::new()) } else { (String::new(), gap) };
            line.extend([before, cell.into_owned(), after]);
        }
        line
    }

    /// A row whose last cell goes on in lines of its own, below its beginning.
    fn broken_row(&self, cells: &[String], prose: &str, widths: &[usize]) -> String {
        let mut before = self.line(cells, widths) + COLUMN_GAP;
        let indent = " ".repeat(display_width(&before));
        let mut text = String::new();
        for line in broken_lines(prose, "", widths.last().copied().unwrap_or(1)).lines() {
            text.push_str(&format!("{before}{line}\n"));
            before.clone_from(&indent);
        }
        text
    }
}

/// Between two columns.
const COLUMN_GAP: &str = "  ";
/// A last column that needs more than this is text that may be cut; others are shown whole or not at all.
const TEXT_COLUMN_WIDTH: usize = 30;

/// The widths of the columns that fit, at least one.
fn fitting(natural: &[usize], width: usize) -> Vec<usize> {
    let mut left = width;
    let mut widths = Vec::with_capacity(natural.len());
    for (at, wanted) in natural.iter().enumerate() {
        let gap = if at == 0 { 0 } else { COLUMN_GAP.len() };
        let room = left.saturating_sub(gap);
        if *wanted <= room {
            widths.push(*wanted);
            left = room - wanted;
            continue;
        }
        let text = *wanted > TEXT_COLUMN_WIDTH && room >= TEXT_COLUMN_WIDTH / 2;
        if text || at == 0 {
            widths.push(room.max(1));
        }
        break;
    }
    widths
}

/// How many columns of a terminal the text takes.
fn display_width(text: &str) -> usize {
    text.chars().filter_map(unicode_width::UnicodeWidthChar::width).sum()
}

/// The text, cut to `width` columns: sentences at their end, and what has no spaces (keys, names) in its middle, since
/// both ends tell it from others.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if display_width(text) <= width {
        return Cow::Borrowed(text);
    }
    let room = width.saturating_sub(1);
    let tail = if text.contains(' ') { 0 } else { room / 2 };
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| -> String {
        let mut used = 0;
        chars
            .take_while(|c| {
                used += unicode_width::UnicodeWidthChar::width(*c).unwrap_or(0);
                used <= room
            })
            .collect()
    };
    let head = take(&mut text.chars(), room - tail);
    let tail: String = take(&mut text.chars().rev(), tail).chars().rev().collect();
    Cow::Owned(format!("{head}…{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_in_json_can_steer_a_terminal() {
        assert_eq!(
            json(&"a\x1b[1m\x7f\u{9b}31m\u{80}\u{9f}\u{a0}ö\"\n"),
            r#""a\u001b[1m\u007f\u009b31m\u0080\u009f ö\"\n""#.replace(' ', "\u{a0}")
        );
        let name = "b\u{9b}\u{85}c";
        assert_eq!(serde_json::from_str::<String>(&json(&name)).unwrap(), name);
    }

    #[test]
    fn colour_hears_the_environment() {
        let wanted = |terminal, set: &[(&str, &str)]| {
            colour_wanted(terminal, |name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(wanted(true, &[]));
        assert!(!wanted(false, &[]));
        assert!(!wanted(true, &[("NO_COLOR", "1")]));
        assert!(wanted(true, &[("NO_COLOR", "")]), "an empty NO_COLOR counts as unset");
        assert!(wanted(false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!wanted(false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!wanted(true, &[("TERM", "dumb")]));
        assert!(!wanted(false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn a_table_is_plain_columns() {
        let mut grid = Grid::new(&["TOPIC", "SEGMENTS>", "STATE"]);
        grid.row(vec!["orders".to_owned(), "12".to_owned(), "ok".to_owned()]);
        grid.row(vec!["p\x1b[2J".to_owned(), "1".to_owned(), "ok".to_owned()]);
        insta::assert_snapshot!(grid.render(None), @r"
        TOPIC       SEGMENTS  STATE
        orders            12  ok
        p\u{1b}[2J         1  ok
        ");
        assert_eq!(Grid::new(&["A"]).render(None), "");
    }

    #[test]
    fn a_table_that_is_too_wide_loses_its_last_columns_and_never_wraps() {
        let mut grid = Grid::new(&["TOPIC", "SEGMENTS>", "NEWEST RECORD", "KEY"]);
        let key = "kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w/00000000000000000000-uZ0Wkrd9RjCy4w8cr8Qh5Q.log";
        grid.row(vec![
            "größe".to_owned(),
            "12".to_owned(),
            "2026-01-31 12:00:00Z".to_owned(),
            key.to_owned(),
        ]);
        insta::assert_snapshot!(grid.render(Some(80)), @"
        TOPIC  SEGMENTS  NEWEST RECORD         KEY
        größe        12  2026-01-31 12:00:00Z  kafka-tiered-storage…d9RjCy4w8cr8Qh5Q.log
        (cut to fit: -o wide shows all)
        ");
        insta::assert_snapshot!(grid.render(Some(50)), @"
        TOPIC  SEGMENTS  NEWEST RECORD
        größe        12  2026-01-31 12:00:00Z
        (cut to fit: -o wide shows all)
        ");
        insta::assert_snapshot!(grid.render(Some(20)), @"
        TOPIC  SEGMENTS
        größe        12
        (cut to fit: -o wide shows all)
        ");
        for width in 32..=90 {
            let lines = grid.render(Some(width));
            let too_long = lines.lines().find(|line| display_width(line) > usize::from(width));
            assert_eq!(too_long, None, "{width}");
        }
        let mut grid = Grid::new(&["CODE", "FIRST"]);
        grid.row(vec!["obj.missing".to_owned(), "the data object of segment 12 is gone for ever".to_owned()]);
        insta::assert_snapshot!(grid.render(Some(40)), @"
        CODE         FIRST
        obj.missing  the data object of segment…
        (cut to fit: -o wide shows all)
        ");
        assert!(grid.render(Some(1)).lines().next().unwrap().chars().count() <= 1);
    }

    #[test]
    fn sentences_go_on_below_each_other() {
        let mut grid = Grid::new(&["FOUND>", "CODE", "WHAT HAPPENED"]).with_prose();
        let happened = "somebody tidied the bucket, and nobody was asked";
        grid.row(vec!["1".to_owned(), "obj.missing".to_owned(), happened.to_owned()]);
        grid.row(vec!["12".to_owned(), "part.gap".to_owned(), "lost".to_owned()]);
        insta::assert_snapshot!(grid.render(Some(48)), @"
        FOUND  CODE         WHAT HAPPENED
            1  obj.missing  somebody tidied the bucket,
                            and nobody was asked
           12  part.gap     lost
        ");
        insta::assert_snapshot!(grid.render(None), @"
        FOUND  CODE         WHAT HAPPENED
            1  obj.missing  somebody tidied the bucket, and nobody was asked
           12  part.gap     lost
        ");
        // Without room for sentences their column goes, as any other does.
        insta::assert_snapshot!(grid.render(Some(24)), @"
        FOUND  CODE
            1  obj.missing
           12  part.gap
        (cut to fit: -o wide shows all)
        ");
    }
}
