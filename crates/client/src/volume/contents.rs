//! Operations on bytes.

use std::{ops::Range, sync::Arc};

use forebay_cluster::Lease;
use forebay_format::row::Layout;
use forebay_meta::Inode;
use forebay_protocol::{Answer, Failure, Operation};
use forebay_reading::Stored;
use forebay_types::Ino;
use forebay_vfs::{By, ReadPiece, ReadPieces, Space, Through, VfsError, Whence, Write, WriteAt};

use super::{
    core::{Core, Readable, unexpected},
    errors::failed,
    jobs::Job,
};
use crate::{
    data::{Room, TellsLoss, Took},
    error::ClientError,
    names::is_sealed,
};

/// A block of the account of space, in bytes.
const SPACE_BLOCK: u64 = 4096;
/// What is said to be free where nobody has set a limit.
const NO_LIMIT: u64 = 1 << 50;
const FILES_MAX: u64 = 1 << 40;
/// Bytes that one call copies where they cannot be shared.
const COPY_MAX: u64 = 1 << 20;

const READ: Option<Lease> = Some(Lease::Read);

/// An error of the contents of this file.
fn of_file(error: ClientError, ino: Ino) -> VfsError {
    match error {
        ClientError::Failed(failure) => failed(failure, ino),
        other => other.into(),
    }
}

fn flat(pieces: &ReadPieces) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            ReadPiece::Bytes(piece) => bytes.extend_from_slice(piece),
            ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
        }
    }
    bytes
}

impl Core {
    pub(crate) fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VfsError> {
        let Readable { inode, leased } = self.readable(ino)?;
        self.forget_unless(leased, ino);
        let read = self.bytes.read(&inode, offset, len, &|| self.is_leased(&inode));
        read.map_err(|error| of_file(error, ino))
    }

    /// Where the stored bytes of a range of a file are.
    pub(crate) fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, VfsError> {
        let Readable { inode, leased } = self.readable(ino)?;
        self.forget_unless(leased, ino);
        let stored = self.bytes.stored(&inode, range, &|| self.is_leased(&inode));
        stored.map_err(|error| of_file(error, ino))
    }

    /// What is known of a file's contents is what a lease keeps true: without one nothing of it is used.
    fn forget_unless(&self, leased: bool, ino: Ino) {
        if !leased {
            self.bytes.forget(ino);
        }
    }

    /// Whether what the owner says of a file stays true until it is forgotten with a lease, or for good.
    fn is_leased(&self, inode: &Inode) -> bool {
        is_sealed(&inode.row) || self.desk.names.has(inode.ino, Lease::Read)
    }

    pub(crate) fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64, VfsError> {
        match write.at {
            WriteAt::Pages(offset) => self.write_pages(ino, offset, write),
            WriteAt::Offset(offset) => self.write_with_room(ino, write, || {
                let (_tenure, inode, number) = self.writable(ino)?;
                // With the right in hand: what is locked is locked in the session that has it, or was lost.
                self.held(ino, write.by.through)?;
                Ok(self.keep_back(&inode, offset, write, number))
            }),
            WriteAt::End(_) => self.write_with_room(ino, write, || {
                let (_tenure, _, number) = self.writable(ino)?;
                self.held(ino, write.by.through)?;
                let _turn = self.append_lock(ino).lock();
                // Others of this client may have appended since.
                let appended = |inode: Arc<Inode>| self.keep_back(&inode, inode.row.size, write, number);
                Ok(self.under(ino, number).and_then(appended))
            }),
        }
    }

    /// Writes once there is room for it. No right is held while room is made: what is committed for that may need rights of others.
    fn write_with_room(
        &self,
        ino: Ino,
        write: &Write<'_>,
        attempt: impl Fn() -> Result<Result<Option<u64>, ClientError>, VfsError>,
    ) -> Result<u64, VfsError> {
        loop {
            match attempt()? {
                // While there was no room: in the next one it needs a lease of that.
                Err(ClientError::SessionEnded) => {}
                Err(error) => return Err(of_file(error, ino)),
                Ok(Some(offset)) => return Ok(offset),
                Ok(None) => {
                    let made = self.bytes.make_room(write.data.len() as u64);
                    made.map_err(|error| of_file(error, ino))?;
                }
            }
        }
    }

    /// Where it is kept back; `None` where there is no room for it.
    fn keep_back(
        &self,
        inode: &Inode,
        offset: u64,
        write: &Write<'_>,
        session: u64,
    ) -> Result<Option<u64>, ClientError> {
        self.seals.written(inode.ino, &inode.row);
        let took = self.bytes.write(inode, offset, write.data, write.by.attr, (Room::Wait, session))?;
        Ok((took == Took::All).then_some(offset))
    }

