//! Signals to callers of which the kernel does not tell.
//!
//! A signal to who waits for an answer is told by INTERRUPT if the request was handed over by then. One that came before is told when the request is
//! read from a descriptor (`fuse_dev_do_read`), but not when it is copied to a ring (`fuse_uring_prepare_send` sets `FR_SENT` without a look at
//! `FR_INTERRUPTED`; Linux 6.14 to 6.18 at least). The caller is past its interruptible wait then, so no later signal is told either, and not even
//! SIGKILL ends the wait for a lock that another keeps.
//!
//! A signal that was not told came before the request did. So one look at the caller, when the request is known to wait, is enough.

use std::time::Duration;

/// What a look at a caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has left its interruptible wait, and has a signal.
    Signalled,
    /// It has no signal that could have gone untold: one from now on is told.
    Waits,
    /// It has not come to its wait yet, and its process has a signal that may be for it or for another thread: look again.
    Unclear,
}

/// How long to wait before another look: the caller only has to get a processor meanwhile.
pub(crate) const AGAIN: Duration = Duration::from_millis(1);

/// Looks at a caller that waits for an answer. A caller that is not known (thread 0, or `/proc` does not show it) [`Look::Waits`].
pub(crate) fn look(thread: u32) -> Look {
    if thread == 0 {
        return Look::Waits;
    }
    std::fs::read_to_string(format!("/proc/{thread}/status")).map_or(Look::Waits, |status| judge(&status))
}

/// Judges by `/proc/PID/status` (proc_pid_status(5)). An answer EINTR to a thread without a signal must not be: the kernel makes it ERESTARTSYS, which
/// then nobody turns into a restart.
fn judge(status: &str) -> Look {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    let signals = |name| u64::from_str_radix(field(name), 16).unwrap_or_default();
    let not_blocked = !signals("SigBlk");
    let (own, shared) = (signals("SigPnd") & not_blocked, signals("ShdPnd") & not_blocked);
    match field("State").chars().next() {
        _ if own | shared == 0 => Look::Waits,
        // The second wait, which only a fatal signal ends.
        Some('D') => Look::Signalled,
        Some('R') if own != 0 || field("Threads") == "1" => Look::Signalled,
        Some('R') => Look::Unclear,
        // Still in the first wait: the process's signal is another thread's.
        _ => Look::Waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALARM: u64 = 1 << 13;

    fn judged(state: &str, threads: u32, own: u64, shared: u64, blocked: u64) -> Look {
        judge(&format!(
            "Name:\tState: x\nState:\t{state}\nThreads:\t{threads}\nSigQ:\t5/96365\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
        ))
    }

    #[test]
    fn only_who_has_a_signal_and_left_its_wait_is_interrupted() {
        assert_eq!(judged("D (disk sleep)", 1, 0, ALARM, 0), Look::Signalled);
        assert_eq!(judged("D (disk sleep)", 2, ALARM, 0, 0), Look::Signalled);
        assert_eq!(judged("D (disk sleep)", 1, 0, 0, 0), Look::Waits);
        assert_eq!(judged("D (disk sleep)", 1, ALARM, ALARM, ALARM), Look::Waits);
        assert_eq!(judged("S (sleeping)", 2, 0, ALARM, 0), Look::Waits);
    }

    #[test]
    fn who_has_not_come_to_its_wait_is_interrupted_by_what_is_surely_its_own() {
        assert_eq!(judged("R (running)", 2, ALARM, 0, 0), Look::Signalled);
        assert_eq!(judged("R (running)", 1, 0, ALARM, 0), Look::Signalled);
        assert_eq!(judged("R (running)", 2, 0, ALARM, 0), Look::Unclear);
        assert_eq!(judged("R (running)", 2, 0, 0, 0), Look::Waits);
    }

    #[test]
    fn who_is_not_known_waits() {
        assert_eq!(look(0), Look::Waits);
        assert_eq!(judge(""), Look::Waits);
        // This thread has no signal.
        assert_eq!(look(rustix::thread::gettid().as_raw_pid() as u32), Look::Waits);
    }
}
