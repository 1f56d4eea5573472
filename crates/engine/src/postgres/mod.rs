//! PostgreSQL, and what speaks its protocol, as a place of engines with many writers.
//!
//! Guarantees: see [`crate`]. A batch is one transaction whose fence rows are locked, sent in one go; a connection that breaks before the
//! server's last word makes the outcome unknown. Reads and what was not sent yet are tried again, on new connections. Relies on: a server
//! that keeps what it committed, and row locks in READ COMMITTED.

mod commit;
mod pool;
mod schema;
mod statements;
mod tls;
mod together;
mod trouble;
mod url;
mod wire;

use std::{sync::Arc, time::Duration};

use tokio_postgres::{Row, types::ToSql};

pub use self::url::PostgresUrl;
use self::{
    pool::Pool,
    statements::{Query, Table},
    together::{Found, Together},
    trouble::Trouble,
    wire::{Purpose, Wire},
};
use crate::{Batch, DatabaseName, Engine, EngineError, EngineHost, KEY_MAX, Outcome, RowPage, Writers};

/// Connections to one place.
const READ_CONNECTIONS: usize = 8;
const COMMIT_CONNECTIONS: usize = 4;
/// The name under which the registry is kept: no [`DatabaseName`].
const REGISTRY: &str = "";

/// How long a server that does not answer is waited for before an operation fails.
const PATIENCE: Duration = Duration::from_secs(5);

/// A PostgreSQL database that has tables of ours.
pub struct PostgresHost(Arc<Place>);

struct Place {
    place: String,
    reads: Pool,
    commits: Pool,
}

impl Place {
    fn explain(&self, trouble: Trouble) -> EngineError {
        trouble.explain(&self.place)
    }

    /// Reads something, again and again while that may help.
    fn read<T>(&self, work: impl Fn(&mut Wire) -> Result<T, Trouble>) -> Result<T, EngineError> {
        self.reads.retried(work).map_err(|trouble| self.explain(trouble))
    }

    /// Changes something that must not be done twice.
    fn change<T>(&self, work: impl FnOnce(&mut Wire) -> Result<T, Trouble>) -> Result<T, EngineError> {
        self.commits.once(work).map_err(|trouble| self.explain(trouble))
    }
}

impl std::fmt::Debug for PostgresHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresHost({})", self.0.place)
    }
}

impl PostgresHost {
    /// Connects, and makes the tables that are not there yet.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`], [`EngineError::Refused`], [`EngineError::Newer`], and others.
    pub fn open(url: &PostgresUrl) -> Result<PostgresHost, EngineError> {
        PostgresHost::open_within(url, PATIENCE)
    }

    /// Like [`PostgresHost::open`], but operations wait for a server that does not answer as long as is said here.
    ///
    /// # Errors
    /// As there.
    pub fn open_within(url: &PostgresUrl, patience: Duration) -> Result<PostgresHost, EngineError> {
        let place = url.place();
        let tls = tls::connector(url.tls.as_ref())
            .map_err(|detail| EngineError::Refused { place: place.clone(), detail })?;
        let pool = |purpose, size| Pool::new(url.config.clone(), tls.clone(), purpose, size, patience);
        let host = Place {
            place: place.clone(),
            reads: pool(Purpose::Reads, READ_CONNECTIONS),
            commits: pool(Purpose::Commits, COMMIT_CONNECTIONS),
        };
        let found = host.commits.retried(schema::version).map_err(|trouble| host.explain(trouble))?;
        if found > schema::VERSION {
            return Err(EngineError::Newer { place, found, known: schema::VERSION });
        }
        Ok(PostgresHost(Arc::new(host)))
    }

    fn engine(&self, table: Table, name: &str) -> Arc<dyn Engine> {
        Arc::new(PostgresEngine {
            place: Arc::clone(&self.0),
            table,
            name: name.to_owned(),
            together: Together::default(),
        })
    }

    fn find(&self, name: &str) -> Result<Option<Arc<dyn Engine>>, EngineError> {
        let table = self.0.read(|wire| schema::find(wire, name))?;
        Ok(table.map(|table| self.engine(table, name)))
    }

