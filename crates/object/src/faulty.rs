//! A store that fails as it is told to, for tests of what stands above.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    Backend, ETag, ErrorKind, Expected, Meta, ObjectError, Operation, Page, PutOutcome, StoreUrl, Swept,
};

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request does not arrive: `Unreachable`, nothing happened.
    FailBefore,
    /// The request is carried out, the answer is lost: `Unreachable`, although it happened.
    LoseAnswer,
    /// `Throttled`, nothing happened.
    Throttle,
    /// It takes longer.
    Delay(Duration),
    /// One bit of what is read is wrong. Nothing else changes.
    FlipBit,
    /// A range read gives fewer bytes than asked for.
    Truncate,
    /// It is refused with this kind, nothing happened.
    Refuse(ErrorKind),
}

/// How often faults happen by chance, in thousandths of all requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// [`Fault::FailBefore`]
    pub fail_before: u32,
    /// [`Fault::LoseAnswer`]
    pub lose_answer: u32,
    /// [`Fault::Throttle`]
    pub throttle: u32,
    /// [`Fault::FlipBit`], of reads
    pub flip_bit: u32,
    /// [`Fault::Truncate`], of range reads
    pub truncate: u32,
    /// [`Fault::Delay`] by [`Faults::delay_by`]
    pub delay: u32,
    /// How long a delay is.
    pub delay_by: Duration,
}

#[derive(Debug)]
struct State {
    random: u64,
    faults: Faults,
    planned: HashMap<Operation, VecDeque<Fault>>,
    counts: HashMap<Operation, u64>,
}

/// A backend with faults: planned ones first, in the order in which they were planned for an operation, then by chance from a seed. With
/// one caller the same seed gives the same faults.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Backend>,
    away: AtomicBool,
    state: Mutex<State>,
}

impl FaultyStore {
    /// Without faults at first.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, seed: u64) -> FaultyStore {
        let state = State {
            random: seed,
            faults: Faults::default(),
            planned: HashMap::new(),
            counts: HashMap::new(),
        };
        FaultyStore { inner, away: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// From now on faults happen this often.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// The next request of this operation that has no planned fault yet gets this one.
    pub fn plan(&self, operation: Operation, fault: Fault) {
        self.state.lock().planned.entry(operation).or_default().push_back(fault);
    }

    /// While a store is away, every request fails as `Unreachable` and nothing happens.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// How many requests of this operation came, failed ones included.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.state.lock().counts.get(&operation).copied().unwrap_or(0)
    }

    /// How many requests came.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.state.lock().counts.values().sum()
    }

    fn next(&self, operation: Operation) -> (Vec<Fault>, u64) {
        let mut state = self.state.lock();
        *state.counts.entry(operation).or_default() += 1;
        if let Some(fault) = state.planned.get_mut(&operation).and_then(VecDeque::pop_front) {
            return (vec![fault], state.draw());
        }
        let faults = state.faults;
        let reads = matches!(operation, Operation::Get | Operation::GetRange);
        let chances = [
            (Fault::Delay(faults.delay_by), faults.delay),
            (Fault::FailBefore, faults.fail_before),
            (Fault::Throttle, faults.throttle),
            (Fault::LoseAnswer, faults.lose_answer),
            (Fault::FlipBit, if reads { faults.flip_bit } else { 0 }),
            (Fault::Truncate, if operation == Operation::GetRange { faults.truncate } else { 0 }),
        ];
        let happen = chances.into_iter().filter(|(_, chance)| state.draw() % 1000 < u64::from(*chance));
        let happen = happen.map(|(fault, _)| fault).collect();
        (happen, state.draw())
    }

    fn error(&self, kind: ErrorKind, operation: Operation, key: &str, detail: &str) -> ObjectError {
        ObjectError::new(kind, operation, self.url(), key, detail)
    }

    fn with_faults<T>(
        &self,
        operation: Operation,
        key: &str,
        run: impl FnOnce() -> Result<T, ObjectError>,
        damage: impl FnOnce(T, Fault, u64) -> T,
    ) -> Result<T, ObjectError> {
        let (faults, random) = self.next(operation);
        if self.away.load(Ordering::SeqCst) {
            return Err(self.error(ErrorKind::Unreachable, operation, key, "the store is away"));
        }
        for fault in &faults {
            match fault {
                Fault::Delay(time) => std::thread::sleep(*time),
                Fault::FailBefore => {
                    return Err(self.error(ErrorKind::Unreachable, operation, key, "the request was lost"));
                }
                Fault::Throttle => return Err(self.error(ErrorKind::Throttled, operation, key, "planned")),
                Fault::Refuse(kind) => return Err(self.error(*kind, operation, key, "planned")),
                Fault::LoseAnswer | Fault::FlipBit | Fault::Truncate => {}
            }
        }
        let result = run();
        if faults.contains(&Fault::LoseAnswer) {
            return Err(self.error(ErrorKind::Unreachable, operation, key, "the answer was lost"));
        }
        let harm = faults.into_iter().find(|fault| matches!(fault, Fault::FlipBit | Fault::Truncate));
        match harm {
            Some(fault) => result.map(|value| damage(value, fault, random)),
            None => result,
        }
    }
}

impl State {
    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn harmed(bytes: Bytes, fault: Fault, random: u64) -> Bytes {
    if bytes.is_empty() {
        return bytes;
    }
    let at = usize::try_from(random % bytes.len() as u64).unwrap_or(0);
    if fault == Fault::Truncate {
        return bytes.slice(..at);
    }
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1 << ((random >> 32) % 8);
    bytes.into()
}

fn unharmed<T>(value: T, _: Fault, _: u64) -> T {
    value
}

impl Backend for FaultyStore {
    fn url(&self) -> &StoreUrl {
        self.inner.url()
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.with_faults(Operation::PutNew, key, || self.inner.put_new(key, bytes), unharmed)
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        self.with_faults(Operation::PutNewFile, key, || self.inner.put_new_file(key, file), unharmed)
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.with_faults(Operation::PutIf, key, || self.inner.put_if(key, bytes, expected), unharmed)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        self.with_faults(Operation::GetRange, key, || self.inner.get_range(key, range), harmed)
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        let damage = |(bytes, etag), fault, random| (harmed(bytes, fault, random), etag);
        self.with_faults(Operation::Get, key, || self.inner.get(key), damage)
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        self.with_faults(Operation::Head, key, || self.inner.head(key), unharmed)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.with_faults(Operation::Delete, key, || self.inner.delete(key), unharmed)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.with_faults(Operation::List, prefix, || self.inner.list(prefix, after), unharmed)
    }

    fn sweep(&self, remove: bool) -> Result<Swept, ObjectError> {
        self.inner.sweep(remove)
    }
}
