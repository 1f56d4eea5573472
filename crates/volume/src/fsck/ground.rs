//! What the metadata stands on: files of the journal and of staging, objects of the store. Read only.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind as IoKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use forebay_data::{DataError, SegmentSource, read_footer};
use forebay_format::{
    footer::{Footer, RunEntry, TAIL_LEN},
    record::{FILE_HEAD_LEN, FileHead},
    row::{ObjectRef, SegmentKind, SegmentRow, SegmentState},
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_object::{Backend, ErrorKind, ObjectStore};
use forebay_reading::{DATA, object_key, parse_key};
use forebay_types::{Epoch, SegmentId};

use crate::{
    Volume, VolumeConfig, VolumePaths,
    error::{VolumeError, io_error},
};

/// A file of the staging directory.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    /// Bytes of the file.
    pub(super) len: u64,
    /// Where the last whole run ends.
    pub(super) body: u64,
    /// Whether it ends in a footer of its own.
    pub(super) sealed: bool,
    /// Whether it begins with the head of a run, as a stream does.
    pub(super) stream: bool,
    pub(super) runs: Vec<RunEntry>,
}

/// Where a segment is in an object, as the object's footer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) object: ObjectRef,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) raw: u64,
}

/// The files and the store of a volume.
pub(super) struct Ground<'a> {
    pub(super) paths: VolumePaths,
    pub(super) config: VolumeConfig,
    /// The store, or why it cannot be asked.
    pub(super) store: Result<ObjectStore, String>,
    /// The epoch of the last opening.
    pub(super) epoch: Epoch,
    /// The volume, where it is open.
    pub(super) live: Option<&'a Volume>,
}

