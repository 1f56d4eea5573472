//! The memory of one ring entry.
//!
//! ```text
//! header   0  in_out   128 bytes: the request's header, the reply's header in its place
//!        128  op_in    128 bytes: the operation's fixed arguments
//!        256  entry     32 bytes: flags u64, commit id u64, payload length u32, padding u32, reserved u64
//! payload     names and data of the request; all of the answer after its header
//! ```

use std::io;
use std::sync::Arc;

use crate::errno::Errno;
use crate::protocol::{DecodeError, Dialect, Header, OUT_HEADER, Opcode, Parts};
use crate::reply::{Piece, Reply};
use crate::ring::SlotPort;
use crate::ring::memory::{Memory, PAGE};

const OP_IN: usize = 128;
const ENTRY: usize = 256;
const HEADER: usize = 288;

/// A slot with a request in it, as another process is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    /// Where the kernel knows the slot to be.
    pub address: u64,
    /// Its bytes there.
    pub len: u64,
    pub header: &'a [u8],
    pub payload: &'a [u8],
}

/// The buffers of one ring entry, while they are not the kernel's.
pub(crate) struct Slot {
    memory: Memory,
    /// The two buffers as the kernel is told of them; it reads this when the entry is registered.
    vectors: Box<[libc::iovec; 2]>,
    pub(super) commit_id: u64,
    /// Where a deferred answer to what is in this slot goes.
    pub port: Arc<SlotPort>,
}

// SAFETY: the vectors point to the slot's own memory, which moves with it.
#[allow(unsafe_code)]
unsafe impl Send for Slot {}

impl Slot {
    /// Buffers for requests and answers of at most `payload_len` bytes after their headers. Pages are taken when they
    /// are first written to.
    pub(crate) fn new(payload_len: usize, port: Arc<SlotPort>) -> Slot {
        Slot::over(Memory::new(PAGE + payload_len.next_multiple_of(PAGE)), port)
    }

    fn over(memory: Memory, port: Arc<SlotPort>) -> Slot {
        let base = memory.base();
        let vectors = Box::new([
            libc::iovec { iov_base: base.cast(), iov_len: HEADER },
            libc::iovec { iov_base: base.wrapping_add(PAGE).cast(), iov_len: memory.len() - PAGE },
        ]);
        Slot { memory, vectors, commit_id: 0, port }
    }

