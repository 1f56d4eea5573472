//! What every store must do, whatever it is.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use bytes::Bytes;
use forebay_object::{Backend, ErrorKind, Expected, ObjectError, StoreUrl, probe};

/// Runs everything below a prefix of its own and leaves nothing behind.
pub fn suite(store: &dyn Backend) {
    let id = u64::from_le_bytes(forebay_env::random::<8>().unwrap());
    let dir = format!("suite-{id:016x}");
    reads_back_what_was_put(store, &format!("{dir}/a"));
    never_overwrites(store, &format!("{dir}/b"));
    puts_files(store, &format!("{dir}/c"));
    replaces_only_what_is_expected(store, &format!("{dir}/d"));
    reads_exact_ranges(store, &format!("{dir}/e"));
    deletes(store, &format!("{dir}/f"));
    lists_in_order(store, &format!("{dir}/g"));
    lists_by_pages(store, &format!("{dir}/h"));
    one_of_many_creates_wins(store, &format!("{dir}/i"));
    no_conditional_put_is_lost(store, &format!("{dir}/j"));
    probe_finds_all_abilities(store);
    for key in keys(store, &dir) {
        store.delete(&key).unwrap();
    }
    assert!(keys(store, &dir).is_empty());
}

/// All keys below a prefix, page by page.
pub fn keys(store: &dyn Backend, prefix: &str) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(prefix, after.as_deref()).unwrap();
        keys.extend(page.entries.into_iter().map(|meta| meta.key));
        match page.next {
            Some(next) => after = Some(next),
            None => return keys,
        }
    }
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, ObjectError>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn content(seed: usize, len: usize) -> Bytes {
    (0..len).map(|i| u8::try_from((i * 7 + i / 256 + seed * 13) % 256).unwrap()).collect()
}

fn reads_back_what_was_put(store: &dyn Backend, dir: &str) {
    for (seed, len) in [0, 1, 4096, 65_537, 3_000_000].into_iter().enumerate() {
        let (key, bytes) = (format!("{dir}/x{len}"), content(seed, len));
        let put = store.put_new(&key, bytes.clone()).unwrap();
        let meta = store.head(&key).unwrap();
        assert_eq!((meta.key.as_str(), meta.size), (key.as_str(), len as u64));
        assert_eq!(meta.etag, put.etag);
        assert_eq!(store.get(&key).unwrap(), (bytes, put.etag));
    }
    for missing in [format!("{dir}/missing"), format!("{dir}/missing/too")] {
        assert_eq!(kind(store.get(&missing)), ErrorKind::NotFound);
        assert_eq!(kind(store.head(&missing)), ErrorKind::NotFound);
        let error = store.get_range(&missing, 0..1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.key(), missing);
        let message = error.to_string();
        assert!(message.contains(&missing) && message.contains(&store.url().to_string()), "{message}");
    }
}

fn never_overwrites(store: &dyn Backend, dir: &str) {
    let key = format!("{dir}/once");
    let first = content(1, 1000);
    store.put_new(&key, first.clone()).unwrap();
    for other in [first.clone(), content(2, 1000), Bytes::new()] {
        assert_eq!(kind(store.put_new(&key, other)), ErrorKind::AlreadyExists);
    }
    assert_eq!(store.get(&key).unwrap().0, first);
}

