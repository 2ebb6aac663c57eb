//! Walks a directory as a store: its files are the objects.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::Sender;

use crate::store::Walked;
use crate::{ListError, ObjectInfo};

const PAGE_OBJECTS_MAX: usize = 1000;

/// Lists all files below `root`, depth first, and sends them page by page. Blocks; ends when nobody listens.
///
/// Symbolic links are followed, since the plugin follows them; one that leads to a directory above the root, or
/// to where another link has led, is reported instead, so that the walk ends. What vanishes meanwhile is passed
/// over; what cannot be read is reported.
pub(crate) fn walk(root: &Path, sender: &Sender<Walked>) {
    let mut walk = Walk { root, sender, page: Vec::new(), pending: Vec::new(), links: HashSet::new() };
    // `Err` says that nobody listens any more: then there is nobody to tell.
    let _ = walk.run();
}

struct Walk<'a> {
    root: &'a Path,
    sender: &'a Sender<Walked>,
    page: Vec<ObjectInfo>,
    /// Directories that wait. At most those of one branch and their siblings.
    pending: Vec<Place>,
    /// Where links to directories have led.
    links: HashSet<PathBuf>,
}

/// A directory: where it is on disk, and the key prefix that it stands for (the name may not be UTF-8).
struct Place {
    path: PathBuf,
    key: String,
}

/// What an entry of a directory is.
enum Found {
    Object {
        size_bytes: u64,
        last_modified_ms: i64,
    },
    Directory,
    /// A link that is not to be followed.
    LinkBack(PathBuf),
    /// Neither a file nor a directory, such as a socket: not an object.
    Other,
}

/// Nobody listens any more.
struct Abandoned;

impl Walk<'_> {
    fn run(&mut self) -> Result<(), Abandoned> {
        self.pending.push(Place { path: self.root.to_owned(), key: String::new() });
        while let Some(directory) = self.pending.pop() {
            self.read_directory(&directory)?;
        }
        // A root that is gone looks like one that was emptied.
        if !self.root.is_dir() {
            self.report(ListError::RootVanished { path: self.root.to_owned() })?;
        }
        self.send_page()?;
        self.send(Walked::End)
    }

    fn read_directory(&mut self, directory: &Place) -> Result<(), Abandoned> {
        let entries = match fs::read_dir(&directory.path) {
            Ok(entries) => entries,
            Err(error) => return self.report_unless_gone(&directory.key, error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.report_unless_gone(&directory.key, error),
            };
            let name = entry.file_name();
            let mut key = String::with_capacity(directory.key.len() + 1 + name.len());
            if !directory.key.is_empty() {
                key.push_str(&directory.key);
                key.push('/');
            }
            key.push_str(&name.to_string_lossy());
            match self.look(&entry) {
                Ok(Found::Object { size_bytes, last_modified_ms }) => {
                    self.page.push(ObjectInfo { key, size_bytes, last_modified_ms });
                }
                Ok(Found::Directory) => self.pending.push(Place { path: entry.path(), key }),
                Ok(Found::LinkBack(target)) => self.report(ListError::Link { what: key, target })?,
                Ok(Found::Other) => {}
                Err(error) => self.report_unless_gone(&key, error)?,
            }
            if self.page.len() == PAGE_OBJECTS_MAX {
                self.send_page()?;
            }
        }
        Ok(())
    }

    fn look(&mut self, entry: &fs::DirEntry) -> io::Result<Found> {
        let path = entry.path();
        // `fs::metadata` follows a link, `file_type` does not.
        let metadata = fs::metadata(&path)?;
        if metadata.is_file() {
            let last_modified_ms = unix_ms(metadata.modified()?);
            return Ok(Found::Object { size_bytes: metadata.len(), last_modified_ms });
        }
        if !metadata.is_dir() {
            return Ok(Found::Other);
        }
        if entry.file_type()?.is_symlink() {
            let target = fs::canonicalize(&path)?;
            if self.leads_back(&target) {
                return Ok(Found::LinkBack(target));
            }
        }
        Ok(Found::Directory)
    }

    /// True for a directory above the root, and for one to which a link has already led.
    fn leads_back(&mut self, target: &Path) -> bool {
        let above = fs::canonicalize(self.root).is_ok_and(|root| root.starts_with(target));
        above || !self.links.insert(target.to_owned())
    }

    fn report_unless_gone(&self, key: &str, source: io::Error) -> Result<(), Abandoned> {
        match source.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => self.report(ListError::Io { what: key.to_owned(), source }),
        }
    }

    fn report(&self, error: ListError) -> Result<(), Abandoned> {
        self.send(Walked::Page(Err(error)))
    }

    fn send_page(&mut self) -> Result<(), Abandoned> {
        if self.page.is_empty() {
            return Ok(());
        }
        let page = std::mem::take(&mut self.page);
        self.send(Walked::Page(Ok(page)))
    }

    fn send(&self, walked: Walked) -> Result<(), Abandoned> {
        self.sender.blocking_send(walked).map_err(|_| Abandoned)
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    let ms = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => ms(since),
        Err(before) => -ms(before.duration()),
    }
}
