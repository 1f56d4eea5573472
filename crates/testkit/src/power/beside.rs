//! Files that are open for reading by the kernel itself (passthrough) while a workload changes them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::daemon::{Program, Trouble};

/// Smaller files are not handed over; as in the mount options of the lives that have it.
const LEAST: u64 = 4096;
/// As many as are opened.
const MOST: usize = 16;
/// How long is waited for the first that is handed over. There may be none: all too small, or without a name.
const PATIENCE: Duration = Duration::from_secs(30);

/// Files of what is mounted at `at`, open for reading, and how many of them the kernel reads by itself.
///
/// # Errors
/// When the status cannot be had.
pub(crate) fn open_beside(program: &Program, at: &Path) -> Result<(Vec<File>, u64), Trouble> {
    let mut paths = Vec::new();
    find(at, &mut paths);
    paths.sort();
    paths.truncate(MOST);
    let open = || paths.iter().filter_map(|path| File::open(path).ok()).collect::<Vec<_>>();
    // Opened twice, a file is worth it.
    drop((open(), open()));
    let begun = Instant::now();
    loop {
        let files = open();
        let through = program.open_through(at)?;
        if through > 0 || paths.is_empty() || begun.elapsed() > PATIENCE {
            return Ok((files, through));
        }
        drop(files);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => find(&entry.path(), found),
            Ok(meta) if meta.is_file() && meta.len() >= LEAST => found.push(entry.path()),
            _ => {}
        }
    }
}
