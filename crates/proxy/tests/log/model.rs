//! Random operations, stops of all kinds, and a model that says what has to be there.

use std::collections::BTreeMap;

use forebay_group::Verdict;
use forebay_proxy::log::{Log, LogOptions, PutError};
use forebay_types::{Epoch, SegmentId, VolumeId};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    disk::MemoryDisk,
    setting::{append_of, bytes, may, options, read, wait},
};

type Of = (VolumeId, SegmentId);

/// What a segment has to be, at least.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// All that was ever appended.
    bytes: Vec<u8>,
    /// Where pieces end.
    ends: Vec<u64>,
    epoch: u64,
    sealed: Option<u64>,
    /// What was acknowledged: bytes, epoch, seal.
    durable: (u64, u64, Option<u64>),
    dropped: bool,
}

struct World {
    rng: StdRng,
    disk: MemoryDisk,
    log: Log,
    incarnation: u8,
    segments: BTreeMap<Of, Expected>,
    next: u64,
}

fn small(disk: &MemoryDisk, incarnation: u8) -> LogOptions {
    LogOptions { len_max: 5 * (64 << 10), ..options(disk, incarnation) }
}

impl World {
    fn new(seed: u64) -> World {
        let disk = MemoryDisk::new();
        let log = Log::open(small(&disk, 1)).unwrap().0;
        World {
            rng: StdRng::seed_from_u64(seed),
            disk,
            log,
            incarnation: 1,
            segments: BTreeMap::new(),
            next: 0,
        }
    }

    fn some(&mut self) -> Of {
        let live: Vec<Of> = self.segments.keys().copied().collect();
        if live.is_empty() || self.rng.random_range(0..6) == 0 {
            self.next += 1;
            let of = (VolumeId([self.rng.random_range(1..4); 16]), SegmentId(self.next));
            self.segments.insert(of, Expected::default());
            return of;
        }
        live[self.rng.random_range(0..live.len())]
    }

