//! Policies of directories and files (`docs/design/policies.md`): rows `0 y`, and that nothing counts as committed below the class that they say.
//!
//! Guarantees: from the commit of a change on, no commit of a session is taken that has bytes of a file where its policy says that they must not be alone, whatever the
//! session knows of policies. A number that is not known, or whose row cannot be read, says the most that there is.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use forebay_cluster::{SessionId, SlotNumber};
use forebay_format::{
    key::Key,
    policy_row::{GroupBytes, PolicyKeep, PolicyRow},
    row::{Extent, Row},
};
use forebay_group::{GroupId, SetState};
use forebay_meta::{MetaError, PieceSource};
use forebay_protocol::{
    Answer, Commit, Failure, Operation, POLICIES_MAX, PolicyChange, PolicyEdit, Refusal, Request, Response,
    Rights,
};
use forebay_types::{Ino, PolicyId, SyncClass};

use crate::{
    batch::{BatchNumber, Core},
    owner::VolumeOwner,
    request::Reply,
};

/// Policies of one volume at most: their rows are in memory.
const ALL_MAX: usize = 1 << 16;
/// How long a change may wait for leases: sessions that do not return theirs have ended by then.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often the session of a change that waits is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// What the session of a change calls itself.
const CLIENT: &str = "forebay policy";

/// All policies of a volume.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// `None`: it cannot be read.
    rows: BTreeMap<PolicyId, Option<PolicyRow>>,
    /// The last batch with rows of them.
    pub(crate) changed_in: BatchNumber,
}

impl Policies {
    /// Takes in a row that a former owner left.
    pub(crate) fn restore(&mut self, id: PolicyId, value: &[u8]) {
        let row = PolicyRow::decode(value);
        if let Err(error) = &row {
            tracing::error!(%error, policy = %id, "a policy cannot be read: what goes by it waits for the store");
        }
        self.rows.insert(id, row.ok());
    }

    /// Policies whose numbers are given.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PolicyId, Option<&PolicyRow>)> {
        self.rows.iter().map(|(id, row)| (*id, row.as_ref()))
    }

    pub(crate) fn row(&self, id: PolicyId) -> Option<PolicyRow> {
        self.rows.get(&id).copied().flatten()
    }

    /// What `fsync` waits for at least by this policy; `None`: it does not say.
    pub(crate) fn class(&self, id: PolicyId) -> Option<SyncClass> {
        let mut next = id;
        while next != PolicyId::NONE {
            match self.row(next) {
                Some(PolicyRow { durability: Some(class), .. }) => return Some(class),
                Some(PolicyRow { before, .. }) if before < next => next = before,
                _ => return Some(SyncClass::Object),
            }
        }
        None
    }
}

impl Core {
    /// Puts a policy into the batch that collects.
    fn put_policy(&mut self, id: PolicyId, row: PolicyRow) {
        self.policies.rows.insert(id, Some(row));
        self.policies.changed_in = self.put(&Key::Policy(id), Some(row.encode()));
    }

    /// Whether bytes in a segment are only where a file of this policy must not have them alone: on too few members, or on members of a group that may not have them.
    fn is_below(&self, policy: PolicyId, extent: &Extent) -> bool {
        let held = self.sets.get(extent.segment).filter(|held| held.row.state != SetState::Stored);
        held.is_some_and(|held| {
            let class = self.class_in(policy, held.group);
            class.is_some_and(|class| !class.is_met_by(held.row.set.len()))
        })
    }
}

/// What counts for an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyFound {
    /// The policy by which it goes.
    pub policy: PolicyId,
    /// What that is, where there is one that can be read.
    pub row: Option<PolicyRow>,
    /// What it says, or what it came after.
    pub class: Option<SyncClass>,
    /// Where bytes are kept, by what it says and what it came after.
    pub keep: PolicyKeep,
    /// Whether the inode is a directory.
    pub directory: bool,
}

/// Names of a directory, and what is to be done with what they stand for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyPage {
    /// What the names stand for.
    pub inos: Vec<Ino>,
    /// Those of them that are directories.
    pub directories: Vec<Ino>,
    /// The last name; `None` where there were no more.
    pub next: Option<Vec<u8>>,
}

