//! Making things survive a power cut: fsync of files and directories, whole files written so that a reader sees the old or the new one.
//!
//! Every call that waits for the disk names a [`Point`], and so does every step in the bucket that others must wait for. The environment variable
//! `FOREBAY_SKIP_SYNC` (read once, for tests only) names points whose waiting is left out.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::OnceLock,
};

/// A place in the code that waits for stable storage, or for a step in the bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point(&'static str);

impl Point {
    /// The records of the journal, before `fsync` is answered and before the engine passes them.
    pub const JOURNAL_DATA: Point = Point("journal.data");
    /// The name of a new journal file.
    pub const JOURNAL_NAME: Point = Point("journal.name");
    /// The bytes of a stream, before a journal record that names them counts as durable.
    pub const STREAM_DATA: Point = Point("stream.data");
    /// The name of a new stream or packed segment in the staging directory.
    pub const STREAM_NAME: Point = Point("stream.name");
    /// The bytes of an object put into a directory store.
    pub const OBJECT_DATA: Point = Point("object.data");
    /// The name of an object put into a directory store.
    pub const OBJECT_NAME: Point = Point("object.name");
    /// The volume's own description and keys.
    pub const VOLUME_DATA: Point = Point("volume.data");
    /// The names in a new volume's directory.
    pub const VOLUME_NAME: Point = Point("volume.name");
    /// The journal's bytes in the bucket, before an `fsync` of class `object` is answered.
    pub const BUCKET_CHUNK: Point = Point("bucket.chunk");
    /// The journal's bytes in the bucket, before the rows of a checkpoint are put there.
    pub const BUCKET_DELTA: Point = Point("bucket.delta");
    /// The rows of a checkpoint in the bucket, before what they no longer name is removed.
    pub const BUCKET_REMOVAL: Point = Point("bucket.removal");
    /// An object in the store, before a record says so.
    pub const OBJECT_RECORD: Point = Point("object.record");
    /// The records of a proxy's log, before anything is answered by them.
    pub const MEMBER_DATA: Point = Point("member.data");
    /// The name of a file of a proxy's log.
    pub const MEMBER_NAME: Point = Point("member.name");
    /// All points of a volume, for tests that take away one after the other.
    pub const ALL: &[Point] = &[
        Point::JOURNAL_DATA,
        Point::JOURNAL_NAME,
        Point::STREAM_DATA,
        Point::STREAM_NAME,
        Point::OBJECT_DATA,
        Point::OBJECT_NAME,
        Point::VOLUME_DATA,
        Point::VOLUME_NAME,
        Point::BUCKET_CHUNK,
        Point::BUCKET_DELTA,
        Point::BUCKET_REMOVAL,
        Point::OBJECT_RECORD,
    ];

    /// The name that `FOREBAY_SKIP_SYNC` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Whether the waiting here is left out: in tests only.
    #[must_use]
    pub fn skipped(self) -> bool {
        static SKIPPED: OnceLock<Vec<String>> = OnceLock::new();
        let skipped = SKIPPED.get_or_init(|| {
            let names = std::env::var("FOREBAY_SKIP_SYNC").unwrap_or_default();
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        });
        skipped.iter().any(|name| name == self.0)
    }
}

/// Waits until the bytes of `file`, and what is needed to read them back, are on stable storage (fdatasync(2)). Its name may not be: see
/// [`sync_dir`].
///
/// # Errors
/// The system's. The kernel may have dropped the bytes that it could not write, so a second call that succeeds proves nothing.
pub fn sync_file(file: &File, point: Point) -> io::Result<()> {
    if point.skipped() {
        return Ok(());
    }
    file.sync_data()
}

/// Waits until the names in `dir` are on stable storage.
///
/// # Errors
/// The system's.
pub fn sync_dir(dir: &Path, point: Point) -> io::Result<()> {
    if point.skipped() {
        return Ok(());
    }
    File::open(dir)?.sync_all()
}

/// Writes a whole file that is there, with all its bytes, or not at all: after a crash `dir/name` is the old file or the new one.
///
/// # Errors
/// The system's; the old file is then still there, and a file `name.new` may be.
pub fn replace_file(dir: &Path, name: &str, bytes: &[u8], data: Point, names: Point) -> io::Result<()> {
    let fresh = dir.join(format!("{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?;
    file.write_all(bytes)?;
    sync_file(&file, data)?;
    std::fs::rename(&fresh, dir.join(name))?;
    sync_dir(dir, names)
}
