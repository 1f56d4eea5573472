//! Connections to PostgreSQL that are cut in the middle of commits, by each byte of what is said in either direction.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use forebay_engine::Outcome;
use forebay_testkit::relay::{Direction, Relay};

use crate::{
    owner::{MARK, Owner, settled},
    postgres::{SERVER, engine, fresh},
};

const PATIENT: Duration = Duration::from_secs(120);

fn relay() -> Relay {
    Relay::new(SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER.port()))).unwrap()
}

/// What became of the commits whose connection was cut.
#[derive(Default, Debug)]
struct Seen {
    unknown_there: u32,
    unknown_lost: u32,
    failed: u32,
    committed: u32,
}

#[test]
fn whatever_byte_a_commit_is_cut_at_what_is_said_of_it_is_true() {
    let relay = relay();
    let url = fresh(&SERVER, relay.port());
    let engine = engine(&url, PATIENT);
    let commit = |owner: &mut Owner| owner.next(|batch| engine.commit(batch));
    let mut owner = Owner::new();
    let mut seen = Seen::default();
    // The first ones prepare what the later ones only use.
    for _ in 0..3 {
        assert_eq!(commit(&mut owner), Some(Outcome::Committed));
    }
    for direction in [Direction::ToServer, Direction::ToClient] {
        let before = relay.carried(direction);
        assert_eq!(commit(&mut owner), Some(Outcome::Committed));
        let whole = relay.carried(direction) - before;
        assert!((50..2000).contains(&whole), "{whole} bytes of a commit");
        for bytes in 0..=whole {
            // A new connection, with everything that is to be said before a commit said.
            while commit(&mut owner) != Some(Outcome::Committed) {}
            relay.cut_after(direction, bytes);
            let mut first = None;
            owner.next(|batch| {
                let said = engine.commit(batch);
                relay.pass();
                first = said.as_ref().ok().copied();
                match said {
                    Ok(Outcome::Unknown) => {
                        let there = engine.get(MARK).unwrap().as_deref() == batch.rows[1].1;
                        *(if there { &mut seen.unknown_there } else { &mut seen.unknown_lost }) += 1;
                        Ok(settled(engine.as_ref(), batch))
                    }
                    said => said,
                }
            });
            match first {
                Some(Outcome::Committed) => seen.committed += 1,
                Some(Outcome::Fenced) => panic!("nobody else writes: cut after {bytes} bytes {direction:?}"),
                Some(Outcome::Unknown) => {}
                None => seen.failed += 1,
            }
            owner.check(engine.as_ref());
        }
    }
    assert!(seen.unknown_there > 0 && seen.unknown_lost > 0 && seen.committed > 0, "{seen:?}");
}

/// A batch whose connection was cut arrives after it was settled: it must not come any more.
#[test]
fn a_batch_that_arrives_after_it_was_settled_changes_nothing() {
    let relay = relay();
    let url = fresh(&SERVER, relay.port());
    let through = engine(&url, PATIENT);
    let beside =
        engine(&url.replace(&format!(":{}/", relay.port()), &format!(":{}/", SERVER.port())), PATIENT);
    let mut owner = Owner::new();
    for _ in 0..3 {
        assert_eq!(owner.next(|batch| through.commit(batch)), Some(Outcome::Committed));
    }
    relay.strand();
    let outcome = owner.next(|batch| {
        assert_eq!(through.commit(batch).unwrap(), Outcome::Unknown);
        Ok(settled(beside.as_ref(), batch))
    });
    assert_eq!(outcome, Some(Outcome::Committed));
    assert_eq!(owner.next(|batch| beside.commit(batch)), Some(Outcome::Committed));
    let now = beside.scan(b"", None, usize::MAX).unwrap().rows;
    relay.pass();
    // The server has taken it when nothing of it is left there.
    let database = url.rsplit_once('/').unwrap().1;
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'forebay'"
    );
    drop((through, beside));
    while SERVER.sql("postgres", &sessions).unwrap() != "0" {}
    let direct = engine(&SERVER.url(SERVER.port(), database), PATIENT);
    assert_eq!(direct.scan(b"", None, usize::MAX).unwrap().rows, now);
    owner.check(direct.as_ref());
}

/// Listens before a server, and makes each BEGIN a word that it does not know while `garbles`.
fn garbling(server: u16, garbles: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, garbles) = (listener.local_addr().unwrap().port(), Arc::clone(garbles));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let garbles = Arc::clone(&garbles);
            std::thread::spawn(move || copy(from, to, || garbles.load(Ordering::SeqCst)));
            std::thread::spawn(move || copy(server, client, || false));
        }
    });
    port
}

fn copy(mut from: TcpStream, mut to: TcpStream, garbles: impl Fn() -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let begin = b"BEGIN ISOLATION";
        if garbles()
            && let Some(at) = bytes[..len].windows(begin.len()).position(|bytes| bytes == begin)
        {
            bytes[at..at + 5].copy_from_slice(b"BEGUN");
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

#[test]
fn nothing_is_carried_out_behind_a_begin_that_failed() {
    let garbles = Arc::new(AtomicBool::new(false));
    let port = garbling(SERVER.port(), &garbles);
    let engine = engine(&fresh(&SERVER, port), PATIENT);
    let mut owner = Owner::new();
    for _ in 0..3 {
        assert_eq!(owner.next(|batch| engine.commit(batch)), Some(Outcome::Committed));
    }
    let before = engine.scan(b"", None, usize::MAX).unwrap().rows;
    garbles.store(true, Ordering::SeqCst);
    let failed = owner.next(|batch| {
        let failed = engine.commit(batch);
        assert!(failed.as_ref().is_err_and(|error| error.to_string().contains("42601")), "{failed:?}");
        failed
    });
    assert_eq!(failed, None);
    garbles.store(false, Ordering::SeqCst);
    assert_eq!(engine.scan(b"", None, usize::MAX).unwrap().rows, before);
    assert_eq!(owner.next(|batch| engine.commit(batch)), Some(Outcome::Committed));
    owner.check(engine.as_ref());
}