    /// What another process needs to go on with the request that is in the slot.
    pub(crate) fn kept(&self) -> Kept<'_> {
        let bytes = self.memory.bytes();
        let payload = bytes.get(PAGE..).and_then(|all| all.get(..self.payload_len())).unwrap_or_default();
        Kept {
            address: self.memory.base().addr() as u64,
            len: bytes.len() as u64,
            header: bytes.get(..HEADER).unwrap_or_default(),
            payload,
        }
    }

    /// The slot of another process, with the request that is in it: from then on the kernel finds the answer here. Its port leads nowhere
    /// yet.
    ///
    /// Errors: EEXIST where this process has something else at its address; EINVAL where it is no slot.
    pub(crate) fn adopt(kept: &Kept<'_>) -> io::Result<Slot> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
        let (address, len) = (usize::try_from(kept.address), usize::try_from(kept.len));
        let (Ok(address), Ok(len)) = (address, len) else { return Err(wrong()) };
        if kept.header.len() != HEADER || len < PAGE + kept.payload.len() {
            return Err(wrong());
        }
        let mut slot = Slot::over(Memory::at(address, len)?, Arc::new(SlotPort::nowhere()));
        copy(slot.memory.bytes_mut(), 0, kept.header);
        copy(slot.memory.bytes_mut(), PAGE, kept.payload);
        slot.received();
        Ok(slot)
    }

    pub(super) fn vectors(&self) -> &[libc::iovec; 2] {
        &self.vectors
    }

    /// Takes note of what the kernel has written. To be called once for each request.
    pub(super) fn received(&mut self) {
        self.commit_id = self.u64_at(ENTRY + 8);
    }

    /// The request's header and what else the first part has.
    pub(crate) fn header(&self) -> Result<Header, DecodeError> {
        Header::decode(self.memory.bytes().get(..OP_IN).unwrap_or_default())
    }

    /// The thread that made the request; 0 where none waits for it.
    pub(crate) fn caller(&self) -> u32 {
        self.header().map_or(0, |header| header.pid)
    }

    /// The request apart, by its header.
    pub(crate) fn parts(
        &self,
        header: &Header,
        op: Opcode,
        dialect: Dialect,
    ) -> Result<Parts<'_>, DecodeError> {
        let malformed = DecodeError::Malformed(op);
        let bytes = self.memory.bytes();
        let fixed =
            bytes.get(OP_IN..ENTRY).and_then(|all| all.get(..dialect.fixed_len(op))).ok_or(malformed)?;
        let len = self.payload_len();
        let payload = bytes.get(PAGE..).and_then(|all| all.get(..len)).ok_or(malformed)?;
        let names = len.checked_sub(header.extensions).ok_or(malformed)?;
        let (payload, extensions) = payload.split_at_checked(names).ok_or(malformed)?;
        Ok(Parts { fixed, payload, extensions })
    }

    /// Puts a finished reply where the request was. One that is too long becomes EIO: the file system answered with more
    /// than was asked.
    pub(crate) fn put_reply(&mut self, unique: u64, reply: &Reply) {
        let room = self.memory.len() - PAGE;
        if reply.body_len() > room {
            tracing::error!(unique, "an answer of {} bytes does not fit into {room}", reply.body_len());
            return self.put_answer(unique, Some(Errno::EIO));
        }
        let bytes = self.memory.bytes_mut();
        let (head, body) = reply.head.split_at_checked(OUT_HEADER).unwrap_or_default();
        copy(bytes, 0, head);
        let mut at = copy(bytes, PAGE, body);
        for piece in reply.data.pieces() {
            at = match piece {
                Piece::Bytes(run) => copy(bytes, at, run),
                Piece::Zeros(count) => {
                    let end = at + count;
                    bytes.get_mut(at..end).into_iter().for_each(|run| run.fill(0));
                    end
                }
            };
        }
        copy(bytes, ENTRY + 16, &((at - PAGE) as u32).to_ne_bytes());
    }

    /// Puts an answer without a body.
    pub(crate) fn put_answer(&mut self, unique: u64, error: Option<Errno>) {
        let code = error.map_or(0, |error| -error.raw());
        let bytes = self.memory.bytes_mut();
        copy(bytes, 0, &(OUT_HEADER as u32).to_ne_bytes());
        copy(bytes, 4, &code.to_ne_bytes());
        copy(bytes, 8, &unique.to_ne_bytes());
        copy(bytes, ENTRY + 16, &0u32.to_ne_bytes());
    }

    /// Puts a request where the kernel would; `claimed`: the payload's length, if it is to be a lie.
    #[cfg(test)]
    pub(crate) fn as_the_kernel(
        &mut self,
        header: &[u8],
        fixed: &[u8],
        payload: &[u8],
        claimed: Option<u64>,
    ) {
        let bytes = self.memory.bytes_mut();
        bytes.fill(0);
        for (at, part, room) in
            [(0, header, OP_IN), (OP_IN, fixed, ENTRY - OP_IN), (PAGE, payload, usize::MAX)]
        {
            copy(bytes, at, part.get(..room.min(part.len())).unwrap_or_default());
        }
        copy(bytes, ENTRY + 16, &claimed.unwrap_or(payload.len() as u64).to_ne_bytes());
    }

    /// Bytes of the answer after its header, as the kernel would take them.
    #[cfg(test)]
    pub(crate) fn answered_len(&self) -> u64 {
        self.payload_len() as u64
    }

    fn payload_len(&self) -> usize {
        (self.u64_at(ENTRY + 16) & u64::from(u32::MAX)) as usize
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.memory
            .bytes()
            .get(at..at + 8)
            .and_then(|word| word.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    }
}

/// Copies and says where the next goes.
fn copy(into: &mut [u8], at: usize, from: &[u8]) -> usize {
    let end = at + from.len();
    if let Some(place) = into.get_mut(at..end) {
        place.copy_from_slice(from);
    }
    end
}
