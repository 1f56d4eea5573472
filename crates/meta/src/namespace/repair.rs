//! Rows put as they are: what repair needs and nothing else may use.

use forebay_format::{key::Key, record::Changes};

use super::Namespace;
use crate::{error::MetaError, log::Urgency};

impl Namespace {
    /// Puts (`Some`) or deletes (`None`) rows as they are given, in one record; each key at most once. Nothing else is changed along with
    /// them: live bytes and counts have to be among the rows. All that is cached is forgotten.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where a key is none, since the record could not be replayed; those of the log.
    pub fn repair(&self, rows: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<(), MetaError> {
        if rows.iter().any(|(key, _)| Key::decode(key).is_err()) {
            return Err(MetaError::Invalid("a row whose key is none cannot be in a record"));
        }
        let mut owner = self.lock();
        let append = self.log.begin(&[], Urgency::Reclaim)?;
        let changes = Changes { rows, live: Vec::new(), streams: Vec::new() };
        owner.last = append.commit(&changes);
        for (key, value) in &changes.rows {
            owner.load(key, value.as_deref())?;
        }
        self.rows.apply(changes.rows);
        self.dentries.clear();
        self.given.clear();
        self.inodes.clear();
        self.blocks.clear();
        self.runs.clear();
        drop(owner);
        self.log.write_out();
        Ok(())
    }
}
