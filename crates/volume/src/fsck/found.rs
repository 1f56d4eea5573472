//! What one examination has found so far, and what would put it right.

use std::path::PathBuf;

use forebay_format::{key::Item, row::ObjectRef};
use forebay_types::{Ino, SegmentId, SubvolumeId};
use rustc_hash::FxHashSet;

use super::{
    image::{Overlay, View},
    report::{Counts, Finding, Severity},
};
use forebay_reading::object_key;

/// A change of a file or an object that repair makes besides the rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FileFix {
    /// The epoch becomes this one.
    Epoch(u64),
    /// A directory is made.
    Directory(PathBuf),
    /// An empty file is made.
    Touch(PathBuf),
    /// A file is removed.
    Remove(PathBuf),
    /// An object is deleted.
    Delete(ObjectRef),
    /// A staged segment gets its footer again, behind so many bytes.
    Footer(SegmentId, u64),
}

/// What a finding is about.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    subvolume: Option<SubvolumeId>,
    snapshot: Option<u32>,
    ino: Option<Ino>,
    segment: Option<SegmentId>,
    object: Option<ObjectRef>,
    files: Vec<(SubvolumeId, Ino)>,
}

impl About {
    pub(super) fn inode(view: &View, ino: Ino) -> About {
        let (subvolume, generation) = view.head();
        let snapshot = view.snapshot.then_some(generation.0);
        About { subvolume: Some(subvolume), snapshot, ino: Some(ino), ..About::default() }
    }

    pub(super) fn row(subvolume: SubvolumeId, ino: Ino) -> About {
        About { subvolume: Some(subvolume), ino: Some(ino), ..About::default() }
    }

    pub(super) fn subvolume(subvolume: SubvolumeId) -> About {
        About { subvolume: Some(subvolume), ..About::default() }
    }

    pub(super) fn segment(segment: SegmentId) -> About {
        About { segment: Some(segment), ..About::default() }
    }

    pub(super) fn object(object: ObjectRef) -> About {
        About { object: Some(object), ..About::default() }
    }

    pub(super) fn in_object(self, object: Option<ObjectRef>) -> About {
        About { object, ..self }
    }

    /// The files whose bytes are affected.
    pub(super) fn with_files(self, files: Vec<(SubvolumeId, Ino)>) -> About {
        About { files, ..self }
    }
}

/// A finding whose names are still to be told.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) finding: Finding,
    /// Where its inode is named.
    pub(super) inode: Option<(SubvolumeId, Ino)>,
    pub(super) files: Vec<(SubvolumeId, Ino)>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) drafts: Vec<Draft>,
    pub(super) counts: Counts,
    /// Rows that repair puts (`None`: deletes).
    pub(super) rows: Overlay,
    pub(super) files: Vec<FileFix>,
    seen: FxHashSet<(String, Option<SubvolumeId>, Option<Ino>, String)>,
}

impl Found {
    /// Adds a finding, unless another view of the same subvolume has shown it already.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        code: &str,
        about: About,
        message: String,
        repair: Option<&str>,
    ) {
        if !self.seen.insert((code.to_owned(), about.subvolume, about.ino, message.clone())) {
            return;
        }
        let finding = Finding {
            severity,
            code: code.to_owned(),
            path: None,
            subvolume: about.subvolume.map(|id| id.0),
            snapshot: about.snapshot,
            inode: about.ino.map(|ino| ino.0),
            segment: about.segment.map(|id| id.to_string()),
            object: about.object.map(object_key),
            message,
            repair: repair.map(str::to_owned),
            files: Vec::new(),
        };
        let inode = about.subvolume.zip(about.ino);
        self.drafts.push(Draft { finding, inode, files: about.files });
    }

    /// Repair puts a row of a view.
    pub(super) fn put(&mut self, view: &View, item: &Item, value: Vec<u8>) {
        self.rows.insert(view.key(item), Some(value));
    }

    /// Repair takes an item away from a view.
    pub(super) fn remove(&mut self, view: &View, item: &Item) {
        self.rows.insert(view.key(item), view.nothing());
    }

    pub(super) fn has_fixes(&self) -> bool {
        !self.rows.is_empty() || !self.files.is_empty()
    }
}
