//! What files' policies say (`docs/design/policies.md`): what `fsync` waits for, and on which disks their bytes may be.
//!
//! What is known here of classes only saves work: the owner takes no commit below a file's class, and what it refuses is put into the store. So what was asked may be old, and where
//! nobody answers the most is promised.
//!
//! What is known of disks is 10 s old at most, or what was told last while nobody answers: who reads has what is old asked anew beside him, and waits a second for that, once for each time
//! that it is asked. For the first answer on a policy he waits as for everything.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use forebay_meta::Inode;
use forebay_protocol::{Answer, Disks, Operation, POLICIES_MAX, PolicyRule};
use forebay_types::{PolicyId, SyncClass};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::{Contents, Shared, file::Taken};
use crate::{Asks, ClientError};

/// How long what was asked counts, and for how long nobody is asked again who did not answer: a class that is lower now is made use of that much later.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// How long those who read wait for what is asked beside them.
const BESIDE_WITHIN: Duration = Duration::from_secs(1);

/// What a policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rule {
    class: Option<SyncClass>,
    disks: Disks,
}

/// What is known of a policy.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What was told last.
    rule: Option<Rule>,
    /// When that was asked for, and when nobody answered since, unless it is to be asked for again at once.
    asked: Option<Instant>,
    unheard: Option<Instant>,
}

impl Known {
    /// What to go by where it is not told: the most that can be promised, and what was told of disks.
    fn unsure(&self) -> Rule {
        let disks = self.rule.map_or(Disks::None, |rule| rule.disks);
        Rule { class: Some(SyncClass::Object), disks }
    }

    /// What counts without asking again; `None` where it is to be asked for.
    fn counts(&self) -> Option<Rule> {
        let counts = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < KNOWN_FOR);
        match self.rule {
            Some(rule) if counts(self.asked) => Some(rule),
            _ => counts(self.unheard).then(|| self.unsure()),
        }
    }
}

/// What policies say, as the owner told it.
#[derive(Debug, Default)]
pub(super) struct Classes {
    known: Mutex<FxHashMap<PolicyId, Known>>,
    renewal: Mutex<Renewal>,
    /// It ended, or is late.
    ended: Condvar,
}

/// Whether what is old is being asked for, beside those who read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Renewal {
    #[default]
    None,
    Asked,
    /// And not answered for so long that nobody waits for it.
    Late,
}

impl Classes {
    /// What each of these policies says. Waits for what is not known, or old.
    fn of(&self, asks: &dyn Asks, mut policies: Vec<PolicyId>) -> FxHashMap<PolicyId, Rule> {
        let mut found = FxHashMap::default();
        found.insert(PolicyId::NONE, Rule::default());
        policies.sort_unstable();
        policies.dedup();
        let known = self.known.lock();
        found.extend(policies.iter().filter_map(|id| Some((*id, known.get(id)?.counts()?))));
        drop(known);
        policies.retain(|id| !found.contains_key(id));
        for some in policies.chunks(POLICIES_MAX) {
            found.extend(self.ask(asks, some));
        }
        found
    }

    /// On which disks what goes by a policy may be. Waits for the owner where nothing was ever told; what is old is asked anew beside.
    fn disks(self: &Arc<Self>, asks: &Arc<dyn Asks>, policy: PolicyId) -> Disks {
        let known = || self.known.lock().get(&policy).copied().unwrap_or_default();
        if let Some(rule) = known().counts() {
            return rule.disks;
        }
        if known().rule.is_none() {
            return self.of(asks.as_ref(), vec![policy]).get(&policy).map_or(Disks::None, |rule| rule.disks);
        }
        let until = Instant::now() + BESIDE_WITHIN;
        let mut renewal = self.renewal.lock();
        while known().counts().is_none() && *renewal != Renewal::Late {
            if *renewal == Renewal::None {
                *renewal = self.renew(asks);
            } else if self.ended.wait_until(&mut renewal, until).timed_out() && *renewal == Renewal::Asked {
                *renewal = Renewal::Late;
                self.ended.notify_all();
            }
        }
        known().unsure().disks
    }

    /// Asks what these say, and waits for it as long as the mount's options say.
    fn ask(&self, asks: &dyn Asks, policies: &[PolicyId]) -> Vec<(PolicyId, Rule)> {
        let asked = Some(Instant::now());
        match asks.ask(Operation::Classes(policies.to_vec()), None).map(|response| rules(response.answer)) {
            Ok(Ok(told)) => {
                let mut known = self.known.lock();
                let learn = |id: &PolicyId| {
                    let rule = told.get(id).copied().unwrap_or_default();
                    known.insert(*id, Known { rule: Some(rule), asked, unheard: None });
                    (*id, rule)
                };
                policies.iter().map(learn).collect()
            }
            other => {
                tracing::debug!(
                    ?other,
                    "nobody says what policies are: what goes by them waits for the store"
                );
                // That one caller was killed says nothing of the owner.
                if !matches!(other, Err(ClientError::Interrupted)) {
                    self.unheard(policies);
                }
                let known = self.known.lock();
                let unsure = |id: &PolicyId| known.get(id).copied().unwrap_or_default().unsure();
                policies.iter().map(|id| (*id, unsure(id))).collect()
            }
        }
    }

