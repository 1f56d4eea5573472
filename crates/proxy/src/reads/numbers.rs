//! Numbers of volumes in a proxy's cache, which holds objects of many.
//!
//! The cache names an object by an epoch and a number. Here the epoch's upper 16 bits say which volume: the epochs of owners count their terms, and stay far
//! below 2^48. Which volume has which number is in the file `volumes`, synced before anything is cached by it, so that after a restart no bytes are taken for
//! those of another volume.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use forebay_cache::ObjectKey;
use forebay_format::row::ObjectRef;
use forebay_types::{Epoch, VolumeId};

use crate::process::{DirectoryError, io_error};

const FILE: &str = "volumes";
/// Bytes of a record: the volume's id, and the CRC32C of that and of the record's place in the file.
const RECORD: usize = 20;
/// Bits of an epoch below the number of its volume.
const SHIFT: u32 = 48;
/// Volumes that one directory can tell apart.
const MAX: usize = 1 << 16;

/// A volume's number in this directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct VolumeNumber(u16);

impl VolumeNumber {
    /// The name of an object of this volume in the cache; `None` for one that no volume can have.
    pub(crate) fn key(self, object: ObjectRef) -> Option<ObjectKey> {
        (object.epoch.0 < 1 << SHIFT)
            .then(|| ObjectKey { epoch: Epoch(u64::from(self.0) << SHIFT | object.epoch.0), id: object.id })
    }

    /// Volume and object that a name in the cache stands for.
    pub(crate) fn of(key: &ObjectKey) -> (VolumeNumber, ObjectRef) {
        let number = VolumeNumber((key.epoch.0 >> SHIFT) as u16);
        let epoch = Epoch(key.epoch.0 & ((1 << SHIFT) - 1));
        (number, ObjectRef { epoch, id: key.id })
    }
}

/// Which volume has which number.
#[derive(Debug)]
pub(crate) struct Numbers {
    path: PathBuf,
    file: File,
    volumes: Vec<VolumeId>,
}

fn record(at: usize, volume: VolumeId) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..16].copy_from_slice(&volume.0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&volume.0), &(at as u32).to_le_bytes());
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The volumes in these records; nothing where one of them does not check.
fn read(bytes: &[u8]) -> Option<Vec<VolumeId>> {
    let (records, torn) = bytes.as_chunks::<RECORD>();
    let one = |(at, bytes): (usize, &[u8; RECORD])| {
        let volume = VolumeId(bytes[..16].try_into().ok()?);
        (*bytes == record(at, volume)).then_some(volume)
    };
    if torn.is_empty() { records.iter().enumerate().map(one).collect() } else { None }
}

