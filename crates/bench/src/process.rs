//! Processor time and memory of a process, from `/proc`.
//!
//! Processor time comes in clock ticks (10 ms on Linux), so it says something only over many operations.

use std::fs;
use std::io;
use std::time::Duration;

/// User and system time of all threads of `pid`, those that have ended included.
pub(crate) fn processor_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = stat_ticks(&stat).ok_or_else(|| malformed("stat"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_nanos(ticks.saturating_mul(1_000_000_000) / per_second))
}

/// The sum of `utime` and `stime`. The command's name stands in parentheses and may hold any character.
fn stat_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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
        let stat = "12 (a) (b) c) S 1 12 12 0 -1 4194304 100 0 0 0 250 17 0 0 20 0 1 0 100 1000 10";
        assert_eq!(stat_ticks(stat), Some(267));
        assert_eq!(stat_ticks("12 (a"), None);
        assert_eq!(stat_ticks("12 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_time_and_memory() {
        let pid = std::process::id();
        assert!(peak_memory(pid).unwrap() > 64 * 1024);
        processor_time(pid).unwrap();
        assert_eq!(processor_time(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
