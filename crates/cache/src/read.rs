use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use bytes::Bytes;

use crate::{
    CHUNK_BYTES, Fetch, Hint, ReadError,
    cache::{Shared, State},
    flight::Flight,
    key::Object,
    storage::{Piece, Put, Run, Storage, in_order},
};

/// Largest request of a reader, in chunks: 8 MiB.
pub(crate) const REQUEST_CHUNKS: u32 = (8 << 20) / CHUNK_BYTES as u32;
/// Requests that one read makes at the same time.
const PARALLEL: usize = 8;
/// Times that a read looks into the cache for a chunk that cannot be read back from it, before it fetches past the cache.
const ATTEMPTS: u32 = 3;

/// Where each chunk of a read comes from.
pub(crate) struct Plan<E> {
    pub cached: Vec<Run>,
    /// Flights of other threads, and what is wanted of each.
    pub joined: Vec<(Arc<Flight<E>>, Range<u32>)>,
    /// Flights that this thread has registered, and must make.
    pub owned: Vec<Arc<Flight<E>>>,
}

impl<E: Clone> Plan<E> {
    pub(crate) fn add_cached(&mut self, object: Object, index: u32, found: crate::index::Found) {
        if let Some(run) = self.cached.last_mut() {
            let adjoins = run.found.last().is_some_and(|last| Storage::adjoin(last.slot, found.slot));
            if adjoins && run.chunks().end == index && run.found.len() < REQUEST_CHUNKS as usize {
                run.found.push(found);
                return;
            }
        }
        self.cached.push(Run { object, first: index, found: vec![found] });
    }

    fn add_joined(&mut self, flight: &Arc<Flight<E>>, index: u32) {
        if let Some((last, chunks)) = self.joined.last_mut()
            && Arc::ptr_eq(last, flight)
            && chunks.end == index
        {
            chunks.end += 1;
            return;
        }
        self.joined.push((flight.clone(), index..index + 1));
    }
}

/// What a plan is for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose<'a> {
    /// The bytes of the object that a reader waits for; `None`: no reader waits.
    pub wanted: Option<&'a Range<u64>>,
    /// Only the grains that are wanted are fetched, not their whole chunks.
    pub narrow: bool,
    /// Chunks in the cache are good enough.
    pub trust: bool,
    /// Largest request, in chunks.
    pub request_chunks: u32,
}

/// A request that is to be made.
struct Missing {
    chunks: Range<u32>,
    bytes: Range<u64>,
    shared: bool,
}

impl Missing {
    /// Adds what follows in the object, if it does and the request stays short enough.
    fn add(&mut self, other: &Missing, most: u32) -> bool {
        let follows = self.chunks.end == other.chunks.start && self.bytes.end == other.bytes.start;
        let fits = follows && self.shared == other.shared && (self.chunks.len() as u32) < most;
        if fits {
            (self.chunks.end, self.bytes.end) = (other.chunks.end, other.bytes.end);
        }
        fits
    }
}

impl<F: Fetch> Shared<F> {
    /// The bytes `range`, which `object` holds, in their order.
    pub(crate) fn read(
        &self,
        object: Object,
        range: &Range<u64>,
        hint: Hint,
    ) -> Result<Vec<Piece>, ReadError<F::Error>> {
        let mut pending: Vec<u32> = object.chunks(range).collect();
        let mut pieces = Vec::new();
        let mut attempt = 0;
        while !pending.is_empty() {
            let purpose = Purpose {
                wanted: Some(range),
                narrow: hint == Hint::Random,
                trust: attempt < ATTEMPTS,
                request_chunks: REQUEST_CHUNKS,
            };
            let plan = self.plan(object, pending.drain(..), purpose);
            self.counters.misses.add(plan.owned.iter().map(|flight| flight.chunks.len() as u64).sum());
            self.counters.joined.add(plan.joined.iter().map(|(_, chunks)| chunks.len() as u64).sum());
            self.fly_all(&plan.owned);
            for run in &plan.cached {
                match self.read_run(run, range, hint) {
                    Ok(read) => pieces.extend(read),
                    Err(chunks) => pending.extend(chunks),
                }
            }
            for flight in &plan.owned {
                pieces.push(piece_of(flight, &flight.chunks, object, range)?);
            }
            for (flight, chunks) in &plan.joined {
                pieces.push(piece_of(flight, chunks, object, range)?);
            }
            pending.sort_unstable();
            attempt += 1;
        }
        Ok(in_order(pieces))
    }

