//! Servers that stall, cut, lie, redirect and throttle: the right error, in bounded time, and never a wrong answer.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_object::{
    Ability, Backend, ErrorKind, Expected, Limits, ObjectError, ObjectStore, Patience, StoreOptions, probe,
};

use crate::{
    bucket::{SHORT_WAITS, first, open, options, started},
    server::{Quirks, Reply, Request, Server},
    suite::{content, keys, kind},
};

fn with_limits(server: &Server, limits: Limits) -> ObjectStore {
    open(&StoreOptions { patient: limits, quick: limits, ..options(server) })
}

#[test]
fn a_body_that_stalls_is_given_up_and_asked_for_again() {
    let server = Server::start(Quirks::default(), first("GET", &[Reply::Stall, Reply::Serve, Reply::Stall]));
    let store = with_limits(&server, Limits { attempt: Duration::from_millis(300), ..SHORT_WAITS });
    store.put_new("a", content(1, 2_000_000)).unwrap();
    assert_eq!(store.get("a").unwrap().0, content(1, 2_000_000));
    assert_eq!(store.get_range("a", 5..1_500_000).unwrap(), content(1, 2_000_000).slice(5..1_500_000));
    assert!(store.counters().retries() >= 2);
    let last = store.last_error().unwrap().error;
    assert!(
        last.kind() == ErrorKind::Unreachable && last.to_string().contains("no answer in time"),
        "{last}"
    );
}

#[test]
fn a_store_that_only_stalls_is_given_up() {
    let stalls = |request: &Request| if request.method == "GET" { Reply::Stall } else { Reply::Serve };
    let (attempt, total) = (Duration::from_millis(50), Duration::from_millis(200));
    let server = Server::start(Quirks::default(), stalls);
    let store = with_limits(&server, Limits { attempt, total, ..SHORT_WAITS });
    with_limits(&server, SHORT_WAITS).put_new("a", content(1, 100_000)).unwrap();
    let error = store.get("a").unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unreachable && error.to_string().contains("check the endpoint"),
        "{error}"
    );
}

#[test]
fn a_store_says_how_long_to_wait() {
    let later = Reply::Refuse(503, "<Error><Code>SlowDown</Code></Error>", &[("Retry-After", "1")]);
    let (server, store) = started(Quirks::default(), first("PUT", &[later]));
    let begun = Instant::now();
    store.put_new("a", content(1, 10)).unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was asked again after {:?}", begun.elapsed());
    assert_eq!(server.log().len(), 2);
}

#[test]
fn a_wait_beyond_all_patience_is_told_at_once() {
    let never = Reply::Refuse(429, "", &[("retry-after", "86400")]);
    let (server, store) = started(Quirks::default(), first("PUT", &[never]));
    let error = store.put_new("a", content(1, 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled);
    assert!(error.to_string().contains("come back in 86400 s"), "{error}");
    assert_eq!(server.log().len(), 1);
}

#[test]
fn what_others_are_told_to_wait_does_not_fail_a_read_unasked() {
    let rule = |request: &Request| match request.method.as_str() {
        "PUT" if request.key.ends_with("/more") => Reply::Refuse(503, "", &[("retry-after", "60")]),
        _ => Reply::Serve,
    };
    let server = Server::start(Quirks::default(), rule);
    let quick = Limits { total: Duration::from_secs(2), ..SHORT_WAITS };
    let store = open(&StoreOptions {
        quick,
        patient: Limits { total: Duration::from_secs(1), ..SHORT_WAITS },
        ..options(&server)
    });
    store.put_new("a", content(1, 10)).unwrap();
    assert_eq!(kind(store.put_new("more", content(1, 10))), ErrorKind::Throttled);
    let quick = store.patient(Patience::Quick);
    assert_eq!(quick.get("a").unwrap().0, content(1, 10));
}

#[test]
fn a_bucket_of_another_region_is_named() {
    const HEADER: &[(&str, &str)] = &[("x-amz-bucket-region", "eu-west-1")];
    let malformed = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting \
                     'eu-west-1'</Message><Region>eu-west-1</Region></Error>";
    let permanent =
        "<Error><Code>PermanentRedirect</Code><Endpoint>bucket.s3-eu-west-1.amazonaws.com</Endpoint></Error>";
    let cases = [
        Reply::Refuse(301, permanent, HEADER),
        Reply::Refuse(307, "<Error><Code>TemporaryRedirect</Code></Error>", HEADER),
        Reply::Refuse(400, malformed, &[]),
    ];
    for reply in cases {
        let (server, store) = started(Quirks::default(), {
            let reply = reply.clone();
            move |_| reply.clone()
        });
        for error in all_operations(&store) {
            assert_eq!(error.kind(), ErrorKind::Other, "{reply:?}: {error}");
            // What a HEAD is refused with has no body to name the region in.
            let told = error.to_string();
            let head = error.operation() == forebay_object::Operation::Head
                && matches!(reply, Reply::Refuse(400, ..));
            assert!(
                head || (told.contains("'eu-west-1'") && told.contains("AWS_REGION")),
                "{reply:?}: {told}"
            );
        }
        assert_eq!(server.log().len(), 7, "a wrong region stays wrong");
    }
}

/// The errors of all operations on a server that refuses everything.
fn all_operations(store: &ObjectStore) -> Vec<ObjectError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let version = Expected::Etag(forebay_object::ETag("\"v1\"".into()));
    vec![
        store.put_new("a", Bytes::new()).unwrap_err(),
        store.put_new_file("a", file.path()).unwrap_err(),
        store.put_if("a", Bytes::new(), &version).unwrap_err(),
        store.get_range("a", 0..10).unwrap_err(),
        store.get("a").unwrap_err(),
        store.delete("a").unwrap_err(),
        store.list("a", None).unwrap_err(),
    ]
}

