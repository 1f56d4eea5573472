//! Puts whose answers get lost: never reported as somebody else's, and somebody else's never as ours.

use bytes::Bytes;
use forebay_object::{Backend, ErrorKind, Expected, ObjectStore};

use crate::{
    bucket::{first, open, options},
    server::{Quirks, Reply, Server},
    suite::{content, kind, suite},
};

const KEEPS: Quirks = Quirks {
    ignores_if_none_match: false,
    ignores_if_match: false,
    ignores_range: false,
    drops_metadata: false,
    keeps_versions: false,
    google: false,
};
const DROPS: Quirks = Quirks { drops_metadata: true, ..KEEPS };

fn with_first_puts(quirks: Quirks, replies: &[Reply]) -> (Server, ObjectStore) {
    let server = Server::start(quirks, first("PUT", replies));
    let store = open(&options(&server));
    (server, store)
}

#[test]
fn our_own_object_is_recognised_by_its_mark_or_its_content() {
    for quirks in [KEEPS, DROPS] {
        let (server, store) = with_first_puts(quirks, &[Reply::ServeThenReset]);
        let etag = store.put_new("a", content(1, 5000)).unwrap().etag;
        assert_eq!(store.get("a").unwrap(), (content(1, 5000), etag));
        assert_eq!(server.log().iter().filter(|line| line.starts_with("PUT")).count(), 2);
        assert_eq!(
            kind(store.put_new("a", content(1, 5000))),
            ErrorKind::AlreadyExists,
            "nothing was lost this time"
        );
    }
}

#[test]
fn somebody_elses_object_is_not_ours() {
    for quirks in [KEEPS, DROPS] {
        for other in [&b"other"[..], b"short", b""] {
            let (_server, store) = with_first_puts(quirks, &[Reply::StoreOtherThenReset(other)]);
            assert_eq!(kind(store.put_new("a", Bytes::from_static(b"our's"))), ErrorKind::AlreadyExists);
            assert_eq!(store.get("a").unwrap().0, other);
        }
    }
}

#[test]
fn a_put_that_did_not_arrive_is_sent_again() {
    let lost = [Reply::Reset, Reply::Error(500, "InternalError"), Reply::Error(502, "BadGateway")];
    let (server, store) = with_first_puts(KEEPS, &lost);
    store.put_new("a", content(1, 5000)).unwrap();
    assert_eq!(server.log().len(), 4);
}

#[test]
fn a_conditional_replacement_is_recognised_too() {
    for quirks in [KEEPS, DROPS] {
        let (_server, store) = with_first_puts(quirks, &[Reply::Serve, Reply::ServeThenReset]);
        let first = store.put_if("owner", content(1, 10), &Expected::Absent).unwrap().etag;
        let second = store.put_if("owner", content(2, 10), &Expected::Etag(first.clone())).unwrap().etag;
        assert_eq!(store.get("owner").unwrap(), (content(2, 10), second));
        let stale = store.put_if("owner", content(3, 10), &Expected::Etag(first));
        assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
    }
    let (_server, store) =
        with_first_puts(KEEPS, &[Reply::Serve, Reply::StoreOtherThenReset(b"another owner")]);
    let first = store.put_if("owner", content(1, 10), &Expected::Absent).unwrap().etag;
    let lost = store.put_if("owner", content(2, 10), &Expected::Etag(first));
    assert_eq!(kind(lost), ErrorKind::PreconditionFailed);
}

#[test]
fn a_file_is_put_once_whatever_gets_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    std::fs::write(&path, content(4, 9_000_000)).unwrap();
    let (_server, store) = with_first_puts(KEEPS, &[Reply::Reset, Reply::ServeThenReset, Reply::Reset]);
    store.put_new_file("a", &path).unwrap();
    assert_eq!(store.get("a").unwrap().0, content(4, 9_000_000));
}

#[test]
fn passes_the_suite_over_a_server_that_fails_every_third_request() {
    let mut random = 0x5eed_u64;
    let server = Server::start(KEEPS, move |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (random >> 33) % 15 {
            0 => Reply::Error(503, "SlowDown"),
            1 => Reply::Reset,
            2 | 3 => Reply::ServeThenReset,
            4 => Reply::Error(500, "InternalError"),
            _ => Reply::Serve,
        }
    });
    let store = open(&options(&server));
    suite(&store);
    assert!(server.keys().is_empty());
    assert!(store.counters().retries() > 300);
}
