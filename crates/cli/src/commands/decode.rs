//! `decode`: any single artefact.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;

use serde_json::Value;
use strandline_tier::json::parse_event;

use crate::args::DecodeArgs;
use crate::decode::{Broken, Kind, Row, base_offset, log_segment_rows, rows};
use crate::event_line::{event_line, fit, table_heading};
use crate::exit::{Exit, Failure};
use crate::output::{About, Form, Grid, Incomplete, Output};
use crate::text::escape;

const SCHEMA: &str = "strandline.decode/v1";
/// How much of a file tells what it is.
const HEAD_BYTES: u64 = 64 << 10;
/// The largest file that is read as a whole. Indexes have 10 MiB at most by default (`segment.index.bytes`), a producer
/// snapshot 46 bytes for each producer.
const WHOLE_BYTES_MAX: u64 = 128 << 20;

/// Prints what the file holds. What cannot be read is told, and the rows before it are printed (exit 6).
pub(crate) fn run(args: &DecodeArgs, output: &mut Output) -> Result<Exit, Failure> {
    let file = Input::open(&args.file)?;
    let name = args.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let shown = args.file.display();
    let Some(kind) = Kind::of(&name, &file.head) else {
        return Err(Failure::usage(format!("{shown} is no artefact that is known here")).hint(
            "known are log segments, .index, .timeindex and .txnindex files, producer .snapshot files, checkpoints, and raw events in hex",
        ));
    };
    let mut about = About { schema: SCHEMA, as_of_ms: output.clock.now_ms, ..About::default() };
    let mut broken = None;
    let mut count = 0_u64;
    let metadata_partition = metadata_partition(&args.file);
    let bytes;
    let decoded: Box<dyn Iterator<Item = Result<Row, Broken>> + '_> = if kind == Kind::LogSegment {
        Box::new(log_segment_rows(Cursor::new(file.head).chain(file.rest)))
    } else {
        bytes = file.whole(kind, &args.file)?;
        rows(kind, &bytes, base_offset(&name))
    };
    let mut items = decoded.map_while(|row| match row {
        Ok(row) => {
            count += 1;
            Some(placed(row, metadata_partition))
        }
        Err(error) => {
            broken = Some(error);
            None
        }
    });
    match output.kind {
        Form::Table => table(output, &mut items)?,
        Form::Jsonl => {
            output.json_line(&about.header())?;
            for row in &mut items {
                output.json_line(&row)?;
            }
        }
        Form::Json => output.envelope_items(&about, &mut items)?,
    }
    drop(items);
    if let Some(broken) = &broken {
        if count == 0 {
            output.discard();
            return Err(Failure::usage(format!("{shown} is not a readable {}: {broken}", kind.name())));
        }
        about
            .incomplete
            .push(Incomplete { what: format!("the rest of {shown}"), reason: broken.to_string() });
        eprintln!("warning: {}", escape(&format!("{shown} cannot be read further: {broken}")));
    }
    match output.kind {
        Form::Table => {}
        Form::Jsonl => output.json_line(&about.summary(count))?,
        Form::Json => output.text(&about.envelope_tail())?,
    }
    Ok(if broken.is_some() { Exit::Incomplete } else { Exit::Done })
}

/// The partition that the file's directory, `TOPIC-PARTITION`, is named for.
fn metadata_partition(path: &Path) -> Option<i32> {
    let directory = path.parent()?.file_name()?.to_str()?;
    directory.rsplit_once('-')?.1.parse().ok()
}

/// An event with the partition that its file belongs to; other rows as they are.
fn placed(row: Row, metadata_partition: Option<i32>) -> Row {
    let (Some(partition), true) =
        (metadata_partition, row.contains_key("kind") && row.contains_key("offset"))
    else {
        return row;
    };
    let mut placed = Row::new();
    placed.insert("metadata_partition".to_owned(), partition.into());
    placed.extend(row);
    placed
}

/// An event as `events` shows it; `None` for other rows.
fn event(row: &Row, output: &Output) -> Option<String> {
    let line = serde_json::to_vec(row).ok()?;
    let (position, value) = parse_event(&line).ok()?;
    Some(event_line(&output.clock, &position, &value))
}

/// The file or stdin: its beginning, by which it is recognised, and the rest, which is read when it is wanted.
struct Input {
    head: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Input {
    fn open(path: &Path) -> Result<Self, Failure> {
        let mut rest: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(|error| unreadable(path, &error))?)
        };
        let mut head = Vec::new();
        rest.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| unreadable(path, &error))?;
        Ok(Self { head, rest })
    }

    /// All of it; what is larger than such an artefact can be is refused.
    fn whole(mut self, kind: Kind, path: &Path) -> Result<Vec<u8>, Failure> {
        let room = WHOLE_BYTES_MAX + 1 - self.head.len() as u64;
        let read = self.rest.take(room).read_to_end(&mut self.head);
        read.map_err(|error| unreadable(path, &error))?;
        if self.head.len() as u64 > WHOLE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{} is larger than {} MiB, and a readable {} is not: only log segments may be",
                path.display(),
                WHOLE_BYTES_MAX >> 20,
                kind.name()
            )));
        }
        Ok(self.head)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}", path.display()))
}

/// Events as `events` shows them. Other rows as a table whose columns are the fields.
fn table(output: &mut Output, rows: &mut dyn Iterator<Item = Row>) -> io::Result<()> {
    /// How many rows are laid out together: enough for steady columns, and little memory.
    const ROWS_TOGETHER: usize = 1000;
    let mut fields: Vec<String> = Vec::new();
    let mut grid: Option<Grid> = None;
    let mut held = 0;
    let mut events = false;
    for row in rows {
        if let Some(line) = event(&row, output) {
            if !std::mem::replace(&mut events, true) {
                let heading = fit(&table_heading(), output.width()).into_owned();
                output.text(&heading)?;
            }
            output.text(&fit(&line, output.width()))?;
            continue;
        }
        let same = row.keys().eq(fields.iter());
        if !same || held == ROWS_TOGETHER {
            if let Some(grid) = grid.take() {
                output.table(&grid)?;
            }
            fields = row.keys().cloned().collect();
            held = 0;
        }
        let grid = grid.get_or_insert_with(|| Grid::of_fields(&row));
        grid.row(row.values().map(cell).collect());
        held += 1;
    }
    grid.map_or(Ok(()), |grid| output.table(&grid))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
