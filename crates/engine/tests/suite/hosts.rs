//! A directory as a place of engines.

use std::path::Path;

use forebay_engine::{DatabaseName, DirectoryHost, EngineError, EngineHost, EngineUrl};

use crate::{
    contract::{all, commit},
    place::{host, name},
};

#[test]
fn a_directory_is_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("dir:{}", dir.path().join("new/place").display());
    host(&|| {
        let EngineUrl::Directory(dir) = url.parse().unwrap() else { panic!("not a directory") };
        Box::new(DirectoryHost::open(&dir).unwrap())
    });
}

#[test]
fn a_database_in_use_is_neither_opened_nor_removed() {
    let dir = tempfile::tempdir().unwrap();
    let place = DirectoryHost::open(dir.path()).unwrap();
    let engine = place.create(&name("used")).unwrap();
    commit(engine.as_ref(), &[(b"row".to_vec(), Some(vec![1]))]);
    assert!(matches!(place.open(&name("used")), Err(EngineError::Locked { .. })));
    assert!(matches!(place.remove(&name("used")), Err(EngineError::Locked { .. })));
    assert_eq!(all(engine.as_ref()).len(), 1);
    drop(engine);
    place.remove(&name("used")).unwrap();
}

#[test]
fn what_a_stop_left_half_made_or_half_removed_is_in_nobody_s_way() {
    let dir = tempfile::tempdir().unwrap();
    let place = DirectoryHost::open(dir.path()).unwrap();
    for left in [".new-left", ".gone-left"] {
        let path = dir.path().join("databases").join(left);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("0.jnl"), b"torn").unwrap();
    }
    assert_eq!(place.list().unwrap(), []);
    drop(place.create(&name("left")).unwrap());
    place.remove(&name("left")).unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("databases")).unwrap().count(), 0);
}

#[test]
fn a_place_that_cannot_be_used_says_why() {
    let refused = DirectoryHost::open(Path::new("/dev/null/place")).unwrap_err();
    assert!(matches!(refused, EngineError::Refused { .. }), "{refused}");
    for wrong in ["", "..", ".hidden", "a/b", "ä", &"x".repeat(101)] {
        wrong.parse::<DatabaseName>().unwrap_err();
    }
}
