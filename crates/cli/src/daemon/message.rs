//! What the two processes of a takeover say to each other: lines, and once the state with descriptors.
//!
//! Nothing is read ahead: descriptors come with a byte of their own, and would be lost with one that is read otherwise.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The layout of the state that is written here, and the only one that is read. The parts are `forebay_fuse::Paused::state`,
/// `forebay_vfs::Handover::encode` and `forebay_mount::PassthroughHandover::encode`.
pub(super) const VERSION: u32 = 2;

const LINE_MAX: usize = 64 << 10;
/// What one message may carry (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

/// Says what follows: descriptors, with a byte for each so many, then the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Announced {
    version: u32,
    descriptors: usize,
    /// One of them, after those of the connection, is the socket of metrics.
    metrics: bool,
    /// Of so many files that the kernel reads by itself, the last ones.
    plain: usize,
    session: usize,
    vfs: usize,
    /// 0: the kernel reads no file by itself.
    through: usize,
    crc: u32,
    /// When the pause began: nanoseconds of CLOCK_MONOTONIC.
    paused_ns: u64,
}

/// What the new process needs.
#[derive(Debug)]
pub(super) struct State {
    pub(super) session: Vec<u8>,
    pub(super) vfs: Vec<u8>,
    /// Empty: the kernel reads no file by itself.
    pub(super) through: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) metrics: Option<OwnedFd>,
    /// Files that the kernel reads by itself.
    pub(super) plain: Vec<OwnedFd>,
    pub(super) paused_ns: u64,
}

pub(super) fn say(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

pub(super) fn say_json(stream: &UnixStream, value: &Value) -> io::Result<()> {
    say(stream, &value.to_string())
}

/// The next line; empty at the end of the connection.
pub(super) fn hear(mut stream: &UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_MAX {
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if byte[0] == b'\n' => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Closed with something unread: as good as closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(line).map_err(|_| invalid("a line is not text"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What is sent; see [`State`].
pub(super) struct Parts<'a> {
    pub(super) session: &'a [u8],
    pub(super) vfs: &'a [u8],
    pub(super) through: &'a [u8],
    pub(super) descriptors: Vec<BorrowedFd<'a>>,
    pub(super) metrics: Option<BorrowedFd<'a>>,
    pub(super) plain: Vec<BorrowedFd<'a>>,
    pub(super) paused_ns: u64,
}

fn checksum(parts: [&[u8]; 3]) -> u32 {
    parts.into_iter().fold(0, crc32c::crc32c_append)
}

/// Sends the state.
pub(super) fn send_state(mut stream: &UnixStream, parts: &Parts<'_>) -> io::Result<()> {
    let all = [parts.session, parts.vfs, parts.through];
    let descriptors: Vec<BorrowedFd<'_>> =
        parts.descriptors.iter().chain(&parts.metrics).chain(&parts.plain).copied().collect();
    let announced = Announced {
        version: VERSION,
        descriptors: descriptors.len(),
        metrics: parts.metrics.is_some(),
        plain: parts.plain.len(),
        session: parts.session.len(),
        vfs: parts.vfs.len(),
        through: parts.through.len(),
        crc: checksum(all),
        paused_ns: parts.paused_ns,
    };
    say_json(stream, &json!({ "state": announced }))?;
    for some in descriptors.chunks(DESCRIPTORS_MAX) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(some)) {
            return Err(invalid("too many descriptors"));
        }
        sendmsg(stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    }
    all.into_iter().try_for_each(|part| stream.write_all(part))
}

/// Takes the state that `announced`, what stands after `state` in a line, speaks of.
pub(super) fn receive_state(mut stream: &UnixStream, announced: &Value) -> io::Result<State> {
    let announced: Announced = serde_json::from_value(announced.clone())?;
    if announced.version != VERSION {
        return Err(invalid(&format!("the state has version {}, not {VERSION}", announced.version)));
    }
    let mut descriptors = Vec::new();
    while descriptors.len() < announced.descriptors {
        let before = descriptors.len();
        receive_descriptors(stream, &mut descriptors)?;
        if descriptors.len() == before {
            return Err(invalid("descriptors are missing"));
        }
    }
    let mut read = |len: usize| {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).map(|()| bytes)
    };
    let (session, vfs, through) = (read(announced.session)?, read(announced.vfs)?, read(announced.through)?);
    if checksum([&session, &vfs, &through]) != announced.crc {
        return Err(invalid("the state's checksum does not fit"));
    }
    let first =
        descriptors.len().checked_sub(announced.plain).ok_or_else(|| invalid("descriptors are missing"))?;
    let plain = descriptors.split_off(first);
    let metrics = if announced.metrics { descriptors.pop() } else { None };
    Ok(State { session, vfs, through, descriptors, metrics, plain, paused_ns: announced.paused_ns })
}

fn receive_descriptors(stream: &UnixStream, to: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            to.extend(some);
        }
    }
    Ok(())
}

/// Nanoseconds of a clock that all processes share.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Dies here if a test asks for it by `FOREBAY_TEST_DIE`, as by `kill -9`.
pub(super) fn may_die(step: &str) {
    if std::env::var("FOREBAY_TEST_DIE").is_ok_and(|wanted| wanted == step) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn sent(damage: bool) -> io::Result<State> {
        let (old, new) = UnixStream::pair()?;
        let file = tempfile::tempfile()?;
        let parts = Parts {
            session: b"session",
            vfs: b"vfs",
            through: b"through",
            descriptors: vec![file.as_fd(); 299],
            metrics: Some(file.as_fd()),
            plain: vec![file.as_fd(); 7],
            paused_ns: 5,
        };
        send_state(&old, &parts)?;
        drop(old);
        let mut value: Value = serde_json::from_str(&hear(&new)?)?;
        if damage {
            value["state"]["crc"] = json!(7);
        }
        receive_state(&new, &value["state"])
    }

    #[test]
    fn a_state_arrives_whole_with_all_descriptors() {
        let state = sent(false).unwrap();
        assert_eq!(
            (&state.session[..], &state.vfs[..], &state.through[..]),
            (&b"session"[..], &b"vfs"[..], &b"through"[..])
        );
        assert_eq!((state.descriptors.len(), state.metrics.is_some(), state.plain.len()), (299, true, 7));
        assert_eq!(state.paused_ns, 5);
        assert!(sent(true).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn another_version_is_refused() {
        let (_old, new) = UnixStream::pair().unwrap();
        let mut announced = json!({ "version": 1, "descriptors": 1, "metrics": false, "plain": 0, "session": 0, "vfs": 0, "through": 0, "crc": 0, "paused_ns": 0 });
        assert!(receive_state(&new, &announced).unwrap_err().to_string().contains("version 1"));
        announced["version"] = json!("x");
        receive_state(&new, &announced).unwrap_err();
    }
}
