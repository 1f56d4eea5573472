//! A store whose puts a test holds back.

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_object::{Backend, ETag, Expected, Meta, ObjectError, Page, PutOutcome, StoreUrl};
use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    closed: bool,
    waiting: usize,
    /// Puts that have come, and those of them that may go on though it is closed.
    came: usize,
    let_through: usize,
}

/// While it is closed, puts wait before anything happens.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<dyn Backend>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub fn new(inner: Arc<dyn Backend>) -> Gate {
        Gate { inner, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn set_closed(&self, closed: bool) {
        self.state.lock().closed = closed;
        self.changed.notify_all();
    }

    /// Lets those go on that came first, so many since it was made.
    pub fn let_through(&self, puts: usize) {
        self.state.lock().let_through = puts;
        self.changed.notify_all();
    }

    /// How many have come since it was made.
    pub fn came(&self) -> usize {
        self.state.lock().came
    }

    /// Returns when so many puts wait.
    pub fn wait_for(&self, waiting: usize) {
        let mut state = self.state.lock();
        while state.waiting < waiting {
            let late = self.changed.wait_for(&mut state, Duration::from_secs(60)).timed_out();
            assert!(!late, "{} puts wait, not {waiting}", state.waiting);
        }
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        state.came += 1;
        let number = state.came;
        self.changed.notify_all();
        while state.closed && number > state.let_through {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

impl Backend for Gate {
    fn url(&self) -> &StoreUrl {
        self.inner.url()
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.pass();
        self.inner.put_new(key, bytes)
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        self.inner.put_new_file(key, file)
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.inner.put_if(key, bytes, expected)
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        self.inner.get_range(key, range)
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        self.inner.get(key)
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        self.inner.head(key)
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.inner.delete(key)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.inner.list(prefix, after)
    }
}
