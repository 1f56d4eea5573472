use std::ops::Range;

use bytes::Bytes;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::{
    CHUNK_BYTES,
    storage::{Fault, Piece, Put, Run, part},
};

/// Payloads in memory. Chunks that came in one request share its buffer, so that they are not copied, and a reader gets several as one piece of memory.
///
/// Guarantees: what all buffers have beyond the chunks that are kept is bounded. A buffer of which less than half is kept is let go once they have more than
/// `waste_max` bytes of that together, and its chunks are copied. So all take at most twice what may be kept, and `waste_max`.
pub(crate) struct Memory {
    held: RwLock<Held>,
    waste_max: usize,
}

#[derive(Default)]
struct Held {
    slots: Vec<Payload>,
    /// Those that have more than one chunk, by where they are.
    buffers: FxHashMap<Address, Buffer>,
    /// Bytes of buffers that belong to no chunk that is kept.
    wasted: usize,
}

/// A chunk, as a part of a buffer.
#[derive(Clone, Default)]
struct Payload {
    buffer: Bytes,
    part: Range<usize>,
}

/// Where a buffer is, and how long. While it is held, no other one has the same.
type Address = (usize, usize);

#[derive(Default)]
struct Buffer {
    slots: Vec<u32>,
    /// Bytes in these.
    kept: usize,
}

impl Payload {
    fn own(bytes: Bytes) -> Payload {
        Payload { part: 0..bytes.len(), buffer: bytes }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.part.clone()]
    }

    /// The buffer, where it has more than this chunk.
    fn shares(&self) -> Option<Address> {
        let shared = self.part.len() < self.buffer.len();
        shared.then(|| (self.buffer.as_ptr().addr(), self.buffer.len()))
    }
}

impl Memory {
    pub(crate) fn new(waste_max: u64) -> Memory {
        Memory { held: RwLock::default(), waste_max: usize::try_from(waste_max).unwrap_or(usize::MAX) }
    }

    /// Puts a part of a chunk over what the slot has of that chunk.
    pub(crate) fn write(&self, slot: u32, put: &Put<'_>) {
        let whole = put.part.len() == put.len as usize;
        let payload = match put.within {
            Some(buffer) if whole => {
                let start = put.part.as_ptr().addr() - buffer.as_ptr().addr();
                Payload { buffer: buffer.clone(), part: start..start + put.part.len() }
            }
            _ if whole => Payload::own(Bytes::copy_from_slice(put.part)),
            _ => Payload::own(self.joined(slot, put)),
        };
        self.held.write().replace(slot, payload, self.waste_max);
    }

    /// What the slot has of the chunk, with the part that is put.
    fn joined(&self, slot: u32, put: &Put<'_>) -> Bytes {
        let held = self.held.read();
        let old = held.slots.get(slot as usize).filter(|old| old.part.len() == put.len as usize);
        let mut payload = old.map_or_else(Vec::new, |old| old.bytes().to_vec());
        drop(held);
        payload.resize(put.len as usize, 0);
        if let Some(place) = payload.get_mut(put.at as usize..put.at as usize + put.part.len()) {
            place.copy_from_slice(put.part);
        }
        Bytes::from(payload)
    }

    pub(crate) fn erase(&self, slot: u32) {
        self.held.write().replace(slot, Payload::default(), self.waste_max);
    }

    pub(crate) fn read(&self, run: &Run, range: &Range<u64>) -> Result<Vec<Piece>, Fault> {
        let held = self.held.read();
        run.chunks()
            .zip(&run.found)
            .map(|(index, found)| {
                let part = part(index, range);
                let at = u64::from(index) * CHUNK_BYTES + part.start as u64;
                let payload = held.slots.get(found.slot as usize);
                let payload = payload.filter(|payload| payload.part.len() == found.len as usize);
                let Payload { buffer, part: whole } =
                    payload.ok_or_else(|| Fault { chunks: vec![index], source: None })?;
                let part = whole.start + part.start..whole.start + part.end;
                Ok(Piece { at, buffer: buffer.clone(), part })
            })
            .collect()
    }
}

