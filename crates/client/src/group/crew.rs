//! Threads for calls of which several are waited for at the same time. They begin when they are needed, and stay a while.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// How long a thread waits for the next call.
const STAYS_FOR: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits, by its number.
type Idle = (u64, SyncSender<Job>);

#[derive(Debug, Default)]
struct Threads {
    idle: Vec<Idle>,
    begun: u64,
    busy: usize,
}

#[derive(Debug, Default)]
struct Shared {
    threads: Mutex<Threads>,
    /// A call ended.
    ended: Condvar,
}

/// The threads of one volume. They end by themselves when there is nothing to do.
#[derive(Debug, Default)]
pub(super) struct Crew(Arc<Shared>);

impl Crew {
    /// Has something done by another thread.
    ///
    /// # Errors
    /// When there can be no thread: it is not done.
    pub(super) fn put(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let mut job: Job = Box::new(job);
        let idle = {
            let mut threads = self.0.threads.lock();
            threads.busy += 1;
            threads.idle.pop()
        };
        if let Some((_, thread)) = idle {
            // It took its name off the list before it would have gone.
            match thread.send(job) {
                Ok(()) => return Ok(()),
                Err(unsent) => job = unsent.0,
            }
        }
        let begun = self.begin(job);
        if begun.is_err() {
            self.0.done();
        }
        begun
    }

    fn begin(&self, first: Job) -> std::io::Result<()> {
        let number = {
            let mut threads = self.0.threads.lock();
            threads.begun += 1;
            threads.begun
        };
        let (tell, jobs) = sync_channel(1);
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("forebay-member".to_owned());
        thread.spawn(move || shared.work(number, first, (&tell, &jobs))).map(drop)
    }

    /// Waits until nothing is under way, for so long at most.
    pub(super) fn rest(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut threads = self.0.threads.lock();
        while threads.busy > 0 && !self.0.ended.wait_until(&mut threads, until).timed_out() {}
    }
}

/// A call is over, however it ended.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl Shared {
    fn done(&self) {
        self.threads.lock().busy -= 1;
        self.ended.notify_all();
    }

    fn work(&self, number: u64, first: Job, (tell, jobs): (&SyncSender<Job>, &Receiver<Job>)) {
        let mut next = Some(first);
        while let Some(job) = next {
            {
                let _done = Done(self);
                job();
            }
            self.threads.lock().idle.push((number, tell.clone()));
            next = match jobs.recv_timeout(STAYS_FOR) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) if self.leaves(number) => None,
                // Somebody has it in hand: the call is on its way.
                Err(_) => jobs.recv().ok(),
            };
        }
    }

    /// Takes a thread off the list; `false` where somebody was faster.
    fn leaves(&self, number: u64) -> bool {
        let mut threads = self.threads.lock();
        let at = threads.idle.iter().position(|(other, _)| *other == number);
        at.map(|at| threads.idle.swap_remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn calls_go_on_at_the_same_time_and_threads_are_used_again() {
        let crew = Crew::default();
        let (tell, heard) = channel();
        for round in 0..20 {
            // Each waits for the other.
            let (to, from) = (channel(), channel());
            let (one, other) = (tell.clone(), tell.clone());
            crew.put(move || {
                to.0.send(()).unwrap();
                from.1.recv().unwrap();
                one.send(round).unwrap();
            })
            .unwrap();
            crew.put(move || {
                to.1.recv().unwrap();
                from.0.send(()).unwrap();
                other.send(round).unwrap();
            })
            .unwrap();
            assert_eq!((heard.recv().unwrap(), heard.recv().unwrap()), (round, round));
            crew.rest(Duration::from_secs(60));
        }
        assert_eq!(crew.0.threads.lock().busy, 0);
        let waits = || crew.0.threads.lock().begun;
        assert!(waits() < 20, "{} threads", waits());
    }

    #[test]
    fn a_call_that_panics_is_over() {
        let crew = Crew::default();
        crew.put(|| panic!("as the test wants it")).unwrap();
        crew.rest(Duration::from_secs(60));
        assert_eq!(crew.0.threads.lock().busy, 0);
    }
}
