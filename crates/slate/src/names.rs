//! Names of databases: an object each, `names/NAME`, which is replaced and never removed, so that whoever changes it knows what was there.
//!
//! ```text
//! ID      a database, its rows below rows/ID
//! -ID     there is none; what is below rows/ID is being removed
//! (empty) there is none
//! ```
//!
//! An id is 16 random bytes as 32 hexadecimal digits. Databases are told from the others by the size of the object, so a listing is enough.

use std::fmt::Write as _;

use bytes::Bytes;
use forebay_engine::{DatabaseName, EngineError};
use forebay_object::{Backend, ErrorKind, Expected, ObjectError};

use crate::{explain, place::Place};

const NAMES: &str = "names";
const ID_LEN: usize = 32;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    Database(String),
    Going(String),
    Free,
}

impl Record {
    fn parse(bytes: &[u8]) -> Option<Record> {
        let id = |bytes: &[u8]| {
            let whole = bytes.len() == ID_LEN && bytes.iter().all(u8::is_ascii_hexdigit);
            whole.then(|| String::from_utf8_lossy(bytes).into_owned())
        };
        match bytes {
            [] => Some(Record::Free),
            [b'-', rest @ ..] => id(rest).map(Record::Going),
            whole => id(whole).map(Record::Database),
        }
    }

    fn bytes(&self) -> Bytes {
        match self {
            Record::Database(id) => id.clone().into(),
            Record::Going(id) => format!("-{id}").into(),
            Record::Free => Bytes::new(),
        }
    }
}

/// A name's object as it was read.
pub(crate) struct Named {
    pub(crate) record: Record,
    expected: Expected,
}

pub(crate) fn new_id(place: &Place) -> Result<String, EngineError> {
    let bits: [u8; ID_LEN / 2] = forebay_env::random()
        .map_err(|error| EngineError::Failed { place: place.name.clone(), detail: error.to_string() })?;
    Ok(bits.iter().fold(String::with_capacity(ID_LEN), |mut id, byte| {
        // Writing into a string does not fail.
        let _ = write!(id, "{byte:02x}");
        id
    }))
}

pub(crate) fn rows_of(id: &str) -> String {
    format!("rows/{id}")
}

fn key(name: &DatabaseName) -> String {
    format!("{NAMES}/{name}")
}

impl Place {
    pub(crate) fn explain(&self, error: &ObjectError) -> EngineError {
        explain::of_store(&self.name, error)
    }

    pub(crate) fn read_name(&self, name: &DatabaseName) -> Result<Named, EngineError> {
        let key = key(name);
        match self.store.get(&key) {
            Ok((bytes, etag)) => {
                let detail = || format!("{key} is not what a release of Forebay puts there");
                let damaged = || EngineError::Damaged { place: self.name.clone(), detail: detail() };
                let record = Record::parse(&bytes).ok_or_else(damaged)?;
                Ok(Named { record, expected: Expected::Etag(etag) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Named { record: Record::Free, expected: Expected::Absent })
            }
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Replaces what was read; `false` where somebody else did.
    pub(crate) fn write_name(
        &self,
        name: &DatabaseName,
        old: &Named,
        new: &Record,
    ) -> Result<bool, EngineError> {
        match self.store.put_if(&key(name), new.bytes(), &old.expected) {
            Ok(_) => Ok(true),
            // It may have been this very call, its answer lost; ids are nobody else's.
            Err(error) if error.is_answer() => Ok(self.read_name(name)?.record == *new),
            Err(error) => Err(self.explain(&error)),
        }
    }

    pub(crate) fn names(&self) -> Result<Vec<DatabaseName>, EngineError> {
        let (mut names, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.store.list(NAMES, after.as_deref()).map_err(|error| self.explain(&error))?;
            let databases = page.entries.iter().filter(|meta| meta.size == ID_LEN as u64);
            let found = databases.filter_map(|meta| meta.key.strip_prefix("names/")?.parse().ok());
            names.extend::<Vec<DatabaseName>>(found.collect());
            after = page.next;
            if after.is_none() {
                names.sort();
                return Ok(names);
            }
        }
    }

    /// Removes all objects of an id that no name stands for any more.
    pub(crate) fn remove_rows(&self, id: &str) -> Result<(), EngineError> {
        self.wait_closed(&rows_of(id));
        loop {
            let page = self.store.list(&rows_of(id), None).map_err(|error| self.explain(&error))?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for meta in &page.entries {
                self.store.delete(&meta.key).map_err(|error| self.explain(&error))?;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_apart_and_nothing_else_is_taken() {
        let id = "0123456789abcdef0123456789abcdef".to_owned();
        for record in [Record::Database(id.clone()), Record::Going(id.clone()), Record::Free] {
            assert_eq!(Record::parse(&record.bytes()).unwrap(), record);
        }
        for wrong in [&id[1..], "-", "--23456789abcdef0123456789abcdef01", "zz23456789abcdef0123456789abcdef"]
        {
            assert_eq!(Record::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
