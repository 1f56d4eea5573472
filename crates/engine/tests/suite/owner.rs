//! An owner whose batches have a mark each, and settling them.

use forebay_engine::{Batch, Engine, EngineError, Outcome};

/// Batches with a mark each, as an owner would commit them.
pub struct Owner {
    number: u32,
    /// Of the batches, those that are said to be committed.
    pub committed: Vec<u32>,
}

pub const MARK: &[u8] = b"mark";

impl Owner {
    pub fn new() -> Owner {
        Owner { number: 0, committed: Vec::new() }
    }

    /// Commits the next batch by `work`, which is to say what became of it; an error of which says that nothing was changed.
    pub fn next(&mut self, work: impl FnOnce(&Batch<'_>) -> Result<Outcome, EngineError>) -> Option<Outcome> {
        self.number += 1;
        let (value, key) =
            (self.number.to_be_bytes(), [b"log ", self.number.to_be_bytes().as_slice()].concat());
        let old = self.committed.last().map(|last| last.to_be_bytes().to_vec());
        let rows = vec![(key.as_slice(), Some(b"row".as_slice())), (MARK, Some(value.as_slice()))];
        let outcome = work(&Batch { expect: vec![(MARK.to_vec(), old)], rows }).ok();
        if outcome == Some(Outcome::Committed) {
            self.committed.push(self.number);
        }
        outcome
    }

    /// What is there is exactly what was said to be committed.
    pub fn check(&self, engine: &dyn Engine) {
        let found = engine.scan(b"log ", Some(b"log!"), usize::MAX).unwrap().rows;
        let found: Vec<u32> =
            found.iter().map(|(key, _)| u32::from_be_bytes(key[4..].try_into().unwrap())).collect();
        assert_eq!(found, self.committed);
    }
}

/// Settles a batch whose outcome is unknown, as long as that takes.
pub fn settled(engine: &dyn Engine, batch: &Batch<'_>) -> Outcome {
    loop {
        match forebay_engine::settle(engine, batch, MARK) {
            Ok(Outcome::Unknown) | Err(EngineError::Unreachable { .. }) => {}
            outcome => return outcome.unwrap(),
        }
    }
}