fn puts_files(store: &dyn Backend, dir: &str) {
    let files = tempfile::tempdir().unwrap();
    for len in [0, 10, 5_000_001] {
        let (path, key, bytes) =
            (files.path().join(len.to_string()), format!("{dir}/f{len}"), content(3, len));
        std::fs::write(&path, &bytes).unwrap();
        let put = store.put_new_file(&key, &path).unwrap();
        assert_eq!(store.get(&key).unwrap(), (bytes.clone(), put.etag));
        assert_eq!(kind(store.put_new_file(&key, &path)), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    let missing = files.path().join("missing");
    let error = store.put_new_file(&format!("{dir}/from-nothing"), &missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other, "{error}");
}

fn replaces_only_what_is_expected(store: &dyn Backend, dir: &str) {
    let key = format!("{dir}/owner");
    let stranger = if matches!(store.url(), StoreUrl::Gs { .. }) { "77" } else { "\"0\"" };
    let missing = store.put_if(&key, content(0, 5), &Expected::Etag(forebay_object::ETag(stranger.into())));
    assert_eq!(kind(missing), ErrorKind::PreconditionFailed);
    let first = store.put_if(&key, content(1, 5), &Expected::Absent).unwrap().etag;
    assert_eq!(kind(store.put_if(&key, content(2, 5), &Expected::Absent)), ErrorKind::AlreadyExists);
    assert_eq!(store.get(&key).unwrap(), (content(1, 5), first.clone()));
    let second = store.put_if(&key, content(2, 5), &Expected::Etag(first.clone())).unwrap().etag;
    assert_ne!(first, second);
    assert_eq!(store.get(&key).unwrap(), (content(2, 5), second.clone()));
    let stale = store.put_if(&key, content(3, 5), &Expected::Etag(first));
    assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
    store.put_if(&key, content(4, 70_000), &Expected::Etag(second.clone())).unwrap();
    store.delete(&key).unwrap();
    assert_eq!(
        kind(store.put_if(&key, content(5, 5), &Expected::Etag(second))),
        ErrorKind::PreconditionFailed
    );
    assert_eq!(kind(store.head(&key)), ErrorKind::NotFound);
}

fn reads_exact_ranges(store: &dyn Backend, dir: &str) {
    let (key, bytes) = (format!("{dir}/ranged"), content(7, 10_000));
    store.put_new(&key, bytes.clone()).unwrap();
    for range in [0..1, 0..10_000, 9_999..10_000, 4096..8192, 5..5, 10_000..10_000] {
        let slice = bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
        assert_eq!(store.get_range(&key, range).unwrap(), slice);
    }
    for beyond in [9_999..10_001, 10_000..10_001, 20_000..20_010] {
        let error = store.get_range(&key, beyond.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{beyond:?}: {error}");
    }
    let reversed = std::ops::Range { start: 9, end: 8 };
    assert_eq!(kind(store.get_range(&key, reversed)), ErrorKind::Other);
}

fn deletes(store: &dyn Backend, dir: &str) {
    let (key, other) = (format!("{dir}/sub/gone"), format!("{dir}/sub/stays"));
    store.delete(&key).unwrap();
    for round in 0..3 {
        store.put_new(&key, content(round, 100)).unwrap();
        assert_eq!(store.get_range(&key, 0..100).unwrap(), content(round, 100));
        store.delete(&key).unwrap();
        assert_eq!(kind(store.get_range(&key, 0..100)), ErrorKind::NotFound);
        store.delete(&key).unwrap();
    }
    store.put_new(&key, content(0, 1)).unwrap();
    store.put_new(&other, content(1, 1)).unwrap();
    store.delete(&key).unwrap();
    assert_eq!(keys(store, dir), [other]);
}

fn lists_in_order(store: &dyn Backend, dir: &str) {
    assert!(keys(store, dir).is_empty());
    // A dash and a dot sort before the slash, a digit after it.
    let names = ["b-c", "b.c", "b/a", "b/c/d", "b0", "bb/x", "a", "c/c", "b/b"];
    for name in names {
        store.put_new(&format!("{dir}/{name}"), content(1, name.len())).unwrap();
    }
    let mut sorted: Vec<String> = names.iter().map(|name| format!("{dir}/{name}")).collect();
    sorted.sort();
    assert_eq!(keys(store, dir), sorted);
    let below: Vec<&String> = sorted.iter().filter(|key| key.starts_with(&format!("{dir}/b/"))).collect();
    assert_eq!(keys(store, &format!("{dir}/b")).iter().collect::<Vec<_>>(), below);
    for (at, key) in sorted.iter().enumerate() {
        let page = store.list(dir, Some(key)).unwrap();
        let rest: Vec<String> = page.entries.iter().map(|meta| meta.key.clone()).collect();
        assert_eq!(rest, sorted[at + 1..], "after {key}");
    }
    let between = store.list(dir, Some(&format!("{dir}/b/bzz"))).unwrap();
    assert_eq!(between.entries.first().unwrap().key, format!("{dir}/b/c/d"));
    let listed = store.list(dir, None).unwrap().entries.remove(0);
    let head = store.head(&listed.key).unwrap();
    assert_eq!(listed.size, head.size);
    if !matches!(store.url(), StoreUrl::Gs { .. } | StoreUrl::Az { .. }) {
        assert_eq!(listed.etag, head.etag);
    }
}

fn lists_by_pages(store: &dyn Backend, dir: &str) {
    const OBJECTS: usize = 1003;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(number) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).filter(|number| *number < OBJECTS)
                {
                    store.put_new(&format!("{dir}/{}/{number:04}", number % 3), Bytes::new()).unwrap();
                }
            });
        }
    });
    let page = store.list(dir, None).unwrap();
    assert!(page.entries.len() < OBJECTS && page.next.is_some());
    let listed = keys(store, dir);
    assert!(listed.is_sorted());
    let different: BTreeSet<&String> = listed.iter().collect();
    assert_eq!((listed.len(), different.len()), (OBJECTS, OBJECTS));
}

fn one_of_many_creates_wins(store: &dyn Backend, dir: &str) {
    for round in 0..5 {
        let key = format!("{dir}/new{round}/contended");
        let winners: Vec<usize> = thread::scope(|scope| {
            let create = |thread| {
                let key = &key;
                scope.spawn(move || match store.put_new(key, content(thread, 1000)) {
                    Ok(_) => Some(thread),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                        None
                    }
                })
            };
            let threads: Vec<_> = (0..6).map(create).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(winners.len(), 1, "winners {winners:?}");
        assert_eq!(store.get(&key).unwrap().0, content(winners[0], 1000));
    }
}

/// Threads append lines to one object. Each looks for its own line before it appends again, because it may be told that another
/// version is there although its own put took place.
fn no_conditional_put_is_lost(store: &dyn Backend, dir: &str) {
    let key = format!("{dir}/log");
    store.put_if(&key, Bytes::from_static(b"start\n"), &Expected::Absent).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let key = &key;
            scope.spawn(move || (0..5).for_each(|line| append(store, key, &format!("{thread}-{line}"))));
        }
    });
    let log = store.get(&key).unwrap().0;
    let text = std::str::from_utf8(&log).unwrap();
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((text.lines().count(), lines.len()), (21, 21), "{text}");
}

fn append(store: &dyn Backend, key: &str, line: &str) {
    loop {
        let (log, etag) = store.get(key).unwrap();
        let text = String::from_utf8(log.to_vec()).unwrap();
        if text.lines().any(|there| there == line) {
            return;
        }
        match store.put_if(key, format!("{text}{line}\n").into(), &Expected::Etag(etag)) {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::PreconditionFailed, "{error}"),
        }
    }
}

fn probe_finds_all_abilities(store: &dyn Backend) {
    let report = probe(store).unwrap();
    assert_eq!(report.store, *store.url());
    assert!(report.to_string().contains(&store.url().to_string()));
}