#[test]
fn what_a_store_does_not_implement_is_named_by_what_was_asked() {
    let (server, store) = started(Quirks::default(), |_| Reply::Error(501, "NotImplemented"));
    let abilities = [
        Ability::ConditionalCreate,
        Ability::ConditionalCreate,
        Ability::ConditionalReplace,
        Ability::RangeRead,
        Ability::Read,
        Ability::Delete,
        Ability::List,
    ];
    for (error, ability) in all_operations(&store).into_iter().zip(abilities) {
        assert_eq!(error.kind(), ErrorKind::Unsupported { ability }, "{error}");
        assert!(
            error.to_string().contains(&ability.to_string()) && error.to_string().contains("another store"),
            "{error}"
        );
    }
    let absent = store.put_if("a", Bytes::new(), &Expected::Absent).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::Unsupported { ability: Ability::ConditionalCreate });
    assert_eq!(kind(store.head("a")), ErrorKind::Unsupported { ability: Ability::Describe });
    assert_eq!(server.log().len(), 9, "a refusal is not repeated");
}

#[test]
fn a_length_that_is_not_true_gives_no_wrong_bytes() {
    let lies = [Reply::Announce(-1000), Reply::Announce(1000), Reply::Announce(-1), Reply::Announce(7)];
    let (_server, store) = started(Quirks::default(), first("GET", &lies));
    store.put_new("a", content(1, 100_000)).unwrap();
    for _ in 0..3 {
        assert_eq!(store.get_range("a", 100..90_000).unwrap(), content(1, 100_000).slice(100..90_000));
    }
    assert_eq!(store.counters().retries(), 4);
    let (_server, store) =
        started(Quirks::default(), first("GET", &[Reply::Announce(1000), Reply::Announce(2)]));
    store.put_new("a", content(1, 100_000)).unwrap();
    assert_eq!(store.get("a").unwrap().0, content(1, 100_000));
}

#[test]
fn an_error_that_comes_as_success_is_no_success() {
    let server = Server::start(Quirks::default(), |_| Reply::WellWithError);
    let store = with_limits(&server, Limits { total: Duration::from_millis(50), ..SHORT_WAITS });
    let version = Expected::Etag(forebay_object::ETag("\"v1\"".into()));
    let errors = [
        store.put_new("a", Bytes::new()).unwrap_err(),
        store.put_if("a", Bytes::new(), &version).unwrap_err(),
        store.get_range("a", 0..10).unwrap_err(),
        store.get("a").unwrap_err(),
        store.head("a").unwrap_err(),
        store.list("a", None).unwrap_err(),
    ];
    for error in errors {
        assert!(!error.is_answer(), "{error}");
    }
    assert!(server.keys().is_empty());
}

#[test]
fn a_bucket_that_keeps_versions_is_used_and_told() {
    let (_server, store) = started(Quirks { keeps_versions: true, ..Quirks::default() }, |_| Reply::Serve);
    let report = probe(&store).unwrap();
    assert!(report.keeps_versions && report.to_string().contains("former versions"), "{report}");
    let (_server, store) = started(Quirks::default(), |_| Reply::Serve);
    assert!(!probe(&store).unwrap().keeps_versions);
}

#[test]
fn a_locked_bucket_is_refused_in_its_own_words() {
    let body = "<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header is required for Put \
                Object requests with Object Lock parameters</Message></Error>";
    let (server, store) = started(Quirks::default(), move |_| Reply::Refuse(400, body, &[]));
    let error = probe(&store).unwrap_err();
    assert!(error.kind() == ErrorKind::Other && error.to_string().contains("Object Lock"), "{error}");
    assert!(!error.is_transient() && server.keys().is_empty());
}

#[test]
fn whatever_happens_to_connections_nothing_is_lost_or_made_up() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(Quirks::default(), move |request| {
        let put = request.method == "PUT";
        match turn.fetch_add(1, Ordering::SeqCst) % 9 {
            1 => Reply::Reset,
            3 if !put => Reply::Stall,
            4 if !put => Reply::CutBody,
            5 => Reply::ServeThenReset,
            6 if !put => Reply::Announce(5),
            7 => Reply::Refuse(503, "", &[("retry-after", "0")]),
            _ => Reply::Serve,
        }
    });
    let store = with_limits(&server, Limits { attempt: Duration::from_millis(500), ..SHORT_WAITS });
    for number in 0..12 {
        store.put_new(&format!("x/{number:02}"), content(number, 50_000 + number)).unwrap();
    }
    for number in 0..12 {
        let read = store.get(&format!("x/{number:02}")).unwrap().0;
        assert!(read == content(number, 50_000 + number), "{number}: {} bytes", read.len());
    }
    assert_eq!(keys(&store, "x").len(), 12);
}
