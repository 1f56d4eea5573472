//! What the tests build on: journals with known records, and small disks.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_data::{Journal, JournalFile, Replay, ReplayError, Urgency};
use forebay_format::record::{Changes, StreamRun};
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

pub const VOLUME: VolumeId = VolumeId([3; 16]);

/// Segments that nobody had before, ascending over all tests.
pub fn segments() -> Box<dyn Fn() -> SegmentId + Send + Sync> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Box::new(|| SegmentId(NEXT.fetch_add(1, Ordering::SeqCst)))
}

/// What a record of the tests says: its number is in the row, so that a wrong one is noticed.
pub fn changes(number: u64) -> Changes {
    let row = (number.to_be_bytes().to_vec(), Some(vec![number as u8; (number % 5) as usize]));
    Changes { rows: vec![row], ..Changes::default() }
}

pub fn data(number: u64) -> Vec<u8> {
    vec![number as u8; (number * 7 % 23) as usize]
}

pub fn append(journal: &Journal, number: u64) -> Sequence {
    let data = data(number);
    let append = journal.begin(&data, Urgency::Normal).expect("a place");
    let (segment, offset) = (append.segment(), append.data_offset());
    let sequence = append.commit(&changes(number));
    assert_eq!(journal.read(segment, offset, data.len() as u32).expect("appended bytes"), data);
    sequence
}

pub fn start(replay: Replay, dir: &Path, epoch: u64) -> Journal {
    Journal::start(replay, dir, VOLUME, Epoch(epoch), segments()).expect("a journal")
}

pub fn new_journal(dir: &Path) -> Journal {
    start(replay(dir, 0).expect("an empty journal").0, dir, 1)
}

/// What a replay returned, and the records that it visited, as (sequence, fresh).
pub type Outcome = Result<(Replay, Vec<(u64, bool)>), ReplayError<String>>;

/// The records that a replay finds, as (sequence, fresh); their contents are checked against the sequence.
pub fn replay(dir: &Path, applied: u64) -> Outcome {
    replay_with(dir, applied, &mut |_| true)
}

pub fn replay_with(dir: &Path, applied: u64, stream_ok: &mut dyn FnMut(&StreamRun) -> bool) -> Outcome {
    let mut found = Vec::new();
    let replay = Journal::replay(dir, VOLUME, Sequence(applied), stream_ok, &mut |record| {
        let number = record.sequence.0;
        if record.changes.rows != changes(number).rows || record.data != data(number) {
            return Err(format!("record {number} has other contents"));
        }
        assert_eq!(record.data_len as usize, record.data.len());
        let file = std::fs::read(log_path(dir, record.segment)).expect("the file of a record");
        let place = record.data_offset as usize..record.data_offset as usize + record.data.len();
        assert_eq!(&file[place], record.data, "record {number} is not where it says");
        found.push((number, record.fresh));
        Ok(())
    })?;
    Ok((replay, found))
}

pub fn log_path(dir: &Path, segment: SegmentId) -> PathBuf {
    dir.join(format!("{segment}.log"))
}

/// The bytes of the journal's files up to their ends.
pub fn bytes_of(dir: &Path, files: &[JournalFile]) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |file: &JournalFile| {
        let path = log_path(dir, file.segment);
        let mut bytes = std::fs::read(&path).expect("a journal file");
        bytes.truncate(file.len as usize);
        (PathBuf::from(path.file_name().expect("a name")), bytes)
    };
    files.iter().map(read).collect()
}

/// `1..=last`, all fresh.
pub fn fresh(last: u64) -> Vec<(u64, bool)> {
    (1..=last).map(|number| (number, true)).collect()
}

/// A small disk of its own in memory; gone when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn new(mebibytes: u64) -> SmallDisk {
        let dir = tempfile::tempdir().expect("a directory");
        let size = std::ffi::CString::new(format!("size={mebibytes}m")).expect("an option");
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
            .expect("mount a tmpfs (the tests run as root)");
        SmallDisk(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all space that is left; the file is to be deleted to give it back.
    pub fn fill(&self) -> PathBuf {
        use std::io::Write;
        let path = self.path().join("ballast");
        let mut file = std::fs::File::create(&path).expect("ballast");
        let mut len = 1 << 20;
        while len >= 512 {
            if file.write_all(&vec![1; len]).is_err() {
                len /= 2;
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}
