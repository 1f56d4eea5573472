//! Shared mappings, for tests of who sees what when.

use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A mapping of the first `len` bytes of a file.
pub(crate) struct Map(*mut u8, usize);

impl Map {
    #[allow(unsafe_code)]
    pub(crate) fn of(file: &File, len: usize, write: bool) -> Map {
        let rights = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping.
        let at = unsafe { mmap(std::ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0) }.unwrap();
        Map(at.cast(), len)
    }

    #[allow(unsafe_code)]
    pub(crate) fn get(&self, at: usize) -> u8 {
        assert!(at < self.1);
        // SAFETY: inside the mapping, whose file is not shortened below it.
        unsafe { self.0.add(at).read_volatile() }
    }

    #[allow(unsafe_code)]
    pub(crate) fn set(&self, at: usize, byte: u8) {
        assert!(at < self.1);
        // SAFETY: inside the mapping, which is for writing, and nobody else uses it.
        unsafe { self.0.add(at).write_volatile(byte) }
    }

    #[allow(unsafe_code)]
    pub(crate) fn sync(&self) {
        // SAFETY: the range is the mapping.
        unsafe { msync(self.0.cast(), self.1, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping, of which nothing is used any more.
        unsafe { munmap(self.0.cast(), self.1) }.unwrap();
    }
}
