//! What every place of engines promises.

use forebay_engine::{DatabaseName, EngineError, EngineHost};

use crate::contract::{all, commit};

pub fn name(name: &str) -> DatabaseName {
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