impl Ground<'_> {
    pub(super) fn journal_path(&self, id: SegmentId) -> PathBuf {
        self.paths.journal().join(format!("{id}.log"))
    }

    pub(super) fn staged_path(&self, id: SegmentId) -> PathBuf {
        self.paths.staging().join(format!("{id}.seg"))
    }

    /// Bytes of a file of the journal, if it is there and has a head.
    pub(super) fn journal_len(&self, id: SegmentId) -> Result<Option<u64>, VolumeError> {
        let len = file_len(&self.journal_path(id))?;
        Ok(len.filter(|len| *len >= FILE_HEAD_LEN as u64))
    }

    /// The highest epoch that the files of the journal name.
    pub(super) fn journal_epoch(&self) -> Result<Epoch, VolumeError> {
        let mut highest = Epoch::default();
        for (_, path) in list(&self.paths.journal(), "log")? {
            let mut head = [0; FILE_HEAD_LEN];
            let read = File::open(&path).and_then(|file| file.read_exact_at(&mut head, 0));
            if let (Ok(()), Ok(head)) = (read, FileHead::decode(&head)) {
                highest = highest.max(head.epoch);
            }
        }
        Ok(highest)
    }

    /// What is staged of a segment.
    pub(super) fn staged(&self, id: SegmentId) -> Result<Option<Staged>, VolumeError> {
        let path = self.staged_path(id);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        let len = file.metadata().map_err(io_error("stat", &path))?.len();
        let mut runs = Vec::new();
        let mut body = 0;
        let mut head = [0; STREAM_HEAD_LEN];
        while body + STREAM_HEAD_LEN as u64 <= len {
            file.read_exact_at(&mut head, body).map_err(io_error("read", &path))?;
            let Ok(run) = stream::decode(&head, id, body) else { break };
            let end = run.run_offset.saturating_add(u64::from(run.stored_len));
            if run.stored_len == 0 || end > len {
                break;
            }
            runs.push(run);
            body = end;
        }
        let mut staged = Staged { len, body, sealed: false, stream: !runs.is_empty(), runs };
        match read_footer(&file, &path) {
            Ok(footer) if footer.volume == self.config.id => {
                if let [entry] = footer.segments.as_slice()
                    && entry.id == id
                {
                    (staged.sealed, staged.body) = (true, entry.len);
                    staged.runs = entry.runs.clone();
                }
            }
            Ok(_) | Err(DataError::Format { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Some(staged))
    }

    /// The objects of data in the store, and their sizes.
    pub(super) fn objects(&self) -> Result<BTreeMap<ObjectRef, u64>, VolumeError> {
        let store = self.store.as_ref().map_err(|error| VolumeError::Option(error.clone()))?;
        let mut objects = BTreeMap::new();
        let mut after = None;
        loop {
            let page = store.list(DATA, after.as_deref())?;
            for entry in page.entries {
                if let Some(object) = parse_key(&entry.key) {
                    objects.insert(object, entry.size);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(objects),
            }
        }
    }

    /// The size of an object; `None` where it is not there.
    pub(super) fn object_size(&self, object: ObjectRef) -> Result<Option<u64>, VolumeError> {
        let Ok(store) = &self.store else { return Ok(None) };
        match store.head(&object_key(object)) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NoBucket) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The footer of an object, or what is wrong with it.
    pub(super) fn footer(&self, object: ObjectRef, size: u64) -> Result<Result<Footer, String>, VolumeError> {
        let Ok(store) = &self.store else { return Ok(Err("the store is not there".to_owned())) };
        let key = object_key(object);
        let Some(tail_at) = size.checked_sub(TAIL_LEN as u64) else {
            return Ok(Err("it is shorter than a footer".to_owned()));
        };
        let tail = store.get_range(&key, tail_at..size)?;
        let Some(tail) = tail.first_chunk::<TAIL_LEN>() else {
            return Ok(Err("it is shorter than a footer".to_owned()));
        };
        let len = match Footer::len_from_tail(tail) {
            Ok(len) => len as u64,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let Some(start) = tail_at.checked_sub(len) else {
            return Ok(Err("its footer is cut off".to_owned()));
        };
        let body = store.get_range(&key, start..tail_at)?;
        Ok(match Footer::decode(&body, tail) {
            Ok(footer) if footer.volume != self.config.id => {
                Err(format!("it belongs to volume {}", footer.volume))
            }
            Ok(footer) => Ok(footer),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Bytes of a segment, from wherever it is.
    pub(super) fn read(
        &self,
        id: SegmentId,
        row: &SegmentRow,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, String> {
        if let Some(volume) = self.live {
            return volume.source.read(id, offset, len).map_err(|error| error.to_string());
        }
        let path = match (row.kind, row.state, row.object) {
            (SegmentKind::Journal, ..) => self.journal_path(id),
            (_, SegmentState::Stored, Some(object)) if !self.staged_path(id).exists() => {
                let store = self.store.as_ref().map_err(Clone::clone)?;
                let start = row.object_offset + offset;
                let range = start..start + u64::from(len);
                return store.get_range(&object_key(object), range).map_err(|error| error.to_string());
            }
            _ => self.staged_path(id),
        };
        let mut bytes = vec![0; len as usize];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, offset));
        read.map_err(|error| format!("cannot read '{}': {error}", path.display()))?;
        Ok(bytes.into())
    }
}

/// The files of a directory with this extension whose names are segments' numbers.
pub(super) fn list(dir: &Path, extension: &str) -> Result<Vec<(SegmentId, PathBuf)>, VolumeError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(found),
        Err(error) => return Err(io_error("list", dir)(error)),
    };
    for entry in entries {
        let path = entry.map_err(io_error("list", dir))?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| stem.len() == 16);
        let number = stem.and_then(|stem| u64::from_str_radix(stem, 16).ok());
        if let (Some(number), true) = (number, path.extension().is_some_and(|found| found == extension)) {
            found.push((SegmentId(number), path));
        }
    }
    found.sort();
    Ok(found)
}

fn file_len(path: &Path) -> Result<Option<u64>, VolumeError> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == IoKind::NotFound => Ok(None),
        Err(error) => Err(io_error("stat", path)(error)),
    }
}
