//! Bytes that are no requests, or no sensible ones, from the transport to the do-nothing file system and back.
//!
//! For every request: no panic (the dispatcher would catch it, so the hook looks), an answer exactly where the protocol wants one, a reply whose length and error
//! code the kernel would take, and in a ring nothing outside the slot.

use std::cell::Cell;
use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;
use proptest::prelude::*;

use crate::dispatch::{Dispatcher, Outcome};
use crate::errno::Errno;
use crate::lock_reply::ReplyPort;
use crate::null::{NullConfig, NullFs};
use crate::protocol::{DecodeError, Dialect, Header, IN_HEADER, OUT_HEADER, Opcode, Parts, split};
use crate::reply::Reply;
use crate::ring::{Resume, Slot, SlotPort};
use crate::signalled::Signalled;

/// The largest code of an operation that is known, and a few beyond.
const OPCODES: u32 = 60;
/// What no answer is longer than: a listing or a read is bound by what was asked for, and the kernel asks for at most this.
const LARGEST: u32 = 1 << 20;

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Has panics of this thread noticed, also those that are caught.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
    PANICKED.set(false);
}

/// Takes answers that come later.
#[derive(Default)]
struct Later(Mutex<Vec<u64>>);

impl ReplyPort for Later {
    fn answer(&self, unique: u64, _error: Option<Errno>) {
        self.0.lock().push(unique);
    }

    fn take_back(&self, _unique: u64) -> Option<i32> {
        None
    }
}

struct Nobody;

impl Resume for Nobody {
    fn resume(self: Arc<Self>, _slot: Slot) {}
    fn leave(self: Arc<Self>, _slot: Slot) {}
}

/// One request in its parts; not all of them sensible.
#[derive(Debug, Clone)]
struct Fuzzed {
    opcode: u32,
    unique: u64,
    nodeid: u64,
    fixed: Vec<u8>,
    payload: Vec<u8>,
    /// Words of extensions that the header claims.
    extensions: u16,
    /// The length that it claims, less what it has.
    lie: i32,
}

impl Fuzzed {
    fn header(&self) -> Vec<u8> {
        let len = (IN_HEADER + self.fixed.len() + self.payload.len()) as u32;
        let mut bytes = len.wrapping_add_signed(self.lie).to_ne_bytes().to_vec();
        bytes.extend(self.opcode.to_ne_bytes());
        bytes.extend(self.unique.to_ne_bytes());
        bytes.extend(self.nodeid.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(self.extensions.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes
    }
}

/// Integers that are small, at a limit, or anything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..8u64,
        2 => prop::sample::select(vec![4096, 1 << 20, u64::from(u32::MAX), i64::MAX as u64, u64::MAX - 1, u64::MAX]),
        1 => any::<u64>(),
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[ab./]{0,3}\0([ab]{0,3}\0)?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ]
}

fn fuzzed() -> impl Strategy<Value = Fuzzed> {
    let fixed = prop::collection::vec(word(), 0..14)
        .prop_map(|words| words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    let lie = prop_oneof![6 => Just(0), 1 => -20..20, 1 => any::<i32>()];
    let extensions = prop_oneof![6 => Just(0u16), 1 => 0..4u16, 1 => any::<u16>()];
    (0..OPCODES, prop_oneof![8 => 1..1000u64, 1 => Just(0)], word(), fixed, payload(), extensions, lie)
        .prop_map(|(opcode, unique, nodeid, fixed, payload, extensions, lie)| Fuzzed {
            opcode,
            unique,
            nodeid,
            fixed,
            payload,
            extensions,
            lie,
        })
}

fn dispatcher() -> Dispatcher<NullFs> {
    Dispatcher {
        fs: Arc::new(NullFs::new(NullConfig::default())),
        dialect: Dialect { setxattr_ext: true },
        pending: Arc::default(),
        observer: None,
        signalled: Signalled::default(),
    }
}

/// Serves one request and looks at what came of it.
fn serve<'a>(
    server: &Dispatcher<NullFs>,
    header: &Header,
    parts: impl FnOnce(Opcode) -> Result<Parts<'a>, DecodeError>,
    reply: &mut Reply,
) -> Result<Outcome, TestCaseError> {
    let later = Arc::new(Later::default());
    let port: Arc<dyn ReplyPort> = Arc::clone(&later) as Arc<dyn ReplyPort>;
    reply.start();
    let outcome = server.serve(header, parts, &port, reply);
    prop_assert!(!PANICKED.get(), "it panicked");
    match outcome {
        Outcome::Answer { error, .. } => {
            let (len, code) = (word_at(&reply.head, 0), word_at(&reply.head, 4) as i32);
            prop_assert_eq!(len as usize, OUT_HEADER + reply.body_len());
            prop_assert!(code == 0 || (-4095..0).contains(&code) && error.is_some() && reply.body_len() == 0);
            prop_assert_eq!(reply.head.get(8..16), Some(&header.unique.to_ne_bytes()[..]));
        }
        Outcome::Silent => {
            let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
            let none_owed = Opcode::from_raw(header.opcode).is_some_and(|op| silent.contains(&op));
            prop_assert!(header.unique == 0 || none_owed, "an answer is owed");
        }
        Outcome::Deferred => prop_assert!(*later.0.lock() == [header.unique]),
    }
    Ok(outcome)
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// What a read or a listing asks for, held to what the kernel asks at most: an answer of 4 GiB is no finding.
fn modest(request: &mut Fuzzed) {
    let asks = [Opcode::Read, Opcode::Readdir, Opcode::Readdirplus].map(Opcode::raw);
    if asks.contains(&request.opcode)
        && let Some(size) = request.fixed.get_mut(16..20)
        && word_at(size, 0) > LARGEST
    {
        size.copy_from_slice(&LARGEST.to_ne_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_requests_by_the_device_are_answered_or_refused(
        mut requests in prop::collection::vec(fuzzed(), 1..12)
    ) {
        watch_panics();
        let server = dispatcher();
        let mut reply = Reply::default();
        for request in &mut requests {
            modest(request);
            let bytes = [request.header(), request.fixed.clone(), request.payload.clone()].concat();
            let Ok(header) = Header::decode(&bytes) else { continue };
            serve(&server, &header, |op| split(&header, op, &bytes, server.dialect), &mut reply)?;
        }
    }

    #[test]
    fn any_requests_in_a_ring_are_answered_or_refused(
        mut requests in prop::collection::vec((fuzzed(), prop_oneof![4 => Just(None), 1 => word().prop_map(Some)]), 1..12)
    ) {
        watch_panics();
        let server = dispatcher();
        let mut reply = Reply::default();
        let nobody: Weak<dyn Resume> = Weak::<Nobody>::new();
        let mut slot = Slot::new(8192, Arc::new(SlotPort::new(nobody)));
        for (request, claimed) in &mut requests {
            modest(request);
            slot.as_the_kernel(&request.header(), &request.fixed, &request.payload, *claimed);
            let Ok(header) = slot.header() else { continue };
            let parts = |op| slot.parts(&header, op, server.dialect);
            if let Outcome::Answer { .. } = serve(&server, &header, parts, &mut reply)? {
                slot.put_reply(header.unique, &reply);
                prop_assert!(slot.answered_len() <= 8192);
            }
        }
    }
}

#[test]
fn panics_are_noticed() {
    watch_panics();
    assert!(std::panic::catch_unwind(|| panic!("as asked")).is_err());
    assert!(PANICKED.get());
}
