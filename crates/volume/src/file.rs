//! Writing the bytes of files, and where they have holes.

use std::cell::RefCell;

use forebay_format::{
    footer::RunEntry,
    row::Layout,
    run::{self, RunEncoder, Trial},
};
use forebay_meta::{ExtentSource, Inode, MetaError, NewExtent, PieceSource, SetAttr, WriteAttr};
use forebay_types::{
    Compression, Ino,
    limits::{INLINE_MAX, STREAM_WRITE_MIN, file_size_max},
};
use forebay_vfs::Whence;
use parking_lot::RwLockReadGuard;

use crate::{Volume, error::VolumeError};

/// Bytes that are copied, not shared, by one call.
const COPY_MAX: u64 = 1 << 20;

impl Volume {
    /// Writes all of `data` at `offset`. When it returns, every later read sees it; [`Volume::sync`] makes it durable.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was written.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], attr: WriteAttr) -> Result<Inode, VolumeError> {
        self.may_write()?;
        self.wait_for_room();
        let mut one_writer = self.data_locks.lock(ino);
        let change = self.changing(ino);
        change.reserve(offset, data.len() as u64)?;
        let inode = self.write_locked(ino, offset, data, attr, &mut one_writer)?;
        change.wrote(offset, data)?;
        Ok(inode)
    }

    fn write_locked(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        attr: WriteAttr,
        trial: &mut Trial,
    ) -> Result<Inode, VolumeError> {
        let inode = self.ns.inode(self.subvolume, ino)?;
        if data.is_empty() {
            return Ok(Inode::clone(&inode));
        }
        let end = offset.saturating_add(data.len() as u64);
        if end > file_size_max(self.config.block_size) {
            return Err(MetaError::FileTooLarge(end).into());
        }
        let size = inode.row.size.max(end);
        let inline = match inode.row.layout {
            Layout::Inline => self.ns.inline(self.subvolume, ino)?,
            _ => Vec::new(),
        };
        if size <= INLINE_MAX as u64 && matches!(inode.row.layout, Layout::Empty | Layout::Inline) {
            let mut bytes = inline;
            bytes.resize(bytes.len().max(end as usize), 0);
            bytes[offset as usize..end as usize].copy_from_slice(data);
            return Ok(self.ns.write_inline(self.subvolume, ino, &bytes, size, attr)?);
        }
        let mut writer = Writer::new(self, ino);
        if !inline.is_empty() {
            writer.add(0, &inline, None)?;
        }
        writer.add(offset, data, (data.len() >= STREAM_WRITE_MIN).then_some(trial))?;
        writer.commit(end, attr)
    }

    /// Sets attributes; a size too.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was changed.
    pub fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<Inode, VolumeError> {
        self.may_write()?;
        let Some(size) = set.size else { return Ok(self.ns.set_attr(self.subvolume, ino, set)?) };
        let _one_writer = self.data_locks.lock(ino);
        let change = self.changing(ino);
        change.reserve(size.saturating_sub(1), 1)?;
        let inode = self.ns.set_attr(self.subvolume, ino, set)?;
        change.resized(size)?;
        Ok(inode)
    }

    /// Makes zeros of bytes `from..to` and frees what they took. The size grows to at least `size`.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was changed.
    pub fn punch(
        &self,
        ino: Ino,
        from: u64,
        to: u64,
        size: Option<u64>,
        attr: WriteAttr,
    ) -> Result<Inode, VolumeError> {
        self.may_write()?;
        let _one_writer = self.data_locks.lock(ino);
        let change = self.changing(ino);
        change.reserve(size.unwrap_or(0).saturating_sub(1), 1)?;
        let inode = self.ns.punch(self.subvolume, ino, from, to, size, attr)?;
        change.punched(from, to, inode.row.size)?;
        Ok(inode)
    }

    /// Raises the size to at least `end`. Space is not set aside: what is written there later takes it then.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was changed.
    pub fn allocate(&self, ino: Ino, end: u64, attr: WriteAttr) -> Result<Inode, VolumeError> {
        self.punch(ino, 0, 0, Some(end), attr)
    }

    /// Makes `len` bytes of one file (fewer at its end) those of another, or of the same elsewhere. Extents are shared, not copied. Returns the
    /// number of bytes. The ranges must not overlap.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing was changed.
    pub fn copy_range(
        &self,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        len: u64,
        attr: WriteAttr,
    ) -> Result<u64, VolumeError> {
        self.may_write()?;
        let _one_writer_each = self.data_locks.lock_two(source, target);
        let change = self.changing(target);
        let inode = self.ns.inode(self.subvolume, source)?;
        let len = len.min(inode.row.size.saturating_sub(from));
        if len == 0 {
            return Ok(0);
        }
        let target_layout = self.ns.inode(self.subvolume, target)?.row.layout;
        if inode.row.layout == Layout::Inline || (target_layout == Layout::Inline && len <= INLINE_MAX as u64)
        {
            // Fewer than asked for is a success: a tiny file may have been made huge by a truncation.
            let bytes = self.read_whole(source, from, len.min(COPY_MAX) as u32)?;
            change.reserve(to, bytes.len() as u64)?;
            self.write_locked(target, to, &bytes, attr, &mut Trial::default())?;
            change.wrote(to, &bytes)?;
            return Ok(bytes.len() as u64);
        }
        if target_layout == Layout::Inline {
            self.spill(target)?;
        }
        change.reserve(to, len)?;
        self.ns.share(self.subvolume, (source, from), (target, to), len, attr)?;
        change.copied(to, len)?;
        Ok(len)
    }

    /// Makes an extent of a file's inline data.
    fn spill(&self, ino: Ino) -> Result<(), VolumeError> {
        let inline = self.ns.inline(self.subvolume, ino)?;
        let mut writer = Writer::new(self, ino);
        writer.add(0, &inline, None)?;
        writer.commit(0, WriteAttr::default())?;
        Ok(())
    }

    /// Where at or after `offset` data or a hole begins; `None` where there is none, or `offset` is beyond the end.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VolumeError> {
        let size = self.ns.inode(self.subvolume, ino)?.row.size;
        if offset >= size {
            return Ok(None);
        }
        let pieces = self.ns.map(self.subvolume, ino, offset, size - offset)?;
        let found = pieces.iter().find(|piece| match whence {
            Whence::Data => piece.source != PieceSource::Hole,
            Whence::Hole => piece.source == PieceSource::Hole,
        });
        Ok(match (found, whence) {
            (Some(piece), _) => Some(piece.offset),
            (None, Whence::Hole) => Some(size),
            (None, Whence::Data) => None,
        })
    }
}

