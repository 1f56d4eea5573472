//! Modes of coherence on a volume of one machine: taken, inherited, and the immutable one kept.

use forebay_types::{Attr, FileKind, Ino};
use forebay_vfs::{Caller, Fallocate, MetaError, Open, RenameMode, SetAttr, SetXattr, VfsError};

use super::{ROOT, World, refused};

const ATTRIBUTE: &[u8] = b"user.forebay.coherence";
const READING: Open =
    Open { read_only: true, no_atime: false, truncate: false, kill: forebay_vfs::Kill::Nothing };

fn is_sealed(error: &VfsError) -> bool {
    matches!(error, VfsError::Meta(MetaError::Sealed(_)))
}

impl World {
    fn set_mode(&self, ino: Ino, mode: &str) {
        self.vfs.setxattr(ino, ATTRIBUTE, mode.as_bytes(), SetXattr::Any, false).unwrap();
    }

    fn mode(&self, ino: Ino) -> String {
        String::from_utf8(self.vfs.getxattr(ino, ATTRIBUTE).unwrap()).unwrap()
    }

    /// Writes a file by a handle of its own.
    fn written(&self, parent: Ino, name: &str, data: &[u8]) -> Attr {
        let attr = self.file(parent, name);
        let fh = self.open(attr.ino);
        self.vfs.write(attr.ino, 0, data, false).unwrap();
        self.vfs.release(attr.ino, fh, None);
        attr
    }
}

#[test]
fn a_mode_is_set_on_directories_and_read_everywhere() {
    let w = World::new();
    let (dir, file) = (w.directory(ROOT, "dir").ino, w.file(ROOT, "file").ino);
    assert_eq!((w.mode(ROOT), w.mode(file)), ("coherent".into(), "coherent".into()));
    for mode in ["close-to-open", "immutable", "coherent", "immutable"] {
        w.set_mode(dir, mode);
        assert_eq!(w.mode(dir), mode);
    }
    for wrong in [b"sealed".as_slice(), b"", b"Immutable", b"immutable\0", &[0xff, 0xfe]] {
        let set = w.vfs.setxattr(dir, ATTRIBUTE, wrong, SetXattr::Any, false);
        refused(set, |error| matches!(error, VfsError::Invalid(_)));
    }
    let is_forbidden = |error: &VfsError| matches!(error, VfsError::AttributeForbidden(_));
    refused(w.vfs.setxattr(file, ATTRIBUTE, b"immutable", SetXattr::Any, false), is_forbidden);
    refused(w.vfs.removexattr(file, ATTRIBUTE), is_forbidden);
    refused(w.vfs.setxattr(dir, ATTRIBUTE, b"coherent", SetXattr::Create, false), |error| {
        matches!(error, VfsError::Exists)
    });
    assert_eq!(w.mode(dir), "immutable");
    assert_eq!(w.vfs.listxattr(dir, true).unwrap(), b"", "copies of a tree do not take its mode along");
    w.vfs.removexattr(dir, ATTRIBUTE).unwrap();
    assert_eq!(w.mode(dir), "coherent");
}

#[test]
fn what_is_made_in_a_directory_gets_its_mode_and_keeps_it() {
    let w = World::new();
    let (old, dir) = (w.file(ROOT, "old").ino, w.directory(ROOT, "dir").ino);
    let before = w.written(dir, "before", b"coherent");
    w.set_mode(dir, "close-to-open");
    let (below, file) = (w.directory(dir, "below").ino, w.file(dir, "file").ino);
    let deep = w.directory(below, "deep").ino;
    let nameless = w.vfs.tmpfile(below, (0o600, 0), true, &Caller::ROOT).unwrap().0.ino;
    for ino in [below, file, deep, nameless] {
        assert_eq!(w.mode(ino), "close-to-open");
    }
    assert_eq!(w.mode(before.ino), "coherent", "what was there keeps its own");
    w.set_mode(dir, "coherent");
    assert_eq!(w.mode(deep), "close-to-open");
    w.vfs.rename((ROOT, b"old"), (deep, b"old"), RenameMode::Replace).unwrap();
    w.vfs.link(file, ROOT, b"elsewhere").unwrap();
    w.vfs.rename((dir, b"below"), (ROOT, b"below"), RenameMode::Replace).unwrap();
    assert_eq!(
        (w.mode(old), w.mode(file), w.mode(deep)),
        ("coherent".into(), "close-to-open".into(), "close-to-open".into())
    );
    let w = w.again();
    assert_eq!(
        (w.mode(old), w.mode(file), w.mode(deep)),
        ("coherent".into(), "close-to-open".into(), "close-to-open".into())
    );
}