impl VolumeOwner {
    /// By which policy an inode goes.
    ///
    /// # Errors
    /// [`MetaError::Stale`] where there is none, and where it cannot be read.
    pub fn policy_of(&self, ino: Ino) -> Result<PolicyFound, MetaError> {
        let inode = self.ns.inode(self.at, ino)?;
        let policy = inode.row.policy;
        let core = self.core.lock();
        let Core { policies, .. } = &*core;
        let (row, class, keep) = (policies.row(policy), policies.class(policy), policies.keep(policy));
        Ok(PolicyFound { policy, row, class, keep, directory: inode.is_directory() })
    }

    /// Names of a directory after one of them, about so many.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn policy_page(
        &self,
        directory: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<PolicyPage, MetaError> {
        let found = self.ns.entries(self.at, directory, after, limit)?;
        let next = found.last().map(|entry| entry.name.clone());
        let is_directory = |entry: &&forebay_meta::DirEntry| entry.kind == forebay_types::FileKind::Directory;
        let directories = found.iter().filter(is_directory).map(|entry| entry.ino).collect();
        Ok(PolicyPage { inos: found.iter().map(|entry| entry.ino).collect(), directories, next })
    }

    /// Carries a change of policies out, in a session of its own: leases on what changes are recalled, so that clients learn of it. Waits for that.
    ///
    /// # Errors
    /// [`Refusal`]; [`Refusal::Unavailable`] where it was not carried out within a minute, and may be later.
    pub fn change_policy(&self, change: PolicyChange) -> Result<Answer, Refusal> {
        let unavailable = |why: String| Refusal::Unavailable(why);
        let number = forebay_env::random()
            .map_err(|error| unavailable(format!("the system has no random bits: {error}")))?;
        let session = SessionId(u128::from_le_bytes(number));
        let (reply, begun) = replying();
        self.begin_session(session, CLIENT, Rights::ALL, reply);
        let answer = begun.recv().unwrap_or(Err(Refusal::NotOwner { address: None })).and_then(|_| {
            self.core.lock().administer.insert(session);
            let (reply, answered) = replying();
            let slot = Some((SlotNumber(0), 1));
            self.submit(
                Request { session, slot, operation: Operation::ChangePolicy(change), wish: None },
                reply,
            );
            self.wait_for(session, &answered)
        });
        self.end_session(session);
        answer.map(|response| response.answer)
    }