impl Held {
    fn replace(&mut self, slot: u32, payload: Payload, waste_max: usize) {
        let at = slot as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Payload::default());
        }
        if let Some(address) = payload.shares() {
            let buffer = self.buffers.entry(address).or_insert_with(|| {
                self.wasted += address.1;
                Buffer::default()
            });
            buffer.slots.push(slot);
            buffer.kept += payload.part.len();
            self.wasted -= payload.part.len();
        }
        let old = std::mem::replace(&mut self.slots[at], payload);
        if let Some(address) = old.shares() {
            self.left(slot, old.part.len(), address, waste_max);
        }
    }

    /// A chunk of a buffer is no longer kept.
    fn left(&mut self, slot: u32, len: usize, address: Address, waste_max: usize) {
        let Some(buffer) = self.buffers.get_mut(&address) else { return };
        if let Some(at) = buffer.slots.iter().position(|other| *other == slot) {
            buffer.slots.swap_remove(at);
        }
        buffer.kept -= len;
        self.wasted += len;
        let scarce = self.wasted > waste_max && buffer.kept < address.1 / 2;
        if !scarce && !buffer.slots.is_empty() {
            return;
        }
        self.wasted -= address.1 - buffer.kept;
        for slot in self.buffers.remove(&address).map(|buffer| buffer.slots).unwrap_or_default() {
            let payload = &mut self.slots[slot as usize];
            *payload = Payload::own(Bytes::copy_from_slice(payload.bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectKey, index::Found, key::Object};
    use forebay_types::{Epoch, ObjectId};

    const LEN: u32 = CHUNK_BYTES as u32;

    fn object() -> Object {
        Object { key: ObjectKey { epoch: Epoch(1), id: ObjectId(1) }, len: 1 << 30 }
    }

    /// A buffer of so many chunks, of which each is in a slot, from `slot` on, and full of that slot's number.
    fn put(memory: &Memory, slot: u32, chunks: u32) -> Bytes {
        put_stamped(memory, slot, chunks, 0)
    }

    /// The same with another number for each time.
    fn put_stamped(memory: &Memory, slot: u32, chunks: u32, stamp: u8) -> Bytes {
        let number = |at: u32| stamp.wrapping_add((slot + at) as u8);
        let buffer: Bytes = (0..chunks).flat_map(|at| vec![number(at); LEN as usize]).collect();
        for (at, part) in (0..chunks).zip(buffer.chunks(LEN as usize)) {
            let key = object().chunk(slot + at);
            memory.write(slot + at, &Put { key, len: LEN, at: 0, part, within: Some(&buffer) });
        }
        buffer
    }

    fn read(memory: &Memory, slot: u32) -> Bytes {
        let found = Found { slot, version: 0, len: LEN, present: u16::MAX };
        let run = Run { object: object(), first: slot, found: vec![found] };
        let start = u64::from(slot) * CHUNK_BYTES;
        let pieces = memory.read(&run, &(start..start + CHUNK_BYTES)).unwrap();
        pieces[0].buffer.slice(pieces[0].part.clone())
    }

    #[test]
    fn chunks_of_one_request_are_not_copied() {
        let memory = Memory::new(0);
        let buffer = put(&memory, 0, 8);
        assert_eq!(read(&memory, 3).as_ptr(), buffer[3 * LEN as usize..].as_ptr());
        assert_eq!(memory.held.read().wasted, 0);
    }

    #[test]
    fn a_buffer_of_which_little_is_kept_is_let_go() {
        let memory = Memory::new(3 * CHUNK_BYTES);
        let buffer = put(&memory, 0, 8);
        for slot in 0..3 {
            memory.erase(slot);
        }
        assert_eq!(memory.held.read().wasted, 3 * LEN as usize);
        // Another request may take the slot.
        put(&memory, 3, 1);
        assert_eq!(read(&memory, 4).as_ptr(), buffer[4 * LEN as usize..].as_ptr(), "half of it is kept");
        memory.erase(4);
        for slot in 5..8 {
            let bytes = read(&memory, slot);
            assert_eq!(bytes, vec![slot as u8; LEN as usize]);
            assert_ne!(bytes.as_ptr(), buffer[slot as usize * LEN as usize..].as_ptr());
        }
        let held = memory.held.read();
        assert_eq!((held.wasted, held.buffers.len()), (0, 0));
        drop(held);
        assert!(buffer.is_unique(), "nothing holds it");
    }

    #[test]
    fn buffers_that_are_left_by_all_their_chunks_are_let_go() {
        let memory = Memory::new(u64::MAX);
        let buffer = put(&memory, 0, 8);
        let other = put(&memory, 0, 8);
        assert!(buffer.is_unique());
        (0..8).for_each(|slot| memory.erase(slot));
        assert!(other.is_unique());
        let held = memory.held.read();
        assert_eq!((held.wasted, held.buffers.len()), (0, 0));
    }

    #[test]
    fn random_requests_take_at_most_twice_what_is_kept_and_a_bound() {
        use rand::{RngExt, SeedableRng, rngs::StdRng};
        const SLOTS: u32 = 64;
        let waste_max = 4 * CHUNK_BYTES;
        for seed in 0..4 {
            let (memory, mut dice) = (Memory::new(waste_max), StdRng::seed_from_u64(seed));
            let mut model = [None; SLOTS as usize];
            for stamp in 0..200_u8 {
                let (slot, chunks) = (dice.random_range(0..SLOTS), dice.random_range(1..9));
                if dice.random_bool(0.4) {
                    memory.erase(slot);
                    model[slot as usize] = None;
                } else if slot + chunks <= SLOTS {
                    put_stamped(&memory, slot, chunks, stamp);
                    (slot..slot + chunks)
                        .for_each(|slot| model[slot as usize] = Some(stamp.wrapping_add(slot as u8)));
                }
                let kept = model.iter().flatten().count() * LEN as usize;
                assert!(memory.held.read().wasted <= kept + waste_max as usize, "seed {seed}");
            }
            for (slot, expected) in (0..SLOTS).zip(model) {
                if let Some(byte) = expected {
                    assert_eq!(read(&memory, slot), vec![byte; LEN as usize], "seed {seed}, slot {slot}");
                }
            }
        }
    }
}
