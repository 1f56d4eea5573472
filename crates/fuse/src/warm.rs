//! The transport's own part of a request that is like the one before allocates nothing.

use std::sync::Arc;

use allocation_counter::measure;

use crate::dispatch::{Dispatcher, Outcome};
use crate::lock_reply::ReplyPort;
use crate::null::{NullConfig, NullFs};
use crate::protocol::{Dialect, IN_HEADER, Opcode};
use crate::reply::Reply;
use crate::ring::{Slot, SlotPort};
use crate::signalled::Signalled;

/// A ring entry and what serves what comes in it.
struct World {
    server: Dispatcher<NullFs>,
    slot: Slot,
    reply: Reply,
}

impl World {
    fn new() -> World {
        let fs = Arc::new(NullFs::new(NullConfig::default()));
        let server = Dispatcher {
            fs,
            dialect: Dialect { setxattr_ext: true },
            pending: Arc::default(),
            observer: None,
            signalled: Signalled::default(),
        };
        let port = Arc::new(SlotPort::nowhere());
        World { server, slot: Slot::new(1 << 20, port), reply: Reply::default() }
    }

    /// Has a request served as a thread of a queue does. The answer's bytes after its header.
    fn ask(&mut self, op: Opcode, nodeid: u64, fixed: &[u8], payload: &[u8]) -> usize {
        let mut header = [0; IN_HEADER];
        let len = (IN_HEADER + fixed.len() + payload.len()) as u32;
        header[0..4].copy_from_slice(&len.to_ne_bytes());
        header[4..8].copy_from_slice(&op.raw().to_ne_bytes());
        header[8..16].copy_from_slice(&2u64.to_ne_bytes());
        header[16..24].copy_from_slice(&nodeid.to_ne_bytes());
        self.slot.as_the_kernel(&header, fixed, payload, None);
        let header = self.slot.header().unwrap();
        self.reply.start();
        self.slot.port.expect(header.unique);
        let port: Arc<dyn ReplyPort> = Arc::clone(&self.slot.port) as Arc<dyn ReplyPort>;
        let dialect = self.server.dialect;
        let parts = |op| self.slot.parts(&header, op, dialect);
        let outcome = self.server.serve(&header, parts, &port, &mut self.reply);
        assert!(matches!(outcome, Outcome::Answer { error: None, .. }), "{op:?}: {outcome:?}");
        self.slot.put_reply(header.unique, &self.reply);
        self.reply.start();
        self.slot.answered_len() as usize
    }

    #[track_caller]
    fn warm(&mut self, op: Opcode, nodeid: u64, fixed: &[u8], payload: &[u8]) -> usize {
        let first = self.ask(op, nodeid, fixed, payload);
        let used = measure(|| assert_eq!(self.ask(op, nodeid, fixed, payload), first));
        assert_eq!(used.count_total, 0, "{op:?} allocated {} bytes", used.bytes_total);
        first
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn requests_allocate_nothing() {
    const ROOT: u64 = 1;
    let mut world = World::new();
    // Flags, mode, umask, and flags of the open.
    let mode = u64::from(libc::S_IFREG | 0o644);
    world.ask(Opcode::Create, ROOT, &words(&[mode << 32 | 2, 0]), b"file\0");
    let entry = world.warm(Opcode::Lookup, ROOT, &[], b"file\0");
    assert!(entry > 100);
    assert!(world.warm(Opcode::Getattr, ROOT, &words(&[0, 0]), &[]) > 80);
    let file = ROOT + 1;
    world.ask(Opcode::Write, file, &words(&[0, 0, 4096, 0, 0]), &[7; 4096]);
    world.warm(Opcode::Open, file, &words(&[0]), &[]);
    assert_eq!(world.warm(Opcode::Read, file, &words(&[0, 0, 4096, 0, 0]), &[]), 4096);
    assert_eq!(world.warm(Opcode::Release, file, &words(&[0, 0, 0]), &[]), 0);
}
