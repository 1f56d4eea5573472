#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Instant,
};

use forebay_cluster::ServerId;
use forebay_engine::{Batch, Engine, EngineUrl, Outcome, RowPage, Writers};
use forebay_format::row::Row;
use forebay_types::{Compression, Timespec};
use parking_lot::{Mutex, RwLock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::{Ticking, counts::Counts, groups::Groups, members::Members, places::Places, registry::Registry};

/// An engine of which nobody can tell what became of the change that makes a volume ready.
#[derive(Debug)]
struct Loses {
    rows: Arc<dyn Engine>,
    /// Whether that takes effect.
    takes: bool,
    lost: AtomicBool,
}

impl Engine for Loses {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.rows.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.rows.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.rows.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let is_ready = |row: VolumeRow| row.state == VolumeState::Ready;
        let mut rows = batch.rows.iter().filter_map(|(_, value)| *value);
        if !rows.any(|value| VolumeRow::decode(value).is_ok_and(is_ready)) {
            return self.rows.commit(batch);
        }
        if self.lost.swap(true, SeqCst) {
            let detail = "it is away".to_owned();
            return Err(EngineError::Failed { place: "the test".to_owned(), detail });
        }
        if self.takes {
            assert_eq!(self.rows.commit(batch)?, Outcome::Committed);
        }
        Ok(Outcome::Unknown)
    }

    fn writers(&self) -> Writers {
        self.rows.writers()
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

struct Bed {
    cluster: Arc<Cluster>,
    wanted: VolumeInfo,
    _dir: TempDir,
    _runtime: Runtime,
}

fn bed(takes: bool) -> Bed {
    let (dir, runtime) = (TempDir::new().unwrap(), Runtime::new().unwrap());
    let url: EngineUrl = format!("dir:{}/engine", dir.path().display()).parse().unwrap();
    let host = url.open().unwrap();
    let engine = Loses { rows: host.registry().unwrap(), takes, lost: AtomicBool::new(false) };
    let (server, address) = (ServerId([1; 16]), "test:1".to_owned());
    let cluster = Cluster {
        places: Places::new(Arc::clone(&host)),
        host,
        registry: Registry::open(Arc::new(engine), "the test".to_owned()).unwrap(),
        server,
        members: Mutex::new(Members::new(server, address.clone(), false)),
        tenure: None,
        hosted: RwLock::default(),
        groups: Groups::new(forebay_group::GroupTerms::default()),
        terms: forebay_cluster::Terms::default(),
        ticks: Ticking::default().0,
        runtime: runtime.handle().clone(),
        counts: Counts::default(),
        insecure: true,
        admins: Vec::new(),
        address,
        began: Instant::now(),
        watch: Mutex::default(),
    };
    let wanted = VolumeInfo {
        name: "v".to_owned(),
        id: VolumeId([0; 16]),
        store: format!("file://{}/store", dir.path().display()),
        endpoint: None,
        region: None,
        block_size: 4 << 20,
        compression: Compression::None,
        created: Timespec { secs: 0, nanos: 0 },
        limit: None,
        generation: 0,
    };
    Bed { cluster: Arc::new(cluster), wanted, _dir: dir, _runtime: runtime }
}

impl Bed {
    /// The volume as the registry has it, and whether the store is marked.
    fn found(&self) -> (Option<(VolumeId, VolumeState)>, bool) {
        let view = self.cluster.registry.refresh().unwrap();
        let row = view.volumes.get("v").map(|row| (row.id, row.state));
        let store = ObjectStore::open(&self.wanted.store.parse().unwrap(), &StoreOptions::default()).unwrap();
        (row, store.get(MARK).is_ok())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.cluster.hosted.write().values().for_each(|hosted| hosted.stop());
    }
}

#[test]
fn a_volume_is_ready_though_nobody_was_told_that_it_was_committed() {
    let bed = bed(true);
    let made = make(&bed.cluster, &bed.wanted).unwrap();
    assert_eq!(bed.found(), (Some((made.id, VolumeState::Ready)), true));
}

#[test]
fn what_is_not_ready_for_certain_leaves_the_name_and_the_store_free() {
    let bed = bed(false);
    assert!(make(&bed.cluster, &bed.wanted).is_err());
    assert_eq!(bed.found(), (None, false));
}
