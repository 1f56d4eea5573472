use forebay_cluster::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The client's own clock for terms: it never goes back, and goes on while the machine sleeps.
pub trait Ticks: Send + Sync {
    /// Now.
    fn now(&self) -> Moment;
}

/// The system's `CLOCK_BOOTTIME` (clock_gettime(2)).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTicks;

impl Ticks for SystemTicks {
    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        let (secs, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
        Moment(secs * 1_000_000_000 + nanos)
    }
}
