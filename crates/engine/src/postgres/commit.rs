//! A batch as one transaction that is sent in one go.
//!
//! Order that must hold: fences are locked and compared before any row is changed, so that who is fenced waits for nobody but the holder of
//! the fence; COMMIT is sent with everything else, so whatever is not refused by the server before it may have been carried out.

use tokio_postgres::types::ToSql;

use super::{
    statements::{Query, Table},
    trouble::Trouble,
    wire::{Step, Wire},
};
use crate::{Batch, Outcome};

/// A statement takes no more bytes and rows than these, to bound what the server keeps in memory for it.
const STEP_BYTES: usize = 8 << 20;
const STEP_ROWS: usize = 20_000;

/// Division by zero: what [`Query::Hold`] says of a fence that does not hold.
const NOT_HELD: &str = "22012";
/// Unique violation: what [`Query::Claim`] says of a row that is there.
const NOT_ABSENT: &str = "23505";

type Put<'a> = (&'a [u8], Option<&'a [u8]>);

/// Commits a batch. An error means that nothing was changed.
pub(super) fn commit(wire: &mut Wire, table: Table, batch: &Batch<'_>) -> Result<Outcome, Trouble> {
    let steps = steps(wire, table, batch)?;
    let Ok(answers) = wire.transact(&steps) else { return Ok(Outcome::Unknown) };
    let Some((last, before)) = answers.split_last() else { return Ok(Outcome::Unknown) };
    if let Some(Err(Trouble::Said { code, message, last: false })) = before.first() {
        // Nothing behind it changed anything: outside a transaction the connection only reads. A standby says so of BEGIN.
        let code = if code == "0A000" { "25006" } else { code }.to_owned();
        return Err(Trouble::Said { code, message: message.clone(), last: false });
    }
    for answer in before {
        match answer {
            Ok(()) => {}
            Err(trouble) if trouble.has_code(NOT_HELD) || trouble.has_code(NOT_ABSENT) => {
                return Ok(Outcome::Fenced);
            }
            // A transaction with a failed statement cannot be committed, whatever comes after it.
            Err(trouble @ Trouble::Said { last: false, .. }) => return Err(trouble.clone()),
            Err(_) => return Ok(Outcome::Unknown),
        }
    }
    match last {
        Ok(()) => Ok(Outcome::Committed),
        Err(trouble) if trouble.undid() => Err(trouble.clone()),
        Err(_) => Ok(Outcome::Unknown),
    }
}

fn steps<'a>(wire: &mut Wire, table: Table, batch: &'a Batch<'_>) -> Result<Vec<Step<'a>>, Trouble> {
    let mut steps = Vec::new();
    let mut step = |query, parameters| -> Result<(), Trouble> {
        steps.push(Step { statement: wire.prepare(table, query)?, parameters });
        Ok(())
    };
    // In the order of their keys, so that two batches seldom wait for each other.
    let mut rows = batch.rows.clone();
    rows.sort_unstable_by_key(|(key, _)| *key);
    let mut expected: Vec<Put<'a>> =
        batch.expect.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
    expected.sort_unstable_by_key(|(key, _)| *key);
    let (held, absent): (Vec<_>, Vec<_>) = expected.into_iter().partition(|(_, value)| value.is_some());
    if !held.is_empty() {
        let count = i64::try_from(held.len()).unwrap_or(i64::MAX);
        let (keys, values): (Vec<_>, Vec<_>) = held.into_iter().unzip();
        step(Query::Hold, vec![boxed(keys), boxed(values), Box::new(count)])?;
    }
    let mut gone: Vec<&[u8]> = Vec::new();
    if !absent.is_empty() {
        let new = |key: &[u8]| rows.binary_search_by_key(&key, |(key, _)| key).ok().and_then(|at| rows[at].1);
        let values: Vec<_> = absent.iter().map(|(key, _)| new(key)).collect();
        gone =
            absent.iter().zip(&values).filter(|(_, value)| value.is_none()).map(|(one, _)| one.0).collect();
        rows.retain(|(key, _)| absent.binary_search_by_key(key, |(key, _)| key).is_err());
        let keys: Vec<_> = absent.into_iter().map(|(key, _)| key).collect();
        step(Query::Claim, vec![boxed(keys), boxed(values)])?;
    }
    gone.extend(rows.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key));
    for keys in gone.chunks(STEP_ROWS) {
        step(Query::Delete, vec![boxed(keys.to_vec())])?;
    }
    rows.retain(|(_, value)| value.is_some());
    let mut rest = rows.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest));
        rest = later;
        let (keys, values): (Vec<_>, Vec<_>) = now.iter().copied().unzip();
        step(Query::Put, vec![boxed(keys), boxed(values)])?;
    }
    Ok(steps)
}

fn boxed<'a, T: ToSql + Sync + 'a>(parameter: T) -> Box<dyn ToSql + Sync + 'a> {
    Box::new(parameter)
}

/// How many of the rows one statement takes, at least one.
fn fitting(rows: &[Put<'_>]) -> usize {
    let mut bytes = 0;
    let beyond = rows.iter().take(STEP_ROWS).position(|(key, value)| {
        bytes += key.len() + value.map_or(0, <[u8]>::len);
        bytes > STEP_BYTES
    });
    beyond.unwrap_or(rows.len().min(STEP_ROWS)).max(1)
}
