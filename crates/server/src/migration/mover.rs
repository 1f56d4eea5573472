//! The steps of a move, in the thread of the owner's server that makes it.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use forebay_engine::{
    Batch, CopyError, CopyMark, DatabaseName, Engine, EngineHost, Keys, MovableEngine, Outcome, Paused,
    compare_all, compare_rows, copy_all, copy_rows, settle,
};
use forebay_format::{key::Key, moving_row::MovingRow, row::Row, shared_row::FenceRow};
use forebay_owner::VolumeOwner;
use forebay_protocol::MigratePhase;

use super::{
    Migration, MigrationStep, Stopped, closed,
    closed::{activate, brought, enter},
    insist,
    left::remove_left,
};
use crate::{
    cluster::Cluster,
    hosting::{Hosted, database},
    registry::{VolumePlace, VolumeRow},
};

/// So many changed rows are left to the pause.
const FEW: usize = 500;
/// A round that took no longer than this is the last before the pause, whatever it had.
const SHORT: Duration = Duration::from_millis(200);
/// Rounds after which the target is called too slow.
const ROUNDS: u32 = 100;
/// How long a batch may be on its way while the next ones are made to wait.
const LIMIT: Duration = Duration::from_millis(500);
/// How long batches wait at most before the seal: others take an owner for dead after 3 s without one.
const PAUSE: Duration = Duration::from_secs(1);
/// Pauses that may be given up.
const PAUSES: u32 = 50;
const BETWEEN_PAUSES: Duration = Duration::from_millis(200);

/// The value of the target's mark after so many batches.
type Value = Box<dyn Fn(u64) -> Vec<u8> + Send>;

/// Who moves a volume.
pub(super) struct Mover {
    cluster: Arc<Cluster>,
    hosted: Arc<Hosted>,
    owner: Weak<VolumeOwner>,
    source: Arc<MovableEngine>,
}

/// The rows at their new place.
struct Target {
    host: Arc<dyn EngineHost>,
    engine: Arc<dyn Engine>,
    at: VolumePlace,
    name: DatabaseName,
    nonce: [u8; 16],
    mark: CopyMark<Value>,
    /// Rows that were found to differ, and must have been noted since.
    suspects: Keys,
    compares: bool,
    /// Whether the source was, or may have been, sealed: then its rows are the only ones.
    may_be_sealed: bool,
}

impl Mover {
    /// For the owner that is at this server.
    pub(super) fn new(cluster: &Arc<Cluster>, hosted: &Arc<Hosted>) -> Option<Mover> {
        let owner = Arc::downgrade(&hosted.owner()?);
        let source = hosted.engine()?;
        Some(Mover { cluster: Arc::clone(cluster), hosted: Arc::clone(hosted), owner, source })
    }

    /// Makes the move, and says in `migration` how it goes.
    pub(super) fn run(&self, migration: &Migration) {
        let name = self.hosted.name.as_str();
        tracing::info!(volume = name, to = migration.status().to, "the volume is being moved");
        match self.make(migration) {
            Ok(()) => {
                tracing::info!(volume = name, to = migration.status().to, "the volume was moved");
                migration.tell(|status| status.phase = MigratePhase::Done);
            }
            // Whoever asks again asks the next owner.
            Err(Stopped::Over) => migration.tell(|status| status.phase = MigratePhase::Idle),
            Err(Stopped::Failed(why)) => {
                tracing::warn!(volume = name, "the volume is not moved: {why}");
                migration.tell(|status| status.failed = Some(why));
            }
        }
    }

