//! Counters, their change over time, and how it is shown.

use std::{collections::BTreeMap, fmt::Write};

use forebay_mount::{BUCKETS, OpStats};
use serde_json::{Value, json};

use crate::size::human;

/// The head above [`Change::row`].
pub(crate) const HEAD: &str =
    "   ops/s     read/s    write/s   p50 µs   p99 µs  errors/s store op/s     dirty";

/// Counters of one kind of operation.
#[derive(Clone, PartialEq, Debug, Default)]
struct Counts {
    requests: u64,
    errors: u64,
    bytes: u64,
    nanos: u64,
    buckets: Vec<u64>,
}

/// How often a cache had what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Lookups {
    hits: u64,
    misses: u64,
}

/// All counters at a moment, or by how much they grew.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Reading {
    at_ns: u64,
    operations: BTreeMap<String, Counts>,
    store: BTreeMap<String, Counts>,
    dirty_bytes: u64,
    caches: BTreeMap<String, Lookups>,
}

/// What happened between two readings.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    seconds: f64,
    of: Reading,
}

impl Reading {
    /// What the process behind a mount answered. Fields that are missing count as zero.
    pub(crate) fn of(raw: &Value) -> Reading {
        let list = |key: &str, requests: &str, nanos: &dyn Fn(&Value) -> u64| -> BTreeMap<String, Counts> {
            let number = |entry: &Value, key: &str| entry[key].as_u64().unwrap_or(0);
            let entries = raw[key].as_array().into_iter().flatten();
            entries
                .map(|entry| {
                    let buckets = entry["buckets"].as_array().into_iter().flatten();
                    let counts = Counts {
                        requests: number(entry, requests),
                        errors: number(entry, "errors"),
                        bytes: number(entry, "bytes"),
                        nanos: nanos(entry),
                        buckets: buckets.map(|count| count.as_u64().unwrap_or(0)).collect(),
                    };
                    (entry["name"].as_str().unwrap_or_default().to_owned(), counts)
                })
                .collect()
        };
        let caches = raw["caches"].as_object().into_iter().flatten();
        Reading {
            at_ns: raw["uptime_ns"].as_u64().unwrap_or(0),
            operations: list("operations", "requests", &|entry| entry["nanos"].as_u64().unwrap_or(0)),
            store: list("store", "calls", &|entry| entry["latency_us"].as_u64().unwrap_or(0) * 1000),
            dirty_bytes: raw["dirty_bytes"].as_u64().unwrap_or(0),
            caches: caches
                .map(|(name, counts)| {
                    let count = |key: &str| counts[key].as_u64().unwrap_or(0);
                    (name.clone(), Lookups { hits: count("hits"), misses: count("misses") })
                })
                .collect(),
        }
    }

    /// What happened since `before`.
    pub(crate) fn since(&self, before: &Reading) -> Change {
        let caches = self.caches.iter().map(|(name, now)| {
            let old = before.caches.get(name).copied().unwrap_or_default();
            let (hits, misses) = (now.hits.saturating_sub(old.hits), now.misses.saturating_sub(old.misses));
            (name.clone(), Lookups { hits, misses })
        });
        let of = Reading {
            at_ns: self.at_ns.saturating_sub(before.at_ns),
            operations: less(&self.operations, &before.operations),
            store: less(&self.store, &before.store),
            dirty_bytes: self.dirty_bytes,
            caches: caches.collect(),
        };
        Change { seconds: (of.at_ns as f64 / 1e9).max(1e-9), of }
    }
}

fn less(now: &BTreeMap<String, Counts>, before: &BTreeMap<String, Counts>) -> BTreeMap<String, Counts> {
    let nothing = Counts::default();
    let changes = now.iter().map(|(name, now)| {
        let old = before.get(name).unwrap_or(&nothing);
        let old_bucket = |index: usize| old.buckets.get(index).copied().unwrap_or(0);
        let buckets =
            now.buckets.iter().enumerate().map(|(index, count)| count.saturating_sub(old_bucket(index)));
        let counts = Counts {
            requests: now.requests.saturating_sub(old.requests),
            errors: now.errors.saturating_sub(old.errors),
            bytes: now.bytes.saturating_sub(old.bytes),
            nanos: now.nanos.saturating_sub(old.nanos),
            buckets: buckets.collect(),
        };
        (name.clone(), counts)
    });
    changes.filter(|(_, counts)| counts.requests > 0).collect()
}

