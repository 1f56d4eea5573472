use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use bytes::Bytes;
use forebay_object::{
    Backend, DirectoryStore, ErrorKind, Expected, ObjectStore, Operation, StoreOptions, StoreUrl, Swept,
};

use crate::suite::{content, keys, kind, suite};

fn store() -> (tempfile::TempDir, DirectoryStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = DirectoryStore::create(&dir.path().join("store")).unwrap();
    (dir, store)
}

#[test]
fn passes_the_suite() {
    let (_dir, store) = store();
    suite(&store);
    assert_eq!(store.sweep(true).unwrap(), Swept::default());
    let left: Vec<_> = fs::read_dir(store.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".forebay"]);
}

#[test]
fn passes_the_suite_behind_the_counted_store() {
    let dir = tempfile::tempdir().unwrap();
    let url = StoreUrl::directory(&dir.path().join("a/b c")).unwrap();
    let missing = ObjectStore::open(&url, &StoreOptions::default()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NoBucket);
    let options = StoreOptions { create_directory: true, ..StoreOptions::default() };
    let store = ObjectStore::open(&url, &options).unwrap();
    suite(&store);
    let puts = store.counters().operation(Operation::PutNew);
    assert!(puts.calls > 1000 && puts.errors == 0 && puts.bytes > 3_000_000, "{puts:?}");
    assert_eq!(store.counters().operation(Operation::Head).errors, 0, "not found is an answer");
    let bad = store.put_new("a//b", Bytes::new()).unwrap_err();
    assert!(bad.to_string().contains("joined by single slashes"), "{bad}");
}

#[test]
fn a_directory_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = DirectoryStore::open(&dir.path().join("missing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBucket);
    assert!(error.to_string().contains("no such directory"), "{error}");
    let error = DirectoryStore::open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoBucket);
    assert!(error.to_string().contains("is no store"), "{error}");
    File::create(dir.path().join("file")).unwrap();
    assert!(DirectoryStore::create(&dir.path().join("file")).is_err());
}

#[test]
fn a_store_that_went_away_has_not_lost_its_objects() {
    let (dir, store) = store();
    store.put_new("a/b", content(1, 10)).unwrap();
    fs::rename(store.root(), dir.path().join("elsewhere")).unwrap();
    assert_eq!(kind(store.get("a/b")), ErrorKind::NoBucket);
    assert_eq!(kind(store.head("a/b")), ErrorKind::NoBucket);
    assert_eq!(kind(store.get_range("a/b", 0..1)), ErrorKind::NoBucket);
    assert_eq!(kind(store.put_new("a/c", Bytes::new())), ErrorKind::NoBucket);
    assert_eq!(kind(store.delete("a/b")), ErrorKind::NoBucket);
    assert_eq!(kind(store.list("", None)), ErrorKind::NoBucket);
    assert_eq!(kind(store.list("a", None)), ErrorKind::NoBucket);
    fs::create_dir(store.root()).unwrap();
    assert_eq!(kind(store.get("a/b")), ErrorKind::NoBucket, "an empty mount point is no store");
    fs::remove_dir(store.root()).unwrap();
    fs::rename(dir.path().join("elsewhere"), store.root()).unwrap();
    assert_eq!(store.get("a/b").unwrap().0, content(1, 10));
}

#[test]
fn files_are_linked_where_they_can_be() {
    let (dir, store) = store();
    let path = dir.path().join("segment");
    fs::write(&path, content(1, 5000)).unwrap();
    store.put_new_file("x/y", &path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), fs::metadata(store.root().join("x/y")).unwrap().ino());
    fs::remove_file(&path).unwrap();
    assert_eq!(store.get("x/y").unwrap().0, content(1, 5000));

    fs::write(dir.path().join("target"), content(2, 50)).unwrap();
    std::os::unix::fs::symlink("target", dir.path().join("symlink")).unwrap();
    store.put_new_file("x/z", &dir.path().join("symlink")).unwrap();
    assert!(fs::symlink_metadata(store.root().join("x/z")).unwrap().is_file());
}

