//! What a listing of a directory shows, and what it never hides.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the tests do")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use strandline_store::{HeadError, Layout, ListError, OpenError, Store, StoreUrl};
use tempfile::TempDir;

const KEY: &str =
    "kafka-tiered-storage/orders-0-vaZwr6blSEWMAbm7z-tW-w/00000000000000002048-bI-hfDx_TbelfaFXX2nvqg.log";

fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(&StoreUrl::Directory(directory.to_owned()), Layout::by_name("local").unwrap())
}

fn write(directory: &TempDir, key: impl AsRef<Path>, bytes: usize) {
    let path = directory.path().join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![b'x'; bytes]).unwrap();
}

/// `key size` per object, sorted; then what could not be seen.
async fn list(directory: &Path) -> (Vec<String>, Vec<ListError>) {
    let mut listing = open(directory).unwrap().list();
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    while let Some(page) = listing.next_page().await {
        match page {
            Ok(page) => {
                assert!(!page.is_empty() && page.len() <= 1000, "a page of {}", page.len());
                objects.extend(page.iter().map(|object| format!("{} {}", object.key, object.size_bytes)));
            }
            Err(error) => errors.push(error),
        }
    }
    assert!(listing.next_page().await.is_none(), "the end stays the end");
    objects.sort();
    (objects, errors)
}

#[tokio::test]
async fn every_file_at_any_depth_is_an_object_and_an_empty_directory_is_none() {
    let store = TempDir::new().unwrap();
    write(&store, KEY, 7);
    write(&store, "stray", 0);
    write(&store, "a/b/c/d/e", 1);
    fs::create_dir_all(store.path().join("kafka-tiered-storage/empty-0-vaZwr6blSEWMAbm7z-tW-w")).unwrap();
    let (objects, errors) = list(store.path()).await;
    assert_eq!(objects, ["a/b/c/d/e 1".to_owned(), format!("{KEY} 7"), "stray 0".to_owned()]);
    assert!(errors.is_empty(), "{errors:?}");
}

#[tokio::test]
async fn a_key_with_odd_characters_comes_out_exactly_and_can_be_looked_at_again() {
    let store = TempDir::new().unwrap();
    let odd = ["50% off", "a b", "a+b", "c#d", "d~", "e\\f", "g*?[]{}^`|<>\"'", "ä→𝄞", "%2F", "..."];
    for key in odd {
        write(&store, key, 3);
    }
    let (objects, errors) = list(store.path()).await;
    let mut expected = odd.map(|key| format!("{key} 3"));
    expected.sort();
    assert_eq!(objects, expected);
    assert!(errors.is_empty(), "{errors:?}");
    let store = open(store.path()).unwrap();
    for key in odd {
        let found = store.head(key).await.unwrap().unwrap();
        assert_eq!((found.key.as_str(), found.size_bytes), (key, 3));
    }
}

#[tokio::test]
async fn control_characters_and_broken_utf8_are_listed_and_do_not_end_the_listing() {
    let store = TempDir::new().unwrap();
    write(&store, "a\u{1b}[31m\nb", 1);
    write(&store, OsStr::from_bytes(b"bad\xff/inner"), 2);
    write(&store, OsStr::from_bytes(b"c\xc3"), 3);
    write(&store, "z", 4);
    let (objects, errors) = list(store.path()).await;
    assert_eq!(objects, ["a\u{1b}[31m\nb 1", "bad\u{fffd}/inner 2", "c\u{fffd} 3", "z 4"]);
    assert!(errors.is_empty(), "{errors:?}");
    let error = open(store.path()).unwrap().head("a\u{1b}[31m\nb").await.unwrap_err();
    assert!(matches!(error, HeadError::Key { .. }), "{error:?}");
}

