//! Listing a tree of files in the order of their keys.

use std::{fs, io, path::Path};

use super::describe;
use crate::{
    Page,
    key::{RESERVED, is_key_part},
};

/// Entries in a page.
const PAGE: usize = 1000;

/// The objects below `prefix` whose keys are greater than `after`, as many as a page holds.
pub(super) fn page(root: &Path, prefix: &str, after: &str) -> io::Result<Page> {
    let mut page = Page::default();
    let dir = if prefix.is_empty() { root.to_path_buf() } else { root.join(prefix) };
    let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    walk(&dir, &start, after, &mut page)?;
    if page.entries.len() > PAGE {
        page.entries.truncate(PAGE);
        page.next = page.entries.last().map(|last| last.key.clone());
    }
    Ok(page)
}

/// Adds what is below `dir`, whose keys begin with `start`, until the page is more than full.
fn walk(dir: &Path, start: &str, after: &str, page: &mut Page) -> io::Result<()> {
    for (key, is_dir) in sorted(dir, start)? {
        if page.entries.len() > PAGE {
            return Ok(());
        }
        if is_dir {
            if key.as_str() > after || after.starts_with(&key) {
                walk(&dir.join(last_part(&key)), &key, after, page)?;
            }
        } else if key.as_str() > after {
            match fs::symlink_metadata(dir.join(last_part(&key))) {
                Ok(meta) => page.entries.push(describe(key, &meta)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn last_part(key: &str) -> &str {
    key.trim_end_matches('/').rsplit('/').next().unwrap_or(key)
}

/// The files and directories in `dir` by key. A directory's key ends with a slash, which puts it where the keys below it belong.
/// What is neither, and what no key can name, is left out; a directory that is gone is empty.
fn sorted(dir: &Path, start: &str) -> io::Result<Vec<(String, bool)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let mut keys = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_key_part(name)) else { continue };
        if start.is_empty() && name == RESERVED {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            keys.push((format!("{start}{name}/"), true));
        } else if kind.is_file() {
            keys.push((format!("{start}{name}"), false));
        }
    }
    keys.sort_unstable();
    Ok(keys)
}