    /// Nobody says what these are: it is not asked for again for a while.
    fn unheard(&self, policies: &[PolicyId]) {
        let now = Some(Instant::now());
        let mut known = self.known.lock();
        policies.iter().for_each(|id| known.entry(*id).or_default().unheard = now);
    }

    /// Has all that is old asked anew, by a thread. It ends at the latest with the session; nobody waits for that.
    fn renew(self: &Arc<Self>, asks: &Arc<dyn Asks>) -> Renewal {
        let (classes, asks) = (Arc::clone(self), Arc::clone(asks));
        let started = thread::Builder::new().name("forebay-rules".to_owned()).spawn(move || {
            forebay_env::threads::unbind();
            for some in classes.old().chunks(POLICIES_MAX) {
                classes.ask(asks.as_ref(), some);
            }
            *classes.renewal.lock() = Renewal::None;
            classes.ended.notify_all();
        });
        match started {
            Ok(_) => Renewal::Asked,
            Err(error) => {
                tracing::warn!("no thread asks what policies say now, what was told last counts: {error}");
                self.unheard(&self.old());
                Renewal::None
            }
        }
    }

    /// What was told and is to be asked for again.
    fn old(&self) -> Vec<PolicyId> {
        let known = self.known.lock();
        let is_old = |known: &Known| known.rule.is_some() && known.counts().is_none();
        known.iter().filter(|(_, known)| is_old(known)).map(|(id, _)| *id).collect()
    }

    /// Whether it is known that a policy does not say that the store is to be waited for.
    fn is_less_than_store(&self, policy: PolicyId) -> bool {
        let rule = || self.known.lock().get(&policy).and_then(|known| known.rule);
        policy == PolicyId::NONE || rule().is_some_and(|rule| rule.class != Some(SyncClass::Object))
    }

    /// Something of it was old: it is asked for when it is needed next.
    pub(super) fn forget(&self) {
        let forget = |known: &mut Known| (known.asked, known.unheard) = (None, None);
        self.known.lock().values_mut().for_each(forget);
    }
}

/// What an answer says of policies; those that are not named say nothing.
fn rules(answer: Answer) -> Result<FxHashMap<PolicyId, Rule>, Answer> {
    match answer {
        Answer::Classes(told) => {
            let rule = |class| Rule { class: Some(class), disks: Disks::Any };
            Ok(told.into_iter().map(|(id, class)| (id, rule(class))).collect())
        }
        Answer::Rules(told) => {
            let rule = |PolicyRule { policy, class, disks }| (policy, Rule { class, disks });
            Ok(told.into_iter().map(rule).collect())
        }
        other => Err(other),
    }
}

/// Layers that go together: what `fsync` of them waits for, and on which disks they may be.
pub(super) struct Batch {
    pub(super) class: SyncClass,
    pub(super) disks: Disks,
    pub(super) taken: Vec<Taken>,
}

impl Contents {
    /// Whether bytes of a file may be on a disk of this machine, by its policy, as far as is known; waits like a read.
    #[must_use]
    pub fn may_be_on_disk(&self, inode: &Inode) -> bool {
        self.shared.disks(inode.row.policy) == Disks::Any
    }
}

impl Shared {
    /// Whether what goes by a policy is to be in batches of its own: it waits for the store, while the volume does not. A guess, until it is taken.
    pub(super) fn waits_aside(&self, policy: PolicyId) -> bool {
        !self.classes.is_less_than_store(policy)
            && self.options.members.as_ref().is_some_and(|members| members.writes_over().is_some())
    }

    /// On which disks bytes of what goes by a policy may be, besides the store, as far as is known: for who reads.
    pub(super) fn disks(&self, policy: PolicyId) -> Disks {
        if policy == PolicyId::NONE {
            return Disks::Any;
        }
        self.classes.disks(&self.asks, policy)
    }