thread_local! {
    /// One a thread that serves requests: its buffers are used again by every large write.
    static ENCODER: RefCell<RunEncoder> = RefCell::default();
}

/// Runs of one write: encoded, and put where they stay.
struct Writer<'a> {
    volume: &'a Volume,
    ino: Ino,
    extents: Vec<NewExtent>,
    data: Vec<u8>,
    /// Held from the first run in a stream until the record that names it is committed: meanwhile nobody may take the stream for dead.
    appending: Option<RwLockReadGuard<'a, ()>>,
}

impl<'a> Writer<'a> {
    fn new(volume: &'a Volume, ino: Ino) -> Writer<'a> {
        Writer { volume, ino, extents: Vec::new(), data: Vec::new(), appending: None }
    }

    /// Makes the runs part of the file.
    fn commit(self, size: u64, attr: WriteAttr) -> Result<Inode, VolumeError> {
        let volume = self.volume;
        let journaled = self.data.len() as u64;
        let inode = volume.ns.write(volume.subvolume, self.ino, &self.extents, &self.data, size, attr)?;
        drop(self.appending);
        volume.upkeep.journaled(journaled);
        Ok(inode)
    }

    /// Adds bytes, a run a block: to the record, or, with what is known of how such bytes compress, to a stream.
    fn add(&mut self, offset: u64, bytes: &[u8], mut stream: Option<&mut Trial>) -> Result<(), VolumeError> {
        let block_size = u64::from(self.volume.config.block_size);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let room = (block_size - at % block_size) as usize;
            let len = room.min(bytes.len() - done);
            let part = &bytes[done..done + len];
            match stream.as_deref_mut() {
                Some(trial) => {
                    ENCODER.with_borrow_mut(|encoder| self.add_to_stream(at, part, encoder, trial))?
                }
                None => self.add_to_record(at, part)?,
            }
            done += len;
        }
        Ok(())
    }

    fn add_to_record(&mut self, offset: u64, part: &[u8]) -> Result<(), VolumeError> {
        let from = self.data.len() as u64;
        let run = run::encode(part, Compression::None, None, &mut self.data)?;
        self.extents.push(NewExtent {
            offset,
            len: part.len() as u32,
            source: ExtentSource::Record(from),
            stored_len: run.stored_len,
            form: run.form,
            check: run.check,
        });
        Ok(())
    }

    fn add_to_stream(
        &mut self,
        offset: u64,
        part: &[u8],
        encoder: &mut RunEncoder,
        trial: &mut Trial,
    ) -> Result<(), VolumeError> {
        let volume = self.volume;
        let block_size = u64::from(volume.config.block_size);
        let stored = encoder.encode(part, volume.config.compression, volume.sealer.as_deref(), trial)?;
        let run = stored.about;
        let entry = RunEntry {
            subvolume: volume.subvolume,
            generation: volume.ns.generation(volume.subvolume)?,
            ino: self.ino,
            block: (offset / block_size) as u32,
            offset: (offset % block_size) as u32,
            run_len: part.len() as u32,
            run_offset: 0,
            stored_len: run.stored_len,
            form: run.form,
            check: run.check,
        };
        if self.appending.is_none() {
            self.appending = Some(volume.upkeep.appending());
        }
        let placed = volume.streams.append(self.ino, &entry, stored.parts)?;
        self.extents.push(NewExtent {
            offset,
            len: part.len() as u32,
            source: ExtentSource::Stream(placed.segment, placed.run_offset),
            stored_len: run.stored_len,
            form: run.form,
            check: run.check,
        });
        Ok(())
    }
}