    fn make(&self, migration: &Migration) -> Result<(), Stopped> {
        let view = self.cluster.registry.view();
        let row = view.volume(self.hosted.id).map(|(_, row)| row.clone()).ok_or(Stopped::Over)?;
        let mut target = self.begin(migration)?;
        let moved = self.carry_over(migration, &row, &mut target);
        let Target { host, engine, name, at, may_be_sealed, .. } = target;
        drop(engine);
        if let Err(stopped) = moved {
            self.source.forget();
            if !self.hosted.ends_at_once() && !may_be_sealed {
                // Whatever keeps it from going, the next try takes it away.
                let removed = host.remove(&name);
                tracing::debug!(?removed, "the rows of a move that has stopped");
            }
            return Err(stopped);
        }
        self.finish(&row, &at)
    }

    /// Makes the target's database, under a name that none ever had.
    fn begin(&self, migration: &Migration) -> Result<Target, Stopped> {
        let failed = |error: &dyn std::fmt::Display| Stopped::Failed(error.to_string());
        let host = self.cluster.places.host(&migration.to)?;
        self.remove_former_tries(host.as_ref());
        let nonce: [u8; 16] = forebay_env::random().map_err(|error| failed(&error))?;
        let at = brought(migration.to.clone(), nonce);
        let name = database(self.hosted.id, &at).map_err(|error| failed(&error))?;
        let engine = host.create(&name)?;
        let value: Value = Box::new(move |batches| MovingRow::Incoming { nonce, batches }.encode());
        let mark = CopyMark { key: Key::Fence.encode(), value, batches: 0 };
        let first = [(mark.key.clone(), Some(mark.now()))];
        let batch = Batch { expect: vec![(mark.key.clone(), None)], ..Batch::of(&first) };
        let outcome = match engine.commit(&batch)? {
            Outcome::Unknown => settle(engine.as_ref(), &batch, &mark.key)?,
            known => known,
        };
        if outcome != Outcome::Committed {
            return Err(CopyError::Fenced.into());
        }
        self.over(MigrationStep::Begun)?;
        let (suspects, compares, may_be_sealed) = (Keys::new(), false, false);
        Ok(Target { host, engine, at, name, nonce, mark, suspects, compares, may_be_sealed })
    }

    /// Removes what moves have left in the target that have stopped. None of them is ever sealed: only the owner of the source can, and that is this one.
    fn remove_former_tries(&self, host: &dyn EngineHost) {
        let prefix = format!("volume-{}-", self.hosted.id);
        let names = host.list().unwrap_or_default();
        for name in names.iter().filter(|name| name.as_str().starts_with(&prefix)) {
            let found = host.open(name).map_err(|error| error.to_string());
            let closed = found.and_then(|engine| closed(engine.as_ref()).map_err(|error| error.to_string()));
            if let Ok(Some(MovingRow::Incoming { .. })) = closed {
                let removed = host.remove(name);
                tracing::info!(volume = self.hosted.name, %name, ?removed, "what a move left that had stopped");
            }
        }
    }

    /// Everything up to the moment at which the rows are owned in the target.
    fn carry_over(&self, migration: &Migration, row: &VolumeRow, target: &mut Target) -> Result<(), Stopped> {
        self.insist_on("a batch takes long", || match self.source.note(LIMIT) {
            true => Ok(()),
            false => Err("the engine does not answer".to_owned()),
        })?;
        let from = self.source.present();
        let copied = copy_all(from.as_ref(), target.engine.as_ref(), &mut target.mark, &mut |copied| {
            migration.tell(|status| (status.rows, status.bytes) = (copied.rows, copied.bytes));
            self.owns()
        })?;
        copied.ok_or(Stopped::Over)?;
        self.over(MigrationStep::Copied)?;
        migration.tell(|status| status.phase = MigratePhase::CatchingUp);
        self.catch_up(target)?;
        migration.tell(|status| status.phase = MigratePhase::Comparing);
        let (engine, key) = (target.engine.as_ref(), &target.mark.key);
        let compared = compare_all(from.as_ref(), engine, key, &mut |rows| {
            migration.tell(|status| status.compared = rows);
            self.owns()
        })?;
        let (differ, _) = compared.ok_or(Stopped::Over)?;
        (target.suspects, target.compares) = (differ, true);
        self.catch_up(target)?;
        self.over(MigrationStep::Compared)?;
        migration.tell(|status| status.phase = MigratePhase::Switching);
        drop(from);
        for _ in 0..PAUSES {
            if self.change_over(migration, row, target)? {
                return Ok(());
            }
            std::thread::sleep(BETWEEN_PAUSES);
            self.catch_up(target)?;
        }
        Err(Stopped::Failed(format!("{} does not take the last rows within a second", target.host.place())))
    }

