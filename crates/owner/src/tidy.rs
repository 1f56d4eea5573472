//! What an owner does beside requests: removing what nobody has open any more, and what sessions that ended have left in the store.
//!
//! Each step is one record, and others have their turn in between.

use std::time::Duration;

use forebay_cluster::{Moment, SessionId};
use forebay_format::{
    key::{self, Key},
    row::ObjectRef,
};
use forebay_group::SetRow;
use forebay_meta::MetaError;
use forebay_types::{Epoch, Ino, ObjectId, SegmentId, SubvolumeId};

use crate::{batch::Core, log::CommitLog, owner::VolumeOwner};

/// Steps of one call.
const STEPS: usize = 256;
/// Segments or objects that one step looks at.
const STEP: usize = 256;
/// Objects that one call of [`VolumeOwner::garbage`] names at most.
const GARBAGE: usize = 4096;
/// How long an object is kept that nothing refers to: a client may be reading it still by what it knew, and one that ended may be putting it.
const GARBAGE_AFTER: Duration = Duration::from_secs(60);
/// How long a session that is heard of may keep a lease that was recalled. Most return it at once; one that has bytes to send keeps it while the store takes them.
const RETURNS_WITHIN: Duration = Duration::from_secs(60);
/// How long a step waits where requests are under way.
const GIVE_WAY: Duration = Duration::from_millis(1);

impl Core {
    /// Ends sessions that were told to return a lease and have not for so long, although they are heard of.
    fn end_those_who_keep(&mut self, at: SubvolumeId, now: Moment) {
        let Core { recalled, table, .. } = self;
        recalled.retain(|(session, ino), _| table.is_recalled(*session, *ino));
        let late = recalled.iter().filter(|(_, (_, since))| now.since(*since) >= RETURNS_WITHIN);
        let mut late: Vec<(SessionId, Ino)> = late.map(|(of, _)| *of).collect();
        late.sort_unstable();
        for (session, ino) in late {
            if self.sessions.lives(session) {
                tracing::warn!(
                    session = format_args!("{:032x}", session.0),
                    %ino,
                    "a client does not return a lease: its session ends"
                );
                self.end_session(session, at, now);
            }
        }
    }
}

impl VolumeOwner {
    /// Does some of what is to be done beside requests. Called about every second, by one thread.
    ///
    /// # Errors
    /// [`MetaError`]; the next call tries again.
    pub fn tidy(&self) -> Result<(), MetaError> {
        let now = self.ticks.now();
        {
            let mut core = self.core.lock();
            if core.over || core.stops || !core.ownership.may_look_up(now) {
                return Ok(());
            }
            core.expire_locks(self.at, now);
            core.end_those_who_keep(self.at, now);
        }
        self.work.notify_one();
        self.tell_all();
        let mut steps = STEPS;
        self.purge(&mut steps)?;
        self.clean(&mut steps)?;
        self.forget_dead(&mut steps)?;
        self.abandon_numbers(&mut steps)?;
        self.see_to_sets(&mut steps)
    }

