//! Whether another process lives that has a database open.
//!
//! A server writes to its registry every second. So a log that does not grow for some seconds is nobody's, or that of a server that cannot commit.
//! This is a matter of manners: who opens a database shuts out the former one in any case.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_engine::EngineError;
use forebay_object::Backend;

use crate::place::Place;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The last object of a database's log after one that is known.
fn newest(place: &Place, path: &str, mut known: Option<String>) -> Result<Option<String>, EngineError> {
    let log = format!("{path}/wal");
    loop {
        let page = place.store.list(&log, known.as_deref()).map_err(|error| place.explain(&error))?;
        known = page.entries.last().map(|last| last.key.clone()).or(known);
        if page.next.is_none() {
            return Ok(known);
        }
    }
}

/// Looks for as long as the place says whether a log grows; ends at once where it does, or where there is none.
pub(crate) fn is_quiet(place: &Place, path: &str) -> Result<bool, EngineError> {
    let began = Instant::now();
    let Some(known) = newest(place, path, None)? else { return Ok(true) };
    while let Some(left) = place.waits.quiet.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        thread::sleep(left.min(LOOK_EVERY));
        if newest(place, path, Some(known.clone()))?.as_ref() != Some(&known) {
            return Ok(false);
        }
    }
    Ok(true)
}