    /// Copies what has changed, until little is left.
    fn catch_up(&self, target: &mut Target) -> Result<(), Stopped> {
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let noted = self.source.noted();
            self.round(target, noted.clone())?;
            if !self.owns() {
                return Err(Stopped::Over);
            }
            if noted.len() <= FEW || began.elapsed() < SHORT {
                return Ok(());
            }
        }
        let place = target.host.place();
        Err(Stopped::Failed(format!(
            "{place} takes rows slower than clients change them: try when less is done"
        )))
    }

    /// Copies these rows, which were noted since the last round. A batch may be on its way whose rows were read already and are not noted yet: what differs now must be
    /// noted later.
    fn round(&self, target: &mut Target, mut noted: Keys) -> Result<(), Stopped> {
        let waiting = std::mem::take(&mut target.suspects);
        let (explained, unexplained): (Keys, Keys) = waiting.into_iter().partition(|key| noted.contains(key));
        drop(explained);
        if !unexplained.is_empty() {
            // Their batch may be applied and not noted: it is once nothing is on its way.
            let Some(paused) = self.source.pause(LIMIT) else {
                target.suspects = unexplained;
                return self.copy(target, &noted);
            };
            let more = paused.noted();
            drop(paused);
            let wrong = unexplained.iter().filter(|key| !more.contains(*key)).count();
            if wrong > 0 {
                return Err(CopyError::Differs(wrong).into());
            }
            noted.extend(more);
        }
        self.copy(target, &noted)
    }

    fn copy(&self, target: &mut Target, keys: &Keys) -> Result<(), Stopped> {
        let (from, engine) = (self.source.present(), target.engine.as_ref());
        copy_rows(from.as_ref(), engine, keys, &mut target.mark)?;
        if target.compares {
            target.suspects.extend(compare_rows(from.as_ref(), engine, keys, &target.mark.key)?);
        }
        Ok(())
    }

    /// Lets batches wait, copies the rest, and changes over. `false` where that takes too long: nothing has changed then.
    fn change_over(
        &self,
        migration: &Migration,
        row: &VolumeRow,
        target: &mut Target,
    ) -> Result<bool, Stopped> {
        let Some(paused) = self.source.pause(LIMIT) else { return Ok(false) };
        let began = Instant::now();
        if paused.is_unsettled() {
            return Ok(false);
        }
        let noted = paused.noted();
        let wrong = target.suspects.iter().filter(|key| !noted.contains(*key)).count();
        if wrong > 0 {
            return Err(CopyError::Differs(wrong).into());
        }
        target.suspects.clear();
        self.copy(target, &noted)?;
        if !target.suspects.is_empty() {
            return Err(CopyError::Differs(target.suspects.len()).into());
        }
        self.over(MigrationStep::Paused)?;
        if began.elapsed() > PAUSE {
            return Ok(false);
        }
        let fence = self.seal(migration, target)?;
        self.open_target(&paused, target, &fence)?;
        let pause_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (place, phase) = (target.host.place(), MigratePhase::CleaningUp);
        migration.tell(|status| (status.place, status.phase, status.pause_us) = (place, phase, pause_us));
        tracing::info!(volume = self.hosted.name, pause_us, left = ?row.place, "the volume has changed over");
        Ok(true)
    }

    /// Makes sure that nobody ever owns the source again. Returns the fence that was there.
    fn seal(&self, migration: &Migration, target: &mut Target) -> Result<FenceRow, Stopped> {
        let (source, key) = (self.source.present(), Key::Fence.encode());
        let value = source.get(&key)?.ok_or(Stopped::Over)?;
        let fence = FenceRow::decode(&value).map_err(|_| Stopped::Over)?;
        let epoch = self.owner.upgrade().and_then(|owner| owner.epoch());
        if fence.server != Some(self.cluster.server.0) || epoch != Some(fence.epoch) {
            return Err(Stopped::Over);
        }
        let (nonce, to) = (target.nonce, migration.to.0.clone());
        let moved = MovingRow::Moved { nonce, epoch: fence.epoch, to }.encode();
        let batch = Batch { expect: vec![(key.clone(), Some(value))], rows: vec![(&key, Some(&moved))] };
        target.may_be_sealed = true;
        let (mut unknown, mut never) = (false, None);
        let outcome = insist("the seal of a move is not known to be there", &|| !self.hosted.ends(), || {
            let outcome = match unknown {
                true => settle(source.as_ref(), &batch, &key),
                false => source.commit(&batch),
            };
            match outcome {
                Ok(Outcome::Unknown) => {
                    unknown = true;
                    Err("the engine did not say what became of it".to_owned())
                }
                Ok(outcome) => Ok(outcome),
                // Nothing was changed, so nothing holds the clients up.
                Err(error) if !unknown => {
                    never = Some(error.to_string());
                    Ok(Outcome::Fenced)
                }
                Err(error) => Err(error.to_string()),
            }
        });
        match (outcome, never) {
            (_, Some(why)) => {
                target.may_be_sealed = false;
                Err(Stopped::Failed(why))
            }
            (Some(Outcome::Committed), None) => {
                self.over(MigrationStep::Sealed)?;
                Ok(fence)
            }
            _ => Err(Stopped::Over),
        }
    }

    /// There is no way back: the rows are owned in the target as soon as that can be told there.
    fn open_target(&self, paused: &Paused<'_>, target: &Target, fence: &FenceRow) -> Result<(), Stopped> {
        let what = "the rows of a move are not opened at their new place";
        let done = insist(what, &|| !self.hosted.ends(), || {
            activate(target.engine.as_ref(), target.nonce, fence).map_err(|error| error.to_string())
        });
        done.ok_or(Stopped::Over)?;
        self.over(MigrationStep::Activated)?;
        paused.exchange(Arc::clone(&target.engine));
        Ok(())
    }

    /// Says in the registry where the volume is, and removes what it left.
    fn finish(&self, row: &VolumeRow, at: &VolumePlace) -> Result<(), Stopped> {
        self.insist_on("the registry does not take where a volume is now", || {
            enter(&self.cluster, row, at).map_err(|error| error.to_string())
        })?;
        self.over(MigrationStep::Entered)?;
        match remove_left(&self.cluster, &self.hosted, &|| self.owns()) {
            true => Ok(()),
            false => Err(Stopped::Over),
        }
    }

    fn insist_on(&self, what: &str, attempt: impl FnMut() -> Result<(), String>) -> Result<(), Stopped> {
        insist(what, &|| self.owns(), attempt).ok_or(Stopped::Over)
    }

    fn owns(&self) -> bool {
        self.hosted.is_owned_by(&self.owner)
    }

    /// A step is over.
    fn over(&self, step: MigrationStep) -> Result<(), Stopped> {
        let watch = self.cluster.watch.lock().clone();
        if watch.is_some_and(|watch| !watch(step)) {
            self.hosted.abandon();
        }
        // From the seal to the entry only a crash keeps it from going on.
        let may_stop = step < MigrationStep::Sealed;
        match self.hosted.ends_at_once() || may_stop && !self.owns() {
            true => Err(Stopped::Over),
            false => Ok(()),
        }
    }
}