#[test]
fn files_of_another_file_system_are_copied() {
    let (_dir, store) = store();
    let memory = rustix::fs::memfd_create("segment", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut memory = File::from(memory);
    memory.write_all(&content(3, 70_000)).unwrap();
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    store.put_new_file("x/copied", Path::new(&path)).unwrap();
    assert_eq!(store.get("x/copied").unwrap().0, content(3, 70_000));
    assert_eq!(kind(store.put_new_file("x/copied", Path::new(&path))), ErrorKind::AlreadyExists);
    assert_eq!(store.sweep(true).unwrap(), Swept::default());
}

#[test]
fn equal_content_put_again_is_another_version() {
    let (_dir, store) = store();
    let mut etags = vec![store.put_new("owner", content(1, 9)).unwrap().etag];
    for _ in 0..50 {
        let last = etags.last().unwrap().clone();
        let next = store.put_if("owner", content(1, 9), &Expected::Etag(last)).unwrap().etag;
        assert!(!etags.contains(&next));
        etags.push(next);
    }
}

#[test]
fn sweeping_removes_leftovers_and_only_those() {
    let (_dir, store) = store();
    store.put_new("a/b/c", content(1, 10)).unwrap();
    fs::write(store.root().join(".forebay/put/0123456789abcdef"), content(2, 1000)).unwrap();
    fs::create_dir_all(store.root().join("a/empty/deeper")).unwrap();
    fs::create_dir_all(store.root().join("e")).unwrap();
    assert_eq!(keys(&store, ""), ["a/b/c"]);
    let found = Swept { files: 1, bytes: 1000, directories: 3 };
    for _ in 0..2 {
        assert_eq!(store.sweep(false).unwrap(), found, "looking removes nothing");
    }
    assert_eq!(store.sweep(true).unwrap(), found);
    assert_eq!(store.sweep(true).unwrap(), Swept::default());
    assert_eq!(store.get("a/b/c").unwrap().0, content(1, 10));
    store.put_new("a/empty/deeper/object", content(3, 1)).unwrap();
}

#[test]
fn sweeping_and_deleting_leave_running_puts_alone() {
    let (_dir, store) = store();
    let other = DirectoryStore::open(store.root()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                store.sweep(true).unwrap();
                other.list("", None).unwrap();
            }
        });
        let puts: Vec<_> = (0..3)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..40 {
                        let key = format!("shared/dir/{thread}-{number}");
                        store.put_new(&key, content(number, 100)).unwrap();
                        assert_eq!(store.get_range(&key, 0..100).unwrap(), content(number, 100));
                        store.delete(&key).unwrap();
                    }
                })
            })
            .collect();
        let failed =
            puts.into_iter().filter(|_| true).map(thread::ScopedJoinHandle::join).any(|put| put.is_err());
        done.store(true, Ordering::SeqCst);
        sweeper.join().unwrap();
        assert!(!failed);
    });
    assert!(keys(&store, "").is_empty());
    assert!(!store.root().join("shared").exists());
}

#[test]
fn open_files_follow_what_others_do() {
    let (_dir, store) = store();
    for number in 0..100 {
        store.put_new(&format!("o/{number}"), content(number, 64)).unwrap();
    }
    for number in (0..100).chain(0..100) {
        assert_eq!(store.get_range(&format!("o/{number}"), 0..64).unwrap(), content(number, 64));
    }
    fs::remove_file(store.root().join("o/99")).unwrap();
    assert_eq!(kind(store.get_range("o/99", 0..64)), ErrorKind::NotFound);
    fs::remove_file(store.root().join("o/98")).unwrap();
    fs::write(store.root().join("o/98"), content(7, 64)).unwrap();
    assert_eq!(store.get_range("o/98", 0..64).unwrap(), content(7, 64));
    File::options().write(true).open(store.root().join("o/97")).unwrap().set_len(63).unwrap();
    assert_eq!(kind(store.get_range("o/97", 0..64)), ErrorKind::Corrupt);
}

#[test]
fn what_is_no_object_is_not_found() {
    let (_dir, store) = store();
    store.put_new("a/b/c", content(1, 10)).unwrap();
    for key in ["a", "a/b", "a/b/c/d"] {
        assert_eq!(kind(store.get(key)), ErrorKind::NotFound, "{key}");
        assert_eq!(kind(store.head(key)), ErrorKind::NotFound, "{key}");
        store.delete(key).unwrap();
    }
    assert_eq!(kind(store.put_new("a/b", Bytes::new())), ErrorKind::AlreadyExists);
    assert_eq!(kind(store.put_new("a/b/c/d", Bytes::new())), ErrorKind::Other);
    std::os::unix::fs::symlink("c", store.root().join("a/b/link")).unwrap();
    fs::write(store.root().join("a/b/a file that no key names"), "x").unwrap();
    assert_eq!(keys(&store, ""), ["a/b/c"]);
}