    /// The objects to be deleted from the store, some of them: no row that is committed refers to them, and that for a while.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn garbage(&self) -> Result<Vec<ObjectRef>, MetaError> {
        let mut found = Vec::new();
        let (from, to) = (key::garbage(), key::after_prefix(&key::garbage()));
        // The engine has only what is committed.
        let page = self.ns.engine().scan(&from, to.as_deref(), GARBAGE)?;
        for (key, _) in &page.rows {
            let wrong = |source| MetaError::Damaged { row: "the key of garbage".to_owned(), source };
            if let Key::Garbage(epoch, id) = Key::decode(key).map_err(wrong)? {
                found.push(ObjectRef { epoch: Epoch(epoch), id: ObjectId(id) });
            }
        }
        let now = self.ticks.now();
        let mut core = self.core.lock();
        let before = std::mem::take(&mut core.garbage_since);
        core.garbage_since =
            found.iter().map(|object| (*object, before.get(object).copied().unwrap_or(now))).collect();
        found.retain(|object| now.since(core.garbage_since[object]) >= GARBAGE_AFTER);
        Ok(found)
    }

    /// Says that objects are deleted from the store.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn garbage_deleted(&self, objects: &[ObjectRef]) -> Result<(), MetaError> {
        self.beside_requests(|| self.ns.garbage_deleted(objects))
    }

    /// Makes a change that no request asked for, in one batch with what `work` puts besides.
    pub(crate) fn beside_requests<R>(
        &self,
        work: impl FnOnce() -> Result<R, MetaError>,
    ) -> Result<R, MetaError> {
        let closing = self.batch.read();
        let (result, changed) = CommitLog::watch(work);
        let busy = {
            let mut core = self.core.lock();
            core.dirty |= changed;
            !core.requests.is_empty()
        };
        drop(closing);
        self.work.notify_one();
        if busy {
            std::thread::sleep(GIVE_WAY);
        }
        result
    }

    /// Removes inodes that have no name, and that nobody has open.
    fn purge(&self, steps: &mut usize) -> Result<(), MetaError> {
        for (at, ino) in self.ns.listed_orphans() {
            // Those that are open keep no others waiting; it is looked again inside.
            {
                let core = self.core.lock();
                if core.opens.is_open(ino) || core.table.recovers() {
                    continue;
                }
            }
            let nameless = match self.ns.inode(at, ino) {
                Ok(inode) => inode.row.nlink == 0,
                Err(MetaError::Stale(_)) => true,
                Err(error) => return Err(error),
            };
            while nameless && *steps > 0 && at == self.at {
                *steps -= 1;
                let gone = self.beside_requests(|| {
                    let core = self.core.lock();
                    let open = core.opens.is_open(ino) || core.table.recovers();
                    drop(core);
                    if open { Ok(true) } else { self.ns.purge(at, ino) }
                })?;
                if gone {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes rows that were cut off files.
    fn clean(&self, steps: &mut usize) -> Result<(), MetaError> {
        for (at, ino) in self.ns.uncleaned() {
            while *steps > 0 {
                *steps -= 1;
                if self.beside_requests(|| self.ns.clean(at, ino))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Forgets segments that nothing refers to; objects without others become garbage.
    fn forget_dead(&self, steps: &mut usize) -> Result<(), MetaError> {
        let dead: Vec<_> = self.ns.dead_segments().into_iter().map(|(id, _)| id).collect();
        for some in dead.chunks(STEP) {
            if *steps == 0 {
                return Ok(());
            }
            *steps -= 1;
            self.beside_requests(|| self.forget_dead_sets(some))?;
        }
        Ok(())
    }

    /// Forgets those of these segments that nothing refers to, and that no request names which is still to come.
    fn forget_dead_sets(&self, dead: &[SegmentId]) -> Result<(), MetaError> {
        let _turn = self.lanes.lock();
        let dead: Vec<SegmentId> = {
            let core = self.core.lock();
            let ending = core.ending_writers();
            let free = |row: Option<&SetRow>| {
                SetRow::may_collect(row) && row.is_none_or(|row| !ending.contains(&row.writer))
            };
            dead.iter().copied().filter(|segment| free(core.sets.row(*segment))).collect()
        };
        let forgotten = self.ns.forget_dead(&dead)?;
        let mut core = self.core.lock();
        for (segment, _) in forgotten {
            if core.sets.row(segment).is_some() {
                core.forget_set(segment);
            }
        }
        Ok(())
    }

    /// Looks after segments over the logs of members: what is over goes, what has too few copies gets some, what nobody has is given up, what a client that ended has left open is recovered.
    fn see_to_sets(&self, steps: &mut usize) -> Result<(), MetaError> {
        while *steps > 0 {
            *steps -= 1;
            if !self.beside_requests(|| self.sweep_sets(STEP))? {
                break;
            }
        }
        self.beside_requests(|| {
            self.see_to_losses()?;
            self.mend();
            Ok(())
        })?;
        self.recover()
    }

    /// Makes garbage of what sessions that ended were given numbers for and have not committed.
    fn abandon_numbers(&self, steps: &mut usize) -> Result<(), MetaError> {
        for session in self.ended_with_numbers() {
            loop {
                let objects = self.core.lock().given.some_objects(session, STEP);
                if objects.is_empty() {
                    self.core.lock().use_numbers(session, std::iter::empty());
                    break;
                }
                if *steps == 0 {
                    return Ok(());
                }
                *steps -= 1;
                self.beside_requests(|| {
                    self.ns.abandon_objects(&objects)?;
                    let used = objects.iter().map(|object| (*object, &[][..]));
                    self.core.lock().use_numbers(session, used);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Sessions that have ended, no request of which is being carried out.
    fn ended_with_numbers(&self) -> Vec<SessionId> {
        let core = self.core.lock();
        let mut sessions = core.given.sessions();
        sessions.retain(|session| {
            let asks = core.requests.values().any(|pending| pending.request.session == *session);
            !core.sessions.lives(*session) && !asks
        });
        sessions
    }

    /// Whether an inode without a name stays because of sessions. For tests and people.
    #[must_use]
    pub fn is_open(&self, ino: Ino) -> bool {
        self.core.lock().opens.is_open(ino)
    }
}
