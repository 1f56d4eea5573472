//! Waking a thread that waits in a system call.
//!
//! By a signal whose handler does nothing. System calls that it interrupts are made again by the kernel (`SA_RESTART`), so no
//! other call of the thread fails; a read that must not wait is the better for it.

use std::sync::OnceLock;

use rustix::io::Errno as Os;
use rustix::process::Pid;

/// Nobody else's here, and ignored by a process that has no handler.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Makes [`wake`] possible, for the process.
///
/// Errors: those of sigaction(2).
pub(super) fn prepare() -> Result<(), Os> {
    static DONE: OnceLock<Result<(), Os>> = OnceLock::new();
    *DONE.get_or_init(install)
}

extern "C" fn nothing(_: libc::c_int) {}

#[allow(unsafe_code)]
fn install() -> Result<(), Os> {
    // SAFETY: the structure is plain data for which zeros are valid, and the handler touches nothing.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Os::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Os::IO))
    }
}

/// Wakes a thread of this process; one that has ended is no error.
#[allow(unsafe_code)]
pub(super) fn wake(thread: Pid) {
    let (process, thread) = (rustix::process::getpid().as_raw_pid(), thread.as_raw_pid());
    // SAFETY: tgkill(2) takes three integers.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
}
