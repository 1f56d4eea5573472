//! Programs that everybody lists directories with, run as a user runs them, their output counted.

use std::io::{self, Read};
use std::process::{Command, Stdio};

use crate::Error;
use crate::error::at;
use crate::files::Directory;

/// `find . -mindepth 1 -printf '%s\n'`; the number of entries.
pub(crate) fn find(directory: &Directory) -> Result<u64, Error> {
    lines(directory, "run find in", Command::new("find").args([".", "-mindepth", "1", "-printf", "%s\\n"]))
}

/// `ls -l`; the number of entries.
pub(crate) fn ls(directory: &Directory) -> Result<u64, Error> {
    // Its first line is the sum of blocks.
    lines(directory, "run ls in", Command::new("ls").arg("-l")).map(|lines| lines.saturating_sub(1))
}

/// Lines that a program writes. Names are sorted byte by byte, so that no user's language is in the figure.
fn lines(directory: &Directory, what: &'static str, command: &mut Command) -> Result<u64, Error> {
    count(command.env("LC_ALL", "C").current_dir(directory.path())).map_err(at(what, directory.path()))
}

fn count(command: &mut Command) -> io::Result<u64> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (mut lines, mut buffer) = (0, vec![0; 64 << 10]);
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    loop {
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let status = child.wait()?;
    if status.success() { Ok(lines) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}
