//! What was asked of a mount, how often it failed and how long it took.
//!
//! Counters are atomics that only grow; a reader sees each one as it was at some moment, not all at the same.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_fuse::{Errno, Observer, Opcode};

/// Buckets of the latency histogram: the first counts requests of up to 1 µs, each next one up to twice as much, the last all others.
pub const BUCKETS: usize = 28;

const NANOS_FIRST: u64 = 1000;
/// Operation codes are below this.
const CODES: usize = 64;

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What became of the requests of one operation since the mount began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpStats {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Requests answered.
    pub requests: u64,
    /// Of them, answered with an error (also `ENOENT` and the like, which are no trouble).
    pub errors: u64,
    /// Bytes of file or directory contents moved.
    pub bytes: u64,
    /// Nanoseconds of all requests together.
    pub nanos: u64,
    /// Requests by how long they took.
    pub buckets: [u64; BUCKETS],
}

impl OpStats {
    /// The longest time that bucket `index` counts, in nanoseconds; `None` for the last.
    #[must_use]
    pub fn bucket_limit_ns(index: usize) -> Option<u64> {
        (index + 1 < BUCKETS).then(|| NANOS_FIRST << index)
    }

    /// An upper bound of the time within which `share` (0 to 1) of the requests were answered, in nanoseconds: the limit of its bucket.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.requests as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::bucket_limit_ns(index).unwrap_or(NANOS_FIRST << (BUCKETS - 1));
            }
        }
        0
    }
}

/// Counters of a mount, written without locks by the threads that serve it.
#[derive(Debug)]
pub struct Stats {
    ops: Vec<Counters>,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats { ops: (0..CODES).map(|_| Counters::default()).collect() }
    }
}

fn bucket(nanos: u64) -> usize {
    let steps = nanos.saturating_sub(1) / NANOS_FIRST;
    (u64::BITS - steps.leading_zeros()).min(BUCKETS as u32 - 1) as usize
}

impl Observer for Stats {
    fn request(&self, op: Opcode, nanos: u64, error: Option<Errno>, bytes: u64) {
        let Some(counters) = self.ops.get(op.raw() as usize) else { return };
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        add(&counters.requests, 1);
        add(&counters.errors, u64::from(error.is_some()));
        add(&counters.bytes, bytes);
        add(&counters.nanos, nanos);
        if let Some(counter) = counters.buckets.get(bucket(nanos)) {
            add(counter, 1);
        }
    }
}

impl Stats {
    /// The operations that were asked for, in the order of their codes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<OpStats> {
        let all = Opcode::ALL.iter().filter_map(|op| {
            let counters = self.ops.get(op.raw() as usize)?;
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Some(OpStats {
                name: op.name(),
                requests: get(&counters.requests),
                errors: get(&counters.errors),
                bytes: get(&counters.bytes),
                nanos: get(&counters.nanos),
                buckets: std::array::from_fn(|index| get(&counters.buckets[index])),
            })
        });
        all.filter(|stats| stats.requests > 0).collect()
    }

    /// The counters in Prometheus' text format.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let stats = self.snapshot();
        let mut text = String::new();
        let counter = |text: &mut String, name: &str, help: &str, value: fn(&OpStats) -> u64| {
            let _ = writeln!(text, "# HELP forebay_fuse_{name} {help}\n# TYPE forebay_fuse_{name} counter");
            for op in &stats {
                let _ = writeln!(text, "forebay_fuse_{name}{{op=\"{}\"}} {}", op.name, value(op));
            }
        };
        counter(&mut text, "requests_total", "Requests answered.", |op| op.requests);
        counter(&mut text, "errors_total", "Requests answered with an error.", |op| op.errors);
        counter(&mut text, "bytes_total", "Bytes of contents moved.", |op| op.bytes);
        let name = "forebay_fuse_request_seconds";
        let _ = writeln!(text, "# HELP {name} Time to answer.\n# TYPE {name} histogram");
        for op in &stats {
            let mut total = 0;
            for (index, count) in op.buckets.iter().enumerate() {
                total += count;
                let limit = OpStats::bucket_limit_ns(index)
                    .map_or_else(|| "+Inf".to_owned(), |nanos| (nanos as f64 / 1e9).to_string());
                let _ = writeln!(text, "{name}_bucket{{op=\"{}\",le=\"{limit}\"}} {total}", op.name);
            }
            let _ = writeln!(text, "{name}_sum{{op=\"{}\"}} {}", op.name, op.nanos as f64 / 1e9);
            let _ = writeln!(text, "{name}_count{{op=\"{}\"}} {total}", op.name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double() {
        assert_eq!((bucket(0), bucket(1000), bucket(1001)), (0, 0, 1));
        assert_eq!((bucket(2000), bucket(2001), bucket(4001)), (1, 2, 3));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(OpStats::bucket_limit_ns(index).unwrap()), index);
        }
    }

    #[test]
    fn requests_are_counted_by_operation() {
        let stats = Stats::default();
        stats.request(Opcode::Read, 1500, None, 4096);
        stats.request(Opcode::Read, 900, Some(Errno::EIO), 0);
        stats.request(Opcode::Lookup, 10_000_000, None, 0);
        let all = stats.snapshot();
        assert_eq!(all.iter().map(|op| op.name).collect::<Vec<_>>(), ["lookup", "read"]);
        let read = &all[1];
        assert_eq!((read.requests, read.errors, read.bytes, read.nanos), (2, 1, 4096, 2400));
        assert_eq!((read.quantile_ns(0.5), read.quantile_ns(0.99)), (1000, 2000));
        let text = stats.prometheus();
        assert!(text.contains("forebay_fuse_requests_total{op=\"read\"} 2\n"));
        assert!(text.contains("forebay_fuse_request_seconds_bucket{op=\"read\",le=\"0.000002\"} 2\n"));
        assert!(text.contains("forebay_fuse_request_seconds_count{op=\"lookup\"} 1\n"));
    }
}
