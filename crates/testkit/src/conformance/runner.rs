//! Plays steps on both sides and compares outcomes and the trees left behind.
//!
//! Guarantees: both sides get the same steps in the same order from the same users, in fresh directories. Differences
//! are values; an error means that the run itself could not go on.
//! Order: step n is answered on both sides before step n + 1 is sent; descriptors are closed before trees are read.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::allowed::{self, Allowed};
use super::op::{Outcome, Script, Step, USERS};
use super::tree::{self, Times, TreeError};
use super::worker::{Worker, WorkerError};

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A tree could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A case's directory could not be made.
    #[error("cannot make the case directory {path}: {source}")]
    Directory {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A worker could not go into a case's directory.
    #[error("uid {uid} cannot enter {path} ({errno}): every directory above must let other users through")]
    Enter {
        /// The user.
        uid: u32,
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        errno: String,
    },
}

/// One way in which the two sides differ.
#[derive(Clone, Debug)]
pub enum Difference {
    /// A step had two outcomes.
    Step {
        /// Its place in the script.
        index: usize,
        /// The step.
        step: Step,
        /// On the file system under test.
        ours: Outcome,
        /// On the reference.
        reference: Outcome,
    },
    /// The trees differ: `-` lines are the reference's, `+` lines ours.
    Tree(Vec<String>),
}

impl std::fmt::Display for Difference {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step { index, step, ours, reference } => write!(
                out,
                "step {index} (uid {}) {:?}\n      ours      {ours:?}\n      reference {reference:?}",
                USERS[step.user].0, step.op
            ),
            Self::Tree(lines) => {
                write!(out, "the trees differ (- reference, + ours)")?;
                lines.iter().take(20).try_for_each(|line| write!(out, "\n      {line}"))
            }
        }
    }
}

/// What playing a script gave.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Differences that are not allowed.
    pub differences: Vec<Difference>,
    /// Entries of the allowed table that were met.
    pub allowed: Vec<&'static Allowed>,
}

/// How long to go on after a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDifference {
    /// Play all steps: one written case shows all that is wrong with it.
    GoOn,
    /// Stop at the first: what follows in a random case is only its echo.
    Stop,
}

struct Side {
    root: PathBuf,
    workers: BTreeMap<usize, Worker>,
}

impl Side {
    fn enter(&mut self, dir: &str, steps: &[Step]) -> Result<PathBuf, RunError> {
        let path = self.root.join(dir);
        std::fs::create_dir(&path)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)))
            .map_err(|source| RunError::Directory { path: path.clone(), source })?;
        for user in 0..USERS.len() {
            if self.workers.contains_key(&user) || steps.iter().any(|step| step.user == user) {
                self.enter_as(user, &path)?;
            }
        }
        Ok(path)
    }

    fn enter_as(&mut self, user: usize, path: &Path) -> Result<(), RunError> {
        let (uid, gid) = USERS[user];
        let worker = match self.workers.entry(user) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(empty) => empty.insert(Worker::start(uid, gid)?),
        };
        worker.enter(path)?.map(drop).map_err(|errno| RunError::Enter {
            uid,
            path: path.to_path_buf(),
            errno,
        })
    }

    fn carry_out(&mut self, step: &Step) -> Result<Outcome, RunError> {
        match self.workers.get_mut(&step.user) {
            Some(worker) => Ok(worker.carry_out(&step.op)?),
            None => Ok(Err("no worker".into())),
        }
    }

    /// Moves all workers out of the case with everything closed.
    fn leave(&mut self) -> Result<(), RunError> {
        let users: Vec<usize> = self.workers.keys().copied().collect();
        users.into_iter().try_for_each(|user| self.enter_as(user, Path::new("/")))
    }
}

/// Two directories and the workers on them.
pub struct Runner {
    ours: Side,
    reference: Side,
}

impl Runner {
    /// A runner that makes its case directories in `ours` and `reference`.
    pub fn new(ours: &Path, reference: &Path) -> Self {
        let side = |root: &Path| Side { root: root.to_path_buf(), workers: BTreeMap::new() };
        Self { ours: side(ours), reference: side(reference) }
    }

    /// Plays `script` in fresh directories called `dir`. `case` is the name to look up allowed differences by.
    pub fn play(
        &mut self,
        case: &str,
        dir: &str,
        script: &Script,
        on_difference: OnDifference,
    ) -> Result<Played, RunError> {
        let our_dir = self.ours.enter(dir, &script.steps)?;
        let reference_dir = self.reference.enter(dir, &script.steps)?;
        let mut played = Played::default();
        for (index, step) in script.steps.iter().enumerate() {
            let reference = self.reference.carry_out(step)?;
            let ours = self.ours.carry_out(step)?;
            if ours == reference {
                continue;
            }
            if let Some(entry) = allowed::find(case, &step.op, &ours, &reference) {
                played.allowed.push(entry);
                continue;
            }
            played.differences.push(Difference::Step { index, step: step.clone(), ours, reference });
            if on_difference == OnDifference::Stop {
                break;
            }
        }
        self.ours.leave()?;
        self.reference.leave()?;
        if played.differences.is_empty() && played.allowed.is_empty() {
            let lines = tree::differences(
                &tree::manifest(&reference_dir, Times::SetByHand)?,
                &tree::manifest(&our_dir, Times::SetByHand)?,
            );
            if !lines.is_empty() {
                played.differences.push(Difference::Tree(lines));
            }
        }
        Ok(played)
    }
}