#[tokio::test]
async fn a_link_is_followed_and_one_that_never_ends_is_reported() {
    let store = TempDir::new().unwrap();
    let disk = TempDir::new().unwrap();
    write(&disk, "inner", 5);
    symlink(disk.path(), store.path().join("other-disk")).unwrap();
    symlink(disk.path().join("inner"), store.path().join("file")).unwrap();
    symlink(store.path(), store.path().join("loop")).unwrap();
    symlink("/nowhere/at/all", store.path().join("broken")).unwrap();
    let (objects, errors) = list(store.path()).await;
    assert_eq!(objects, ["file 5", "other-disk/inner 5"]);
    match errors.as_slice() {
        [ListError::Link { what, target }] => {
            assert_eq!(what, "loop");
            assert_eq!(target, &store.path().canonicalize().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_links_that_lead_to_each_other_end() {
    let store = TempDir::new().unwrap();
    write(&store, "a/x", 1);
    write(&store, "b/y", 1);
    symlink(store.path().join("b"), store.path().join("a/to-b")).unwrap();
    symlink(store.path().join("a"), store.path().join("b/to-a")).unwrap();
    let (objects, errors) = list(store.path()).await;
    assert!(objects.contains(&"a/x 1".to_owned()) && objects.contains(&"b/y 1".to_owned()), "{objects:?}");
    assert!(!errors.is_empty() && errors.iter().all(|error| matches!(error, ListError::Link { .. })));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_error_and_not_an_empty_store() {
    let parent = TempDir::new().unwrap();
    let missing = parent.path().join("tier");
    assert!(matches!(open(&missing), Err(OpenError::NotFound { path }) if path == missing));
    write(&parent, "file", 1);
    assert!(matches!(open(&parent.path().join("file")), Err(OpenError::NotADirectory { .. })));

    fs::create_dir(&missing).unwrap();
    let store = open(&missing).unwrap();
    fs::remove_dir(&missing).unwrap();
    let mut listing = store.list();
    let first = listing.next_page().await.unwrap();
    assert!(matches!(first, Err(ListError::RootVanished { path }) if path == missing));
    assert!(listing.next_page().await.is_none());
}

#[tokio::test]
async fn the_directory_below_the_plugins_own_is_answered_with_the_right_url() {
    let parent = TempDir::new().unwrap();
    write(&parent, KEY, 1);
    let error = open(&parent.path().join("kafka-tiered-storage")).unwrap_err();
    assert!(error.to_string().ends_with(&format!("use file://{}", parent.path().display())), "{error}");
}

#[tokio::test]
async fn an_object_is_looked_at_again_and_an_absent_one_is_no_error() {
    let directory = TempDir::new().unwrap();
    write(&directory, KEY, 9);
    let store = open(directory.path()).unwrap();
    assert_eq!(store.head(KEY).await.unwrap().map(|found| found.size_bytes), Some(9));
    assert_eq!(store.head("kafka-tiered-storage/none").await.unwrap(), None);
    assert_eq!(store.head("kafka-tiered-storage").await.unwrap(), None, "a directory is not an object");
    assert!(store.head("../etc/passwd").await.is_err());
    assert!(store.head("/etc/passwd").await.is_err());
    assert!(store.head("a//b").await.is_err());
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_the_rest_is_listed() {
    use std::os::unix::fs::PermissionsExt as _;
    let store = TempDir::new().unwrap();
    write(&store, "open/x", 1);
    write(&store, "shut/y", 1);
    write(&store, "names-only/z", 1);
    let mode = |name: &str, mode| {
        fs::set_permissions(store.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("shut", 0o000);
    mode("names-only", 0o444);
    let privileged = fs::read_dir(store.path().join("shut")).is_ok();
    let (objects, errors) = list(store.path()).await;
    mode("shut", 0o755);
    mode("names-only", 0o755);
    if privileged {
        return assert_eq!(objects.len(), 3, "root may read everything");
    }
    assert_eq!(objects, ["open/x 1"]);
    let mut affected: Vec<_> = errors
        .iter()
        .map(|error| match error {
            ListError::Io { what, .. } => what.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    affected.sort_unstable();
    assert_eq!(affected, ["names-only/z", "shut"]);
}

#[tokio::test]
async fn a_large_store_is_listed_in_pages_and_a_dropped_listing_ends() {
    let store = TempDir::new().unwrap();
    for directory in 0..10 {
        let path = store.path().join(format!("d{directory}"));
        fs::create_dir(&path).unwrap();
        for file in 0..1_001 {
            fs::File::create(path.join(format!("f{file}"))).unwrap();
        }
    }
    let mut dropped = open(store.path()).unwrap().list();
    assert!(dropped.next_page().await.unwrap().is_ok());
    drop(dropped);
    let (mut objects, errors) = list(store.path()).await;
    objects.dedup();
    assert_eq!((objects.len(), errors.len()), (10_010, 0));
}

#[tokio::test]
async fn files_that_vanish_during_the_walk_are_no_error() {
    let store = TempDir::new().unwrap();
    for file in 0..5_000 {
        write(&store, format!("d/f{file:04}"), 0);
    }
    write(&store, "stays", 1);
    let path = store.path().join("d");
    let remover = std::thread::spawn(move || fs::remove_dir_all(path));
    let (objects, errors) = list(store.path()).await;
    remover.join().unwrap().unwrap();
    assert!(objects.contains(&"stays 1".to_owned()));
    assert!(errors.is_empty(), "{errors:?}");
}
