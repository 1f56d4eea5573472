//! A directory as a place: the contract, opening anew, and what cannot be opened.

use std::{path::Path, time::Duration};

use forebay_engine::{Batch, EngineError, EngineHost, Outcome};
use forebay_object::{Backend, ObjectStore, StoreOptions, StoreUrl};
use forebay_slate::{SlateHost, SlateUrl, Waits};

use crate::{
    contract::{all, commit, contract},
    place::{host, name},
};

pub const PATIENT: Waits =
    Waits { commit: Duration::from_secs(120), read: Duration::from_secs(120), quiet: Duration::ZERO };

pub fn url(dir: &Path) -> SlateUrl {
    SlateUrl(StoreUrl::directory(dir).unwrap())
}

pub fn store(dir: &Path) -> ObjectStore {
    let options = StoreOptions { create_directory: true, ..StoreOptions::default() };
    ObjectStore::open(&StoreUrl::directory(dir).unwrap(), &options).unwrap()
}

pub fn open(dir: &Path) -> SlateHost {
    SlateHost::over(store(dir), PATIENT).unwrap()
}

#[test]
fn a_directory_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).registry().unwrap();
    contract(engine.as_ref());
    let rows = all(engine.as_ref());
    drop(engine);
    assert!(all(open(dir.path()).registry().unwrap().as_ref()) == rows, "opened anew");
}

#[test]
fn a_directory_is_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/place");
    host(&|| Box::new(open(&dir)));
    let anew = SlateHost::open(&url(&dir)).unwrap();
    assert_eq!(anew.list().unwrap(), [name("Two.2_-"), name("one")]);
}

/// More puts of the log than are kept before they become a table, so rows come from tables and from the log.
#[test]
fn what_was_committed_is_there_after_any_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..3_u32 {
        let engine = open(dir.path()).registry().unwrap();
        assert!(all(engine.as_ref()) == expected, "round {round}");
        for number in 0..300_u32 {
            let key = [b"row".as_slice(), &round.to_be_bytes(), &number.to_be_bytes()].concat();
            commit(engine.as_ref(), &[(key.clone(), Some(number.to_be_bytes().to_vec()))]);
            expected.push((key, number.to_be_bytes().to_vec()));
        }
        if round == 1 {
            // Nothing is closed, as at a crash.
            std::mem::forget(engine);
        }
    }
    let tables = store(dir.path()).list("registry/compacted", None).unwrap().entries;
    assert!(!tables.is_empty(), "the log becomes tables, so that a start need not read all of it");
}

#[test]
fn keys_may_be_empty_and_no_longer_than_the_contract_says() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).registry().unwrap();
    commit(engine.as_ref(), &[(vec![], Some(b"empty".to_vec())), (vec![0xff; 1024], Some(b"long".to_vec()))]);
    assert_eq!(engine.get(b"").unwrap(), Some(b"empty".to_vec()));
    assert_eq!(all(engine.as_ref()).len(), 2);
    let long = [(vec![1; 1025], Some(vec![]))];
    assert!(matches!(engine.commit(&Batch::of(&long)), Err(EngineError::Failed { .. })));
    let only_asks = |value: Option<&[u8]>| {
        engine.commit(&Batch { expect: vec![(vec![], value.map(<[u8]>::to_vec))], rows: vec![] }).unwrap()
    };
    assert_eq!(only_asks(Some(b"empty")), Outcome::Committed);
    assert_eq!(only_asks(None), Outcome::Fenced);
    assert_eq!(all(engine.as_ref()).len(), 2, "the engine's own rows are not seen");
}

#[test]
fn a_removal_that_was_interrupted_is_in_nobody_s_way() {
    let dir = tempfile::tempdir().unwrap();
    let place = open(dir.path());
    let engine = place.create(&name("one")).unwrap();
    commit(engine.as_ref(), &[(b"row".to_vec(), Some(b"old".to_vec()))]);
    drop(engine);
    // As it is between the name and the rows.
    let store = store(dir.path());
    let (id, etag) = store.get("names/one").unwrap();
    let going = [b"-".as_slice(), &id].concat();
    store.put_if("names/one", going.into(), &forebay_object::Expected::Etag(etag)).unwrap();
    assert_eq!(place.list().unwrap(), []);
    assert!(matches!(place.open(&name("one")), Err(EngineError::Missing { .. })));
    assert!(matches!(place.remove(&name("one")), Err(EngineError::Missing { .. })));
    assert_eq!(all(place.create(&name("one")).unwrap().as_ref()), []);
    place.remove(&name("one")).unwrap();
    assert_eq!(place.list().unwrap(), []);
    let id = std::str::from_utf8(&id).unwrap();
    assert_eq!(store.list(&format!("rows/{id}"), None).unwrap().entries, []);
}

#[test]
fn what_keeps_a_place_from_being_opened_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let refused = SlateHost::open(&url(&file.join("place"))).unwrap_err();
    assert!(refused.to_string().contains("slate:file://"), "{refused}");
    for (version, newer) in [("99", true), ("what?", false)] {
        let dir = dir.path().join(version.trim_end_matches('?'));
        store(&dir).put_new("format", version.into()).unwrap();
        let error = SlateHost::open(&url(&dir)).unwrap_err();
        match error {
            EngineError::Newer { found: 99, known: 1, .. } => assert!(newer),
            EngineError::Damaged { .. } => assert!(!newer, "{error}"),
            other => panic!("{other}"),
        }
    }
}
