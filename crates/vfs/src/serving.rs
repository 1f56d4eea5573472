//! For whom a thread is at work: the thread whose system call it serves, which may be killed meanwhile.

use std::cell::Cell;

/// The bit of `SIGKILL` (9) in a set of signals as `/proc` shows it, in hexadecimal (proc_pid_status(5)).
const KILL: u64 = 1 << 8;

thread_local! {
    static SERVED: Cell<u32> = const { Cell::new(0) };
}

/// A thread that waits in a system call, as the thread that serves it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served(u32);

/// From now on this thread serves thread `tid`, as numbered in the PID namespace of this process; 0: one that is not known, or none.
pub fn serve(tid: u32) {
    SERVED.set(tid);
}

/// Whom this thread serves, if that is known.
#[must_use]
pub fn served() -> Option<Served> {
    Some(SERVED.get()).filter(|tid| *tid != 0).map(Served)
}

impl Served {
    /// Whether it has been killed, and only waits for an answer to end: every signal that ends a process without a core dump is a `SIGKILL` to each of its threads (signal(7)).
    /// Reads `/proc`. A thread of which nothing can be read is not taken for killed.
    #[must_use]
    pub fn is_killed(self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/status", self.0)).is_ok_and(|status| has_kill(&status))
    }
}

fn has_kill(status: &str) -> bool {
    let pending = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let sets = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(pending);
    sets.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_sigkill_is_seen_in_either_set() {
        let status = |own: &str, shared: &str| {
            format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n")
        };
        let none = "0000000000000000";
        assert!(!has_kill(&status(none, none)));
        assert!(!has_kill(&status("0000000000004000", none)), "SIGTERM that is handled");
        assert!(has_kill(&status("0000000000000100", none)));
        assert!(has_kill(&status(none, "0000000000004100")));
        assert!(!has_kill("Name:\tx\n"));
    }

    #[test]
    fn who_is_not_known_is_nobody() {
        assert_eq!(served(), None);
        serve(7);
        assert_eq!(served(), Some(Served(7)));
        serve(0);
        assert_eq!(served(), None);
        assert!(!Served(std::process::id()).is_killed());
    }
}
