//! Memory of ring entries, at addresses that another process can have too.
//!
//! The kernel knows an entry by its addresses, in the memory of whoever hands in an answer. So an entry can change its process if the new
//! one has memory at the same place. Where programs, libraries, heaps and stacks are put is drawn anew for each process, but above
//! [`FIRST`] there is rarely anything.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno as Os;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

pub(super) const PAGE: usize = 4096;

/// Where places are looked for first: far from both ends of the 47 bits that processes have at least on 64-bit machines. Where
/// there are fewer, memory is wherever the system puts it.
const FIRST: usize = 1 << 45;
/// So many taken places are passed by before that, too.
const ATTEMPTS: usize = 4096;

/// Page-aligned zeroed memory at an address that does not change.
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// `len` bytes at a place of its own. Pages are taken when they are first written to.
    pub(super) fn new(len: usize) -> Memory {
        static NEXT: AtomicUsize = AtomicUsize::new(FIRST);
        let len = len.next_multiple_of(PAGE);
        for _ in 0..ATTEMPTS {
            match map(NEXT.fetch_add(len, Ordering::Relaxed), len, MapFlags::FIXED_NOREPLACE) {
                Ok(memory) => return memory,
                Err(Os::EXIST) => {}
                Err(_) => break,
            }
        }
        let anywhere = map(0, len, MapFlags::empty());
        let layout = Layout::from_size_align(len, PAGE).unwrap_or(Layout::new::<[u8; PAGE]>());
        anywhere.unwrap_or_else(|_| handle_alloc_error(layout))
    }

    /// `len` bytes at this address.
    ///
    /// Errors: EEXIST where there is something already; others of mmap(2).
    pub(super) fn at(address: usize, len: usize) -> io::Result<Memory> {
        if address == 0 || !address.is_multiple_of(PAGE) || len == 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(map(address, len, MapFlags::FIXED_NOREPLACE)?)
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[allow(unsafe_code)]
impl Memory {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this size, is zeroed at first, and belongs to `self`. The kernel writes to it only while
        // the slot is inside a `Ring`, where nobody can call this.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

#[allow(unsafe_code)]
fn map(address: usize, len: usize, how: MapFlags) -> Result<Memory, Os> {
    let place = std::ptr::without_provenance_mut::<c_void>(address);
    // SAFETY: the mapping is new: FIXED_NOREPLACE fails where there is one, and without it the system chooses a free place.
    let mapped =
        unsafe { mmap_anonymous(place, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | how) }?;
    let memory = Memory { base: NonNull::new(mapped.cast()).ok_or(Os::NOMEM)?, len };
    // Kernels before 4.17 take the address for a wish.
    if address != 0 && mapped.addr() != address { Err(Os::EXIST) } else { Ok(memory) }
}

// SAFETY: it is plain memory of its own.
#[allow(unsafe_code)]
unsafe impl Send for Memory {}

#[allow(unsafe_code)]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nothing borrows it any more.
        if let Err(error) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            tracing::debug!("munmap: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_once_or_again() {
        let mut memory = Memory::new(3 * PAGE);
        let (address, len) = (memory.base().addr(), memory.len());
        assert!(memory.bytes().iter().all(|byte| *byte == 0));
        memory.bytes_mut()[0] = 7;
        assert_eq!(
            Memory::at(address, len).err().map(|error| error.kind()),
            Some(io::ErrorKind::AlreadyExists)
        );
        assert_eq!(memory.bytes()[0], 7);
        drop(memory);
        let again = Memory::at(address, len).unwrap();
        assert_eq!((again.base().addr(), again.bytes()[0]), (address, 0));
        Memory::at(address + 1, len).err().unwrap();
    }
}
