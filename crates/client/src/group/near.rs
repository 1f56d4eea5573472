//! How near the groups of a volume are, where it has several: each member of each is measured, over a connection of its own beside those that carry data, and what is found decides
//! which group is gone by.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_group::{GroupId, MemberId, MemberState};
use forebay_protocol::{Kind, Message, group::Greet};
use forebay_rpc::{
    Address, Client, ClientConfig,
    connection::{CallError, Outgoing},
    wire::Code,
};
use parking_lot::Mutex;
use tokio::{
    runtime::Runtime,
    sync::Notify,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    Reader, Shared,
    choice::{Candidate, Choice, FIRST_WITHIN, MEASURED_EVERY},
    groups::{Groups, Known},
};

/// How long a member may take to answer, and to let this client in.
const ANSWER_MS: u32 = 1_000;
const GREET_MS: u32 = 5_000;
const REPLY_MAX: u32 = 4096;
/// How soon a member is measured again that failed somebody, and how soon one that did not answer.
const AGAIN: Duration = Duration::from_millis(500);
const FAILED_EVERY: Duration = Duration::from_secs(2);
/// How often a member is measured the first time: all others are as well, and wait for each other.
const FIRST: u32 = 3;

/// What is measured, and what follows from it.
pub(super) struct Near {
    choice: Mutex<Choice>,
    probes: Mutex<Probes>,
}

impl Default for Near {
    fn default() -> Near {
        Near { choice: Mutex::new(Choice::new(Instant::now())), probes: Mutex::default() }
    }
}

/// A task for each member, as long as there are several groups.
#[derive(Default)]
struct Probes {
    runtime: Option<Runtime>,
    tasks: BTreeMap<(GroupId, MemberId), Probe>,
}

struct Probe {
    at: Address,
    /// It is to be measured at once.
    soon: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Near {
    /// A group of those that may be gone by: the chosen one, else the nearest that answers.
    pub(super) fn nearest(&self, may: impl Fn(GroupId) -> bool) -> Option<GroupId> {
        self.choice.lock().nearest(Instant::now(), may)
    }

    /// How long a group takes to answer, where it is measured.
    pub(super) fn round_trip(&self, group: GroupId) -> Option<Duration> {
        self.choice.lock().round_trip(group, Instant::now())
    }

    /// Has all members measured at once.
    fn measure_all_soon(&self) {
        self.probes.lock().tasks.values().for_each(|probe| probe.soon.notify_one());
    }

    /// Has a member measured at once, if it is measured at all.
    pub(super) fn measure_soon(&self, group: GroupId, member: MemberId) {
        if let Some(probe) = self.probes.lock().tasks.get(&(group, member)) {
            probe.soon.notify_one();
        }
    }
}

impl Shared {
    /// These are the groups from now on, in the volume's order.
    pub(super) fn go_by(self: &Arc<Self>, all: Vec<Arc<Known>>) {
        let groups: Vec<_> = all.iter().map(|known| (known.id, candidates(known))).collect();
        let due = {
            let mut choice = self.near.choice.lock();
            choice.follow(&groups, Instant::now());
            self.choose(&mut choice, Some(all));
            choice.is_due()
        };
        self.measure_all(&self.groups(), due);
    }

    /// Goes by the group that is to be gone by as things are now.
    fn choose(&self, choice: &mut Choice, all: Option<Vec<Arc<Known>>>) {
        let (before, chosen) = (self.groups(), choice.choose(Instant::now()));
        let was = before.chosen().map(|known| known.id);
        let all = match all {
            Some(all) => all,
            None if was == chosen => return,
            None => before.all().to_vec(),
        };
        if all.len() > 1 && was != chosen {
            match all.iter().find(|known| Some(known.id) == chosen) {
                Some(known) => {
                    tracing::info!("it is read through and written over the group '{}' now", known.name)
                }
                None => {
                    tracing::warn!("of its groups none answers: it is read from the store and written to it")
                }
            }
        }
        if was.is_some() && chosen != was {
            // Who answered a while ago may be as far away by now as what is left.
            self.near.measure_all_soon();
        }
        *self.groups.write() = Arc::new(Groups::new(all, chosen));
    }

    /// A member answered after this time, or did not.
    fn measured(&self, (group, member): (GroupId, MemberId), took: Option<Duration>) {
        let mut choice = self.near.choice.lock();
        match took {
            Some(took) => choice.answered(group, member, took, Instant::now()),
            None => choice.failed(group, member),
        }
        self.choose(&mut choice, None);
    }

