//! Renewals of members: all that come within a second are one batch.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use forebay_group::{GroupId, MemberId, MemberRow, Renewal, ViewEpoch};
use forebay_protocol::group::{RenewMember, Renewed};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::{
    cluster::Cluster,
    registry::{Found, GroupBatch, GroupMemberRow, RegistryError},
};

/// How long after one batch the next one is committed at the earliest: one that comes alone is committed at once.
const BATCH_EVERY: Duration = Duration::from_secs(1);
/// How often a renewal is decided anew that met another change of its row.
const ATTEMPTS: u32 = 3;

/// What is answered to a renewal; an error in words where nobody knows.
pub(crate) type Answer = Result<Renewed, String>;

#[derive(Debug)]
struct Waiting {
    renewal: RenewMember,
    reply: oneshot::Sender<Answer>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: Vec<Waiting>,
    stopped: bool,
}

/// Renewals that wait for the next batch.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    line: Mutex<Line>,
    changed: Condvar,
    taken: AtomicU64,
    batches: AtomicU64,
}

impl Renewals {
    /// Has a renewal committed. Nothing is answered once the server stops.
    pub(crate) fn push(&self, renewal: RenewMember) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        let mut line = self.line.lock();
        if !line.stopped {
            line.waiting.push(Waiting { renewal, reply });
        }
        drop(line);
        self.changed.notify_all();
        answer
    }

    /// Ends [`Renewals::run`].
    pub(crate) fn stop(&self) {
        let mut line = self.line.lock();
        line.stopped = true;
        line.waiting.clear();
        drop(line);
        self.changed.notify_all();
    }

    /// Renewals that were taken up, and the batches that they made.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.batches.load(Relaxed))
    }

    /// Commits one batch after the other until it is stopped.
    pub(crate) fn run(&self, cluster: &Cluster) {
        let mut last: Option<Instant> = None;
        loop {
            let mut line = self.line.lock();
            while line.waiting.is_empty() && !line.stopped {
                self.changed.wait(&mut line);
            }
            if let Some(due) = last.map(|last| last + BATCH_EVERY) {
                while !line.stopped && Instant::now() < due {
                    self.changed.wait_until(&mut line, due);
                }
            }
            if line.stopped {
                return;
            }
            let waiting = std::mem::take(&mut line.waiting);
            drop(line);
            last = Some(Instant::now());
            self.taken.fetch_add(waiting.len() as u64, Relaxed);
            self.batches.fetch_add(1, Relaxed);
            commit(cluster, waiting);
        }
    }
}

type Key = (GroupId, MemberId);

fn commit(cluster: &Cluster, waiting: Vec<Waiting>) {
    // Of what a member has asked for more than once the last counts.
    let renewals: BTreeMap<Key, &RenewMember> = waiting
        .iter()
        .map(|waiting| ((waiting.renewal.group, waiting.renewal.id), &waiting.renewal))
        .collect();
    let outcomes = match together(cluster, &renewals) {
        Ok(Some(outcomes)) => outcomes.into_iter().map(|(key, stays)| (key, Ok(stays))).collect(),
        // One of them was counted out in this moment, or renewed by way of another server.
        Ok(None) => {
            let each = |(key, renewal): (&Key, &&RenewMember)| (*key, alone(cluster, *key, renewal));
            renewals.iter().map(each).collect()
        }
        Err(error) => {
            tracing::warn!("renewals of groups' members are not committed: {error}");
            renewals.keys().map(|key| (*key, Err(error.to_string()))).collect::<BTreeMap<_, _>>()
        }
    };
    let known = cluster.groups.known();
    for Waiting { renewal, reply } in waiting {
        let outcome = outcomes.get(&(renewal.group, renewal.id));
        let answer = match outcome {
            Some(Ok(true)) => {
                let view = known.view(renewal.group);
                let epoch = view.map_or(ViewEpoch(0), |view| view.epoch);
                let news = view.filter(|view| view.epoch > renewal.row.acknowledged);
                Ok(Renewed::Stays(epoch, news.cloned()))
            }
            Some(Ok(false)) => Ok(Renewed::Out),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the renewal is lost".to_owned()),
        };
        // Who asked may have gone.
        let _ = reply.send(answer);
    }
}

/// Which of them stay, if all were committed in one batch.
fn together(
    cluster: &Cluster,
    renewals: &BTreeMap<Key, &RenewMember>,
) -> Result<Option<BTreeMap<Key, bool>>, RegistryError> {
    let keys: Vec<Key> = renewals.keys().copied().collect();
    let found = cluster.registry.members_of_groups(&keys)?;
    let (mut batch, mut outcomes) = (GroupBatch::default(), BTreeMap::new());
    for ((key, renewal), found) in renewals.iter().zip(found) {
        outcomes.insert(*key, put(&mut batch, *key, renewal, found));
    }
    let committed = batch.is_empty() || cluster.registry.change_groups(&batch)?;
    Ok(committed.then_some(outcomes))
}

/// Whether it stays.
fn alone(cluster: &Cluster, key: Key, renewal: &RenewMember) -> Result<bool, String> {
    for _ in 0..ATTEMPTS {
        let renewals = BTreeMap::from([(key, renewal)]);
        match together(cluster, &renewals) {
            Ok(Some(outcomes)) => return Ok(outcomes.get(&key).copied().unwrap_or(false)),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("the row of member {} changes all the time", key.1))
}

/// Puts a renewal into the batch, unless it was committed before. `false` where the member is out.
fn put(batch: &mut GroupBatch, key: Key, wanted: &RenewMember, found: Option<Found<GroupMemberRow>>) -> bool {
    let renewal = Renewal { id: wanted.id, row: wanted.row.clone() };
    let row = found.as_ref().map(|found| &found.row.row);
    match MemberRow::renew(row, &renewal) {
        Ok(None) => true,
        Ok(Some(_)) => {
            let to = GroupMemberRow { row: renewal.row, numbers: wanted.numbers };
            batch.member(key, found.map(|found| found.bytes), Some(&to));
            true
        }
        Err(_out) => false,
    }
}
