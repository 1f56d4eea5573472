//! Opening a volume that was taken: its namespace, and the clients of the former owner.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

use forebay_cluster::{LeaseTable, SessionId, Sessions, SlotNumber, Standing, Terms};
use forebay_engine::Engine;
use forebay_env::Clock;
use forebay_format::{
    key::{self, Key},
    row::Row,
    set_row::SegmentSetRow,
    shared_row::{LocksRow, NumbersRow, RetryRow, SessionRow},
};
use forebay_meta::{MetaError, Namespace};
use forebay_protocol::Rights;
use forebay_types::{Epoch, Ino, SubvolumeId};
use rustc_hash::FxHashMap;

use crate::{
    ahead::GivenRuns,
    batch::{Core, Kept},
    beat::while_beating,
    locks::SharedLocks,
    log::CommitLog,
    numbers::Given,
    offers::Groups,
    opens::Opens,
    owner::VolumeOwner,
    policies::Policies,
    request::Tell,
    reserve::Reserved,
    sets::Sets,
    take::Taken,
    ticks::Ticks,
    told::ToldClock,
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
        push: Tell,
    ) -> Result<VolumeOwner, OpenError> {
        let Standing::Owns(epoch) = taken.ownership.standing() else { return Err(OpenError::NotOwner) };
        let began = ticks.now();
        let (ownership, loaded) = while_beating(taken.ownership, engine.as_ref(), ticks.as_ref(), || {
            Loaded::of(&engine, at, (block_size, epoch), terms, clock, ticks.as_ref())
        });
        let Loaded { ns, log, mut sessions, writes, rights, tokens, held } = loaded?;
        let Some(ownership) = ownership else { return Err(OpenError::NotOwner) };
        // Nobody could ask while it was opened.
        let now = ticks.now();
        sessions.was_deaf(now.since(began), now);
        let former = sessions.all();
        let mut core = Core {
            ownership,
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
            unsettled: None,
            ending: Vec::new(),
            dirty: false,
            over: false,
            stops: false,
            rights,
            tokens,
            deaf_noted: now,
            recalled: FxHashMap::default(),
            given: held.0,
            reserved: Reserved::default(),
            runs: GivenRuns::of(former, ns.next_run()),
            opens: held.1,
            locks: held.2,
            locks_in: 0,
            sets: held.3,
            sets_in: 0,
            policies: held.4,
            administer: Default::default(),
            groups: Groups::default(),
            kept: Default::default(),
            unread: Default::default(),
            recoveries: BTreeMap::new(),
            tell: Vec::new(),
            garbage_since: FxHashMap::default(),
        };
        // Its sessions may have ended with the former owner, which was not done with what they left.
        core.take_up_sets();
        Ok(VolumeOwner::new(ns, log, at, core, ticks, push))
    }
}

/// What the rows of a volume say.
struct Loaded {
    ns: Namespace,
    log: Arc<CommitLog>,
    sessions: Sessions<Kept>,
    writes: Writes,
    rights: AllRights,
    tokens: Tokens,
    held: Held,
}

impl Loaded {
    fn of(
        engine: &Arc<dyn Engine>,
        at: SubvolumeId,
        (block_size, epoch): (u32, Epoch),
        terms: Terms,
        clock: Arc<dyn Clock>,
        ticks: &dyn Ticks,
    ) -> Result<Loaded, MetaError> {
        let applied = Namespace::applied(engine.as_ref())?;
        let log = Arc::new(CommitLog::new(applied.sequence));
        let numbers = Arc::new(AtomicU64::new(0));
        let clock: Arc<dyn Clock> = Arc::new(ToldClock(clock));
        let ns =
            Namespace::open(Arc::clone(engine), Arc::clone(&log) as _, clock, block_size, epoch, numbers)?;
        let mut sessions = Sessions::new(terms);
        let (writes, rights, tokens) = load_sessions(engine.as_ref(), &mut sessions, at, epoch, ticks)?;
        let held = load_held(engine.as_ref(), &sessions, at)?;
        Ok(Loaded { ns, log, sessions, writes, rights, tokens, held })
    }
}

type Held = (Given, Opens, SharedLocks, Sets, Policies);
type Writes = Vec<(SessionId, Ino)>;
type AllRights = FxHashMap<SessionId, Rights>;
type Tokens = FxHashMap<SessionId, u64>;

/// Takes in the sessions of the rows, their slots, their leases to write, what they may and by which token.
fn load_sessions(
    engine: &dyn Engine,
    sessions: &mut Sessions<Kept>,
    at: SubvolumeId,
    epoch: Epoch,
    ticks: &dyn Ticks,
) -> Result<(Writes, AllRights, Tokens), MetaError> {
    let now = ticks.now();
    let (mut rights, mut tokens) = (AllRights::default(), Tokens::default());
    each_row(engine, &key::sessions(), |key, value| {
        if let Key::Session(id) = key {
            let row = SessionRow::decode(value).map_err(|source| damaged("a session", source))?;
            let SessionRow { root, read_only, no_exec, root_squash, token, .. } = row;
            sessions.begin(SessionId(id), epoch, now);
            rights.insert(SessionId(id), Rights { root, read_only, no_exec, root_squash });
            tokens.extend(token.map(|token| (SessionId(id), token)));
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
    Ok((writes, rights, tokens))
}

/// Takes in what sessions have: numbers, also of those that have ended; open inodes; locks. Besides, who has segments, and policies.
fn load_held(engine: &dyn Engine, sessions: &Sessions<Kept>, at: SubvolumeId) -> Result<Held, MetaError> {
    let (mut given, mut opens, mut locks) = (Given::default(), Opens::default(), SharedLocks::default());
    let (mut sets, mut policies) = (Sets::default(), Policies::default());
    each_row(engine, &key::numbers(None), |key, value| {
        if let Key::Numbers(id) = key {
            let row = NumbersRow::decode(value).map_err(|source| damaged("numbers of a session", source))?;
            given.restore(SessionId(id), row);
        }
        Ok(())
    })?;
    each_row(engine, &key::opens(None), |key, _| {
        match key {
            Key::Open(id, subvolume, ino) if subvolume == at && sessions.lives(SessionId(id)) => {
                opens.add(SessionId(id), ino);
            }
            _ => {}
        }
        Ok(())
    })?;
    each_row(engine, &key::locks(None), |key, value| {
        match key {
            Key::Locks(id, subvolume, ino) if subvolume == at && sessions.lives(SessionId(id)) => {
                let row = LocksRow::decode(value).map_err(|source| damaged("locks of a session", source))?;
                locks.restore(SessionId(id), ino, &row);
            }
            _ => {}
        }
        Ok(())
    })?;
    each_row(engine, &key::sets(), |key, value| {
        if let Key::Set(segment) = key {
            let row =
                SegmentSetRow::decode(value).map_err(|source| damaged("the set of a segment", source))?;
            sets.restore(segment, row);
        }
        Ok(())
    })?;
    each_row(engine, &key::policies(), |key, value| {
        if let Key::Policy(id) = key {
            policies.restore(id, value);
        }
        Ok(())
    })?;
    Ok((given, opens, locks, sets, policies))
}

fn damaged(row: &str, source: forebay_format::FormatError) -> MetaError {
    MetaError::Damaged { row: row.to_owned(), source }
}

/// Hands each row whose key begins with `prefix` to `each`, as the engine has them.
pub(crate) fn each_row(
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
