use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::{DatabaseName, Engine, EngineError, EngineHost, Writers};
use forebay_object::{
    Backend, ErrorKind, ObjectError, ObjectStore as Store, Patience, StoreOptions, StoreUrl, probe,
};

use crate::{
    SlateUrl,
    bucket::STUBBORN,
    engine::SlateEngine,
    explain,
    names::{self, Record},
    place::{Place, Waits},
    quiet,
};

/// The version of what a place has.
const VERSION: u32 = 1;
const FORMAT: &str = "format";
const REGISTRY: &str = "registry";

/// A place in an object store that has databases of SlateDB. One process has a database open at a time: the last that opened it. The registry is
/// not taken from a process that writes to it.
pub struct SlateHost(Arc<Place>);

impl std::fmt::Debug for SlateHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlateHost({})", self.0.name)
    }
}

impl SlateHost {
    /// Opens a place, with what the environment says of the store; a place that is new is made, when the store has been found able to
    /// keep writers apart.
    ///
    /// # Errors
    /// [`EngineError::Refused`], [`EngineError::Unreachable`], [`EngineError::Newer`], and others.
    pub fn open(url: &SlateUrl) -> Result<SlateHost, EngineError> {
        SlateHost::open_with(url, &StoreOptions::default())
    }

    /// Like [`SlateHost::open`], with options for the store.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(url: &SlateUrl, options: &StoreOptions) -> Result<SlateHost, EngineError> {
        let create_directory = matches!(url.0, StoreUrl::File(_));
        let options = StoreOptions { create_directory, patient: STUBBORN, ..options.clone() };
        let store = Store::open(&url.0, &options);
        let store = store.map_err(|error| explain::of_store(&url.to_string(), &error))?;
        SlateHost::over(store, Waits::default())
    }

    /// Like [`SlateHost::open`], in a store that is open already; what takes longer than is said here is given up.
    ///
    /// # Errors
    /// As there.
    pub fn over(store: Store, waits: Waits) -> Result<SlateHost, EngineError> {
        let place = SlateUrl(store.url().clone()).to_string();
        check_format(&place, &store.patient(Patience::Quick))?;
        Ok(SlateHost(Arc::new(Place::new(place, store.patient(Patience::Patient), waits)?)))
    }

    fn engine(&self, path: &str) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(SlateEngine::open(&self.0, path)?))
    }

    fn missing(&self, name: &DatabaseName) -> EngineError {
        EngineError::Missing { place: self.place(), name: name.to_string() }
    }
}

/// Reads the version of a place; writes it where there is none and the store can do what is needed.
fn check_format(place: &str, store: &Store) -> Result<(), EngineError> {
    let failed = |error: ObjectError| explain::of_store(place, &error);
    let found = match store.get(FORMAT) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            probe(store).map_err(failed)?;
            match store.put_new(FORMAT, Bytes::from(VERSION.to_string())) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    store.get(FORMAT).map_err(failed)?.0
                }
                put => return put.map(drop).map_err(failed),
            }
        }
        got => got.map_err(failed)?.0,
    };
    match std::str::from_utf8(&found).ok().and_then(|text| text.trim().parse().ok()) {
        Some(found) if found > VERSION => {
            Err(EngineError::Newer { place: place.to_owned(), found, known: VERSION })
        }
        Some(VERSION) => Ok(()),
        _ => {
            let detail = format!("the object {FORMAT:?} has no version: is this prefix something else's?");
            Err(EngineError::Damaged { place: place.to_owned(), detail })
        }
    }
}

impl EngineHost for SlateHost {
    fn place(&self) -> String {
        self.0.name.clone()
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn registry(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let Some(still) = quiet::stands_still(&self.0, REGISTRY)? else {
            return Err(EngineError::Locked { place: self.place() });
        };
        Ok(Arc::new(SlateEngine::open(&self.0, REGISTRY)?.after(&still)?))
    }

    fn list(&self) -> Result<Vec<DatabaseName>, EngineError> {
        self.0.names()
    }

    fn create(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        let id = names::new_id(&self.0)?;
        let exists = || EngineError::Exists { place: self.place(), name: name.to_string() };
        let old = self.0.read_name(name)?;
        match &old.record {
            Record::Database(_) => return Err(exists()),
            // A stop came between.
            Record::Going(gone) => self.0.remove_rows(gone)?,
            Record::Free => {}
        }
        // The database itself is made by its first opening: from here on there is one, without rows.
        if !self.0.write_name(name, &old, &Record::Database(id.clone()))? {
            return Err(exists());
        }
        self.engine(&names::rows_of(&id))
    }

    fn open(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        match self.0.read_name(name)?.record {
            Record::Database(id) => self.engine(&names::rows_of(&id)),
            _ => Err(self.missing(name)),
        }
    }

    fn remove(&self, name: &DatabaseName) -> Result<(), EngineError> {
        let old = self.0.read_name(name)?;
        let Record::Database(id) = &old.record else { return Err(self.missing(name)) };
        if !self.0.write_name(name, &old, &Record::Going(id.clone()))? {
            return Err(self.missing(name));
        }
        self.0.remove_rows(id)?;
        let going = self.0.read_name(name)?;
        // Unless the name is used again already.
        if going.record == Record::Going(id.clone()) {
            self.0.write_name(name, &going, &Record::Free)?;
        }
        Ok(())
    }
}
