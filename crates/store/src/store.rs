//! A store that is open for reading.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::sync::mpsc;

use crate::{Layout, StoreUrl, directory};

/// A store and the layout of the keys in it. Reads only.
#[derive(Clone, Debug)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    root: PathBuf,
    layout: &'static Layout,
}

/// An object as a listing or a look at it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The key, below the store's URL, parts divided by `/`, without a leading slash. Exact, control
    /// characters included; bytes that are not UTF-8 stand as U+FFFD (no layout has such a key).
    pub key: String,
    /// The size in bytes.
    pub size_bytes: u64,
    /// When the object was last written, in milliseconds since 1970.
    pub last_modified_ms: i64,
}

/// The store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such directory. The URL is wrong, or a disk is not mounted.
    #[error("the store's directory {} does not exist", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// It is there, and is not a directory. The URL is wrong.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// What the URL names.
        path: PathBuf,
    },
    /// The directory holds the partitions themselves: the URL has to name the one above.
    #[error("{} is the directory below the one that the plugin's setting `dir` names; use file://{}", path.display(), parent.display())]
    BelowRoot {
        /// What the URL names.
        path: PathBuf,
        /// What it should name.
        parent: PathBuf,
    },
    /// The operating system refuses to look at it.
    #[error("cannot open {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A part of the store that a listing could not see. The listing goes on and is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// A directory or one of its entries cannot be read.
    #[error("cannot read {what:?} in the store")]
    Io {
        /// The key prefix (a directory) or the key that is affected; empty for the whole store.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A symbolic link that would list a directory twice or never end. It was not followed.
    #[error("{what:?} is a symbolic link to {}, which lies above the store or is listed through another link", target.display())]
    Link {
        /// The key prefix that the link stands for.
        what: String,
        /// Where it leads.
        target: PathBuf,
    },
    /// The directory was there when the store was opened, and is gone.
    #[error("{} vanished during the listing", path.display())]
    RootVanished {
        /// The store's directory.
        path: PathBuf,
    },
    /// The listing's own task ended before its end.
    #[error("the listing was interrupted")]
    Interrupted,
}

/// An object cannot be looked at, so that nothing is known about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The store cannot be asked for a key with such characters. No layout has one.
    #[error("the key {key:?} cannot be asked for")]
    Key {
        /// The key.
        key: String,
    },
    /// The store refuses or fails.
    #[error("cannot look at {key:?}")]
    Store {
        /// The key.
        key: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Store {
    /// Opens a store. Looks at the directory once and reads nothing in it.
    ///
    /// Errors say what the URL should have been. Blocks for a few file system calls.
    pub fn open(url: &StoreUrl, layout: &'static Layout) -> Result<Self, OpenError> {
        let StoreUrl::Directory(path) = url;
        let io = |source| OpenError::Io { path: path.clone(), source };
        let root = std::path::absolute(path).map_err(io)?;
        match std::fs::metadata(&root) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(OpenError::NotADirectory { path: path.clone() }),
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::NotFound { path: path.clone() });
            }
            Err(source) => return Err(io(source)),
        }
        if let Some(parent) = layout.parent_if_below_root(&root) {
            return Err(OpenError::BelowRoot { path: path.clone(), parent: parent.to_owned() });
        }
        let objects = LocalFileSystem::new_with_prefix(&root).map_err(|error| io(io::Error::other(error)))?;
        Ok(Self { objects: Arc::new(objects), root, layout })
    }

    /// The layout of the keys.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// Starts to list every object of the store, in no order. Needs a tokio runtime.
    ///
    /// One task walks the store ahead of the reader by a few pages at most. Empty directories are not objects.
    /// An object that vanishes or appears during the walk may or may not be in the listing.
    pub fn list(&self) -> Listing {
        let (sender, receiver) = mpsc::channel(PAGES_AHEAD_MAX);
        let root = self.root.clone();
        // Not `LocalFileSystem::list`: that one ends at the first name that is not UTF-8, and passes in silence
        // over an entry that it may not or cannot look at, which would then be reported as a missing object.
        tokio::task::spawn_blocking(move || directory::walk(&root, &sender));
        Listing { receiver, done: false }
    }

    /// Looks at one object; `None` means that it is not there.
    ///
    /// Cancel safe. An error means that nothing is known about the object.
    pub async fn head(&self, key: &str) -> Result<Option<ObjectInfo>, HeadError> {
        let unusable = |_| HeadError::Key { key: key.to_owned() };
        let path = object_store::path::Path::parse(key).map_err(unusable)?;
        if path.as_ref() != key {
            return Err(HeadError::Key { key: key.to_owned() });
        }
        match self.objects.head(&path).await {
            Ok(meta) => Ok(Some(ObjectInfo {
                key: key.to_owned(),
                size_bytes: meta.size,
                last_modified_ms: meta.last_modified.timestamp_millis(),
            })),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(HeadError::Store { key: key.to_owned(), source: Box::new(source) }),
        }
    }
}

impl Layout {
    /// The directory that a URL should have named, where it names the one that this layout makes below it.
    fn parent_if_below_root<'a>(&self, root: &'a Path) -> Option<&'a Path> {
        let made = self.root_directory?;
        (root.file_name()? == made && !root.join(made).exists()).then(|| root.parent())?
    }
}

/// Pages that wait for the reader.
const PAGES_AHEAD_MAX: usize = 4;

/// A page of a listing: never empty, at most a thousand objects; or what could not be seen.
pub(crate) type Page = Result<Vec<ObjectInfo>, ListError>;

/// What the walk sends: pages, and the word that there are no more.
pub(crate) enum Walked {
    Page(Page),
    End,
}

/// A running listing.
#[derive(Debug)]
pub struct Listing {
    receiver: mpsc::Receiver<Walked>,
    done: bool,
}

impl Listing {
    /// The next page: never empty, at most a thousand objects. `None` after the last.
    ///
    /// An error names a part that could not be seen; more pages follow it. **Only a listing without any error
    /// is complete.** Cancel safe: a dropped call loses no page.
    pub async fn next_page(&mut self) -> Option<Result<Vec<ObjectInfo>, ListError>> {
        if self.done {
            return None;
        }
        match self.receiver.recv().await {
            Some(Walked::Page(page)) => Some(page),
            Some(Walked::End) => {
                self.done = true;
                None
            }
            None => {
                self.done = true;
                Some(Err(ListError::Interrupted))
            }
        }
    }
}