impl Numbers {
    /// Reads the numbers in `dir`. Where they are damaged, or a power cut tore the last one, nobody can say whose bytes those in `cache`, a directory in
    /// `dir`, are: it is removed, before the numbers begin anew. The first number is always `owner`'s, so that an emptied file is not taken for a new one.
    ///
    /// # Errors
    /// The file cannot be read or written, or the cache not be removed.
    pub(crate) fn open(dir: &Path, cache: &Path, owner: VolumeId) -> Result<Numbers, DirectoryError> {
        let path = dir.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let mut volumes = read(&bytes).unwrap_or_default();
        let new = bytes.is_empty() && !cache.try_exists().map_err(io_error("look at", cache))?;
        let sync = || File::open(dir).and_then(|dir| dir.sync_all());
        if volumes.first() != Some(&owner) && !new {
            tracing::warn!(
                "'{}' is damaged or torn: what was cached is dropped, and fetched again",
                path.display()
            );
            match fs::remove_dir_all(cache) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io_error("remove", cache)(error));
                }
                _ => {}
            }
            sync().map_err(io_error("sync", dir))?;
            volumes.clear();
        }
        let mut options = File::options();
        let file = options.create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.map_err(io_error("open", &path))?;
        file.set_len((volumes.len() * RECORD) as u64)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync())
            .map_err(io_error("write", &path))?;
        let mut numbers = Numbers { path, file, volumes };
        numbers.of(owner)?;
        Ok(numbers)
    }

    /// The numbers of volumes other than these. The member's own is none of a volume.
    pub(crate) fn others(&self, volumes: &BTreeSet<VolumeId>) -> BTreeSet<VolumeNumber> {
        let all = self.volumes.iter().enumerate().skip(1);
        let others = all.filter(|(_, volume)| !volumes.contains(volume));
        others.map(|(at, _)| VolumeNumber(at as u16)).collect()
    }

    /// The number of a volume that has one.
    pub(crate) fn known(&self, volume: VolumeId) -> Option<VolumeNumber> {
        self.volumes.iter().position(|known| *known == volume).map(|at| VolumeNumber(at as u16))
    }

    /// The number of a volume, which it gets where it has none.
    ///
    /// # Errors
    /// It cannot be written, or there are none left.
    pub(crate) fn of(&mut self, volume: VolumeId) -> Result<VolumeNumber, DirectoryError> {
        if let Some(number) = self.known(volume) {
            return Ok(number);
        }
        let at = self.volumes.len();
        let write = || {
            if at >= MAX {
                return Err(io::Error::other("it has as many volumes as it can"));
            }
            let place = (at * RECORD) as u64;
            // Over what an attempt that failed may have left.
            self.file.set_len(place)?;
            let mut file = &self.file;
            io::Seek::seek(&mut file, io::SeekFrom::Start(place))?;
            file.write_all(&record(at, volume))?;
            self.file.sync_all()
        };
        write().map_err(|source| DirectoryError::Io { action: "write", path: self.path.clone(), source })?;
        self.volumes.push(volume);
        Ok(VolumeNumber(at as u16))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use forebay_types::ObjectId;

    use super::*;

    fn volume(byte: u8) -> VolumeId {
        VolumeId([byte; 16])
    }

    fn open(dir: &tempfile::TempDir) -> Numbers {
        let cache = dir.path().join("cache");
        let numbers = Numbers::open(dir.path(), &cache, volume(0)).unwrap();
        fs::create_dir_all(&cache).unwrap();
        numbers
    }

    #[test]
    fn numbers_stay_and_keys_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut numbers = open(&dir);
        let (one, two) = (numbers.of(volume(1)).unwrap(), numbers.of(volume(2)).unwrap());
        assert_eq!(numbers.of(volume(1)).unwrap(), one);
        fs::write(dir.path().join("cache/x"), "").unwrap();
        let mut numbers = open(&dir);
        assert_eq!((numbers.of(volume(2)).unwrap(), numbers.of(volume(1)).unwrap()), (two, one));
        assert!(dir.path().join("cache/x").exists());
        let object = ObjectRef { epoch: Epoch((1 << 48) - 1), id: ObjectId(7) };
        let (first, second) = (one.key(object).unwrap(), two.key(object).unwrap());
        assert_ne!(first, second);
        assert_eq!((VolumeNumber::of(&first), VolumeNumber::of(&second)), ((one, object), (two, object)));
        assert_eq!(one.key(ObjectRef { epoch: Epoch(1 << 48), ..object }), None);
    }

    /// Else a number would come to stand for another volume, and its bytes with it.
    #[test]
    fn what_was_cached_goes_with_numbers_that_are_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut numbers = open(&dir);
        for byte in 1..=3 {
            let _number = numbers.of(volume(byte)).unwrap();
        }
        let good = fs::read(&path).unwrap();
        let flipped = (0..good.len()).map(|at| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        });
        let torn = (1..good.len()).filter(|len| len % RECORD != 0).map(|len| good[..len].to_vec());
        let swapped = [&good[RECORD..2 * RECORD], &good[..RECORD], &good[2 * RECORD..]].concat();
        for bytes in flipped.chain(torn).chain([swapped, Vec::new()]) {
            fs::write(&path, &bytes).unwrap();
            fs::write(dir.path().join("cache/x"), "").unwrap();
            let mut numbers = open(&dir);
            assert!(!dir.path().join("cache/x").exists(), "{bytes:?}");
            assert_eq!(numbers.of(volume(9)).unwrap(), VolumeNumber(1));
        }
    }
}
