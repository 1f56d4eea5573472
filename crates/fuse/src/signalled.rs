//! Signals to callers of which the kernel does not tell.
//!
//! A signal to who waits for an answer is told by INTERRUPT if the request was handed over by then. One that came before is told when the request is
//! read from a descriptor (`fuse_dev_do_read`), but not when it is copied to a ring (`fuse_uring_prepare_send` sets `FR_SENT` without a look at
//! `FR_INTERRUPTED`; Linux 6.14 to 6.18 at least). The caller is past its interruptible wait then, so no later signal is told either, and not even
//! SIGKILL ends the wait for a lock that another keeps.
//!
//! A signal that was not told came before the request did, so it is enough to look where the caller waits once its request is here. In its first wait (`S`) it has left none behind, and one from now
//! on is told. In its second one (`D`) it has been signalled: only the caller itself takes that mark away, so an answer EINTR, which the kernel makes ERESTARTSYS, always comes to a handler or a
//! restart. Whether the signal is still to be seen among the pending ones does not matter: another thread may have taken it. Until it waits (`R`), it is looked at again.
//!
//! Callers that are not known are not looked at: those outside the process id namespace of the mount, and those that `/proc` does not show.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::request::Request;

/// How long a caller is given to get to its wait before it is looked at again.
const AGAIN: Duration = Duration::from_millis(1);

/// What a look at a caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It has left its interruptible wait.
    Signalled,
    /// It waits, and hears of signals from now on; or it is not known.
    Waits,
    /// It has not come to its wait yet.
    Unclear,
}

/// A caller, and what is to be done if it was signalled.
struct Watched {
    caller: Request,
    /// Whether it still waits for its answer.
    is_owed: Box<dyn Fn() -> bool + Send>,
    interrupt: Box<dyn FnOnce() + Send>,
}

/// Those that have not come to their wait yet.
#[derive(Default)]
struct State {
    watched: Vec<Watched>,
    /// A thread looks at them.
    running: bool,
}

/// Looks at callers until they wait.
#[derive(Default)]
pub(crate) struct Signalled(Arc<Mutex<State>>);

impl Signalled {
    /// Looks at a caller whose request is here and has no answer yet, now or soon by another thread, and calls `interrupt` if it was signalled before.
    pub(crate) fn watch(
        &self,
        caller: &Request,
        is_owed: impl Fn() -> bool + Send + 'static,
        interrupt: impl FnOnce() + Send + 'static,
    ) {
        if look(caller) == Look::Waits {
            return;
        }
        let mut state = self.0.lock();
        let (is_owed, interrupt) = (Box::new(is_owed), Box::new(interrupt));
        state.watched.push(Watched { caller: *caller, is_owed, interrupt });
        if !state.running {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("signalled".to_owned());
            // Without a thread, the next one that is watched has another try.
            state.running = thread.spawn(move || run(&shared)).is_ok();
        }
    }
}

/// Looks until all wait. Twice at each that seems to be signalled: with PREEMPT_RT a lock inside the kernel may look like that for a moment.
fn run(state: &Mutex<State>) {
    loop {
        std::thread::sleep(AGAIN);
        let mut again = Vec::new();
        let watched = std::mem::take(&mut state.lock().watched);
        for one in watched.into_iter().filter(|one| (one.is_owed)()) {
            match look(&one.caller) {
                Look::Waits => {}
                Look::Signalled => (one.interrupt)(),
                Look::Unclear => again.push(one),
            }
        }
        let mut state = state.lock();
        state.watched.append(&mut again);
        if state.watched.is_empty() {
            state.running = false;
            return;
        }
    }
}

fn look(caller: &Request) -> Look {
    if caller.pid == 0 {
        return Look::Waits;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.map_or(Look::Waits, |status| judge(&status, caller.uid))
}

/// Judges by `/proc/PID/status` (proc_pid_status(5)). Somebody with another file-system user id is not who asked: the number is one of another namespace.
fn judge(status: &str, uid: u32) -> Look {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    if field("Uid").split_whitespace().nth(3) != Some(uid.to_string().as_str()) {
        return Look::Waits;
    }
    match field("State").chars().next() {
        Some('D') => Look::Signalled,
        Some('R') => Look::Unclear,
        _ => Look::Waits,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn judged(state: &str, uid: u32) -> Look {
        judge(&format!("Name:\tState: x\nState:\t{state}\nUid:\t1\t2\t3\t7\nThreads:\t1\n"), uid)
    }

    #[test]
    fn a_caller_is_judged_by_where_it_waits() {
        assert_eq!(judged("D (disk sleep)", 7), Look::Signalled);
        assert_eq!(judged("S (sleeping)", 7), Look::Waits);
        assert_eq!(judged("R (running)", 7), Look::Unclear);
        assert_eq!(judged("Z (zombie)", 7), Look::Waits);
    }

    #[test]
    fn who_is_not_known_is_left_alone() {
        assert_eq!(judged("D (disk sleep)", 1), Look::Waits);
        assert_eq!(judge("", 0), Look::Waits);
        let nobody = Request { unique: 2, uid: 0, gid: 0, pid: 0, supplementary_group: None };
        assert_eq!(look(&nobody), Look::Waits);
    }

    #[test]
    fn who_runs_is_looked_at_until_it_is_answered() {
        let signalled = Signalled::default();
        // This thread runs, and is never seen to wait.
        let pid = rustix::thread::gettid().as_raw_pid() as u32;
        let uid = rustix::process::geteuid().as_raw();
        let caller = Request { unique: 2, uid, gid: 0, pid, supplementary_group: None };
        let owed = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&owed);
        signalled.watch(&caller, move || asked.load(Ordering::Relaxed), || ());
        owed.store(false, Ordering::Relaxed);
        while signalled.0.lock().running {
            std::hint::spin_loop();
        }
        assert!(signalled.0.lock().watched.is_empty());
    }
}
