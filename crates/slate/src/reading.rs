//! Rows by SlateDB's reads. Keys of ours begin with a byte of their own there: SlateDB has no empty key, and the engine may have rows of
//! its own.

use std::ops::Bound;

use bytes::Bytes;
use forebay_engine::RowPage;
use futures::{StreamExt, TryStreamExt, stream};
use slatedb::{DbReadOps, Error, config::ScanOptions};

/// What keys of rows begin with.
const ROWS: u8 = b'r';
/// The first key after all rows.
const AFTER_ROWS: &[u8] = &[ROWS + 1];
/// A row of the engine, put by a batch that has none: so that the store says whether it may still put any.
pub(crate) const NOTHING: &[u8] = b"e nothing";

/// Values that are asked for at a time.
const AT_A_TIME: usize = 32;
/// Bytes that a scan fetches at a time, and how often at the same time.
const READ_AHEAD: usize = 256 << 10;
const FETCHES: usize = 4;

pub(crate) fn key_of(key: &[u8]) -> Bytes {
    [&[ROWS], key].concat().into()
}

pub(crate) async fn get(from: &(impl DbReadOps + Sync), key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    Ok(from.get(key_of(key)).await?.map(|value| value.to_vec()))
}

/// In the order of the keys.
pub(crate) async fn get_many(
    from: &(impl DbReadOps + Sync),
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    stream::iter(keys).map(|key| get(from, key)).buffered(AT_A_TIME).try_collect().await
}

pub(crate) async fn scan(
    source: &(impl DbReadOps + Sync),
    from: &[u8],
    to: Option<&[u8]>,
    limit: usize,
) -> Result<RowPage, Error> {
    if to.is_some_and(|to| from >= to) {
        return Ok(RowPage::default());
    }
    let end = to.map_or(Bytes::from_static(AFTER_ROWS), key_of);
    let options = ScanOptions {
        read_ahead_bytes: if limit > 100 { READ_AHEAD } else { 1 },
        max_fetch_tasks: FETCHES,
        cache_blocks: true,
        ..ScanOptions::default()
    };
    let range = (Bound::Included(key_of(from)), Bound::Excluded(end));
    let mut found = source.scan_with_options(range, &options).await?;
    let mut page = RowPage::default();
    while let Some(row) = found.next().await? {
        if page.rows.len() == limit {
            page.more = true;
            break;
        }
        page.rows.push((row.key[1..].to_vec(), row.value.to_vec()));
    }
    Ok(page)
}
