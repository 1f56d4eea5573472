//! How the process that was started tells the one that waits whether the mount works: one line on standard output, which then becomes the log.

use std::{
    fmt::Display,
    io::{self, BufRead, BufReader, Read, Write},
};

use crate::error::CliError;

/// Reports once.
#[derive(Debug)]
pub(crate) enum Reporter {
    /// In front: the log says it.
    Log,
    /// To the process that reads our standard output.
    Stdout,
}

/// What was reported.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Reported {
    /// The mount works; how requests travel.
    Ready(String),
    /// It does not; with the exit status.
    Failed(u8, String),
    /// The process ended without a word.
    Nothing,
}

impl Reporter {
    /// Whether there is nobody to report to: the process is in front.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self, Reporter::Log)
    }

    /// The mount works.
    pub(crate) fn ready(self, way: &impl Display) {
        self.tell(&format!("ready {way}\n"));
    }

    /// It does not.
    pub(crate) fn failed(self, error: &CliError) {
        let text = error.to_string().replace('\n', " ");
        self.tell(&format!("failed {} {text}\n", error.exit_code()));
    }

    fn tell(self, text: &str) {
        if matches!(self, Reporter::Log) {
            return;
        }
        let mut stdout = io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            tracing::debug!("nobody waits for the report: {error}");
        }
        if let Err(error) = rustix::stdio::dup2_stdout(io::stderr()) {
            tracing::warn!("standard output stays with the process that started this one: {error}");
        }
    }
}

impl Reported {
    /// Reads a report to its end.
    pub(crate) fn read(from: impl Read) -> Reported {
        let mut line = String::new();
        if BufReader::new(from).read_line(&mut line).is_err() {
            return Reported::Nothing;
        }
        let line = line.trim_end();
        if let Some(way) = line.strip_prefix("ready ") {
            return Reported::Ready(way.to_owned());
        }
        let failed = line.strip_prefix("failed ").and_then(|rest| rest.split_once(' '));
        match failed.and_then(|(code, text)| Some((code.parse().ok()?, text))) {
            Some((code, text)) => Reported::Failed(code, text.to_owned()),
            None => Reported::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_back() {
        assert_eq!(Reported::read(&b"ready a way\n"[..]), Reported::Ready("a way".into()));
        assert_eq!(
            Reported::read(&b"failed 1 no room at all\n"[..]),
            Reported::Failed(1, "no room at all".into())
        );
        assert_eq!(Reported::read(&b""[..]), Reported::Nothing);
        assert_eq!(Reported::read(&b"something else\n"[..]), Reported::Nothing);
    }
}
