//! Opening a volume that was taken: its namespace, and the clients of the former owner.

use std::sync::{Arc, atomic::AtomicU64};

use forebay_cluster::{LeaseTable, SessionId, Sessions, SlotNumber, Standing, Terms};
use forebay_engine::Engine;
use forebay_env::Clock;
use forebay_format::{
    key::{self, Key},
    row::Row,
    shared_row::RetryRow,
};
use forebay_meta::{MetaError, Namespace};
use forebay_types::{Epoch, Ino, SubvolumeId};
use rustc_hash::FxHashMap;

use crate::{
    batch::{Core, Kept},
    log::CommitLog,
    owner::VolumeOwner,
    request::Push,
    take::Taken,
    ticks::Ticks,
};

/// Rows that one call reads.
const PAGE: usize = 4096;

/// A volume that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its rows cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// It was given up or lost meanwhile.
    #[error("the volume is not owned by this server any more")]
    NotOwner,
}

impl VolumeOwner {
    /// Opens a volume that was taken. `push` tells a session something; it must not wait.
    ///
    /// # Errors
    /// [`OpenError`].
    #[allow(clippy::too_many_arguments, reason = "each is a part of the world that a simulation replaces")]
    pub fn open(
        taken: Taken,
        engine: Arc<dyn Engine>,
        at: SubvolumeId,
        block_size: u32,
        terms: Terms,
        clock: Arc<dyn Clock>,
        ticks: Arc<dyn Ticks>,
        push: Box<dyn Fn(SessionId, Push) + Send + Sync>,
    ) -> Result<VolumeOwner, OpenError> {
        let Standing::Owns(epoch) = taken.ownership.standing() else { return Err(OpenError::NotOwner) };
        let applied = Namespace::applied(engine.as_ref())?;
        let log = Arc::new(CommitLog::new(applied.sequence));
        let numbers = Arc::new(AtomicU64::new(0));
        let ns =
            Namespace::open(Arc::clone(&engine), Arc::clone(&log) as _, clock, block_size, epoch, numbers)?;
        let mut sessions = Sessions::new(terms);
        let writes = load_sessions(engine.as_ref(), &mut sessions, at, epoch, ticks.as_ref())?;
        let core = Core {
            ownership: taken.ownership,
            table: LeaseTable::taken_over(epoch, &sessions.all(), &writes),
            sessions,
            requests: FxHashMap::default(),
            next_request: 0,
            late: Vec::new(),
            open: 1,
            committed: 0,
            leases_in: 0,
            rows: Default::default(),
            changed: FxHashMap::default(),
            held_back: Vec::new(),
            ending: Vec::new(),
            dirty: false,
            over: false,
            stops: false,
        };
        Ok(VolumeOwner::new(ns, log, at, core, ticks, push))
    }
}

/// Takes in the sessions of the rows, their slots, and their leases to write.
fn load_sessions(
    engine: &dyn Engine,
    sessions: &mut Sessions<Kept>,
    at: SubvolumeId,
    epoch: Epoch,
    ticks: &dyn Ticks,
) -> Result<Vec<(SessionId, Ino)>, MetaError> {
    let now = ticks.now();
    each_row(engine, &key::sessions(), |key, _| {
        if let Key::Session(id) = key {
            sessions.begin(SessionId(id), epoch, now);
        }
        Ok(())
    })?;
    each_row(engine, &key::retries(None), |key, value| {
        if let Key::Retry(id, slot) = key {
            let row = RetryRow::decode(value).map_err(|source| damaged("an answered request", source))?;
            sessions.restore(SessionId(id), SlotNumber(slot), row.number, (row.answer.into(), 0));
        }
        Ok(())
    })?;
    let mut writes = Vec::new();
    each_row(engine, &key::write_leases(None), |key, _| {
        match key {
            Key::WriteLease(id, subvolume, ino) if subvolume == at && sessions.lives(SessionId(id)) => {
                writes.push((SessionId(id), ino));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(writes)
}

fn damaged(row: &str, source: forebay_format::FormatError) -> MetaError {
    MetaError::Damaged { row: row.to_owned(), source }
}

fn each_row(
    engine: &dyn Engine,
    prefix: &[u8],
    mut each: impl FnMut(Key, &[u8]) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let to = key::after_prefix(prefix);
    let mut from = prefix.to_vec();
    loop {
        let page = engine.scan(&from, to.as_deref(), PAGE)?;
        for (key, value) in &page.rows {
            each(Key::decode(key).map_err(|source| damaged("a key", source))?, value)?;
        }
        match page.rows.last() {
            Some((last, _)) if page.more => from = [last, &[0][..]].concat(),
            _ => return Ok(()),
        }
    }
}