impl Counts {
    /// The time within which `share` of the requests were answered.
    fn quantile_ns(&self, share: f64) -> u64 {
        let mut buckets = [0; BUCKETS];
        for (bucket, count) in buckets.iter_mut().zip(&self.buckets) {
            *bucket = *count;
        }
        let stats = OpStats {
            name: "",
            requests: buckets.iter().sum(),
            errors: self.errors,
            bytes: self.bytes,
            nanos: self.nanos,
            buckets,
        };
        stats.quantile_ns(share)
    }
}

impl Change {
    fn total(&self) -> Counts {
        let mut total = Counts { buckets: vec![0; BUCKETS], ..Counts::default() };
        for counts in self.of.operations.values() {
            total.requests += counts.requests;
            total.errors += counts.errors;
            for (sum, count) in total.buckets.iter_mut().zip(&counts.buckets) {
                *sum += count;
            }
        }
        total
    }

    fn bytes_of(&self, name: &str) -> f64 {
        self.of.operations.get(name).map_or(0.0, |counts| counts.bytes as f64) / self.seconds
    }

    /// One line, under [`HEAD`].
    pub(crate) fn row(&self) -> String {
        let total = self.total();
        let store: u64 = self.of.store.values().map(|counts| counts.requests).sum();
        format!(
            "{:>8.0} {:>10} {:>10} {:>8} {:>8} {:>9.0} {:>10.1} {:>9}",
            total.requests as f64 / self.seconds,
            human(self.bytes_of("read") as u64),
            human(self.bytes_of("write") as u64),
            micros(total.quantile_ns(0.5)),
            micros(total.quantile_ns(0.99)),
            total.errors as f64 / self.seconds,
            store as f64 / self.seconds,
            human(self.of.dirty_bytes),
        )
    }

    /// How often the caches had what was asked for, in a line.
    fn hit_rates(&self) -> String {
        // The one in memory is asked first.
        let rates = self.of.caches.iter().rev().map(|(name, Lookups { hits, misses })| match hits + misses {
            0 => format!("{name} cache: not asked"),
            all => format!("{name} cache: {:.1}% of {all} found", *hits as f64 * 100.0 / all as f64),
        });
        rates.collect::<Vec<_>>().join("    ")
    }

    /// A table with a line for each call to the store and each operation, the most frequent first. At most 79 columns, unless a
    /// figure is huge.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{HEAD}\n{}\n{}\n", self.row(), self.hit_rates());
        for (title, list) in [("store", &self.of.store), ("operation", &self.of.operations)] {
            if list.is_empty() {
                continue;
            }
            let _ = writeln!(
                text,
                "\n{title:<18} {:>9} {:>8} {:>8} {:>8} {:>11} {:>9}",
                "/s", "mean µs", "p50 µs", "p99 µs", "bytes/s", "errors/s"
            );
            let mut rows: Vec<_> = list.iter().collect();
            rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.requests));
            for (name, counts) in rows {
                let rate = |value: u64| value as f64 / self.seconds;
                let quantile = |share| {
                    if counts.buckets.is_empty() { "-".to_owned() } else { micros(counts.quantile_ns(share)) }
                };
                let _ = writeln!(
                    text,
                    "{name:<18} {:>9.1} {:>8} {:>8} {:>8} {:>11} {:>9.1}",
                    rate(counts.requests),
                    micros(counts.nanos / counts.requests.max(1)),
                    quantile(0.5),
                    quantile(0.99),
                    human(rate(counts.bytes) as u64),
                    rate(counts.errors),
                );
            }
        }
        text
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        let list = |of: &BTreeMap<String, Counts>| -> Value {
            let entries = of.iter().map(|(name, counts)| {
                let value = json!({
                    "requests": counts.requests, "errors": counts.errors, "bytes": counts.bytes, "nanos": counts.nanos,
                    "p50_ns": counts.quantile_ns(0.5), "p99_ns": counts.quantile_ns(0.99),
                });
                (name.clone(), value)
            });
            Value::Object(entries.collect())
        };
        let caches = self.of.caches.iter().map(|(name, Lookups { hits, misses })| {
            (name.clone(), json!({ "hits": hits, "misses": misses }))
        });
        json!({
            "seconds": self.seconds, "operations": list(&self.of.operations), "store": list(&self.of.store),
            "dirty_bytes": self.of.dirty_bytes, "caches": Value::Object(caches.collect()),
        })
    }
}

