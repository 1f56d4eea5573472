//! `forebay warm`
//!
//! This command walks names, by the kernel and with the caller's rights; the process behind the mount knows where their bytes are, and brings them.

mod asking;
mod place;
mod walk;

use std::{
    fs::File,
    io::{BufRead, BufReader},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    args::WarmArgs, control::Client, error::CliError, logging, output, progress::WarmBar, size::human,
};

use asking::{Totals, bring};
use place::Place;
use walk::{Trouble, Troubles};

pub(crate) fn run(args: &WarmArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let troubles = Troubles::default();
    let mut groups: Vec<(Place, Vec<PathBuf>)> = Vec::new();
    let mut add = |place: Place, path: PathBuf| match groups.iter_mut().find(|(known, _)| *known == place) {
        Some((_, paths)) => paths.push(path),
        None => groups.push((place, vec![path])),
    };
    // What is given by itself is what the person means: nothing is begun where one of these is wrong. A list is long, and something in it may be gone.
    for path in &args.paths {
        let (place, path) = Place::of(path)?;
        add(place, path);
    }
    if let Some(list) = &args.list {
        for path in listed(list)? {
            match Place::of(&path) {
                Ok((place, path)) => add(place, path),
                Err(error) => troubles.add(Trouble { path, why: error.to_string() }),
            }
        }
    }
    let words = args.into.map_or("", crate::args::WarmPlace::words);
    let mut total = Totals::default();
    for (place, paths) in groups {
        let client = place.client()?;
        let mut bar = WarmBar::new();
        let done = bring(client, words, &place, paths, &troubles, &mut bar)?;
        drop(bar);
        total.add(&done);
    }
    Ok(tell(&total, &troubles))
}

/// The paths in a list, one a line.
fn listed(list: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = CliError::io("read", list);
    let lines = |reader: &mut dyn BufRead| {
        reader.split(b'\n').collect::<Result<Vec<_>, _>>().map(|lines| {
            let lines = lines.into_iter().filter(|line| !line.is_empty());
            lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line))).collect()
        })
    };
    if list == Path::new("-") {
        return lines(&mut std::io::stdin().lock()).map_err(failed);
    }
    File::open(list).and_then(|file| lines(&mut BufReader::new(file))).map_err(failed)
}

/// Says what was done, then what was not.
fn tell(total: &Totals, troubles: &Troubles) -> ExitCode {
    let brought = total.files - total.failed;
    output::line(&format_args!(
        "{brought} files, {}: {} fetched, {} were near already",
        human(total.seen_bytes),
        human(total.fetched_bytes),
        human(total.cached_bytes)
    ));
    if total.lost_bytes > 0 || total.evicted_chunks > 0 {
        output::complain(&format_args!(
            "warning: not all of it stays: a cache has no room for it or its disk fails ({} did not stay, {} chunks of 256 KiB made way)",
            human(total.lost_bytes),
            total.evicted_chunks
        ));
    }
    let (told, count) = troubles.all();
    for Trouble { path, why } in &told {
        output::complain(&format_args!("'{}': {why}", path.display()));
    }
    if count > told.len() as u64 {
        output::complain(&format_args!("and {} more were not brought", count - told.len() as u64));
    }
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Place {
    fn client(&self) -> Result<Client, CliError> {
        let mut last = None;
        for mounted in &self.mounts {
            match Client::of_mount(mounted) {
                Ok(client) => return Ok(client),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| CliError::Told("it is not mounted any more".to_owned()), CliError::from))
    }
}
