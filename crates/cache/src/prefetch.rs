use std::{
    collections::VecDeque,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

use crate::{CHUNK_BYTES, CacheError, Fetch, cache::Shared, key::Object, read::Purpose};

/// Largest request that is made ahead of a reader, in chunks: 2 MiB, so that a window of 32 MiB keeps twelve threads busy, and these hold 24 MiB.
const REQUEST_CHUNKS: u32 = (2 << 20) / CHUNK_BYTES as u32;

/// A range to read ahead, at most one request long.
struct Job {
    object: Object,
    chunks: Range<u32>,
}

/// What waits to be read ahead. Bytes are held only by the threads: one request each.
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    ready: Condvar,
    limit: usize,
}

struct Jobs {
    waiting: VecDeque<Job>,
    stopping: bool,
}

impl Queue {
    pub(crate) fn new(limit: usize) -> Queue {
        let jobs = Mutex::new(Jobs { waiting: VecDeque::new(), stopping: false });
        Queue { jobs, ready: Condvar::new(), limit }
    }

    pub(crate) fn len(&self) -> u64 {
        self.jobs.lock().waiting.len() as u64
    }

    /// False if there is no room or no thread any more.
    fn push(&self, job: Job) -> bool {
        let mut jobs = self.jobs.lock();
        let room = !jobs.stopping && jobs.waiting.len() < self.limit;
        if room {
            jobs.waiting.push_back(job);
            self.ready.notify_one();
        }
        room
    }

    /// The next job, waited for; `None` when it is time to stop.
    fn pop(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.stopping {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            self.ready.wait(&mut jobs);
        }
    }

    fn stop(&self) {
        let mut jobs = self.jobs.lock();
        jobs.stopping = true;
        jobs.waiting.clear();
        self.ready.notify_all();
    }
}

/// The threads that read ahead.
pub(crate) struct Executor {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    pub(crate) fn start<F: Fetch>(shared: &Arc<Shared<F>>, count: usize) -> Result<Executor, CacheError> {
        let executor = Executor { threads: Mutex::new(Vec::new()) };
        for _ in 0..count {
            let worker = shared.clone();
            let work = move || {
                forebay_env::threads::unbind();
                worker.read_ahead();
            };
            match thread::Builder::new().name("forebay-ahead".to_owned()).spawn(work) {
                Ok(thread) => executor.threads.lock().push(thread),
                Err(source) => {
                    executor.stop(&shared.queue);
                    return Err(CacheError::Thread { source });
                }
            }
        }
        if count == 0 {
            shared.queue.stop();
        }
        Ok(executor)
    }

    /// Ends the threads, each after the request it is making.
    pub(crate) fn stop(&self, queue: &Queue) {
        queue.stop();
        for thread in self.threads.lock().drain(..) {
            // It has caught and logged any panic of the fetch.
            let _ = thread.join();
        }
    }
}

impl<F: Fetch> Shared<F> {
    /// Queues `range`, which `object` holds, in parts of one request.
    pub(crate) fn queue_ahead(&self, object: Object, range: &Range<u64>) {
        let mut chunks = object.chunks(range);
        while !chunks.is_empty() {
            // Cut at multiples of the request, so that what follows a range adjoins what it left.
            let end = (chunks.start + 1).next_multiple_of(REQUEST_CHUNKS).min(chunks.end);
            if !self.queue.push(Job { object, chunks: chunks.start..end }) {
                self.counters.prefetch_dropped.add(1);
            }
            chunks.start = end;
        }
    }

    /// Works until the queue is stopped.
    fn read_ahead(&self) {
        while let Some(job) = self.queue.pop() {
            if catch_unwind(AssertUnwindSafe(|| self.fetch_ahead(&job))).is_err() {
                tracing::error!(object = %job.object.key, "the fetch for read-ahead panicked");
            }
        }
    }

    /// Fetches what is neither cached nor on its way now. A failure is only counted: the reader that needs the bytes tries again.
    fn fetch_ahead(&self, job: &Job) {
        let purpose = Purpose { wanted: None, narrow: false, trust: true, request_chunks: REQUEST_CHUNKS };
        let plan = self.plan(job.object, job.chunks.clone(), purpose);
        plan.owned.iter().for_each(|flight| self.fly(flight));
    }
}
