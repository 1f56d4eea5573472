//! The asking side.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::Path,
    time::Duration,
};

use forebay_volume::VolumeConfig;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::socket_peercred,
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    control::{reach, runtime_dirs, shared_socket_name, socket_name},
    mounts::Mounted,
    shared::SharedUrl,
};

/// Why the process behind a mount did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process serves it.
    #[error("the process behind '{0}' is gone: detach it with `umount -l`, then mount it again")]
    Gone(String),
    /// It cannot be reached.
    #[error("cannot reach the process behind '{place}': {source}")]
    Unreachable {
        /// The mount or volume.
        place: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It did not say anything that is understood.
    #[error("the process behind '{0}' ended in the middle of its answer; its log tells more")]
    Broken(String),
    /// It refused or failed.
    #[error("{0}")]
    Refused(String),
}

/// A connection for one request.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    place: String,
}

impl Client {
    /// Reaches the process behind a mount.
    ///
    /// # Errors
    /// [`ControlError::Gone`], [`ControlError::Unreachable`].
    pub fn of_mount(mounted: &Mounted) -> Result<Client, ControlError> {
        let place = mounted.mountpoint.display().to_string();
        if SharedUrl::is_one(&mounted.volume) {
            return Client::at(
                &shared_socket_name(&mounted.volume, &mounted.mountpoint),
                mounted.uid,
                &place,
            );
        }
        Client::of_volume(&mounted.volume, mounted.uid, &place)
    }

    /// Reaches the process that has the volume open, for user `uid`; `place` is how errors call it.
    ///
    /// # Errors
    /// As for [`Client::of_mount`].
    pub fn of_volume(volume: &Path, uid: u32, place: &str) -> Result<Client, ControlError> {
        let unreachable = |source| ControlError::Unreachable { place: place.to_owned(), source };
        let config = VolumeConfig::read(volume).map_err(|error| unreachable(io::Error::other(error)))?;
        Client::at(&socket_name(volume, &config), uid, place)
    }

    /// Reaches the process whose socket has this name.
    fn at(name: &str, uid: u32, place: &str) -> Result<Client, ControlError> {
        let unreachable = |source| ControlError::Unreachable { place: place.to_owned(), source };
        let mut failure = None;
        for dir in runtime_dirs(uid) {
            // In a directory that anybody may write to, another user could have made it.
            if !fs::symlink_metadata(&dir).is_ok_and(|found| found.uid() == uid) {
                continue;
            }
            match reach(&dir.join(name), UnixStream::connect) {
                Ok(stream) => return Ok(Client { stream, place: place.to_owned() }),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or_else(|| ControlError::Gone(place.to_owned()), unreachable))
    }

    /// A descriptor by which the end of the process is seen.
    ///
    /// # Errors
    /// The system's.
    pub fn process(&self) -> Result<Process, ControlError> {
        let failed = |error: rustix::io::Errno| ControlError::Unreachable {
            place: self.place.clone(),
            source: error.into(),
        };
        let peer = socket_peercred(&self.stream).map_err(failed)?;
        Process::of(peer.pid).map_err(failed)
    }

    /// The connection itself, for more than one question.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn into_stream(self, patience: Duration) -> Result<UnixStream, ControlError> {
        let failed = |source| ControlError::Unreachable { place: self.place.clone(), source };
        self.stream.set_read_timeout(Some(patience)).map_err(failed)?;
        self.stream.set_write_timeout(Some(patience)).map_err(failed)?;
        Ok(self.stream)
    }

    /// Asks, and gives the answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn ask<T: DeserializeOwned>(self, request: &str) -> Result<T, ControlError> {
        self.follow(request, &mut |_: Value| {})
    }

    /// Asks, tells of all progress, and gives the answer.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn follow<T: DeserializeOwned, P: DeserializeOwned>(
        mut self,
        request: &str,
        progress: &mut dyn FnMut(P),
    ) -> Result<T, ControlError> {
        let broken = || ControlError::Broken(self.place.clone());
        writeln!(self.stream, "{request}").map_err(|_| broken())?;
        for line in BufReader::new(&self.stream).lines() {
            let line = line.map_err(|_| broken())?;
            let mut answer: Value = serde_json::from_str(&line).map_err(|_| broken())?;
            if let Some(error) = answer.get("error").and_then(Value::as_str) {
                return Err(ControlError::Refused(error.to_owned()));
            }
            if let Some(ok) = answer.get_mut("ok") {
                return serde_json::from_value(ok.take()).map_err(|_| broken());
            }
            if let Some(now) =
                answer.get_mut("progress").and_then(|now| serde_json::from_value(now.take()).ok())
            {
                progress(now);
            }
        }
        Err(broken())
    }
}

/// A process, held so that its end cannot be mistaken for another's.
#[derive(Debug)]
pub struct Process {
    fd: std::os::fd::OwnedFd,
    pid: u32,
}

impl Process {
    fn of(pid: Pid) -> rustix::io::Result<Process> {
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Process { fd, pid: pid.as_raw_nonzero().get().unsigned_abs() })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end. Says whether it ended within `patience`.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let deadline = std::time::Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else { return false };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return false,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}
