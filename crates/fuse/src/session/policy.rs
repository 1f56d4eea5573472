//! The calling thread's scheduling policy.

use std::io;
use std::sync::OnceLock;

/// A policy of ordinary threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// `SCHED_OTHER`.
    Normal,
    /// `SCHED_IDLE`: runs when nobody else wants the processor, or nearly so.
    Idle,
}

/// Changes the calling thread's policy.
///
/// Errors: those of sched_setscheduler(2).
#[allow(unsafe_code)]
pub(super) fn take_on(policy: Policy) -> io::Result<()> {
    let number = match policy {
        Policy::Normal => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    // SAFETY: the structure is plain data for which zeros are valid (ordinary threads have priority 0), and the call only reads it.
    let done = unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, number, &raw const param)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether threads of this process may take on the idle policy and the usual one again, for which some need CAP_SYS_NICE. Tried once, in a
/// thread that ends thereafter.
pub(super) fn may_change() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let tried = std::thread::Builder::new()
            .name("fuse-policy".to_owned())
            .spawn(|| take_on(Policy::Idle).is_ok() && take_on(Policy::Normal).is_ok());
        tried.is_ok_and(|tried| tried.join().unwrap_or(false))
    })
}
