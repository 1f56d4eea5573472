//! What a session may, and which inodes it sees: those below its root.
//!
//! A directory is below the root if its parents lead there. A file has the directory that it got its last name in, or was moved to, as its row says; where
//! that is elsewhere, as a file with several names may have it, the session sees it while it has a lease on it or has it open: it was then told
//! of it by a name below its root.

use std::borrow::Cow;

use forebay_cluster::{Need, SessionId};
use forebay_meta::{MetaError, Namespace};
use forebay_protocol::{Answer, Failure, InodeAnswer, Operation, Rights, unconfined};
use forebay_types::{Ino, SubvolumeId};

use crate::{carry, owner::VolumeOwner};

/// Whose what the root user makes is, where that is nobody.
const NOBODY: u32 = 65534;

/// Whether a directory is the root of a session or below it, or is the place of an inode that is.
fn leads_to(ns: &Namespace, at: SubvolumeId, root: Ino, ino: Ino) -> Result<bool, MetaError> {
    let mut next = ino;
    loop {
        if next == root {
            return Ok(true);
        }
        if next == Ino::ROOT {
            return Ok(false);
        }
        match ns.inode(at, next) {
            // A directory that was removed is nowhere, nor is a file without a name.
            Ok(inode) if inode.row.nlink == 0 => return Ok(false),
            Ok(inode) => next = inode.row.parent,
            Err(MetaError::Stale(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// What is to be had before an operation of a session is carried out.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Needed {
    /// These leases are in nobody's way. None of what it does not see, or others would lose their leases for nothing.
    Leases(Vec<Need>),
    /// It may not, for this reason: it is not to be carried out, also if it may a moment later.
    Forbidden(Failure),
}

impl VolumeOwner {
    /// Whether a session sees an inode.
    pub(crate) fn sees(&self, session: SessionId, rights: &Rights, ino: Ino) -> Result<bool, MetaError> {
        if rights.root == Ino::ROOT || leads_to(&self.ns, self.at, rights.root, ino)? {
            return Ok(true);
        }
        let is_directory = match self.ns.inode(self.at, ino) {
            Ok(inode) => inode.is_directory(),
            Err(MetaError::Stale(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let core = self.core.lock();
        Ok(core.opens.has(session, ino) || (!is_directory && core.table.lease(session, ino).is_some()))
    }

    /// What an operation of a session needs.
    ///
    /// # Errors
    /// [`MetaError`] where that, or whether it may, cannot be read: it is not to be carried out before, and nobody's leases are asked for.
    pub(crate) fn needs(
        &self,
        session: SessionId,
        rights: &Rights,
        operation: &Operation,
    ) -> Result<Needed, MetaError> {
        let mut needs = carry::needs(operation, &self.ns, self.at)?;
        if let Operation::Ahead(steps) = operation {
            // Looked at once: a lease on a file of a commit that is returned a moment later is not to be missed as one that the steps need.
            let core = self.core.lock();
            if core.lacks_lease(session, &needs) {
                let why = if rights.read_only { Failure::ReadOnly } else { Failure::NotPermitted };
                return Ok(Needed::Forbidden(why));
            }
            needs.extend(core.needed_by_commits(session, steps));
        }
        let asks_little = rights.root == Ino::ROOT && !matches!(operation, Operation::ChangePolicy(_));
        if asks_little {
            return Ok(Needed::Leases(needs));
        }
        if let Some(failure) = self.forbids(session, rights, operation)? {
            return Ok(Needed::Forbidden(failure));
        }
        if !matches!(operation, Operation::Commit(_) | Operation::Hold(_) | Operation::Seal(_)) {
            return Ok(Needed::Leases(needs));
        }
        let mut seen = Vec::with_capacity(needs.len());
        for need in needs {
            if self.sees(session, rights, need.ino)? {
                seen.push(need);
            }
        }
        Ok(Needed::Leases(seen))
    }

    /// Why a session may not do this, if so.
    pub(crate) fn forbids(
        &self,
        session: SessionId,
        rights: &Rights,
        operation: &Operation,
    ) -> Result<Option<Failure>, MetaError> {
        if rights.read_only && changes_files(operation) {
            return Ok(Some(Failure::ReadOnly));
        }
        if rights.root != Ino::ROOT && is_of_a_member(operation) {
            return Ok(Some(Failure::NotPermitted));
        }
        if matches!(operation, Operation::ChangePolicy(_)) && !self.core.lock().administer.contains(&session)
        {
            return Ok(Some(Failure::NotPermitted));
        }
        if rights.root != Ino::ROOT {
            for ino in named(operation).into_iter().flatten() {
                if !self.sees(session, rights, ino)? {
                    return Ok(Some(Failure::Stale));
                }
            }
        }
        Ok(None)
    }
}

/// Whether it changes more than what the session itself has.
fn changes_files(operation: &Operation) -> bool {
    use Operation::{Hold, Lock, Release, Reserve, Unlock, UnlockHandle};
    is_of_a_member(operation)
        || matches!(operation, Reserve { .. })
        || operation.changes()
            && !matches!(operation, Hold(_) | Lock(..) | Release(_) | Unlock(..) | UnlockHandle(..))
}

/// Whether it is what a member of a group does, for all who write: it sees everything.
fn is_of_a_member(operation: &Operation) -> bool {
    use Operation::{Fenced, Offer, Reseat, Store};
    matches!(operation, Offer(_) | Fenced(_) | Store(_) | Reseat(_))
}

/// The inodes that an operation names. Those of a commit, to be held, and to be sealed are looked at one by one: what is not seen is not there.
fn named(operation: &Operation) -> [Option<Ino>; 2] {
    match operation {
        Operation::Lookup(ino, _)
        | Operation::Inode(ino)
        | Operation::Entries { directory: ino, .. }
        | Operation::ReadLink(ino)
        | Operation::Xattr(ino, _)
        | Operation::Xattrs(ino)
        | Operation::Map(ino, ..)
        | Operation::TestLock(ino, _)
        | Operation::Make(ino, ..)
        | Operation::MakeNameless(ino, _)
        | Operation::Unlink(ino, ..)
        | Operation::Rmdir(ino, ..)
        | Operation::SetAttr(ino, _)
        | Operation::SetAtime(ino, _)
        | Operation::SetXattr(ino, ..)
        | Operation::RemoveXattr(ino, _)
        | Operation::Punch { ino, .. }
        | Operation::Lock(ino, ..)
        | Operation::Unlock(ino, ..)
        | Operation::UnlockHandle(ino, _) => [Some(*ino), None],
        Operation::OpenSegments(open) => [Some(unconfined(open.directory)), None],
        Operation::Link(ino, parent, _) => [Some(*ino), Some(*parent)],
        Operation::Rename { from, to, .. } => [Some(*from), Some(*to)],
        Operation::Share { source, target, .. } => [Some(*source), Some(*target)],
        // Each step is looked at by itself.
        Operation::Ahead(_) | Operation::Runs(_) => [None, None],
        Operation::Space
        | Operation::Classes(_)
        | Operation::GroupRules(_)
        | Operation::Reserve { .. }
        | Operation::ChangePolicy(_)
        | Operation::Numbers(..)
        | Operation::Commit(_)
        | Operation::Hold(_)
        | Operation::Seal(_)
        | Operation::Release(_)
        | Operation::Offer(_)
        | Operation::Fenced(_)
        | Operation::Store(_)
        | Operation::Reseat(_)
        | Operation::Settle(_) => [None, None],
    }
}

/// The operation as the session may ask for it: where its root user is nobody, that one owns nothing new.
pub(crate) fn limited<'a>(operation: &'a Operation, rights: &Rights) -> Cow<'a, Operation> {
    let nobody = |id: u32| if id == 0 { NOBODY } else { id };
    if !rights.root_squash {
        return Cow::Borrowed(operation);
    }
    let mut operation = operation.clone();
    match &mut operation {
        Operation::Make(_, _, new) | Operation::MakeNameless(_, new) => {
            (new.uid, new.gid) = (nobody(new.uid), nobody(new.gid));
        }
        Operation::SetAttr(_, set) => {
            (set.uid, set.gid) = (set.uid.map(nobody), set.gid.map(nobody));
        }
        _ => {}
    }
    Cow::Owned(operation)
}

/// The answer as the session may have it: its root is the end of the world.
pub(crate) fn seen(answer: &mut Answer, rights: &Rights) {
    if rights.root == Ino::ROOT {
        return;
    }
    let hide = |inode: &mut InodeAnswer| {
        if inode.ino == rights.root {
            inode.row.parent = rights.root;
        }
    };
    match answer {
        Answer::Inode(inode) | Answer::Orphaned(inode) => hide(inode),
        Answer::Renamed(moved, replaced) => {
            hide(moved);
            replaced.iter_mut().for_each(|inode| hide(inode));
        }
        Answer::RenamedOver(moved, orphaned) => {
            hide(moved);
            hide(orphaned);
        }
        _ => {}
    }
}
