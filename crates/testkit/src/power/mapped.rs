//! Stores in a shared mapping, made by a process of their own.
//!
//! A process whose mapping cannot be read any more, because what serves the file was killed, gets SIGBUS: so it is not this one. Python has
//! mappings that need no unsafe code, and the tests have Python.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::history::Store;

/// Arguments: path, `sync` or not, and of each store offset and length; the bytes are the standard input. Exits with the number of the error.
const SCRIPT: &str = r#"
import mmap, os, sys
path, sync, *numbers = sys.argv[1:]
try:
    file = os.open(path, os.O_RDWR)
    area = mmap.mmap(file, 0)
    for at, length in zip(map(int, numbers[::2]), map(int, numbers[1::2])):
        area[at:at + length] = sys.stdin.buffer.read(length)
    if sync == "sync":
        area.flush()
    area.close()
    os.close(file)
except OSError as error:
    sys.exit(error.errno)
"#;

/// Stores bytes in a mapping of the file, with `sync` calls `msync` with `MS_SYNC`, unmaps and closes it.
///
/// # Errors
/// What mapping, `msync` or closing gave, or that the process was killed.
pub(super) fn store(path: &Path, stores: &[Store], sync: bool) -> io::Result<()> {
    let mut child = Command::new("python3")
        .args(["-S", "-c", SCRIPT])
        .arg(path)
        .arg(if sync { "sync" } else { "-" })
        .args(stores.iter().flat_map(|(offset, data)| [offset.to_string(), data.len().to_string()]))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::other(format!("python3, for mappings: {error}")))?;
    let bytes: Vec<u8> = stores.iter().flat_map(|(_, data)| data.iter().copied()).collect();
    // One that has ended early says why itself.
    drop(child.stdin.take().map(|mut input| input.write_all(&bytes)));
    let status = child.wait()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other(format!("the process with the mapping: {status}"))),
    }
}
