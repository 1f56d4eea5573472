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

use forebay_group::GroupId;
use forebay_meta::Inode;
use forebay_protocol::{Answer, Bounds, Disks, GroupRule, Operation, POLICIES_MAX, PolicyRule};
use forebay_types::{PolicyId, SyncClass};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::{Contents, Shared, SharedMembers, Within, WriteGroup, file::Taken};
use crate::{Asks, ClientError};

/// How long what was asked counts, and for how long nobody is asked again who did not answer: a class that is lower now is made use of that much later.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// How long those who read wait for what is asked beside them.
const BESIDE_WITHIN: Duration = Duration::from_secs(1);

/// What a policy says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Rule {
    class: Option<SyncClass>,
    /// Where bytes may be; `None`: nothing is said of it.
    bounds: Option<Arc<Bounds>>,
}

/// What is known of a policy.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What was told last.
    rule: Option<Rule>,
    /// When that was asked for, and when nobody answered since, unless it is to be asked for again at once.
    asked: Option<Instant>,
    unheard: Option<Instant>,
    /// Which groups were known when it was asked for: of another one nothing was said.
    groups: Arc<[GroupId]>,
}

impl Known {
    /// What to go by where it is not told: the most that can be promised, and what was told of disks.
    fn unsure(&self) -> Rule {
        let bounds = self.rule.as_ref().map_or_else(|| Some(Arc::default()), |rule| rule.bounds.clone());
        Rule { class: Some(SyncClass::Object), bounds }
    }

    /// What counts without asking again, with these groups; `None` where it is to be asked for.
    fn counts(&self, groups: &[GroupId]) -> Option<Rule> {
        let counts = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < KNOWN_FOR);
        match &self.rule {
            Some(rule) if counts(self.asked) && *self.groups == *groups => Some(rule.clone()),
            _ => counts(self.unheard).then(|| self.unsure()),
        }
    }
}

/// What policies say, as the owner told it.
#[derive(Debug, Default)]
pub(super) struct Classes {
    members: SharedMembers,
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
    /// Nothing is known yet. `members` know of the volume's groups.
    pub(super) fn new(members: SharedMembers) -> Classes {
        Classes { members, ..Classes::default() }
    }

    /// What each of these policies says. Waits for what is not known, or old.
    fn of(&self, asks: &dyn Asks, mut policies: Vec<PolicyId>) -> FxHashMap<PolicyId, Rule> {
        let mut found = FxHashMap::default();
        found.insert(PolicyId::NONE, Rule::default());
        policies.sort_unstable();
        policies.dedup();
        let groups = self.groups();
        let known = self.known.lock();
        found.extend(policies.iter().filter_map(|id| Some((*id, known.get(id)?.counts(&groups)?))));
        drop(known);
        policies.retain(|id| !found.contains_key(id));
        for some in policies.chunks(POLICIES_MAX) {
            found.extend(self.ask(asks, some));
        }
        found
    }

    /// Where what goes by a policy may be; `None`: nothing is said of it. Waits for the owner where nothing was ever told; what is old is asked anew beside.
    fn bounds(self: &Arc<Self>, asks: &Arc<dyn Asks>, policy: PolicyId) -> Option<Arc<Bounds>> {
        let known = || self.known.lock().get(&policy).cloned().unwrap_or_default();
        if let Some(rule) = known().counts(&self.groups()) {
            return rule.bounds;
        }
        if known().rule.is_none() {
            let rule = self.of(asks.as_ref(), vec![policy]).remove(&policy);
            return rule.map_or_else(|| Some(Arc::default()), |rule| rule.bounds);
        }
        let until = Instant::now() + BESIDE_WITHIN;
        let mut renewal = self.renewal.lock();
        while known().counts(&self.groups()).is_none() && *renewal != Renewal::Late {
            if *renewal == Renewal::None {
                *renewal = self.renew(asks);
            } else if self.ended.wait_until(&mut renewal, until).timed_out() && *renewal == Renewal::Asked {
                *renewal = Renewal::Late;
                self.ended.notify_all();
            }
        }
        known().unsure().bounds
    }