    /// The session in which a file is locked through an open file, or by who asks, if it is.
    pub(crate) fn held(&self, ino: Ino, through: Option<Through>) -> Result<Option<u64>, VfsError> {
        through.map_or(Ok(None), |through| self.locks.held(&self.desk, ino, through))
    }

    /// Takes pages that the kernel writes back, perhaps because a recall waits for it: with what right, is seen to afterwards.
    fn write_pages(&self, ino: Ino, offset: u64, write: &Write<'_>) -> Result<u64, VfsError> {
        let tenure = self.desk.names.tenure(ino);
        let known = self.desk.names.inode_under(ino).map(|inode| self.put_over(inode));
        let Some(inode) = known.or_else(|| self.opens.seen(ino)) else {
            return Err(VfsError::Stale(ino));
        };
        self.seals.written(ino, &inode.row);
        let room = (Room::Exceed, self.desk.link.number());
        let written = self.bytes.write(&inode, offset, write.data, write.by.attr, room);
        let _all_of_it: Took = written.map_err(|error| of_file(error, ino))?;
        if tenure.is_none() {
            self.jobs.put(Job::Owed(ino));
        }
        Ok(offset)
    }

    pub(crate) fn punch(
        &self,
        ino: Ino,
        range: (u64, u64),
        size: Option<u64>,
        By { attr, through }: By,
    ) -> Result<(), VfsError> {
        let held = self.held(ino, through)?;
        let inode = self.bytes.punch(ino, range, size, attr, held).map_err(|error| of_file(error, ino))?;
        self.seals.written(ino, &inode.row);
        Ok(())
    }

    pub(crate) fn copy_range(
        &self,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        len: u64,
        by: By,
    ) -> Result<u64, VfsError> {
        let (held, attr) = (self.held(target, by.through)?, by.attr);
        // No right is kept while another is asked for: two who copy in opposite directions would wait for each other.
        self.settle(&[source, target])?;
        let (of, into) = (self.inode(source)?, self.inode(target)?);
        let len = len.min(of.row.size.saturating_sub(from));
        let tiny = |inode: &Inode| inode.row.layout == Layout::Inline;
        self.seals.written(target, &into.row);
        if len > 0 && !tiny(&of) && !tiny(&into) {
            let shared = Operation::Share { source, from, target, to, len, attr };
            let shared = self.desk.told_while(held, shared, READ)?;
            self.bytes.forget(target);
            match shared.answer {
                // One of them has come to fit into its row, what the one has is not where the other must have it, or is lost, which a read of it tells.
                Answer::Failed(Failure::Invalid | Failure::BelowClass | Failure::Io) => {}
                Answer::Failed(failure) => return Err(failed(failure, target)),
                _ => return Ok(len),
            }
        }
        let bytes: Vec<u8> = flat(&self.read(source, from, len.min(COPY_MAX) as u32)?);
        if !bytes.is_empty() {
            self.write(target, &Write { at: WriteAt::Offset(to), data: &bytes, by })?;
        }
        Ok(bytes.len() as u64)
    }

    pub(crate) fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VfsError> {
        let Readable { inode, leased } = self.readable(ino)?;
        self.forget_unless(leased, ino);
        let found = self.bytes.seek(&inode, offset, whence, &|| self.is_leased(&inode));
        found.map_err(|error| of_file(error, ino))
    }

    pub(crate) fn sync_file(&self, ino: Ino) -> Result<(), VfsError> {
        let patience = self.desk.link.patience();
        let settled = self.settle_within(&[ino], &patience);
        let settled = settled.and_then(|()| Ok(self.desk.ahead.settle_within(&[ino], &patience)?));
        if let Some(lost) = self.bytes.take_failure(ino) {
            return Err(VfsError::Failed(Box::new(lost)));
        }
        settled?;
        self.bytes.tell_loss(ino, TellsLoss::Sync).map_err(|error| of_file(error, ino))
    }

    /// A descriptor was closed. What was written is on its way, and `fsync` tells of it; but what was acknowledged and is lost is told here too.
    pub(crate) fn closed_once(&self, ino: Ino) -> Result<(), VfsError> {
        self.bytes.tell_loss(ino, TellsLoss::Close).map_err(|error| of_file(error, ino))
    }

    pub(crate) fn space(&self) -> Result<Space, VfsError> {
        let space = match self.desk.told(Operation::Space, None)?.answer {
            Answer::Space(space) => space,
            other => return Err(unexpected(&other, Ino::ROOT)),
        };
        let limit = space.limit.unwrap_or(NO_LIMIT.max(space.used));
        let free = limit.saturating_sub(space.used) / SPACE_BLOCK;
        Ok(Space {
            block_size: SPACE_BLOCK as u32,
            blocks: limit / SPACE_BLOCK,
            free,
            available: free,
            files: FILES_MAX,
            files_free: FILES_MAX.saturating_sub(space.inodes),
            name_max: forebay_types::limits::NAME_MAX as u32,
        })
    }
}
