#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use forebay_engine::MemoryEngine;
use forebay_protocol::group::WriteClass;
use forebay_types::Compression;

use super::*;

fn open(engine: &Arc<dyn Engine>) -> Registry {
    Registry::open(Arc::clone(engine), "memory".to_owned()).unwrap()
}

fn row(id: u8) -> VolumeRow {
    VolumeRow {
        id: VolumeId([id; 16]),
        state: VolumeState::Ready,
        store: "file:///a".to_owned(),
        endpoint: String::new(),
        region: String::new(),
        block_size: 4 << 20,
        compression: Compression::Lz4,
        limit: None,
        created: 1,
        generation: 1,
        place: VolumePlace::default(),
        left: None,
        group: String::new(),
        further: Vec::new(),
        class: WriteClass::Object,
    }
}

fn put(registry: &Registry, name: &str, id: u8) -> Result<(), RegistryError> {
    registry.change(|_| Ok((vec![Change::Volume(name.to_owned(), Some(row(id)))], ())))
}

#[test]
fn what_one_server_changes_another_sees() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let (one, two) = (open(&engine), open(&engine));
    put(&one, "a", 1).unwrap();
    assert!(two.view().volumes.is_empty(), "not before it looks");
    assert_eq!(two.refresh().unwrap().volumes["a"], row(1));
    assert_eq!(two.view().volume(VolumeId([1; 16])).unwrap().0, "a");
    two.change(|_| Ok::<_, RegistryError>((vec![Change::Volume("a".to_owned(), None)], ()))).unwrap();
    assert!(one.refresh().unwrap().volumes.is_empty());
    assert_eq!(open(&engine).view().mark.number, 2);
}

#[test]
fn a_change_that_came_second_is_decided_again() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let (one, two) = (open(&engine), open(&engine));
    let mut asked = 0;
    let names: Vec<String> = one
        .change(|view| {
            asked += 1;
            if asked == 1 {
                put(&two, "b", 2).unwrap();
            }
            let names = view.volumes.keys().cloned().collect();
            Ok::<_, RegistryError>((vec![Change::Volume("a".to_owned(), Some(row(1)))], names))
        })
        .unwrap();
    assert_eq!((asked, names), (2, vec!["b".to_owned()]));
    assert_eq!(one.view().volumes.len(), 2);
}

#[test]
fn a_change_that_is_refused_or_empty_changes_nothing() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let registry = open(&engine);
    registry
        .change(|_| Err::<(Vec<Change>, ()), _>(RegistryError::Unknown { place: String::new() }))
        .unwrap_err();
    registry.change(|_| Ok::<_, RegistryError>((Vec::new(), ()))).unwrap();
    assert_eq!(registry.view().mark.number, 0);
}

#[test]
fn a_registry_of_a_later_release_is_refused() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    drop(open(&engine));
    let later = [(SCHEMA.to_vec(), Some(2_u32.to_le_bytes().to_vec()))];
    engine.commit(&Batch::of(&later)).unwrap();
    let error = Registry::open(engine, "memory".to_owned()).unwrap_err();
    assert!(error.to_string().contains("has version 2, this release knows up to 1"), "{error}");
}

/// Tells nothing of what became of a commit, once.
#[derive(Debug, Default)]
struct Mute(MemoryEngine, Mutex<Option<bool>>);

impl Engine for Mute {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.0.get_many(keys)
    }

    fn scan(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<forebay_engine::RowPage, EngineError> {
        self.0.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        match self.1.lock().take() {
            Some(done) => {
                if done {
                    self.0.commit(batch)?;
                }
                Ok(Outcome::Unknown)
            }
            None => self.0.commit(batch),
        }
    }

    fn writers(&self) -> forebay_engine::Writers {
        forebay_engine::Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

#[test]
fn a_change_whose_answer_was_lost_is_made_once() {
    for done in [false, true] {
        let mute = Arc::new(Mute::default());
        let registry = Registry::open(Arc::clone(&mute) as _, "mute".to_owned()).unwrap();
        *mute.1.lock() = Some(done);
        let mut asked = 0;
        registry
            .change(|_| {
                asked += 1;
                Ok::<_, RegistryError>((vec![Change::Volume("a".to_owned(), Some(row(1)))], ()))
            })
            .unwrap();
        assert_eq!((asked, registry.view().mark.number, registry.view().volumes.len()), (1, 1, 1));
    }
}

#[test]
fn members_are_put_and_taken_away() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let registry = open(&engine);
    let (id, row) =
        (ServerId([5; 16]), MemberRow { address: "a:1".to_owned(), beat: 1, release: "0".to_owned() });
    registry.put_member(id, Some(&row)).unwrap();
    assert_eq!(registry.members().unwrap(), [(id, row)]);
    registry.put_member(id, None).unwrap();
    assert_eq!(registry.members().unwrap(), []);
    assert_eq!(registry.view().mark.number, 0, "a beat is no change");
}
