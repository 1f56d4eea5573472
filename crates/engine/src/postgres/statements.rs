//! The statements, in SQL that CockroachDB and YugabyteDB share.

use std::fmt;

/// The number of a database, which is in the name of its table. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Table(pub(super) i64);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forebay.rows_{}", self.0)
    }
}

/// What is asked of a table. `bytea` is ordered as `memcmp` orders, whatever the collation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Query {
    /// `$1` key.
    Get,
    /// `$1` keys.
    GetMany,
    /// `$1` from, `$2` limit.
    ScanFrom,
    /// `$1` from, `$2` to, `$3` limit.
    Scan,
    /// `$1` keys, `$2` values that they must have, `$3` how many these are. Locks the rows, and divides by zero unless all have them: what
    /// ends a transaction without another round trip.
    Hold,
    /// `$1` keys, in order, that must have no row, `$2` their new values. A value of NULL is a lock that the transaction removes again, so
    /// none is ever committed. A row that is there ends the transaction, one that somebody else is making is waited for.
    Claim,
    /// `$1` keys.
    Delete,
    /// `$1` keys, `$2` values.
    Put,
}

impl Query {
    pub(super) fn text(self, table: Table) -> String {
        match self {
            Query::Get => format!("SELECT value FROM {table} WHERE key = $1"),
            Query::GetMany => format!("SELECT key, value FROM {table} WHERE key = ANY($1::bytea[])"),
            Query::ScanFrom => {
                format!("SELECT key, value FROM {table} WHERE key >= $1 ORDER BY key LIMIT $2")
            }
            Query::Scan => {
                format!("SELECT key, value FROM {table} WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3")
            }
            Query::Hold => format!(
                "SELECT 1 / (CASE WHEN count(*) = $3::bigint THEN 1 ELSE 0 END) FROM \
                 (SELECT r.value AS found, e.value AS expected FROM unnest($1::bytea[], $2::bytea[]) AS e(key, value) \
                 JOIN {table} AS r ON r.key = e.key FOR UPDATE OF r) AS held WHERE held.found = held.expected"
            ),
            Query::Claim => format!(
                "INSERT INTO {table} (key, value) SELECT e.key, e.value FROM unnest($1::bytea[], $2::bytea[]) AS e(key, value)"
            ),
            Query::Delete => format!("DELETE FROM {table} WHERE key = ANY($1::bytea[])"),
            Query::Put => format!(
                "INSERT INTO {table} (key, value) SELECT e.key, e.value FROM unnest($1::bytea[], $2::bytea[]) AS e(key, value) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            ),
        }
    }
}
