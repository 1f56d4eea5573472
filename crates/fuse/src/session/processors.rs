//! The machine's processors, as the kernel numbers its queues.

use std::io;

/// The kernel's list of processors that may ever be there; it has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// A thread that cannot be pinned (the processor is off, or not ours to use) goes on wherever it runs.
pub(super) fn pin(processor: u16) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(usize::from(processor));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &only) {
        tracing::debug!("the thread of processor {processor}'s queue is not pinned: {error}");
    }
}

/// Whether threads of this process may be pinned to a processor that is on. Threads that are pinned elsewhere do not count: the answer is
/// found by trying.
pub(super) fn may_run_on(processor: u16) -> bool {
    let Ok(own) = rustix::thread::sched_getaffinity(None) else { return false };
    let mut only = rustix::thread::CpuSet::new();
    only.set(usize::from(processor));
    let may = rustix::thread::sched_setaffinity(None, &only).is_ok();
    may && rustix::thread::sched_setaffinity(None, &own).is_ok()
}

/// Whether a processor is on. Where that cannot be said, it is.
pub(super) fn is_online(processor: u16) -> bool {
    let list = std::fs::read_to_string(ONLINE).ok();
    list.and_then(|list| contains(&list, processor)).unwrap_or(true)
}

/// How many queues the kernel has: one for each in a list like `0-3,8`.
pub(super) fn possible() -> io::Result<u16> {
    let list = std::fs::read_to_string(POSSIBLE)?;
    count(&list).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{POSSIBLE} says '{}'", list.trim()))
    })
}

fn ranges(list: &str) -> impl Iterator<Item = Option<(u16, u16)>> {
    list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

fn count(list: &str) -> Option<u16> {
    ranges(list).try_fold(0u16, |sum, range| {
        let (first, last) = range?;
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn contains(list: &str, processor: u16) -> Option<bool> {
    let ranges: Option<Vec<_>> = ranges(list).collect();
    Some(ranges?.iter().any(|(first, last)| (*first..=*last).contains(&processor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_the_kernels_list() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3\n"), Some(4));
        assert_eq!(count("0-1,4-7,12\n"), Some(7));
        for wrong in ["", "3-1", "a", "0-65535"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert_eq!(contains("0-1,4-7\n", 5), Some(true));
        assert_eq!(contains("0-1,4-7\n", 2), Some(false));
        assert_eq!(contains("", 0), None);
    }
}