    /// Says where each of `chunks`, which ascend, comes from, and registers flights for those that are nowhere.
    pub(crate) fn plan(
        &self,
        object: Object,
        chunks: impl Iterator<Item = u32>,
        purpose: Purpose<'_>,
    ) -> Plan<F::Error> {
        let mut plan = Plan { cached: Vec::new(), joined: Vec::new(), owned: Vec::new() };
        // Slots of chunks that are not to be used: untrusted, or of another length than the object allows, or to be fetched whole.
        let mut stale = Vec::new();
        let mut missing: Vec<Missing> = Vec::new();
        let mut state = self.state.lock();
        let State { index, flights } = &mut *state;
        for chunk in chunks {
            let key = object.chunk(chunk);
            let whole = object.bytes(&(chunk..chunk + 1));
            let wanted = purpose.wanted.map_or(whole.clone(), |range| object.part(chunk, range));
            let mut shared = true;
            if let Some(flight) = flights.get(&key) {
                if purpose.wanted.is_none() {
                    continue;
                }
                if flight.brings(&wanted) {
                    flight.join();
                    plan.add_joined(flight, chunk);
                    continue;
                }
                // It brings another part: rare enough to be asked for twice.
                shared = false;
            }
            let grains = object.grains(chunk, &wanted);
            match index.find(key) {
                Some(found) if purpose.trust && found.len == object.chunk_len(chunk) => {
                    if grains & !found.present == 0 {
                        plan.add_cached(object, chunk, found);
                        continue;
                    }
                    if shared && !purpose.narrow {
                        stale.extend(index.remove(key));
                    }
                }
                Some(_) if shared => stale.extend(index.remove(key)),
                _ => {}
            }
            let bytes = if purpose.narrow || !shared { object.rounded(chunk, &wanted) } else { whole };
            let request = Missing { chunks: chunk..chunk + 1, bytes, shared };
            if !missing.last_mut().is_some_and(|last| last.add(&request, purpose.request_chunks)) {
                missing.push(request);
            }
        }
        for Missing { chunks, bytes, shared } in missing {
            let flight = Flight::new(object, (chunks.clone(), bytes), shared, purpose.wanted.is_none());
            if shared {
                chunks.for_each(|chunk| drop(flights.insert(object.chunk(chunk), flight.clone())));
            }
            plan.owned.push(flight);
        }
        drop(state);
        self.clear(&stale);
        plan
    }

    /// Reads what is cached. What cannot be read back is dropped, and returned, with what was in the same run, to be
    /// looked for again.
    pub(crate) fn read_run(
        &self,
        run: &Run,
        range: &Range<u64>,
        hint: Hint,
    ) -> Result<Vec<Piece>, Range<u32>> {
        let outcome = self.storage.read(run, range);
        let mut state = self.state.lock();
        if !run.found.iter().all(|&found| state.index.unchanged(found)) {
            return Err(run.chunks());
        }
        let fault = match outcome {
            Ok(pieces) => {
                for (chunk, &found) in run.chunks().zip(&run.found) {
                    if hint != Hint::Sequential || range.start <= u64::from(chunk) * CHUNK_BYTES {
                        state.index.used(found);
                    }
                }
                self.counters.hits.add(run.found.len() as u64);
                return Ok(pieces);
            }
            Err(fault) => fault,
        };
        let keys = fault.chunks.iter().map(|&chunk| run.object.chunk(chunk));
        let slots: Vec<u32> = keys.filter_map(|key| state.index.remove(key)).collect();
        drop(state);
        match fault.source {
            Some(error) => self.note_fault(&error),
            None => {
                self.counters.corrupt.add(slots.len() as u64);
                if self.counters.logged_corrupt.first() {
                    let object = run.object.key;
                    tracing::warn!(%object, chunks = ?fault.chunks, "a cached chunk does not check; it is fetched again");
                }
            }
        }
        self.clear(&slots);
        Err(run.chunks())
    }

