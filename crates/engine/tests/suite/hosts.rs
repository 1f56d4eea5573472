//! What every place of engines promises.

use std::path::Path;

use forebay_engine::{DatabaseName, DirectoryHost, EngineError, EngineHost, EngineUrl};

use crate::contract::{all, commit};

fn name(name: &str) -> DatabaseName {
    name.parse().unwrap()
}

/// `again` opens the place anew.
pub fn host(again: &dyn Fn() -> Box<dyn EngineHost>) {
    let place = again();
    let (one, two) = (name("one"), name("Two.2_-"));
    let row = |value: &str| [(b"row".to_vec(), Some(value.as_bytes().to_vec()))];
    assert_eq!(place.list().unwrap(), []);
    assert!(matches!(place.open(&one), Err(EngineError::Missing { .. })));
    assert!(matches!(place.remove(&one), Err(EngineError::Missing { .. })));
    let (first, second) = (place.create(&one).unwrap(), place.create(&two).unwrap());
    commit(first.as_ref(), &row("first"));
    commit(second.as_ref(), &row("second"));
    let registry = place.registry().unwrap();
    commit(registry.as_ref(), &row("registry"));
    assert!(matches!(place.create(&one), Err(EngineError::Exists { .. })));
    drop((first, second, registry, place));

    let place = again();
    assert_eq!(place.list().unwrap(), [two.clone(), one.clone()]);
    let values = [place.open(&one).unwrap(), place.open(&two).unwrap(), place.registry().unwrap()]
        .map(|engine| String::from_utf8(engine.get(b"row").unwrap().unwrap()).unwrap());
    assert_eq!(values, ["first", "second", "registry"]);
    place.remove(&one).unwrap();
    assert_eq!(place.list().unwrap(), std::slice::from_ref(&two));
    assert!(matches!(place.open(&one), Err(EngineError::Missing { .. })));
    let anew = place.create(&one).unwrap();
    assert_eq!(all(anew.as_ref()), [], "a name that is used again has none of the old rows");
    commit(anew.as_ref(), &row("anew"));
    assert_eq!(place.open(&two).unwrap().get(b"row").unwrap(), Some(b"second".to_vec()));
}

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