    fn make(&self, name: &str) -> Result<Option<Arc<dyn Engine>>, EngineError> {
        let table = self.0.change(|wire| schema::create(wire, name))?;
        Ok(table.map(|table| self.engine(table, name)))
    }
}

impl EngineHost for PostgresHost {
    fn place(&self) -> String {
        self.0.place.clone()
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn registry(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let found = match self.find(REGISTRY)? {
            None => self.make(REGISTRY)?,
            found => found,
        };
        // Another process may have made it in between.
        match found {
            None => self.find(REGISTRY)?.ok_or_else(|| missing(self.place(), REGISTRY)),
            Some(engine) => Ok(engine),
        }
    }

    fn list(&self) -> Result<Vec<DatabaseName>, EngineError> {
        let names = self.0.read(schema::names)?;
        let mut names: Vec<DatabaseName> = names.iter().filter_map(|name| name.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        let exists = || EngineError::Exists { place: self.place(), name: name.to_string() };
        self.make(name.as_str())?.ok_or_else(exists)
    }

    fn open(&self, name: &DatabaseName) -> Result<Arc<dyn Engine>, EngineError> {
        self.find(name.as_str())?.ok_or_else(|| missing(self.place(), name.as_str()))
    }

    fn remove(&self, name: &DatabaseName) -> Result<(), EngineError> {
        let removed = self.0.change(|wire| schema::remove(wire, name.as_str()))?;
        if removed { Ok(()) } else { Err(missing(self.place(), name.as_str())) }
    }
}

fn missing(place: String, name: &str) -> EngineError {
    EngineError::Missing { place, name: name.to_owned() }
}

/// One database of a [`PostgresHost`].
struct PostgresEngine {
    place: Arc<Place>,
    table: Table,
    name: String,
    together: Together,
}

impl std::fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresEngine({}, {:?})", self.place.place, self.name)
    }
}

impl PostgresEngine {
    fn query(&self, query: Query, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, EngineError> {
        self.ask(query, parameters).map_err(|trouble| self.explain(trouble))
    }

    fn ask(&self, query: Query, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Trouble> {
        self.place.reads.retried(|wire| {
            let statement = wire.prepare(self.table, query)?;
            wire.drive(async |client| client.query(&statement, parameters).await)
        })
    }

    fn explain(&self, trouble: Trouble) -> EngineError {
        // There is no such table: the database was removed.
        if trouble.has_code("42P01") {
            return missing(self.place.place.clone(), &self.name);
        }
        self.place.explain(trouble)
    }

    fn cell(&self, row: &Row, column: usize) -> Result<Vec<u8>, EngineError> {
        row.try_get(column).map_err(|error| EngineError::Damaged {
            place: self.place.place.clone(),
            detail: format!("{}, column {column}: {error}", self.table),
        })
    }
}

impl Engine for PostgresEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let rows = self.query(Query::Get, &[&key])?;
        rows.first().map(|row| self.cell(row, 0)).transpose()
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.together.read(keys, |keys| {
            let rows = self.ask(Query::GetMany, &[&keys])?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<Found, Trouble>>()
        });
        read.map_err(|trouble| self.explain(trouble))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        // One more tells whether there are more.
        let ask = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let found = match to {
            Some(to) => self.query(Query::Scan, &[&from, &to, &ask])?,
            None => self.query(Query::ScanFrom, &[&from, &ask])?,
        };
        let rows = found.iter().take(limit).map(|row| Ok((self.cell(row, 0)?, self.cell(row, 1)?)));
        Ok(RowPage { rows: rows.collect::<Result<_, EngineError>>()?, more: found.len() > limit })
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        if batch.expect.is_empty() && batch.rows.is_empty() {
            return Ok(Outcome::Committed);
        }
        let too_long = batch.rows.iter().any(|(key, _)| key.len() > KEY_MAX);
        if too_long {
            let detail = format!("a key is longer than {KEY_MAX} bytes");
            return Err(EngineError::Failed { place: self.place.place.clone(), detail });
        }
        // An error means that nothing was changed, so what may pass is tried again: conflicts, servers that start.
        let outcome = self.place.commits.retried(|wire| commit::commit(wire, self.table, batch));
        outcome.map_err(|trouble| self.explain(trouble))
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        self.place.read(|wire| schema::size(wire, self.table)).unwrap_or(0)
    }
}
