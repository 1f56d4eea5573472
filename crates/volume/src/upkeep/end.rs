//! How the use of a volume ends: for good, or because another process goes on with it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{Volume, error::VolumeError};

/// How long a volume that is to be handed over is put in order at most, besides the object that is then under way in the store.
const TIDY_TIME: Duration = Duration::from_secs(5);

/// On a full disk the journal has all of it.
fn unless_full(error: VolumeError) -> Result<(), VolumeError> {
    if error.is_no_space() { Ok(()) } else { Err(error) }
}

impl Volume {
    /// Prepares [`Volume::hand_over`], which then has little to do, and the next opening, which then has little to replay: empties the journal
    /// into packed segments, takes checkpoints, and stops the background work, waiting for the object that is under way in the store. The volume may
    /// be used meanwhile and afterwards.
    ///
    /// However much is written meanwhile, and however slow the store is, what makes the next opening shorter ends after some seconds
    /// (`TIDY_TIME`). What is left then stays in the journal, as after a crash.
    ///
    /// # Errors
    /// [`VolumeError`]; [`Volume::resume`] is to be called if the volume is to be used on.
    pub fn quiesce(&self) -> Result<(), VolumeError> {
        self.quiesce_until(Instant::now() + TIDY_TIME)
    }

    fn quiesce_until(&self, deadline: Instant) -> Result<(), VolumeError> {
        // While background work goes on, and twice: what comes meanwhile is less.
        for _ in 0..2 {
            self.seal_until(deadline).or_else(unless_full)?;
            self.checkpoint_now().or_else(unless_full)?;
            self.wait_for_bucket(deadline);
            if Instant::now() >= deadline {
                break;
            }
        }
        self.stop_upkeep();
        // What came while the object under way was waited for.
        self.checkpoint_now().or_else(unless_full)?;
        self.sync_here()
    }

    /// Waits for the bucket to have the rows that the engine has, and for the files of the journal to go that were kept for that.
    fn wait_for_bucket(&self, deadline: Instant) {
        let Some(remote) = &self.remote else { return };
        if self.upkeep.threads.lock().is_empty() {
            return;
        }
        let applied = self.ns.applied_sequence();
        self.upkeep.wake();
        self.upkeep.wait_until(deadline, &|| remote.is_settled(applied));
    }

    /// Goes on with the background work after [`Volume::quiesce`], or begins with it after an opening without.
    ///
    /// # Errors
    /// [`VolumeError::Io`] where no thread can be started.
    pub fn resume(self: &Arc<Self>) -> Result<(), VolumeError> {
        self.upkeep.signal.stop.store(false, Ordering::Release);
        self.start_upkeep()
    }

    /// Makes everything durable on this machine, for another process that opens the volume next. Nothing is brought into the store. The
    /// volume is then only to be dropped, which lets the other one have it.
    ///
    /// # Errors
    /// [`VolumeError`]: what was not durable before may be lost.
    pub fn hand_over(&self) -> Result<(), VolumeError> {
        self.stop_upkeep();
        self.sync_here()
    }

    pub(super) fn sync_here(&self) -> Result<(), VolumeError> {
        let target = self.ns.last();
        self.streams.sync()?;
        Ok(self.journal.sync_behind(target)?)
    }

