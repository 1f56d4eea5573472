//! What the place has beside the rows: its version, and which databases there are.
//!
//! ```text
//! forebay.schema    (id int = 1, version int, next_database bigint)
//! forebay.databases (name text, id bigint)                   the registry has the empty name
//! forebay.rows_ID   (key bytea, value bytea)                 one table for each database
//! ```

use tokio_postgres::{Client, Error};

use super::{
    statements::Table,
    trouble::Trouble,
    wire::{BEGIN, Wire},
};

/// The version of the tables that this release keeps.
pub(super) const VERSION: u32 = 1;
/// Tries to make the tables, which others may do at the same time.
const TRIES: u32 = 10;

const MAKE: &str = "CREATE SCHEMA IF NOT EXISTS forebay;
    CREATE TABLE IF NOT EXISTS forebay.schema (id int PRIMARY KEY, version int NOT NULL, next_database bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS forebay.databases (name text PRIMARY KEY, id bigint NOT NULL);
    INSERT INTO forebay.schema (id, version, next_database) VALUES (1, 1, 1) ON CONFLICT (id) DO NOTHING;";

/// The version of the tables that are there; they are made where there are none.
pub(super) fn version(wire: &mut Wire) -> Result<u32, Trouble> {
    let ask = async |client: &Client| {
        let rows = client.query("SELECT version FROM forebay.schema WHERE id = 1", &[]).await?;
        rows.first().map(|row| row.try_get::<_, i32>(0)).transpose()
    };
    for attempt in 1.. {
        match wire.drive(ask) {
            Ok(Some(version)) => return Ok(u32::try_from(version).unwrap_or(u32::MAX)),
            // No such table, no such schema.
            Err(trouble) if !trouble.has_code("42P01") && !trouble.has_code("3F000") => return Err(trouble),
            _ => {}
        }
        match transaction(wire, async |client| client.batch_execute(MAKE).await) {
            Ok(()) => {}
            // Somebody else makes them: there already, under several names.
            Err(Trouble::Said { code, .. })
                if attempt < TRIES
                    && ["23505", "42P06", "42P07", "42710", "40001"].contains(&code.as_str()) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Err(Trouble::Lost("its tables could not be made".into()))
}

/// The database of a name.
pub(super) fn find(wire: &mut Wire, name: &str) -> Result<Option<Table>, Trouble> {
    wire.drive(async |client| {
        let rows = client.query("SELECT id FROM forebay.databases WHERE name = $1", &[&name]).await?;
        rows.first().map(|row| row.try_get(0).map(Table)).transpose()
    })
}

/// All names, the registry's too.
pub(super) fn names(wire: &mut Wire) -> Result<Vec<String>, Trouble> {
    wire.drive(async |client| {
        let rows = client.query("SELECT name FROM forebay.databases", &[]).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    })
}

/// Makes a database; `None` where there is one of that name.
pub(super) fn create(wire: &mut Wire, name: &str) -> Result<Option<Table>, Trouble> {
    let made = transaction(wire, async |client| {
        // The row's lock has all who make databases wait for each other.
        let next = "UPDATE forebay.schema SET next_database = next_database + 1 WHERE id = 1 RETURNING next_database - 1";
        let table = Table(client.query_one(next, &[]).await?.try_get(0)?);
        client
            .execute("INSERT INTO forebay.databases (name, id) VALUES ($1, $2)", &[&name, &table.0])
            .await?;
        client.batch_execute(&format!("CREATE TABLE {table} (key bytea PRIMARY KEY, value bytea)")).await?;
        Ok(table)
    });
    match made {
        Err(trouble) if trouble.has_code("23505") => Ok(None),
        made => made.map(Some),
    }
}

/// Removes a database; `false` where there is none of that name.
pub(super) fn remove(wire: &mut Wire, name: &str) -> Result<bool, Trouble> {
    transaction(wire, async |client| {
        let gone =
            client.query("DELETE FROM forebay.databases WHERE name = $1 RETURNING id", &[&name]).await?;
        let Some(row) = gone.first() else { return Ok(false) };
        client.batch_execute(&format!("DROP TABLE {}", Table(row.try_get(0)?))).await?;
        Ok(true)
    })
}

/// Bytes on disk, as far as the server can tell.
pub(super) fn size(wire: &mut Wire, table: Table) -> Result<u64, Trouble> {
    let ask = format!("SELECT pg_total_relation_size('{table}'::regclass)");
    let size: i64 = wire.drive(async |client| client.query_one(&ask, &[]).await?.try_get(0))?;
    Ok(u64::try_from(size).unwrap_or(0))
}

fn transaction<T>(
    wire: &mut Wire,
    work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Result<T, Trouble> {
    let result = wire.drive(async |client| {
        client.batch_execute(BEGIN).await?;
        let done = work(client).await?;
        client.batch_execute("COMMIT").await?;
        Ok(done)
    });
    if matches!(&result, Err(trouble) if !trouble.ends_connection()) {
        wire.drive(async |client| client.batch_execute("ROLLBACK").await)?;
    }
    result
}