    /// Makes the flights, several at a time.
    pub(crate) fn fly_all(&self, flights: &[Arc<Flight<F::Error>>]) {
        let next = AtomicUsize::new(0);
        let fly_some = || {
            while let Some(flight) = flights.get(next.fetch_add(1, Relaxed)) {
                self.fly(flight);
            }
        };
        thread::scope(|scope| {
            for _ in 1..flights.len().min(PARALLEL) {
                let fly_elsewhere = || {
                    forebay_env::threads::unbind();
                    fly_some();
                };
                let thread = thread::Builder::new().name("forebay-fetch".to_owned());
                // Without the thread, the others make its flights.
                let _ = thread.spawn_scoped(scope, fly_elsewhere);
            }
            fly_some();
        });
    }

    /// Fetches, gives the outcome to all who wait, and keeps the chunks.
    pub(crate) fn fly(&self, flight: &Arc<Flight<F::Error>>) {
        let landing = Landing { shared: self, flight };
        let object = flight.object.key;
        let bytes = flight.bytes.clone();
        let wanted = bytes.end - bytes.start;
        self.counters.fetches.add(1);
        let fetched = self.fetch.fetch(&object, bytes.start, wanted).map_err(ReadError::Fetch);
        let outcome = fetched.and_then(|fetched| match fetched.len() as u64 {
            got if got == wanted => Ok(fetched),
            got => Err(ReadError::WrongLength { object, offset: bytes.start, wanted, got }),
        });
        match outcome {
            Ok(fetched) => {
                self.counters.fetched_bytes.add(wanted);
                flight.land(Ok(fetched.clone()));
                if flight.shared {
                    self.keep_all(flight, &fetched);
                }
            }
            Err(error) => {
                self.counters.failed_fetches.add(1);
                landing.deregister();
                flight.land(Err(error));
            }
        }
    }
}

impl<F: Fetch> Shared<F> {
    /// Keeps what a flight brought.
    fn keep_all(&self, flight: &Arc<Flight<F::Error>>, fetched: &Bytes) {
        let object = flight.object;
        for chunk in flight.chunks.clone() {
            let part = object.part(chunk, &flight.bytes);
            let from = (part.start - flight.bytes.start) as usize;
            let Some(bytes) = fetched.get(from..from + (part.end - part.start) as usize) else { return };
            let at = (part.start - u64::from(chunk) * CHUNK_BYTES) as u32;
            let (key, len) = (object.chunk(chunk), object.chunk_len(chunk));
            self.keep(&Put { key, len, at, part: bytes, within: Some(fetched) }, Some(flight));
        }
    }
}

/// Ends a flight however its thread leaves: nobody waits for ever, and the next reader tries again.
struct Landing<'a, F: Fetch> {
    shared: &'a Shared<F>,
    flight: &'a Arc<Flight<F::Error>>,
}

impl<F: Fetch> Landing<'_, F> {
    fn deregister(&self) {
        let flights = &mut self.shared.state.lock().flights;
        for chunk in self.flight.chunks.clone() {
            let key = self.flight.object.chunk(chunk);
            if flights.get(&key).is_some_and(|other| Arc::ptr_eq(other, self.flight)) {
                flights.remove(&key);
            }
        }
    }
}

impl<F: Fetch> Drop for Landing<'_, F> {
    fn drop(&mut self) {
        self.deregister();
        self.flight.land(Err(ReadError::Abandoned { object: self.flight.object.key }));
        self.flight.end();
    }
}

/// What a flight brings of the chunks `chunks`, cut to `range`.
fn piece_of<E: Clone>(
    flight: &Flight<E>,
    chunks: &Range<u32>,
    object: Object,
    range: &Range<u64>,
) -> Result<Piece, ReadError<E>> {
    let fetched = flight.wait()?;
    let part = object.bytes(chunks);
    let part = part.start.max(range.start)..part.end.min(range.end);
    let whole = flight.bytes.clone();
    // A flight for the same object with another length may bring less.
    if !flight.brings(&part) {
        let (wanted, got) = (part.end - part.start, whole.end.saturating_sub(part.start));
        return Err(ReadError::WrongLength { object: object.key, offset: part.start, wanted, got });
    }
    let at = part.start;
    Ok(Piece { at, buffer: fetched, part: (at - whole.start) as usize..(part.end - whole.start) as usize })
}
