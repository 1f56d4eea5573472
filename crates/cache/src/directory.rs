//! The cache directory: its marker file, its lock, and the refusal of directories that are not ours.
//!
//! Nothing is made in a directory before it is known to be empty or a cache; no file is removed that does not have one
//! of our names in a directory with our marker. The marker is synced before it gets its name, so one that does not
//! check was damaged; and its name is synced before there is anything else, so a lost power never leaves a cache
//! without it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use forebay_env::FileLock;
use forebay_types::VolumeId;

use crate::{CHUNK_BYTES, CacheError};

const MARKER: &str = "forebay-cache";
const MARKER_NEW: &str = "forebay-cache.new";
const LOCK: &str = "lock";
const MARKER_BYTES: usize = 36;
const MAGIC: [u8; 8] = *b"FBCACHE\0";
const VERSION: u32 = 1;

/// Makes `dir` the cache of `volume`, or finds that it is, and locks it.
pub(crate) fn claim(dir: &Path, volume: VolumeId) -> Result<FileLock, CacheError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_error("make", dir))?;
    if !exists(&dir.join(MARKER))? {
        refuse_foreign(dir)?;
    }
    let lock = lock(dir)?;
    let marker = dir.join(MARKER);
    match fs::read(&marker) {
        Ok(bytes) => check_marker(dir, &bytes, volume)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => write_marker(dir, volume)?,
        Err(source) => return Err(CacheError::Io { action: "read", path: marker, source }),
    }
    Ok(lock)
}

fn exists(path: &Path) -> Result<bool, CacheError> {
    path.try_exists().map_err(io_error("look at", path))
}

/// A directory without a marker may hold nothing but what an interrupted first opening leaves behind.
fn refuse_foreign(dir: &Path) -> Result<(), CacheError> {
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let name = entry.map_err(io_error("list", dir))?.file_name();
        let interrupted = name == LOCK || name == MARKER_NEW || name == MARKER;
        if !interrupted && name != "lost+found" {
            let entry = name.to_string_lossy().into_owned();
            return Err(CacheError::NotACache { dir: dir.to_owned(), entry });
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<FileLock, CacheError> {
    let path = dir.join(LOCK);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(io_error("open", &path))?;
    let lock = FileLock::take(file).map_err(io_error("lock", &path))?;
    lock.ok_or_else(|| CacheError::InUse { dir: dir.to_owned() })
}

fn check_marker(dir: &Path, bytes: &[u8], volume: VolumeId) -> Result<(), CacheError> {
    let damaged = || CacheError::Damaged { file: dir.join(MARKER) };
    let bytes: &[u8; MARKER_BYTES] = bytes.try_into().map_err(|_| damaged())?;
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes[..8] != MAGIC || u32_at(32) != crc32c::crc32c(&bytes[..32]) {
        return Err(damaged());
    }
    if u32_at(8) > VERSION {
        return Err(CacheError::Newer { dir: dir.to_owned(), found: u32_at(8), known: VERSION });
    }
    if u32_at(8) != VERSION || u64::from(u32_at(12)) != CHUNK_BYTES {
        return Err(damaged());
    }
    let mut found = VolumeId([0; 16]);
    found.0.copy_from_slice(&bytes[16..32]);
    match found == volume {
        true => Ok(()),
        false => Err(CacheError::OtherVolume { dir: dir.to_owned(), found, wanted: volume }),
    }
}

fn write_marker(dir: &Path, volume: VolumeId) -> Result<(), CacheError> {
    let mut bytes = [0; MARKER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    bytes[16..32].copy_from_slice(&volume.0);
    let crc = crc32c::crc32c(&bytes[..32]);
    bytes[32..].copy_from_slice(&crc.to_le_bytes());

    let path = dir.join(MARKER_NEW);
    let write = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&path, dir.join(MARKER))?;
        File::open(dir)?.sync_all()
    };
    write().map_err(io_error("write", &path))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_owned();
    move |source| CacheError::Io { action, path, source }
}
