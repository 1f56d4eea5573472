//! The emulated disk through a real mount: what a program does arrives in the log, in order, before the program goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use forebay_testkit::power::disk::Disk;
use forebay_testkit::power::layer::Layer;
use forebay_testkit::power::log::{Change, Event};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};

struct Fixture {
    layer: Layer,
    _place: tempfile::TempDir,
}

impl Fixture {
    fn new() -> std::io::Result<Self> {
        let place = tempfile::tempdir()?;
        let layer = Layer::mount(Arc::new(Disk::default()), place.path())?;
        Ok(Self { layer, _place: place })
    }

    fn root(&self) -> &Path {
        self.layer.path()
    }

    /// What was logged since point `from`, one letter an event.
    fn since(&self, from: u64) -> String {
        let letter = |event: &Event| match event {
            Event::Names { .. } => 'n',
            Event::Data { change: Change::Write { .. }, .. } => 'w',
            Event::Data { change: Change::SetLen(_), .. } => 'l',
            Event::Data { change: Change::Zero { .. }, .. } => 'z',
            Event::SyncFile(_) => 'f',
            Event::SyncDirectory(_) => 'd',
        };
        self.layer.disk().log().iter().skip(usize::try_from(from).unwrap_or(0)).map(letter).collect()
    }

    fn point(&self) -> u64 {
        self.layer.disk().points()
    }
}

#[test]
fn each_call_is_logged_when_it_returns() -> std::io::Result<()> {
    let fixture = Fixture::new()?;
    let path = fixture.root().join("f");
    let mut at = 0;
    let mut expect = |what: &str, events: &str| {
        assert_eq!(fixture.since(at), events, "{what}");
        at = fixture.point();
    };
    let file = File::create_new(&path)?;
    expect("create", "n");
    file.write_all_at(b"some bytes", 0)?;
    expect("write", "w");
    file.sync_data()?;
    expect("fdatasync", "f");
    file.sync_all()?;
    expect("fsync", "f");
    file.set_len(4)?;
    expect("truncate", "l");
    fallocate(&file, FallocateFlags::empty(), 0, 9000)?;
    expect("allocate", "l");
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 90_000)?;
    expect("allocate beyond the end", "");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1, 2)?;
    expect("punch", "z");
    fs::create_dir(fixture.root().join("d"))?;
    expect("mkdir", "n");
    fs::rename(&path, fixture.root().join("d/g"))?;
    expect("rename", "n");
    File::open(fixture.root().join("d"))?.sync_all()?;
    expect("fsync of a directory", "d");
    fs::hard_link(fixture.root().join("d/g"), &path)?;
    expect("link", "n");
    fs::remove_file(&path)?;
    expect("unlink", "n");
    assert_eq!(fs::read(fixture.root().join("d/g"))?[..6], [b's', 0, 0, b'e', 0, 0]);
    expect("read", "");
    Ok(())
}

#[test]
fn a_synchronous_write_is_durable_when_it_returns() -> std::io::Result<()> {
    let fixture = Fixture::new()?;
    for (name, flags) in [("sync", libc::O_SYNC), ("dsync", libc::O_DSYNC)] {
        let path = fixture.root().join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(&path)?;
        let at = fixture.point();
        file.write_all(b"bytes")?;
        let events = fixture.since(at);
        assert!(events.starts_with('w') && events.ends_with('f'), "{name}: {events}");
    }
    Ok(())
}

#[test]
fn it_is_a_file_system() -> std::io::Result<()> {
    let fixture = Fixture::new()?;
    let root = fixture.root();
    for number in 0..300 {
        fs::write(root.join(format!("file-{number}")), vec![7; number])?;
    }
    renameat_with(CWD, root.join("file-1"), CWD, root.join("file-2"), RenameFlags::EXCHANGE)?;
    assert_eq!((fs::metadata(root.join("file-1"))?.len(), fs::metadata(root.join("file-2"))?.len()), (2, 1));
    let error = renameat_with(CWD, root.join("file-1"), CWD, root.join("file-2"), RenameFlags::NOREPLACE);
    assert_eq!(error, Err(rustix::io::Errno::EXIST));
    let mut unlinked = OpenOptions::new().read(true).write(true).open(root.join("file-299"))?;
    let mut listed = 0;
    for entry in fs::read_dir(root)? {
        fs::remove_file(entry?.path())?;
        listed += 1;
    }
    assert_eq!(listed, 300);
    assert_eq!(fs::read_dir(root)?.count(), 0);
    let mut bytes = Vec::new();
    unlinked.seek(SeekFrom::Start(99))?;
    unlinked.read_to_end(&mut bytes)?;
    assert_eq!(bytes, vec![7; 200]);
    Ok(())
}