    /// Asks what these say, and waits for it as long as the mount's options say.
    fn ask(&self, asks: &dyn Asks, policies: &[PolicyId]) -> Vec<(PolicyId, Rule)> {
        let (asked, groups) = (Some(Instant::now()), self.groups());
        // Who says the same of all groups goes by the least of them. An owner of an older release knows of one group alone, and does not know the other question.
        let question = match groups.len() {
            0 | 1 => Operation::Classes(policies.to_vec()),
            _ => Operation::GroupRules(policies.to_vec()),
        };
        match asks.ask(question, None).map(|response| rules(response.answer, policies, &groups)) {
            Ok(Ok(told)) => {
                let mut known = self.known.lock();
                let learn = |id: &PolicyId| {
                    // What is not named is said nothing of: the most that it could.
                    let rule = told.get(id).cloned().unwrap_or_else(|| Known::default().unsure());
                    let (told, groups) = (Some(rule.clone()), Arc::clone(&groups));
                    known.insert(*id, Known { rule: told, asked, unheard: None, groups });
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
                let unsure = |id: &PolicyId| known.get(id).cloned().unwrap_or_default().unsure();
                policies.iter().map(|id| (*id, unsure(id))).collect()
            }
        }
    }

    /// The groups that are known.
    fn groups(&self) -> Arc<[GroupId]> {
        self.members.as_ref().map(|members| members.groups()).unwrap_or_default()
    }

    /// Where bytes may be now that may be there.
    fn within(&self, bounds: Option<&Bounds>) -> Within {
        match (bounds, &self.members) {
            (None, _) => Within::Any,
            (Some(bounds), Some(members)) => members.within(bounds),
            (Some(bounds), None) if bounds.here => Within::Any,
            (Some(_), None) => Within::Nowhere,
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
        let groups = self.groups();
        let known = self.known.lock();
        let is_old = |known: &Known| known.rule.is_some() && known.counts(&groups).is_none();
        known.iter().filter(|(_, known)| is_old(known)).map(|(id, _)| *id).collect()
    }

    /// Where what goes by a policy may be, as far as is known that the store need not be waited for.
    fn less_than_store(&self, policy: PolicyId) -> Option<Within> {
        if policy == PolicyId::NONE {
            return Some(Within::Any);
        }
        let rule = self.known.lock().get(&policy).and_then(|known| known.rule.clone())?;
        (rule.class != Some(SyncClass::Object)).then(|| self.within(rule.bounds.as_deref()))
    }

    /// Something of it was old: it is asked for when it is needed next.
    pub(super) fn forget(&self) {
        let forget = |known: &mut Known| (known.asked, known.unheard) = (None, None);
        self.known.lock().values_mut().for_each(forget);
    }
}

/// What an answer says of these policies. What was said of all groups alike was said of those that were known: one that comes later may be barred.
fn rules(
    answer: Answer,
    policies: &[PolicyId],
    groups: &[GroupId],
) -> Result<FxHashMap<PolicyId, Rule>, Answer> {
    let bounds = |here| Arc::new(Bounds { here, groups: groups.to_vec() });
    let (any, members) = (bounds(true), bounds(false));
    match answer {
        Answer::Classes(told) => {
            // Those that are not named are of the volume's class.
            let rule = |class| Rule { class, bounds: Some(Arc::clone(&any)) };
            let mut all: FxHashMap<_, _> = policies.iter().map(|id| (*id, rule(None))).collect();
            all.extend(told.into_iter().map(|(id, class)| (id, rule(Some(class)))));
            Ok(all)
        }
        Answer::Rules(told) => {
            let bounds = |disks| match disks {
                Disks::Any => Arc::clone(&any),
                Disks::Members => Arc::clone(&members),
                Disks::None => Arc::default(),
            };
            let rule =
                |PolicyRule { policy, class, disks }| (policy, Rule { class, bounds: Some(bounds(disks)) });
            Ok(told.into_iter().map(rule).collect())
        }
        Answer::GroupRules(told) => {
            let rule = |GroupRule { policy, class, bounds }: GroupRule| {
                (policy, Rule { class, bounds: bounds.map(Arc::new) })
            };
            Ok(told.into_iter().map(rule).collect())
        }
        other => Err(other),
    }
}

/// Layers that go together: what `fsync` of them waits for, and where they may be.
pub(super) struct Batch {
    pub(super) class: SyncClass,
    pub(super) within: Within,
    /// The one policy by which that is so; none where they may be on any disk.
    pub(super) policy: PolicyId,
    pub(super) taken: Vec<Taken>,
}

impl Contents {
    /// Whether bytes of a file may be on a disk of this machine, by its policy, as far as is known; waits like a read.
    #[must_use]
    pub fn may_be_on_disk(&self, inode: &Inode) -> bool {
        self.shared.within(inode.row.policy) == Within::Any
    }
}

impl Shared {
    /// Whether what goes by a policy is to be in batches of its own: it waits for the store, while the volume does not. A guess, until it is taken.
    pub(super) fn waits_aside(&self, policy: PolicyId) -> bool {
        let Some(members) = &self.options.members else { return false };
        let over = |within| members.writes_over(within).is_some();
        over(Within::Any) && !self.classes.less_than_store(policy).is_some_and(over)
    }

    /// Where bytes of what goes by a policy may be, besides the store, as far as is known: for who reads.
    pub(super) fn within(&self, policy: PolicyId) -> Within {
        if policy == PolicyId::NONE {
            return Within::Any;
        }
        self.classes.within(self.classes.bounds(&self.asks, policy).as_deref())
    }

    /// What was taken, by what has to be waited for: the higher of what the volume and the file's policy say. What waits for less comes first: it does not wait for the
    /// store because of a neighbour. What may not be on all disks shares no object with what goes by another policy.
    pub(super) fn by_class(&self, taken: Vec<Taken>) -> Vec<Batch> {
        let any = self.least(Within::Any);
        if taken.iter().all(|taken| taken.policy == PolicyId::NONE) {
            let (within, policy) = (Within::Any, PolicyId::NONE);
            return vec![Batch { class: any.waits_for(None), within, policy, taken }];
        }
        let rules = self.classes.of(self.asks.as_ref(), taken.iter().map(|taken| taken.policy).collect());
        let bound: FxHashMap<PolicyId, (SyncClass, Within, PolicyId)> = rules
            .into_iter()
            .map(|(id, rule)| {
                let within = self.classes.within(rule.bounds.as_deref());
                let bound = match within {
                    Within::Any => (any.waits_for(rule.class), within, PolicyId::NONE),
                    _ => (self.least(within).waits_for(rule.class), within, id),
                };
                (id, bound)
            })
            .collect();
        let mut batches: Vec<Batch> = Vec::new();
        for taken in taken {
            // What stays in its row is in no segment.
            let said = bound.get(&taken.policy).copied().filter(|_| taken.inline.is_none());
            let (class, within, policy) = said.unwrap_or((any.waits_for(None), Within::Any, PolicyId::NONE));
            let same =
                |batch: &&mut Batch| (batch.class, batch.within, batch.policy) == (class, within, policy);
            match batches.iter_mut().find(same) {
                Some(batch) => batch.taken.push(taken),
                None => batches.push(Batch { class, within, policy, taken: vec![taken] }),
            }
        }
        batches.sort_by_key(|batch| batch.class);
        batches
    }

    /// What the volume says of what may be there.
    fn least(&self, within: Within) -> Least {
        let group = self.options.members.as_ref().and_then(|members| members.writes_over(within));
        let class = group.as_ref().and_then(|group| SyncClass::of_copies(group.copies));
        let here = group.is_some_and(|group: WriteGroup| !group.near.is_empty());
        Least { class: class.unwrap_or(SyncClass::Object), here }
    }
}

/// What `fsync` waits for at least where no policy says more, and whether a member of this machine could have the one copy of class `local`.
#[derive(Clone, Copy)]
struct Least {
    class: SyncClass,
    here: bool,
}

impl Least {
    /// What is waited for by what a policy says.
    fn waits_for(self, said: Option<SyncClass>) -> SyncClass {
        let class = said.map_or(self.class, |said| said.max(self.class));
        // Where there is no log on this machine, it is the store that is waited for.
        if class == SyncClass::Local && !self.here { SyncClass::Object } else { class }
    }
}

#[cfg(test)]
mod tests {
    use forebay_cluster::Lease;
    use forebay_protocol::Response;

    use super::*;

    const POLICY: PolicyId = PolicyId(1);

    const GROUP: GroupId = GroupId([1; 16]);

    /// As the owner of a volume with one group says it.
    fn bounds(disks: Disks) -> Option<Arc<Bounds>> {
        match disks {
            Disks::Any => None,
            Disks::Members => Some(Arc::new(Bounds { here: false, groups: vec![GROUP] })),
            Disks::None => Some(Arc::default()),
        }
    }

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
            let (class, bounds) =
                (Some(SyncClass::Replica(2)), bounds(disks).map(|bounds| (*bounds).clone()));
            let rule = GroupRule { policy: POLICY, class, bounds };
            Ok(Response { answer: Answer::GroupRules(vec![rule]), grants: Vec::new() })
        }

        fn session(&self) -> u64 {
            1
        }

        fn ask_in(&self, _: u64, op: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
            self.ask(op, wish)
        }
    }