    /// Begins to measure who is new, and ends it for who is gone. `due`: the first choice is made after a while, whoever has answered by then.
    fn measure_all(self: &Arc<Self>, groups: &Groups, due: bool) {
        let mut probes = self.near.probes.lock();
        let Probes { runtime, tasks } = &mut *probes;
        if groups.all().len() < 2 {
            tasks.clear();
            // It is not waited for its thread, which may be in the middle of something.
            if let Some(runtime) = runtime.take() {
                runtime.shutdown_background();
            }
            return;
        }
        if runtime.is_none() {
            *runtime = start();
        }
        let Some(runtime) = runtime else { return };
        let mut stay = BTreeMap::new();
        for known in groups.all() {
            for (member, link) in &known.links {
                let id = (known.id, *member);
                let same = tasks.remove(&id).filter(|probe| probe.at == link.at);
                stay.insert(id, same.unwrap_or_else(|| self.begin(runtime, id, &link.at)));
            }
        }
        *tasks = stay;
        if !due {
            return;
        }
        let shared = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep(FIRST_WITHIN).await;
            if let Some(shared) = shared.upgrade() {
                let mut choice = shared.near.choice.lock();
                shared.choose(&mut choice, None);
            }
        });
    }

    fn begin(self: &Arc<Self>, runtime: &Runtime, id: (GroupId, MemberId), at: &Address) -> Probe {
        let config = ClientConfig::new(vec![at.clone()], self.reader.security.clone());
        let client = Client::within(runtime.handle(), config, None);
        let soon = Arc::new(Notify::new());
        let (shared, reader) = (Arc::downgrade(self), self.reader.clone());
        let task = runtime.spawn(measure(shared, reader, client, id, Arc::clone(&soon)));
        Probe { at: at.clone(), soon, task: task.abort_handle() }
    }
}

fn start() -> Option<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("forebay-near").on_thread_start(forebay_env::threads::unbind);
    let started = builder.enable_all().build();
    let warn = |error: &std::io::Error| {
        tracing::warn!("no thread measures which group is near, the first one is gone by: {error}");
    };
    started.inspect_err(warn).ok()
}

fn candidates(known: &Known) -> Vec<Candidate> {
    let candidate = |(id, member): (&MemberId, &forebay_group::Member)| Candidate {
        member: *id,
        active: member.state == MemberState::Active,
        here: known.here.contains(id),
    };
    known.view.members.iter().map(candidate).collect()
}

/// Measures a member again and again.
async fn measure(
    shared: Weak<Shared>,
    reader: Reader,
    client: Client,
    id: (GroupId, MemberId),
    soon: Arc<Notify>,
) {
    // From the second time on members are measured one after the other: of many at the same time, some would wait for others.
    let mut pause = MEASURED_EVERY.mul_f64(f64::from(id.1.0[0]) / 256.0);
    let mut greeted = false;
    let mut times = FIRST;
    loop {
        let mut took = round_trip(&client, &reader, id.0, &mut greeted).await;
        while times > 1 && took.is_ok() {
            times -= 1;
            let again = ask(&client).await;
            took = again.and_then(|again| took.map(|took| took.min(again)));
        }
        times = 1;
        if let Err(why) = &took {
            tracing::debug!(member = %id.1, "a member is not near: {why}");
        }
        let Some(shared) = shared.upgrade() else { return };
        let answers = took.is_ok();
        shared.measured(id, took.ok());
        drop(shared);
        sleep(AGAIN).await;
        // Whoever it fails says so.
        let pause_now = if answers { pause } else { pause.min(FAILED_EVERY) };
        let _asked = timeout(pause_now, soon.notified()).await;
        pause = MEASURED_EVERY.saturating_sub(AGAIN);
    }
}

/// How long a member takes to answer nothing to nothing, once it has let this client in.
async fn round_trip(
    client: &Client,
    reader: &Reader,
    group: GroupId,
    greeted: &mut bool,
) -> Result<Duration, CallError> {
    if !*greeted {
        greet(client, reader, group).await?;
        *greeted = true;
    }
    let mut asked = ask(client).await;
    // Over another connection than before it is a stranger.
    if matches!(&asked, Err(CallError::Refused(refusal)) if refusal.code == Code::DENIED) {
        *greeted = false;
        greet(client, reader, group).await?;
        *greeted = true;
        asked = ask(client).await;
    }
    asked
}

async fn ask(client: &Client) -> Result<Duration, CallError> {
    let began = Instant::now();
    match call(client, (Kind::Near, Bytes::new()), ANSWER_MS).await {
        // One of an older release answers, too.
        Err(CallError::Refused(refusal)) if refusal.code == Code::UNSUPPORTED => {}
        asked => asked?,
    }
    Ok(began.elapsed())
}

async fn greet(client: &Client, reader: &Reader, group: GroupId) -> Result<(), CallError> {
    let Reader { id, token, client: name, .. } = reader.clone();
    let greet = Greet { group, volume: id, token, client: name };
    call(client, (Kind::Greet, greet.encode().into()), GREET_MS).await
}

async fn call(client: &Client, (kind, body): (Kind, Bytes), deadline_ms: u32) -> Result<(), CallError> {
    let (kind, bulk) = (kind as u16, Bytes::new());
    client.call(Outgoing { kind, body, bulk, deadline_ms, reply_max: REPLY_MAX }).await.map(drop)
}
