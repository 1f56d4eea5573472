use std::ops::Range;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::{
    CHUNK_BYTES,
    storage::{Fault, Piece, Run, part},
};

/// Payloads in memory. Each is a copy of its own, so that no larger buffer is kept alive by a chunk.
pub(crate) struct Memory {
    slots: RwLock<Vec<Bytes>>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { slots: RwLock::new(Vec::new()) }
    }

    /// Puts `part` of a chunk of `len` bytes, from its byte `at` on, over what the slot has of that chunk.
    pub(crate) fn write(&self, slot: u32, len: u32, at: u32, part: &[u8]) {
        let whole = part.len() == len as usize;
        let old = if whole { None } else { self.slots.read().get(slot as usize).cloned() };
        let copy = if whole {
            Bytes::copy_from_slice(part)
        } else {
            let mut payload =
                old.filter(|old| old.len() == len as usize).map_or_else(Vec::new, |old| old.to_vec());
            payload.resize(len as usize, 0);
            if let Some(place) = payload.get_mut(at as usize..at as usize + part.len()) {
                place.copy_from_slice(part);
            }
            Bytes::from(payload)
        };
        let mut slots = self.slots.write();
        if slots.len() <= slot as usize {
            slots.resize(slot as usize + 1, Bytes::new());
        }
        slots[slot as usize] = copy;
    }

    pub(crate) fn erase(&self, slot: u32) {
        if let Some(place) = self.slots.write().get_mut(slot as usize) {
            *place = Bytes::new();
        }
    }

    pub(crate) fn read(&self, run: &Run, range: &Range<u64>) -> Result<Vec<Piece>, Fault> {
        let slots = self.slots.read();
        run.chunks()
            .zip(&run.found)
            .map(|(index, found)| {
                let part = part(index, range);
                let at = u64::from(index) * CHUNK_BYTES + part.start as u64;
                let payload =
                    slots.get(found.slot as usize).filter(|payload| payload.len() == found.len as usize);
                let fault = || Fault { chunks: vec![index], source: None };
                let payload = payload.ok_or_else(fault)?;
                Ok(Piece { at, bytes: payload.slice(part) })
            })
            .collect()
    }
}
