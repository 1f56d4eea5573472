//! Volumes on small disks of their own.

use std::{
    ffi::CString,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_meta::{MetaError, NewInode, WriteAttr};
use forebay_types::{Compression, FileKind, Ino, SubvolumeId};
use forebay_volume::{CreateOptions, OpenOptions, Volume, VolumeError, create};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

pub const AT: SubvolumeId = SubvolumeId::FIRST;

/// A small disk of its own in memory; gone when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn new(mebibytes: u64) -> SmallDisk {
        let dir = tempfile::tempdir().unwrap();
        let size = CString::new(format!("size={mebibytes}m")).unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
            .expect("mount a tmpfs (the tests run as root)");
        SmallDisk(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all space that is left; the file is to be deleted to give it back.
    pub fn fill(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        let mut file = File::create(&path).unwrap();
        let mut len = 1 << 20;
        while len >= 512 {
            if file.write_all(&vec![1; len]).is_err() {
                len /= 2;
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

pub fn by_hand() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

pub fn open(root: &Path) -> Arc<Volume> {
    Volume::open(root, &by_hand()).unwrap()
}

pub fn new_volume(root: &Path) -> Arc<Volume> {
    create(root, &CreateOptions { compression: Compression::None, ..CreateOptions::default() }).unwrap();
    open(root)
}

pub fn make(volume: &Volume, name: &str) -> Result<Ino, MetaError> {
    let new = NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    };
    volume.namespace().make(AT, Ino::ROOT, name.as_bytes(), &new).map(|inode| inode.ino)
}

pub fn file(volume: &Volume, name: &str, len: usize) -> Result<Ino, VolumeError> {
    let ino = make(volume, name)?;
    volume.write(ino, 0, &vec![name.len() as u8; len], WriteAttr::default())?;
    Ok(ino)
}

pub fn find(volume: &Volume, name: &str) -> Option<Ino> {
    volume.namespace().lookup(AT, Ino::ROOT, name.as_bytes()).ok().map(|inode| inode.ino)
}
