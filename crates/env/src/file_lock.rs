//! Locks that keep two processes from one directory.

use std::{fs::File, io};

use rustix::fs::{FlockOperation, flock};

/// An exclusive lock of flock(2) on a file, held until dropped, or until the process ends.
///
/// It is given back by a call, and not by closing the file: a child that another thread has just forked has the file open too, until it becomes another program, and would
/// keep the lock that long (flock(2): it belongs to the open file description).
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes the lock on an open file, without waiting. `None`: somebody else has it.
    ///
    /// # Errors
    /// What flock(2) says, but for that: for instance that the file system has no locks.
    pub fn take(file: File) -> io::Result<Option<FileLock>> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(FileLock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "a lock is given back only when the file is closed everywhere");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_back_though_the_file_is_open_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::options().create(true).append(true).open(dir.path().join("lock")).unwrap();
        let file = open();
        // As a child that was forked has it.
        let elsewhere = file.try_clone().unwrap();
        let lock = FileLock::take(file).unwrap().unwrap();
        assert!(FileLock::take(open()).unwrap().is_none());
        drop(lock);
        assert!(FileLock::take(open()).unwrap().is_some());
        drop(elsewhere);
    }
}
