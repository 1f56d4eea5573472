//! An engine whose disk is full in the middle of a commit.

#![allow(clippy::unwrap_used)]

use std::{ffi::CString, io::Write, path::PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use super::*;

/// A small disk of its own in memory; gone when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(mebibytes: u64) -> SmallDisk {
        let dir = tempfile::tempdir().unwrap();
        let size = CString::new(format!("size={mebibytes}m")).unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
            .expect("mount a tmpfs (the tests run as root)");
        SmallDisk(dir)
    }

    fn engine(&self) -> EmbeddedEngine {
        EmbeddedEngine::open(&self.0.path().join("engine")).unwrap()
    }

    /// Takes all space but `left` bytes.
    fn fill(&self, left: u64) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let len = file.metadata().unwrap().len();
        file.set_len(len - left).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn commit(engine: &EmbeddedEngine, seed: u8, count: u32) -> Result<Outcome, EngineError> {
    let row = |number: u32| ([&[seed][..], &number.to_be_bytes()].concat(), Some(vec![seed; 1000]));
    let rows: Vec<_> = (0..count).map(row).collect();
    engine.commit(&Batch::of(&rows))
}

fn count(engine: &EmbeddedEngine) -> usize {
    engine.scan(b"", None, usize::MAX).unwrap().rows.len()
}

#[test]
fn a_commit_that_fails_in_the_middle_is_as_if_it_had_not_been() {
    let disk = SmallDisk::new(24);
    let engine = disk.engine();
    assert_eq!(commit(&engine, 1, 100).unwrap(), Outcome::Committed);
    let ballast = disk.fill(200 << 10);
    *engine.reserve.pretended.lock() = Some(u64::MAX);
    let failed = commit(&engine, 2, 1000).unwrap_err();
    assert!(matches!(failed, EngineError::NoSpace { .. }), "{failed}");
    assert_eq!(engine.fault(), Some(EngineFault::NoSpace));
    *engine.reserve.pretended.lock() = None;
    assert_eq!(count(&engine), 100, "what it had can be read all the time");
    for _ in 0..3 {
        let refused = commit(&engine, 2, 1000).unwrap_err();
        assert!(matches!(refused, EngineError::NoSpace { .. }), "{refused}");
    }
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(commit(&engine, 2, 1000).unwrap(), Outcome::Committed);
    assert_eq!((count(&engine), engine.fault()), (1100, None));
    drop(engine);
    assert_eq!(count(&disk.engine()), 1100);
}

/// It fails again and again: each time it is opened again, and what was committed before stays.
#[test]
fn it_may_fail_many_times() {
    let disk = SmallDisk::new(24);
    let engine = disk.engine();
    for round in 1..=5 {
        assert_eq!(commit(&engine, round, 100).unwrap(), Outcome::Committed);
        let ballast = disk.fill(100 << 10);
        *engine.reserve.pretended.lock() = Some(u64::MAX);
        commit(&engine, 100, 1000).unwrap_err();
        *engine.reserve.pretended.lock() = None;
        std::fs::remove_file(ballast).unwrap();
    }
    assert_eq!(commit(&engine, 6, 100).unwrap(), Outcome::Committed);
    assert_eq!(count(&engine), 600);
}

#[test]
fn the_reserve_is_what_a_full_disk_is_left_by() {
    let disk = SmallDisk::new(100);
    let engine = disk.engine();
    commit(&engine, 1, 100).unwrap();
    let reserve = disk.0.path().join("engine").join(EmbeddedEngine::RESERVE);
    assert!(reserve.exists());
    let ballast = disk.fill(0);
    assert_eq!(commit(&engine, 2, 1000).unwrap(), Outcome::Committed, "in what was kept");
    assert!(!reserve.exists());
    assert_eq!(count(&engine), 1100);
    std::fs::remove_file(ballast).unwrap();
    commit(&engine, 3, 1).unwrap();
    assert!(reserve.exists(), "there is room for it again");
}

/// A frozen state is read on: the engine is opened again when that has ended.
#[test]
fn a_reader_of_a_frozen_state_is_waited_for() {
    let disk = SmallDisk::new(24);
    let engine = disk.engine();
    commit(&engine, 1, 100).unwrap();
    let frozen = engine.frozen().unwrap();
    let ballast = disk.fill(100 << 10);
    *engine.reserve.pretended.lock() = Some(u64::MAX);
    commit(&engine, 2, 1000).unwrap_err();
    *engine.reserve.pretended.lock() = None;
    std::fs::remove_file(ballast).unwrap();
    let refused = commit(&engine, 2, 1000).unwrap_err();
    assert!(refused.to_string().contains("when a check or a copy"), "{refused}");
    assert_eq!(frozen.scan(b"", None, usize::MAX).unwrap().rows.len(), 100);
    drop(frozen);
    assert_eq!(commit(&engine, 2, 1000).unwrap(), Outcome::Committed);
}

#[test]
fn a_lock_file_that_is_gone_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("engine");
    commit(&EmbeddedEngine::open(&place).unwrap(), 1, 10).unwrap();
    std::fs::remove_file(place.join("lock")).unwrap();
    assert_eq!(count(&EmbeddedEngine::open(&place).unwrap()), 10);
}

/// What it stands on is closed and opened anew after a failure. Who waits for the directory must not have it in between, and must not touch it before it has it.
#[test]
fn an_engine_that_failed_keeps_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    drop(engine.opened.write().take());
    let locked = EmbeddedEngine::open(dir.path());
    assert!(matches!(locked, Err(EngineError::Locked { .. })), "{locked:?}");
    engine.reopen().unwrap();
    drop(engine);
    drop(EmbeddedEngine::open(dir.path()).unwrap());
}
