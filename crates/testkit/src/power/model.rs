//! The smallest file system that keeps the promise: everything in memory, and one journal file in the volume.
//!
//! It answers to the same commands as `forebay` (`create`, `mount -f`, `umount`, `fsck`, `debug-sync-points`), so that the crash
//! tests can be tried on real mounts of something known to be right, and, with `FOREBAY_SKIP_SYNC`, known to be wrong.
//!
//! A journal record is a header (lengths, checksum), a JSON step, and the bytes of a write. The checksum covers the
//! record's place. Mounting replays records until one is not whole, and cuts off the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_testkit::power::disk::Disk;
use forebay_testkit::power::layer::Layer;
use forebay_testkit::power::log::{Change, Event, Kind};
use serde::{Deserialize, Serialize};

const HEADER: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
enum Step {
    Make(u64, Vec<u8>, Made, u32),
    Link(u64, u64, Vec<u8>),
    Remove(u64, Vec<u8>),
    Rename((u64, Vec<u8>), (u64, Vec<u8>), bool),
    Write(u64, u64),
    SetLen(u64, u64),
    Zero(u64, u64, u64),
}

#[derive(Debug, Serialize, Deserialize)]
enum Made {
    File,
    Directory,
    Symlink(Vec<u8>),
    Special(u32),
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["create", volume, ..] => create(Path::new(volume)),
        ["mount", "-f", volume, at] => mount(Path::new(volume), Path::new(at)),
        ["umount", at] => forebay_fuse::unmount(Path::new(at), false).map_err(io::Error::other),
        ["fsck", volume] => open(Path::new(volume)).map(|_| ()),
        ["debug-sync-points"] => writeln!(io::stdout(), "create\njournal"),
        _ => Err(io::Error::other("usage: crash-model create|mount -f|umount|fsck|debug-sync-points ...")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "crash-model: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn sync(file: &File, point: &str) -> io::Result<()> {
    if std::env::var("FOREBAY_SKIP_SYNC").is_ok_and(|skipped| skipped == point) {
        Ok(())
    } else {
        file.sync_all()
    }
}

fn create(volume: &Path) -> io::Result<()> {
    fs::create_dir(volume)?;
    sync(&File::create(volume.join("journal"))?, "create")?;
    sync(&File::open(volume)?, "create")?;
    sync(&File::open(volume.join(".."))?, "create")
}

fn checksum(at: u64, parts: [&[u8]; 2]) -> u64 {
    let bytes = parts.into_iter().flatten();
    bytes.fold(at ^ 0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The journal, and how far it has come.
struct Journal {
    file: File,
    end: u64,
    /// Events of the disk that are in it.
    written: usize,
}

/// Replays a volume's journal and takes away what is not whole.
fn open(volume: &Path) -> io::Result<(Disk, Journal)> {
    let file = OpenOptions::new().read(true).write(true).open(volume.join("journal"))?;
    let bytes = fs::read(volume.join("journal"))?;
    let disk = Disk::default();
    let mut at = 0;
    while let Some((step, data, len)) = record(&bytes, at) {
        redo(&disk, step, data)?;
        at += len;
    }
    file.set_len(at as u64)?;
    let written = usize::try_from(disk.points()).map_err(io::Error::other)?;
    Ok((disk, Journal { file, end: at as u64, written }))
}

fn record(bytes: &[u8], at: usize) -> Option<(Step, &[u8], usize)> {
    let header = bytes.get(at..at + HEADER)?;
    let word = |from: usize| Some(u32::from_le_bytes(header.get(from..from + 4)?.try_into().ok()?) as usize);
    let (text, data) = (word(0)?, word(4)?);
    let body = bytes.get(at + HEADER..at + HEADER + text + data)?;
    let (text, data) = body.split_at(text);
    let sum = u64::from_le_bytes(header.get(8..16)?.try_into().ok()?);
    (checksum(at as u64, [text, data]) == sum).then_some(())?;
    Some((serde_json::from_slice(text).ok()?, data, HEADER + body.len()))
}

fn redo(disk: &Disk, step: Step, data: &[u8]) -> io::Result<()> {
    let change = |ino, change| disk.change(ino, change, false);
    match step {
        Step::Make(dir, name, made, permissions) => {
            let kind = match made {
                Made::File => Kind::File,
                Made::Directory => Kind::Directory,
                Made::Symlink(target) => Kind::Symlink(target),
                Made::Special(bits) => Kind::Special(bits),
            };
            disk.make(dir, &name, kind, permissions).map(|_| ())
        }
        Step::Link(ino, dir, name) => disk.link(ino, dir, &name),
        Step::Remove(dir, name) => disk.remove(dir, &name, false).or_else(|_| disk.remove(dir, &name, true)),
        Step::Rename(from, to, exchange) => disk.rename((from.0, &from.1), (to.0, &to.1), false, exchange),
        Step::Write(ino, offset) => change(ino, Change::Write { offset, data: Arc::from(data) }),
        Step::SetLen(ino, len) => change(ino, Change::SetLen(len)),
        Step::Zero(ino, offset, len) => change(ino, Change::Zero { offset, len }),
    }
    .map_err(io::Error::from)
}

/// The step that an event of the disk becomes, and its bytes; none for a sync.
fn step(event: &Event) -> Option<(Step, &[u8])> {
    let step = match event {
        Event::Names { born: Some((_, kind)), slots, .. } => {
            let slot = slots.first()?;
            let (made, permissions) = match kind {
                Kind::File => (Made::File, 0o644),
                Kind::Directory => (Made::Directory, 0o755),
                Kind::Symlink(target) => (Made::Symlink(target.clone()), 0o777),
                Kind::Special(bits) => (Made::Special(*bits), 0o644),
            };
            Step::Make(slot.dir, slot.name.clone(), made, permissions)
        }
        Event::Names { slots, .. } => match slots.as_slice() {
            [from, to] => {
                let exchange = from.new.is_some();
                Step::Rename((from.dir, from.name.clone()), (to.dir, to.name.clone()), exchange)
            }
            [slot] => match slot.new {
                Some(ino) => Step::Link(ino, slot.dir, slot.name.clone()),
                None => Step::Remove(slot.dir, slot.name.clone()),
            },
            _ => return None,
        },
        Event::Data { ino, change: Change::Write { offset, data } } => {
            return Some((Step::Write(*ino, *offset), data));
        }
        Event::Data { ino, change: Change::SetLen(len) } => Step::SetLen(*ino, *len),
        Event::Data { ino, change: Change::Zero { offset, len } } => Step::Zero(*ino, *offset, *len),
        Event::SyncFile(_) | Event::SyncDirectory(_) => return None,
    };
    Some((step, &[]))
}

impl Journal {
    /// Appends what the disk has logged since the last time.
    fn append(&mut self, disk: &Disk) -> io::Result<()> {
        let log = disk.log();
        for (step, data) in log.iter().skip(self.written).filter_map(step) {
            let text = serde_json::to_vec(&step)?;
            let mut out = Vec::with_capacity(HEADER + text.len() + data.len());
            for len in [text.len(), data.len()] {
                out.extend_from_slice(&u32::try_from(len).map_err(io::Error::other)?.to_le_bytes());
            }
            out.extend_from_slice(&checksum(self.end, [&text, data]).to_le_bytes());
            out.extend_from_slice(&text);
            out.extend_from_slice(data);
            self.file.write_all_at(&out, self.end)?;
            self.end += out.len() as u64;
        }
        self.written = log.len();
        Ok(())
    }
}

fn mount(volume: &Path, at: &Path) -> io::Result<()> {
    let (disk, journal) = open(volume)?;
    let (disk, journal) = (Arc::new(disk), Arc::new(Mutex::new(journal)));
    let flush = {
        let (disk, journal) = (Arc::clone(&disk), Arc::clone(&journal));
        move |synced: bool| {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.append(&disk)?;
            if synced { sync(&journal.file, "journal") } else { Ok(()) }
        }
    };
    let syncing = {
        let flush = flush.clone();
        Arc::new(move |disk: &Disk, ino| disk.sync(ino).map_err(io::Error::from).and_then(|()| flush(true)))
    };
    let layer = Layer::mount_with(disk, at, syncing)?;
    let background = flush.clone();
    std::thread::spawn(move || {
        while background(false).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    layer.serve()?;
    flush(true)
}
