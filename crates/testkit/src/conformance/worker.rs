//! One process that acts as one user on one side.
//!
//! Guarantees: requests are carried out in the order sent, each answered before the next is read; file descriptors and
//! umask belong to this user alone. A worker that dies is an error, never a difference.
//! Relies on: being started by root, as `/proc/self/exe worker`, so that it can take any user's identity.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::exec::Executor;
use super::op::{Op, Outcome};

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Close everything, restore the umask, and work in this directory from now on.
    Enter(String),
    /// Carry this out.
    Do(Op),
}

/// Why a worker could not be used. These end the run; they are not differences between file systems.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error(
        "cannot start a worker as uid {uid}: {source}; the suite needs root and an executable that others may run"
    )]
    Start {
        /// The user it was to be.
        uid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The pipe to it broke, or it sent something else than an answer.
    #[error("the worker for uid {uid} went away or answered nonsense at {request}: {detail}")]
    Lost {
        /// The user it was.
        uid: u32,
        /// What it was asked.
        request: String,
        /// What was received.
        detail: String,
    },
}

/// A running worker. Dropped, it is killed and waited for.
#[derive(Debug)]
pub struct Worker {
    uid: u32,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker as `uid`:`gid` without supplementary groups.
    pub fn start(uid: u32, gid: u32) -> Result<Self, WorkerError> {
        let failed = |source| WorkerError::Start { uid, source };
        let mut child = Command::new("/proc/self/exe")
            .arg("worker")
            .current_dir("/")
            .uid(uid)
            .gid(gid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { uid, child, input, output: BufReader::new(output) }),
            _ => Err(failed(io::Error::other("its pipes are missing"))),
        }
    }

    /// Moves the worker into `dir` with nothing open.
    pub fn enter(&mut self, dir: &Path) -> Result<Outcome, WorkerError> {
        self.ask(&Request::Enter(dir.to_string_lossy().into_owned()))
    }

    /// Has the worker carry out `op` and waits for the outcome.
    pub fn carry_out(&mut self, op: &Op) -> Result<Outcome, WorkerError> {
        self.ask(&Request::Do(op.clone()))
    }

    fn ask(&mut self, request: &Request) -> Result<Outcome, WorkerError> {
        let mut answer = String::new();
        let sent = serde_json::to_vec(request).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            self.input.write_all(&line)
        });
        sent.and_then(|()| self.output.read_line(&mut answer))
            .map_err(|error| error.to_string())
            .and_then(|_| serde_json::from_str(&answer).map_err(|error| format!("{error} in {answer:?}")))
            .map_err(|detail| WorkerError::Lost { uid: self.uid, request: format!("{request:?}"), detail })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves requests from standard input until it ends.
pub fn serve() -> io::Result<()> {
    let mut executor = Executor::new();
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let outcome = match serde_json::from_str::<Request>(&line?).map_err(io::Error::other)? {
            Request::Enter(dir) => executor.enter(&dir),
            Request::Do(op) => executor.carry_out(&op),
        };
        let mut answer = serde_json::to_vec(&outcome).map_err(io::Error::other)?;
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}