    /// What a read finds, which must not wait.
    fn read_without_waiting(classes: &Arc<Classes>, asks: &Arc<dyn Asks>) -> Option<Arc<Bounds>> {
        let (classes, asks) = (Arc::clone(classes), Arc::clone(asks));
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || tell.send(classes.bounds(&asks, POLICY)));
        told.recv_timeout(Duration::from_secs(60)).expect("the read waits for the owner")
    }

    #[test]
    fn reads_go_by_what_was_told_last_while_the_owner_is_away() {
        let (owner, asks) = Owner::new(Does::Tells(Disks::Members));
        let classes = Arc::<Classes>::default();
        assert_eq!((classes.bounds(&asks, POLICY), owner.asked()), (bounds(Disks::Members), 1));
        assert_eq!(
            (classes.bounds(&asks, POLICY), owner.asked()),
            (bounds(Disks::Members), 1),
            "it is known"
        );
        classes.forget();
        owner.set(Does::Hangs);
        for _ in 0..8 {
            assert_eq!(read_without_waiting(&classes, &asks), bounds(Disks::Members));
        }
        owner.wait_asked(2);
        assert_eq!(owner.asked(), 2, "one asks, beside them all");
        // What it says when it is back counts.
        owner.set(Does::Tells(Disks::Any));
        while *classes.renewal.lock() != Renewal::None {
            thread::yield_now();
        }
        assert_eq!((classes.bounds(&asks, POLICY), owner.asked()), (bounds(Disks::Any), 2));
        // And at once for who reads after a pause, while it answers.
        owner.set(Does::Tells(Disks::None));
        classes.forget();
        assert_eq!((classes.bounds(&asks, POLICY), owner.asked()), (bounds(Disks::None), 3));
    }

    #[test]
    fn who_did_not_answer_is_not_asked_again_by_each_read() {
        let (owner, asks) = Owner::new(Does::Fails);
        let classes = Arc::<Classes>::default();
        for _ in 0..3 {
            assert_eq!(
                (classes.bounds(&asks, POLICY), owner.asked()),
                (bounds(Disks::None), 1),
                "nothing is known"
            );
        }
        classes.forget();
        owner.set(Does::Tells(Disks::Members));
        assert_eq!((classes.bounds(&asks, POLICY), owner.asked()), (bounds(Disks::Members), 2));
        classes.forget();
        owner.set(Does::Fails);
        for _ in 0..3 {
            assert_eq!((classes.bounds(&asks, POLICY), owner.asked()), (bounds(Disks::Members), 3));
        }
        // A writer promises the most then, and does not wait either.
        let rule = classes.of(asks.as_ref(), vec![POLICY]).remove(&POLICY);
        assert_eq!(rule, Some(Rule { class: Some(SyncClass::Object), bounds: bounds(Disks::Members) }));
        assert_eq!(owner.asked(), 3);
    }

    /// What was said of all groups alike is said of those that were known: who knows of one more by now asks again.
    #[test]
    fn what_was_said_of_all_groups_holds_for_those_that_were_known() {
        let said = |answer| rules(answer, &[POLICY], &[GROUP]).unwrap().remove(&POLICY).unwrap();
        let of_groups = |here| Some(Arc::new(Bounds { here, groups: vec![GROUP] }));
        let classes = Answer::Classes(vec![(POLICY, SyncClass::Replica(2))]);
        assert_eq!(said(classes), Rule { class: Some(SyncClass::Replica(2)), bounds: of_groups(true) });
        assert_eq!(said(Answer::Classes(Vec::new())), Rule { class: None, bounds: of_groups(true) });
        for (disks, bounds) in [
            (Disks::Any, of_groups(true)),
            (Disks::Members, of_groups(false)),
            (Disks::None, Some(Arc::default())),
        ] {
            let rule = PolicyRule { policy: POLICY, class: None, disks };
            assert_eq!(said(Answer::Rules(vec![rule])), Rule { class: None, bounds });
        }
        assert!(rules(Answer::Done, &[POLICY], &[]).is_err());
    }
}