    fn append(&mut self) {
        let of = self.some();
        let len = match self.rng.random_range(0..10) {
            0 => self.rng.random_range(5000..15_000),
            _ => self.rng.random_range(1..800),
        };
        let bytes = bytes(self.rng.random(), len);
        let expected = self.segments.get_mut(&of).unwrap();
        let append = append_of(of.1, expected.epoch.max(1), expected.bytes.len() as u64, &bytes);
        match self.log.append(of.0, &append, &may) {
            Ok(step) => {
                assert!(expected.sealed.is_none());
                assert_eq!(step.end, append.end());
                expected.bytes.extend_from_slice(&bytes);
                expected.ends.push(step.end);
                expected.epoch = expected.epoch.max(1);
            }
            Err(PutError::Refused(_)) => assert!(expected.sealed.is_some()),
            Err(PutError::Full) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn seal(&mut self) {
        let of = self.some();
        let expected = self.segments.get_mut(&of).unwrap();
        let epoch = expected.epoch.max(1);
        let within = expected.ends.iter().filter(|end| expected.sealed.is_none_or(|sealed| **end <= sealed));
        let ends: Vec<u64> = [0].into_iter().chain(within.copied()).collect();
        let len = ends[self.rng.random_range(0..ends.len())];
        let check = crc32c::crc32c(&expected.bytes[..len as usize]);
        self.log.seal(of.0, of.1, Epoch(epoch), (len, check)).unwrap();
        expected.bytes.truncate(len as usize);
        expected.ends.retain(|end| *end <= len);
        (expected.sealed, expected.epoch) = (Some(len), epoch);
    }

    fn fence(&mut self) {
        let of = self.some();
        let expected = self.segments.get_mut(&of).unwrap();
        expected.epoch += self.rng.random_range(1..3);
        let (_, fenced, sealed) = self.log.fence(of.0, of.1, Epoch(expected.epoch)).unwrap();
        assert_eq!(
            (fenced.end, fenced.damaged, sealed),
            (expected.bytes.len() as u64, false, expected.sealed)
        );
        assert_eq!(fenced.check, crc32c::crc32c(&expected.bytes));
    }

    fn drop_one(&mut self) {
        let of = self.some();
        self.log.judged(of.0, of.1, Verdict::Clean).unwrap();
        self.segments.get_mut(&of).unwrap().dropped = true;
        self.sync();
        self.segments.remove(&of);
    }

    fn sync(&mut self) {
        let end = self.log.status().end;
        wait(self.log.synced(end)).unwrap();
        for expected in self.segments.values_mut() {
            expected.durable = (expected.bytes.len() as u64, expected.epoch, expected.sealed);
        }
    }

    fn stop(&mut self) {
        self.incarnation = self.incarnation.wrapping_add(1);
        let crash = self.rng.random_range(0..3);
        let disk = match crash {
            0 => {
                // The power goes in the middle of something.
                if self.rng.random() {
                    self.append();
                }
                self.disk.crashed(&mut self.rng)
            }
            1 => self.disk.killed(),
            _ => {
                self.log.close();
                self.sync_all_known();
                self.disk.killed()
            }
        };
        let (log, opened) = Log::open(small(&disk, self.incarnation)).unwrap();
        assert!(!opened.lost && opened.damaged == 0, "a crash is no damage: {opened:?}");
        (self.disk, self.log) = (disk, log);
        self.check_all();
    }

    /// A log that was closed has all of it.
    fn sync_all_known(&mut self) {
        for expected in self.segments.values_mut() {
            expected.durable = (expected.bytes.len() as u64, expected.epoch, expected.sealed);
        }
    }

    /// What is there is between what was acknowledged and what was asked for.
    fn check_all(&mut self) {
        for ((volume, segment), expected) in &mut self.segments {
            let (durable, durable_epoch, durable_seal) = expected.durable;
            let Some(kept) = self.log.kept(*volume, *segment) else {
                assert_eq!((durable, durable_epoch, durable_seal), (0, 0, None), "{segment} is gone");
                *expected = Expected::default();
                continue;
            };
            assert!(!kept.damaged, "{segment} is taken for damaged");
            let sealed = kept.sealed.map(|(len, _)| len);
            assert!(kept.end() >= durable.min(sealed.unwrap_or(durable)), "{segment} ends at {}", kept.end());
            assert!(kept.epoch.0 >= durable_epoch && kept.epoch.0 <= expected.epoch.max(1));
            assert!(
                durable_seal.is_none() || sealed.is_some_and(|len| len <= durable_seal.unwrap()),
                "{segment} {kept:?} {:?}",
                (&expected.ends, expected.epoch, expected.sealed, expected.durable)
            );
            let bytes = read(&self.log, *volume, *segment, kept.end()).unwrap();
            let all = expected.bytes.len().min(bytes.len());
            assert!(expected.bytes[..all] == bytes[..all], "{segment} has other bytes");
            // The stop took back what was not acknowledged.
            if bytes.len() > expected.bytes.len() {
                assert!(expected.sealed != sealed, "{segment} is longer than what was written");
            }
            expected.bytes = bytes;
            expected.ends = kept.pieces.iter().map(forebay_group::Piece::end).collect();
            (expected.sealed, expected.epoch) = (sealed, kept.epoch.0);
            expected.durable = (expected.bytes.len() as u64, expected.epoch, sealed);
        }
        let known =
            self.log.volumes().into_iter().flat_map(|volume| {
                self.log.offers(volume).into_iter().map(move |offer| (volume, offer.segment))
            });
        for of in known.collect::<Vec<_>>() {
            assert!(self.segments.contains_key(&of), "{of:?} was given up");
        }
    }
}

fn play(seed: u64, steps: u32) {
    let mut world = World::new(seed);
    for _ in 0..steps {
        match world.rng.random_range(0..100) {
            0..60 => world.append(),
            60..68 => world.seal(),
            68..76 => world.fence(),
            76..86 => world.drop_one(),
            86..95 => world.sync(),
            _ => world.stop(),
        }
    }
    world.stop();
}

/// `FOREBAY_SEEDS` and `FOREBAY_FIRST_SEED` play others.
#[test]
fn what_was_acknowledged_is_there_after_any_stop() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(default)
    };
    let first = number("FOREBAY_FIRST_SEED", 0);
    for seed in first..first + number("FOREBAY_SEEDS", 60) {
        let played = std::panic::catch_unwind(|| play(seed, 150));
        assert!(played.is_ok(), "in the world of seed {seed}");
    }
}