    /// What was taken, by what has to be waited for: the higher of what the volume and the file's policy say. What waits for less comes first: it does not wait for the
    /// store because of a neighbour. What may not be on all disks shares no object with others.
    pub(super) fn by_class(&self, taken: Vec<Taken>) -> Vec<Batch> {
        let group = self.options.members.as_ref().and_then(|members| members.writes_over());
        let volume = group.as_ref().and_then(|group| SyncClass::of_copies(group.copies));
        let volume = volume.unwrap_or(SyncClass::Object);
        // Where there is no log on this machine, it is the store that is waited for.
        let here = group.is_some_and(|group| !group.near.is_empty());
        let waits_for = |class| if class == SyncClass::Local && !here { SyncClass::Object } else { class };
        if taken.iter().all(|taken| taken.policy == PolicyId::NONE) {
            return vec![Batch { class: waits_for(volume), disks: Disks::Any, taken }];
        }
        let rules = self.classes.of(self.asks.as_ref(), taken.iter().map(|taken| taken.policy).collect());
        let mut batches: Vec<Batch> = Vec::new();
        for taken in taken {
            // What stays in its row is in no segment.
            let said = rules.get(&taken.policy).copied().filter(|_| taken.inline.is_none());
            let Rule { class, disks } = said.unwrap_or_default();
            let class = waits_for(class.map_or(volume, |class| class.max(volume)));
            match batches.iter_mut().find(|batch| (batch.class, batch.disks) == (class, disks)) {
                Some(batch) => batch.taken.push(taken),
                None => batches.push(Batch { class, disks, taken: vec![taken] }),
            }
        }
        batches.sort_by_key(|batch| batch.class);
        batches
    }
}

#[cfg(test)]
mod tests {
    use forebay_cluster::Lease;
    use forebay_protocol::Response;

    use super::*;

    const POLICY: PolicyId = PolicyId(1);

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Does {
        Tells(Disks),
        Fails,
        /// Until it does something else.
        Hangs,
    }

    struct Owner {
        does: Mutex<(Does, u32)>,
        changed: Condvar,
    }

    impl Owner {
        fn new(does: Does) -> (Arc<Owner>, Arc<dyn Asks>) {
            let owner = Arc::new(Owner { does: Mutex::new((does, 0)), changed: Condvar::new() });
            (Arc::clone(&owner), owner)
        }

        fn set(&self, does: Does) {
            self.does.lock().0 = does;
            self.changed.notify_all();
        }

        fn asked(&self) -> u32 {
            self.does.lock().1
        }

        /// Waits until it was asked so often.
        fn wait_asked(&self, times: u32) {
            let mut does = self.does.lock();
            self.changed.wait_while(&mut does, |does| does.1 < times);
        }
    }

    impl Asks for Owner {
        fn ask(&self, _: Operation, _: Option<Lease>) -> Result<Response, ClientError> {
            let mut does = self.does.lock();
            does.1 += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut does, |does| does.0 == Does::Hangs);
            let Does::Tells(disks) = does.0 else { return Err(ClientError::TimedOut(KNOWN_FOR)) };
            let rule = PolicyRule { policy: POLICY, class: Some(SyncClass::Replica(2)), disks };
            Ok(Response { answer: Answer::Rules(vec![rule]), grants: Vec::new() })
        }

        fn session(&self) -> u64 {
            1
        }

        fn ask_in(&self, _: u64, op: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
            self.ask(op, wish)
        }
    }

    /// What a read finds, which must not wait.
    fn read_without_waiting(classes: &Arc<Classes>, asks: &Arc<dyn Asks>) -> Disks {
        let (classes, asks) = (Arc::clone(classes), Arc::clone(asks));
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(classes.disks(&asks, POLICY)));
        told.recv_timeout(Duration::from_secs(60)).expect("the read waits for the owner")
    }

    #[test]
    fn reads_go_by_what_was_told_last_while_the_owner_is_away() {
        let (owner, asks) = Owner::new(Does::Tells(Disks::Members));
        let classes = Arc::<Classes>::default();
        assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::Members, 1));
        assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::Members, 1), "it is known");
        classes.forget();
        owner.set(Does::Hangs);
        for _ in 0..8 {
            assert_eq!(read_without_waiting(&classes, &asks), Disks::Members);
        }
        owner.wait_asked(2);
        assert_eq!(owner.asked(), 2, "one asks, beside them all");
        // What it says when it is back counts.
        owner.set(Does::Tells(Disks::Any));
        while *classes.renewal.lock() != Renewal::None {
            thread::yield_now();
        }
        assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::Any, 2));
        // And at once for who reads after a pause, while it answers.
        owner.set(Does::Tells(Disks::None));
        classes.forget();
        assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::None, 3));
    }

    #[test]
    fn who_did_not_answer_is_not_asked_again_by_each_read() {
        let (owner, asks) = Owner::new(Does::Fails);
        let classes = Arc::<Classes>::default();
        for _ in 0..3 {
            assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::None, 1), "nothing is known");
        }
        classes.forget();
        owner.set(Does::Tells(Disks::Members));
        assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::Members, 2));
        classes.forget();
        owner.set(Does::Fails);
        for _ in 0..3 {
            assert_eq!((classes.disks(&asks, POLICY), owner.asked()), (Disks::Members, 3));
        }
        // A writer promises the most then, and does not wait either.
        let rule = classes.of(asks.as_ref(), vec![POLICY])[&POLICY];
        assert_eq!(rule, Rule { class: Some(SyncClass::Object), disks: Disks::Members });
        assert_eq!(owner.asked(), 3);
    }
}
