//! Processor time and memory of a process, from `/proc`.
//!
//! Processor time comes in clock ticks (10 ms on Linux), so it says something only over many operations.

use std::fs;
use std::io;
use std::time::Duration;

/// User and system time of all threads of `pid`, those that have ended included.
pub(crate) fn processor_time(pid: u32) -> io::Result<Duration> {
    time(pid, 2)
}

/// The same of this process, with that of its children which have ended and been waited for.
pub(crate) fn own_time() -> io::Result<Duration> {
    time(std::process::id(), 4)
}

fn time(pid: u32, fields: usize) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = stat_ticks(&stat, fields).ok_or_else(|| malformed("stat"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_nanos(ticks.saturating_mul(1_000_000_000) / per_second))
}

/// The sum of the first so many of `utime`, `stime`, `cutime` and `cstime`. The command's name stands in parentheses and may hold any character.
fn stat_ticks(stat: &str, fields: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_ascii_whitespace().skip(11);
    (0..fields).map(|_| times.next()?.parse::<u64>().ok()).sum()
}

/// Most resident memory of `pid` so far (`VmHWM`), bytes.
pub(crate) fn peak_memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|rest| rest.split_ascii_whitespace().next()).and_then(|text| text.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| malformed("status"))
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/PID/{file} has an unknown form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_command_name() {
        let stat = "12 (a) (b) c) S 1 12 12 0 -1 4194304 100 0 0 0 250 17 4 3 20 0 1 0 100 1000 10";
        assert_eq!((stat_ticks(stat, 2), stat_ticks(stat, 4)), (Some(267), Some(274)));
        assert_eq!(stat_ticks("12 (a", 2), None);
        assert_eq!(stat_ticks("12 (a) S 1", 2), None);
    }

    #[test]
    fn this_process_has_time_and_memory() {
        let pid = std::process::id();
        assert!(peak_memory(pid).unwrap() > 64 * 1024);
        processor_time(pid).unwrap();
        assert_eq!(processor_time(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
