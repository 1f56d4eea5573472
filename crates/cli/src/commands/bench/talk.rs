//! Questions to a process that the benchmark started, and its answers: a line each, over its standard input and output.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout},
};

use serde::de::DeserializeOwned;

/// The two ends. The process ends when they are dropped, if it waits for questions only.
pub(super) struct Talk {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").finish_non_exhaustive()
    }
}

impl Talk {
    pub(super) fn new(to: ChildStdin, from: ChildStdout) -> Talk {
        Talk { to, from: BufReader::new(from) }
    }

    /// Asks, and waits for the answer, which is JSON.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, question: &str) -> io::Result<T> {
        writeln!(self.to, "{question}")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(io::Error::other)
    }
}