    fn stop_upkeep(&self) {
        self.upkeep.signal.stop.store(true, Ordering::Release);
        self.upkeep.wake();
        self.upkeep.give_way.interrupt();
        self.upkeep.behind.stop();
        self.listing.stop();
        if let Some(assembled) = &self.assembled {
            assembled.stop();
        }
        let threads = std::mem::take(&mut *self.upkeep.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the background work panicked");
            }
        }
    }

    /// Stops the background work and makes everything durable on this machine; a store elsewhere gets what can be had there at once. The volume is then
    /// only to be dropped.
    ///
    /// # Errors
    /// [`VolumeError`]: what was not durable before may be lost.
    pub fn close(&self) -> Result<(), VolumeError> {
        self.stop_upkeep();
        self.sync()?;
        if let Err(error) = self.clean_all().and_then(|()| self.checkpoint_now()) {
            // The journal has all of it, and the next opening goes on from there.
            if !error.is_no_space() {
                return Err(error);
            }
            tracing::warn!("the last checkpoint is left to the next mount: {error}");
        }
        self.sync()?;
        if let Err(error) = self.ship() {
            tracing::error!("the last seconds of the journal are on this machine only: {error}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::{NewInode, WriteAttr};
    use forebay_object::{
        Backend, DirectoryStore, ETag, Expected, Meta, ObjectError, ObjectStore, Page, PutOutcome, StoreUrl,
    };
    use forebay_types::{FileKind, Ino};
    use parking_lot::{Condvar, Mutex};

    use super::*;
    use crate::{CreateOptions, OpenOptions, create};

    /// How long a test waits for what comes at once.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A store whose puts wait at a gate once it is shut.
    #[derive(Debug)]
    struct Gated {
        inner: DirectoryStore,
        gate: Mutex<Gate>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct Gate {
        shut: bool,
        /// Puts that came since it was shut for the first time.
        came: Option<u32>,
    }

    impl Gated {
        fn set(&self, shut: bool) {
            let mut gate = self.gate.lock();
            gate.shut = shut;
            gate.came.get_or_insert(0);
            self.changed.notify_all();
        }

        fn pass(&self) {
            let mut gate = self.gate.lock();
            gate.came = gate.came.map(|came| came + 1);
            self.changed.notify_all();
            self.changed.wait_while_for(&mut gate, |gate| gate.shut, PATIENCE);
        }

        fn wait_for_one(&self) {
            let mut gate = self.gate.lock();
            let none = |gate: &mut Gate| gate.came == Some(0);
            assert!(!self.changed.wait_while_for(&mut gate, none, PATIENCE).timed_out());
        }
    }

    impl Backend for Gated {
        fn url(&self) -> &StoreUrl {
            self.inner.url()
        }
        fn put_new(&self, key: &str, bytes: bytes::Bytes) -> Result<PutOutcome, ObjectError> {
            self.pass();
            self.inner.put_new(key, bytes)
        }
        fn put_new_file(&self, key: &str, file: &std::path::Path) -> Result<PutOutcome, ObjectError> {
            self.pass();
            self.inner.put_new_file(key, file)
        }
        fn put_if(
            &self,
            key: &str,
            bytes: bytes::Bytes,
            expected: &Expected,
        ) -> Result<PutOutcome, ObjectError> {
            self.inner.put_if(key, bytes, expected)
        }
        fn get_range(&self, key: &str, range: std::ops::Range<u64>) -> Result<bytes::Bytes, ObjectError> {
            self.inner.get_range(key, range)
        }
        fn get(&self, key: &str) -> Result<(bytes::Bytes, ETag), ObjectError> {
            self.inner.get(key)
        }
        fn head(&self, key: &str) -> Result<Meta, ObjectError> {
            self.inner.head(key)
        }
        fn delete(&self, key: &str) -> Result<(), ObjectError> {
            self.inner.delete(key)
        }
        fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
            self.inner.list(prefix, after)
        }
    }

    fn make(volume: &Volume, name: &[u8]) -> Ino {
        let (target, xattrs) = (Vec::new(), Vec::new());
        let new = NewInode { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, rdev: 0, target, xattrs };
        volume.ns.make(volume.subvolume, Ino::ROOT, name, &new).unwrap().ino
    }

    fn write(volume: &Volume, ino: Ino, block: u64) {
        volume.write(ino, block << 16, &[block as u8; 1 << 16], WriteAttr::default()).unwrap();
    }

    #[test]
    fn of_what_waits_for_a_store_one_object_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (root, bucket) = (dir.path().join("volume"), dir.path().join("bucket"));
        let inner = DirectoryStore::create(&bucket).unwrap();
        let store = Some(StoreUrl::directory(&bucket).unwrap());
        create(&root, &CreateOptions { store, ..CreateOptions::default() }).unwrap();
        let gated = Arc::new(Gated { inner, gate: Mutex::default(), changed: Condvar::new() });
        let store = Some(ObjectStore::over(Arc::clone(&gated) as _));
        let options = OpenOptions { background: false, cache_size: 0, store, ..OpenOptions::default() };
        let volume = Volume::open(&root, &options).unwrap();
        let ino = make(&volume, b"file");
        for block in 0..8 {
            write(&volume, ino, block);
            volume.checkpoint_now().unwrap();
        }
        gated.set(true);
        volume.start_upkeep().unwrap();
        // A piece of the journal is under way, and the rows of eight checkpoints wait behind it.
        gated.wait_for_one();
        std::thread::scope(|scope| {
            let quiesced = scope.spawn(|| volume.quiesce_until(Instant::now()));
            let begun = Instant::now();
            while !volume.upkeep.stopping() && !quiesced.is_finished() {
                assert!(begun.elapsed() < PATIENCE);
                std::thread::yield_now();
            }
            gated.set(false);
            quiesced.join().unwrap().unwrap();
        });
        assert_eq!(gated.gate.lock().came, Some(1), "puts that were begun");
        assert!(volume.status().troubles.is_empty(), "to stop is no trouble: {:?}", volume.status().troubles);
        volume.resume().unwrap();
        volume.drain(&mut |_| {}).unwrap();
    }

    #[test]
    fn whoever_seals_is_not_waited_for_beyond_the_time_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, &CreateOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open(&root, &options).unwrap();
        let ino = make(&volume, b"file");
        write(&volume, ino, 0);
        let sealing = volume.upkeep.seal_turn.lock();
        volume.quiesce_until(Instant::now()).unwrap();
        drop(sealing);
        assert_eq!(volume.ns.applied_sequence(), volume.ns.last(), "rows are for the engine all the same");
        assert_eq!(volume.journal.synced(), volume.ns.last());
    }
}
