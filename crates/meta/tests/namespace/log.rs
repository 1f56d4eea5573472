//! A log in memory. It keeps records as bytes, file by file, and beside them the rows that they add up to.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_format::record::Changes;
use forebay_meta::{Append, Engine, Log, LogError, Place, Urgency};
use forebay_types::{SegmentId, Sequence};
use parking_lot::{Mutex, MutexGuard};

/// Records of one journal file.
const FILE_RECORDS: usize = 40;
const HEAD: u64 = 40;

pub struct Record {
    pub sequence: Sequence,
    pub file: SegmentId,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
pub struct State {
    pub records: Vec<Record>,
    /// All rows, as the records have left them.
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub file: Option<SegmentId>,
    /// Where the last record's data is.
    pub last_place: Option<Place>,
    pub refuse: bool,
    in_file: usize,
    offset: u64,
    last: u64,
}

pub struct TestLog {
    pub state: Mutex<State>,
    /// The next segment's number, shared with the namespace that is open.
    pub numbers: Mutex<Arc<AtomicU64>>,
}

impl TestLog {
    /// An empty log over what `engine` has.
    pub fn over(engine: &dyn Engine) -> Arc<TestLog> {
        let rows = engine.scan(&[], None, usize::MAX).unwrap().rows.into_iter().collect();
        let state = Mutex::new(State { rows, ..State::default() });
        Arc::new(TestLog { state, numbers: Mutex::new(Arc::new(AtomicU64::new(1))) })
    }

    pub fn place(&self) -> Place {
        self.state.lock().last_place.unwrap()
    }

    /// Removes the oldest files, as long as `gone` says so, up to a record that the engine does not have.
    pub fn trim(&self, applied: Sequence, gone: impl Fn(SegmentId) -> bool) {
        let mut state = self.state.lock();
        let current = state.file;
        let keep = state.records.iter().position(|record| {
            Some(record.file) == current || record.sequence > applied || !gone(record.file)
        });
        let keep = keep.unwrap_or(state.records.len());
        let Some(file) = state.records.get(keep).map(|record| record.file) else { return };
        state.records.drain(..keep);
        assert!(state.records.iter().all(|record| record.file >= file));
    }
}

struct Pending<'a> {
    state: MutexGuard<'a, State>,
    place: Place,
    len: usize,
}

impl Append for Pending<'_> {
    fn place(&self) -> Place {
        self.place
    }

    fn commit(mut self: Box<Self>, changes: &Changes) -> Sequence {
        let mut bytes = Vec::new();
        changes.encode_to(&mut bytes);
        assert_eq!(Changes::decode(&bytes).unwrap(), *changes);
        let state = &mut *self.state;
        for (key, value) in &changes.rows {
            match value {
                Some(value) => state.rows.insert(key.clone(), value.clone()),
                None => state.rows.remove(key),
            };
        }
        state.last += 1;
        state.in_file += 1;
        state.offset = self.place.offset + self.len as u64 + bytes.len() as u64;
        state.last_place = Some(self.place);
        let sequence = Sequence(state.last);
        state.records.push(Record { sequence, file: self.place.segment, bytes });
        sequence
    }
}

impl Log for TestLog {
    fn begin<'a>(&'a self, data: &'a [u8], _: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        let mut state = self.state.lock();
        if state.refuse {
            return Err(LogError::NoSpace);
        }
        if state.file.is_none() || state.in_file == FILE_RECORDS {
            state.file = Some(SegmentId(self.numbers.lock().fetch_add(1, Ordering::SeqCst)));
            state.in_file = 0;
            state.offset = 64;
        }
        let place = Place { segment: state.file.unwrap(), offset: state.offset + HEAD };
        Ok(Box::new(Pending { state, place, len: data.len() }))
    }

    fn write_out(&self) {}
}