#[test]
fn the_contents_of_an_immutable_file_are_final_once_it_is_closed() {
    let w = World::new();
    let dir = w.directory(ROOT, "dir").ino;
    w.set_mode(dir, "immutable");
    let ino = w.file(dir, "file").ino;
    // Without contents it is nothing yet.
    w.vfs.release(ino, w.open(ino), None);
    assert_eq!(w.mode(ino), "immutable");
    let (one, other) = (w.open(ino), w.open(ino));
    w.vfs.write(ino, 0, b"first", false).unwrap();
    w.vfs.release(ino, one, None);
    w.vfs.write(ino, 5, b" second", false).unwrap();
    assert_eq!(w.mode(ino), "immutable", "somebody has it open");
    w.vfs.release(ino, other, None);
    assert_eq!(w.mode(ino), "sealed");

    let w = w.again();
    assert_eq!((w.mode(ino), w.contents(ino)), ("sealed".into(), b"first second".to_vec()));
    refused(w.vfs.open(ino, Open::default()), is_sealed);
    refused(w.vfs.open(ino, Open { truncate: true, ..READING }), is_sealed);
    for size in [0, 12, 100] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        refused(w.vfs.setattr(ino, &set), is_sealed);
    }
    refused(w.vfs.write(ino, 0, b"x", false), is_sealed);
    refused(w.vfs.fallocate(ino, Fallocate::Punch, (0, 4), false), is_sealed);
    refused(w.vfs.fallocate(ino, Fallocate::Allocate { keep_size: false }, (0, 400), false), is_sealed);
    let source = w.written(ROOT, "source", b"other bytes").ino;
    refused(w.vfs.copy_range((source, 0), (ino, 0), 4, false), is_sealed);
    assert_eq!(w.contents(ino), b"first second");
    assert_eq!(w.vfs.copy_range((ino, 0), (source, 0), 5, false).unwrap(), 5);

    // Names and attributes are as free as anywhere.
    w.vfs.release(ino, w.vfs.open(ino, READING).unwrap().fh, None);
    w.vfs.setattr(ino, &SetAttr { mode: Some(0o444), ..SetAttr::default() }).unwrap();
    w.vfs.setxattr(ino, b"user.note", b"kept", SetXattr::Any, false).unwrap();
    w.vfs.link(ino, ROOT, b"second name").unwrap();
    w.vfs.rename((dir, b"file"), (dir, b"renamed"), RenameMode::Replace).unwrap();
    w.vfs.unlink(dir, b"renamed").unwrap();
    w.vfs.unlink(ROOT, b"second name").unwrap();
    assert!(!w.is_kept(ino));
}

#[test]
fn a_sealed_file_stays_so_when_its_directory_changes_its_mode() {
    let w = World::new();
    let dir = w.directory(ROOT, "dir").ino;
    w.set_mode(dir, "immutable");
    let sealed = w.written(dir, "sealed", b"bytes").ino;
    let link = w.vfs.symlink(dir, b"link", b"sealed", &Caller::ROOT).unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    w.set_mode(dir, "coherent");
    assert_eq!(w.mode(sealed), "sealed");
    refused(w.vfs.open(sealed, Open::default()), is_sealed);
    assert_eq!(w.mode(w.written(dir, "free", b"bytes").ino), "coherent");
}