    fn wait_for(
        &self,
        session: SessionId,
        answered: &Receiver<Result<Response, Refusal>>,
    ) -> Result<Response, Refusal> {
        let until = Instant::now() + PATIENCE;
        loop {
            match answered.recv_timeout(RENEW_EVERY) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(Refusal::NotOwner { address: None }),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => self.renew(session)?,
                Err(RecvTimeoutError::Timeout) => {
                    let why = "clients have not given up what they know of it: give the command again";
                    return Err(Refusal::Unavailable(why.to_owned()));
                }
            }
        }
    }

    /// Carries out what [`VolumeOwner::change_policy`] asks for.
    ///
    /// # Errors
    /// [`MetaError`]; nothing was changed.
    pub(crate) fn perform_policy(&self, change: &PolicyChange) -> Result<Answer, MetaError> {
        match change {
            PolicyChange::Set(ino, edit) => self.set_policy(*ino, edit),
            PolicyChange::Give(policy, inos) => {
                let row = self.core.lock().policies.row(*policy);
                match row {
                    Some(row) if inos.len() <= POLICIES_MAX => {
                        self.ns.give_policy(self.at, inos, (*policy, row.before)).map(Answer::Committed)
                    }
                    _ => Ok(Answer::Failed(Failure::Invalid)),
                }
            }
            PolicyChange::Spread(policy) => {
                let mut core = self.core.lock();
                let Some(row) = core.policies.row(*policy) else {
                    return Ok(Answer::Failed(Failure::Invalid));
                };
                core.put_policy(*policy, PolicyRow { spread: true, ..row });
                Ok(Answer::Done)
            }
        }
    }

    fn set_policy(&self, ino: Ino, edit: &PolicyEdit) -> Result<Answer, MetaError> {
        let inode = self.ns.inode(self.at, ino)?;
        let before = inode.row.policy;
        let (policy, row) = {
            let mut core = self.core.lock();
            if let Some(row) = core.policies.row(before).filter(|row| row.made_for == ino) {
                core.put_policy(before, edited(row, edit));
                return Ok(Answer::Done);
            }
            let spread = !inode.is_directory();
            let (durability, keep) = (None, PolicyKeep::default());
            let row = PolicyRow { made_for: ino, before, durability, keep, spread };
            if edited(row, edit) == row {
                return Ok(Answer::Failed(Failure::Invalid));
            }
            if core.policies.rows.len() >= ALL_MAX {
                return Ok(Answer::Failed(Failure::NoSpace));
            }
            let last = core.policies.rows.last_key_value().map_or(PolicyId::NONE, |(last, _)| *last);
            let policy = PolicyId(last.0 + 1);
            let row = edited(row, edit);
            // The number is taken; nothing goes by it yet.
            core.policies.rows.insert(policy, Some(row));
            (policy, row)
        };
        let given = self.ns.give_policy(self.at, &[ino], (policy, before));
        let mut core = self.core.lock();
        if let Err(error) = given {
            core.policies.rows.remove(&policy);
            return Err(error);
        }
        core.put_policy(policy, row);
        Ok(Answer::Done)
    }

    /// What these policies say, by a way to say it.
    pub(crate) fn tell_of(&self, policies: &[PolicyId], say: fn(&Core, &[PolicyId]) -> Answer) -> Answer {
        if policies.len() > POLICIES_MAX {
            return Answer::Failed(Failure::Invalid);
        }
        say(&self.core.lock(), policies)
    }

    /// Whether a commit has bytes of a file only where its policy says that they must not be alone.
    ///
    /// # Errors
    /// [`MetaError`] where a file cannot be read.
    pub(crate) fn commits_below_class(&self, commit: &Commit) -> Result<bool, MetaError> {
        for file in commit.files.iter().filter(|file| !file.extents.is_empty()) {
            let Some(policy) = self.policy_by_ino(file.ino)? else { continue };
            let core = self.core.lock();
            if file.extents.iter().any(|(_, extent)| core.is_below(policy, extent)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file would share bytes that are only where its policy says that they must not be alone.
    ///
    /// # Errors
    /// [`MetaError`] where one of the files cannot be read.
    pub(crate) fn shares_below_class(
        &self,
        target: Ino,
        (source, from, len): (Ino, u64, u64),
    ) -> Result<bool, MetaError> {
        let Some(policy) = self.policy_by_ino(target)? else { return Ok(false) };
        let pieces = self.ns.map(self.at, source, from, len)?;
        let core = self.core.lock();
        Ok(pieces.iter().any(|piece| match &piece.source {
            PieceSource::Extent(extent) => core.is_below(policy, extent),
            PieceSource::Hole | PieceSource::Inline(_) => false,
        }))
    }

    /// The policy by which an inode goes, if it is there and goes by one.
    fn policy_by_ino(&self, ino: Ino) -> Result<Option<PolicyId>, MetaError> {
        match self.ns.inode(self.at, ino) {
            Ok(inode) => Ok(Some(inode.row.policy).filter(|policy| *policy != PolicyId::NONE)),
            Err(MetaError::Stale(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A policy that says something else by itself.
fn edited(mut row: PolicyRow, edit: &PolicyEdit) -> PolicyRow {
    let group = |to: &mut Option<GroupBytes>, edit: Option<Option<GroupId>>| {
        if let Some(group) = edit {
            *to = group.map(|group| group.0);
        }
    };
    row.durability = edit.durability.unwrap_or(row.durability);
    row.keep.pin = edit.pin.unwrap_or(row.keep.pin);
    group(&mut row.keep.confine, edit.confine);
    group(&mut row.keep.place, edit.place);
    group(&mut row.keep.exclude, edit.exclude);
    row
}

/// A reply, and where it comes out.
fn replying() -> (Reply, Receiver<Result<Response, Refusal>>) {
    let (to, from) = channel();
    let reply = Box::new(move |response| {
        // Who has waited long enough hears nothing.
        let _ = to.send(response);
    });
    (reply, from)
}
