//! Buffers that are used again. Memory fresh from the system has to be mapped and zeroed page by page, which costs more than to read as many
//! bytes from the page cache; a buffer that was used a moment ago is mapped, and its lines may still be in the processor's cache.
//!
//! Guarantees: what lies idle here is bounded, for each class of sizes; a buffer has all its bytes initialised, though not to anything that
//! means something, so nobody may hand on more of it than was written since it was taken.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of the buffers of each class: a frame, or so many, with the table and the head of a run that has them.
const CLASSES: [usize; 7] = [
    (4 << 10) + 512,
    (16 << 10) + 512,
    (64 << 10) + 512,
    (256 << 10) + 512,
    (1 << 20) + 4096,
    (2 << 20) + 4096,
    (4 << 20) + 4096,
];
/// Idle buffers by class. Shared by all threads; each class has its own lock, held for a push or a pop.
pub struct Buffers {
    idle_max: usize,
    idle: [Mutex<Vec<Vec<u8>>>; CLASSES.len()],
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle: usize = self.idle.iter().map(|class| class.lock().len()).sum();
        write!(f, "Buffers({idle} idle)")
    }
}

impl Buffers {
    /// Keeps at most `idle_max` bytes of idle buffers of each class of sizes, but one buffer in any case.
    #[must_use]
    pub fn new(idle_max: usize) -> Arc<Buffers> {
        Arc::new(Buffers { idle_max, idle: Default::default() })
    }

    /// A buffer of `len` bytes, whose contents mean nothing.
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let class = CLASSES.iter().position(|size| *size >= len);
        let reused = class.and_then(|class| self.idle[class].lock().pop());
        let bytes = reused.unwrap_or_else(|| vec![0; class.map_or(len, |class| CLASSES[class])]);
        Buffer { bytes, len, home: Arc::clone(self) }
    }

    /// The same where little of it would be left unused, at most a quarter: for bytes that may be held for long. `None` where no class is near enough.
    #[must_use]
    pub fn take_snug(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().find(|size| **size >= len)?;
        (len >= class / 4 * 3).then(|| self.take(len))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        let Some(class) = CLASSES.iter().position(|size| *size == bytes.len()) else { return };
        let mut idle = self.idle[class].lock();
        if (idle.len() + 1) * CLASSES[class] <= self.idle_max.max(CLASSES[class]) {
            idle.push(bytes);
        }
    }
}

/// A buffer, which goes back to where it came from when it is dropped.
pub struct Buffer {
    /// As many as its class has.
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Buffers>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len, self.bytes.len())
    }
}

impl Buffer {
    /// Bytes of memory that it takes, used or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, shared from now on; the last one to let go of them gives the buffer back.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(buffers: &Buffers) -> usize {
        buffers.idle.iter().map(|class| class.lock().iter().map(Vec::len).sum::<usize>()).sum()
    }

    #[test]
    fn a_buffer_comes_back_when_the_last_sharer_lets_go() {
        let buffers = Buffers::new(4 << 20);
        let mut buffer = buffers.take(5000);
        buffer.fill(7);
        let (place, shared) = (buffer.as_ptr(), buffer.freeze());
        let part = shared.slice(10..20);
        drop(shared);
        assert_eq!((part.as_ref(), idle(&buffers)), ([7; 10].as_slice(), 0));
        drop(part);
        let again = buffers.take(16 << 10);
        assert_eq!((again.as_ptr(), again.len()), (place, 16 << 10));
    }

    #[test]
    fn a_snug_buffer_is_no_third_longer_than_what_is_in_it() {
        let buffers = Buffers::new(4 << 20);
        for len in [1, 3000, 3500, 100_000, 200_000, 1 << 20, (2 << 20) + 100, 5 << 20, 9 << 20] {
            let taken = buffers.take_snug(len);
            assert!(
                taken
                    .iter()
                    .all(|buffer| buffer.len() == len && buffer.capacity() - len <= buffer.capacity() / 4)
            );
        }
        let is_some = |len| buffers.take_snug(len).is_some();
        assert_eq!(
            [3500, 100_000, 1 << 20, (2 << 20) + 100, 9 << 20].map(is_some),
            [true, false, true, true, false]
        );
    }

    #[test]
    fn what_lies_idle_is_bounded() {
        let buffers = Buffers::new(4 << 20);
        for len in [1, 70_000, 1 << 20, 4 << 20, 9 << 20] {
            let taken: Vec<Buffer> = (0..40).map(|_| buffers.take(len)).collect();
            assert!(taken.iter().all(|buffer| buffer.len() == len));
        }
        assert!(idle(&buffers) <= CLASSES.len() * ((4 << 20) + 4096), "{}", idle(&buffers));
    }
}
