//! All queues of a mount: how they begin, are paused, gone on with, and end.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;

use super::files::LastFiles;
use super::{Begin, Gate, KeptQueue, Plan, Queue, errno};
use crate::device::Device;
use crate::dispatch::Dispatcher;
use crate::fs::Filesystem;
use crate::ring::Slot;
use crate::session::deference::{Callers, Deference};
use crate::session::pause::{Knock, Part, PartState, PauseError};
use crate::session::processors::{is_online, may_run_on, possible};

/// All queues of a mount.
pub(in crate::session) struct Queues<F: ?Sized> {
    part: Arc<Queued<F>>,
    queues: Vec<Arc<Queue<F>>>,
    gate: Arc<Gate>,
}

/// What became of serving.
pub(in crate::session) struct Served {
    /// The mount has ended.
    pub(in crate::session) ended: bool,
    pub(in crate::session) kept: Vec<KeptQueue>,
}

impl<F: Filesystem + ?Sized> Queues<F> {
    /// Registers an entry with each queue. Nothing is served before [`Queues::open`].
    ///
    /// Errors: what ended the first thread that could not begin; the connection is of no use then, since the kernel
    /// waits for rings that never come.
    pub(in crate::session) fn register(
        dispatcher: &Arc<Dispatcher<F>>,
        device: &Arc<Device>,
        plan: Plan,
    ) -> io::Result<Queues<F>> {
        let fresh = (0..possible()?).map(|_| KeptQueue::default()).collect();
        let (queues, _) = Queues::new(dispatcher, device, plan, fresh);
        for queue in &queues.queues {
            if let Err(error) = queue.start(Begin::Entry) {
                queues.gate.state.lock().failed.get_or_insert(errno(&error));
                queues.gate.changed.notify_all();
                break;
            }
        }
        let mut phase = queues.gate.state.lock();
        while phase.registered < queues.queues.len() && phase.failed.is_none() {
            queues.gate.changed.wait(&mut phase);
        }
        let failed = phase.failed;
        drop(phase);
        if let Some(error) = failed {
            // Nobody has passed the gate, so all end.
            queues.join().ok();
            return Err(error.into());
        }
        Ok(queues)
    }

    /// Goes on with queues that were paused, which may have been another process's. Serves at once.
    pub(in crate::session) fn go_on(
        dispatcher: &Arc<Dispatcher<F>>,
        device: &Arc<Device>,
        plan: Plan,
        kept: Vec<KeptQueue>,
    ) -> Queues<F> {
        let (queues, slots) = Queues::new(dispatcher, device, plan, kept);
        queues.open();
        for (queue, slots) in queues.queues.iter().zip(slots) {
            queue.state.lock().kept = slots;
            queue.restart();
        }
        queues
    }

    fn new(
        dispatcher: &Arc<Dispatcher<F>>,
        device: &Arc<Device>,
        plan: Plan,
        kept: Vec<KeptQueue>,
    ) -> (Queues<F>, Vec<Vec<Slot>>) {
        let plan = Arc::new(plan);
        let gate = Arc::new(Gate::default());
        let callers = Arc::new(Callers::default());
        let files = Arc::new(LastFiles::new(kept.len()));
        let queue = |number: usize, nudges| {
            Arc::new(Queue {
                dispatcher: Arc::clone(dispatcher),
                device: Arc::clone(device),
                number: u16::try_from(number).unwrap_or(u16::MAX),
                plan: Arc::clone(&plan),
                waiting: AtomicUsize::new(0),
                nudges: AtomicU64::new(nudges),
                nudged: AtomicU64::new(0),
                sent: AtomicU64::new(0),
                abandoned: AtomicBool::new(false),
                files: Arc::clone(&files),
                deference: Deference::new(Arc::clone(&callers)),
                state: Mutex::default(),
                changed: Condvar::new(),
                gate: Arc::clone(&gate),
            })
        };
        let (mut queues, mut slots) = (Vec::with_capacity(kept.len()), Vec::with_capacity(kept.len()));
        for (number, kept) in kept.into_iter().enumerate() {
            queues.push(queue(number, kept.nudges));
            slots.push(kept.slots);
        }
        (
            Queues {
                part: Arc::new(Queued { queues: queues.clone(), gate: Arc::clone(&gate) }),
                queues,
                gate,
            },
            slots,
        )
    }

    /// What a pause stops.
    pub(in crate::session) fn part(&self) -> Weak<dyn Part> {
        let part: Arc<dyn Part> = Arc::clone(&self.part) as Arc<dyn Part>;
        Arc::downgrade(&part)
    }

    /// How many there are.
    pub(in crate::session) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Lets requests be served.
    pub(in crate::session) fn open(&self) {
        let _phase = self.gate.state.lock();
        self.gate.open.store(true, Ordering::Release);
        self.gate.changed.notify_all();
    }

    /// Waits until the mount has ended or was paused, and all threads have ended; the first error of one of them.
    pub(in crate::session) fn join(self) -> Result<Served, Os> {
        let undecided = || self.queues.first().is_some_and(|queue| queue.plan.pause.is_undecided());
        let mut phase = self.gate.state.lock();
        while phase.running > 0 || undecided() {
            self.gate.changed.wait(&mut phase);
        }
        if let Some(error) = phase.failed {
            return Err(error);
        }
        let kept = |queue: &Arc<Queue<F>>| KeptQueue {
            slots: std::mem::take(&mut queue.state.lock().kept),
            nudges: queue.nudges.load(Ordering::Relaxed),
        };
        Ok(Served { ended: phase.ended, kept: self.queues.iter().map(kept).collect() })
    }
}

/// All queues, as a pause sees them.
struct Queued<F: ?Sized> {
    queues: Vec<Arc<Queue<F>>>,
    gate: Arc<Gate>,
}

impl<F: Filesystem + ?Sized> Part for Queued<F> {
    fn stop(&self, mut knock: Option<&mut Knock<'_>>) {
        let own = rustix::thread::sched_getaffinity(None);
        for queue in &self.queues {
            queue.stop(knock.as_deref_mut());
        }
        if let Ok(own) = own
            && let Err(error) = rustix::thread::sched_setaffinity(None, &own)
        {
            tracing::debug!("this thread stays on one processor: {error}");
        }
    }

    fn state(&self) -> PartState {
        let phase = self.gate.state.lock();
        match phase.running {
            0 if phase.ended => PartState::Ended,
            0 => PartState::Stopped,
            _ => PartState::Running,
        }
    }

    fn obstacle(&self) -> Option<PauseError> {
        let unreachable = |queue: &&Arc<Queue<F>>| {
            queue.state.lock().threads > 0 && is_online(queue.number) && !may_run_on(queue.number)
        };
        self.queues.iter().find(unreachable).map(|queue| PauseError::Unreachable(queue.number))
    }

    fn go_on(self: Arc<Self>) {
        self.queues.iter().for_each(|queue| queue.restart());
    }

    fn decided(&self) {
        let _phase = self.gate.state.lock();
        self.gate.changed.notify_all();
    }
}
