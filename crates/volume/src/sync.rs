//! Making what was done durable.

use crate::{Volume, error::VolumeError};

impl Volume {
    /// Returns once everything that was acknowledged before the call is as durable as the volume's class promises. Many callers share one
    /// wait for the disk, and in class `object` for the bucket.
    ///
    /// # Errors
    /// In class `object` [`VolumeError::Object`] where the bucket could not be reached: nothing is lost, and the next call tries again.
    /// [`VolumeError::Fenced`] where another machine has taken the volume over.
    /// [`VolumeError::Data`] where the local disk failed: then what was not durable before may be lost, and every later call says so too.
    pub fn sync(&self) -> Result<(), VolumeError> {
        if let Some(remote) = &self.remote {
            remote.fence.intact()?;
        }
        let target = self.ns.last();
        self.upkeep.behind.begin();
        // The streams in any case: somebody else's wait for the journal may have taken our records along, and not the runs that they name.
        self.streams.sync()?;
        self.journal.sync(target)?;
        match &self.remote {
            Some(remote) if remote.is_class_object() => self.ship_and_acknowledge(remote, target),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::{NewInode, WriteAttr};
    use forebay_types::{FileKind, Ino};

    use crate::{CreateOptions, OpenOptions, Volume, create};

    /// The journal may be on disk up to our record because somebody else waited for theirs.
    #[test]
    fn streams_are_synced_although_the_journal_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, &CreateOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open(&root, &options).unwrap();
        let new = NewInode {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        let ino = volume.ns.make(volume.subvolume, Ino::ROOT, b"file", &new).unwrap().ino;
        volume.write(ino, 0, &[7; 1 << 20], WriteAttr::default()).unwrap();
        volume.journal.sync(volume.ns.last()).unwrap();
        assert!(!volume.streams.is_synced());
        volume.sync().unwrap();
        assert!(volume.streams.is_synced());
    }
}