/// As much of a text as a screen of `rows` and `columns` has room for, each line cleared to its end and the rest of the screen, too.
pub(crate) fn screen(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1).max(1);
    let left_out = if lines.len() > room { lines.len() - (room - 1) } else { 0 };
    let more = (left_out > 0).then(|| format!("… {left_out} more lines; a taller window shows them"));
    let shown = lines.iter().take(lines.len() - left_out).copied().chain(more.as_deref());
    let mut screen = String::from("\x1b[H");
    for line in shown {
        screen.extend(line.chars().take(columns));
        screen += "\x1b[K\n";
    }
    screen + "\x1b[J"
}

fn micros(nanos: u64) -> String {
    let value = nanos as f64 / 1000.0;
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(uptime_ns: u64, reads: u64, slow: u64) -> Reading {
        let mut buckets = vec![0; BUCKETS];
        (buckets[0], buckets[10]) = (reads, slow);
        let read = json!({ "name": "read", "requests": reads + slow, "errors": 0, "bytes": reads * 4096, "nanos": reads * 900, "buckets": buckets });
        Reading::of(
            &json!({ "uptime_ns": uptime_ns, "operations": [read], "store": [], "dirty_bytes": 7 << 20 }),
        )
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let change = reading(3_000_000_000, 1100, 100).since(&reading(1_000_000_000, 100, 0));
        assert_eq!(change.seconds, 2.0);
        let read = &change.of.operations["read"];
        assert_eq!((read.requests, read.bytes), (1100, 4096 * 1000));
        assert_eq!((read.quantile_ns(0.5), read.quantile_ns(0.99)), (1000, 1000 << 10));
        assert!(change.row().starts_with("     550   1.95 MiB        0 B"), "{}", change.row());
        assert!(change.table().contains("\nread "), "{}", change.table());
        assert_eq!(change.json()["operations"]["read"]["requests"], 1100);
    }

    #[test]
    fn what_did_not_happen_is_not_shown() {
        let change = reading(2_000_000_000, 5, 0).since(&reading(1_000_000_000, 5, 0));
        assert!(change.of.operations.is_empty() && !change.table().contains("read "));
    }

    #[test]
    fn hit_rates_are_of_the_time_between() {
        let reading = |hits: u64, misses: u64| {
            let caches =
                json!({ "memory": { "hits": hits, "misses": misses }, "disk": { "hits": 4, "misses": 4 } });
            Reading::of(&json!({ "uptime_ns": hits, "caches": caches }))
        };
        let change = reading(1090, 110).since(&reading(1000, 100));
        let table = change.table();
        assert!(
            table.contains("memory cache: 90.0% of 100 found") && table.contains("disk cache: not asked"),
            "{table}"
        );
        assert_eq!(change.json()["caches"]["memory"]["hits"], 90);
    }

    #[test]
    fn a_screen_is_not_overflowed() {
        let longest = json!({ "name": "copy_file_range_64", "requests": 99_999, "errors": 99_999, "bytes": 1_u64 << 40, "nanos": 1_u64 << 40,
            "buckets": vec![7_u64; 20] });
        let busy = json!({ "uptime_ns": 1_000_000_000, "operations": [longest], "caches": { "memory": { "hits": 9_999_999, "misses": 1 } } });
        let table = Reading::of(&busy).since(&Reading::default()).table();
        assert!(table.lines().all(|line| line.chars().count() <= 79), "{table}");
        let shown = screen("one\ntwo is longer\nthree\nfour", 4, 5);
        assert_eq!(shown, "\x1b[Hone\x1b[K\ntwo i\x1b[K\n… 2 m\x1b[K\n\x1b[J");
        assert_eq!(screen("one\ntwo", 24, 80), "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J");
    }
}
