use std::{
    collections::VecDeque,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_object::{
    Ability, Backend, ErrorKind, Limits, ObjectStore, Operation, Patience, StoreOptions, probe,
};

use crate::{
    server::{BUCKET, Quirks, Reply, Request, Server},
    suite::{content, keys, kind, suite},
};

/// Waits so short that a test may wait for them, and an end so far away that no slow machine reaches it.
pub const SHORT_WAITS: Limits = Limits {
    total: Duration::from_mins(10),
    attempt: Duration::from_mins(10),
    first_wait: Duration::from_millis(1),
    longest_wait: Duration::from_millis(4),
};

pub fn options(server: &Server) -> StoreOptions {
    StoreOptions {
        endpoint: Some(server.endpoint()),
        extra: vec![
            ("aws_access_key_id".into(), "KEY".into()),
            ("aws_secret_access_key".into(), "secret".into()),
        ],
        credentials_file: Some("/nonexistent/credentials".into()),
        profile: Some("default".into()),
        quick: SHORT_WAITS,
        patient: SHORT_WAITS,
        ..StoreOptions::default()
    }
}

pub fn open(options: &StoreOptions) -> ObjectStore {
    ObjectStore::open(&format!("s3://{BUCKET}/pre/fix").parse().unwrap(), options).unwrap()
}

pub fn started(
    quirks: Quirks,
    rule: impl FnMut(&Request) -> Reply + Send + 'static,
) -> (Server, ObjectStore) {
    let server = Server::start(quirks, rule);
    let store = open(&options(&server));
    (server, store)
}

/// The first requests of a method get these replies, one each; all others are served.
pub fn first(method: &'static str, replies: &[Reply]) -> impl FnMut(&Request) -> Reply + Send + 'static {
    let mut replies: VecDeque<Reply> = replies.iter().cloned().collect();
    move |request| {
        if request.method == method { replies.pop_front().unwrap_or(Reply::Serve) } else { Reply::Serve }
    }
}

#[test]
fn passes_the_suite() {
    let (server, store) = started(Quirks::default(), |_| Reply::Serve);
    suite(&store);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    assert!(server.log().iter().any(|line| line.starts_with("PUT pre/fix/suite-")));
    assert_eq!(store.counters().retries(), 0);
}

#[test]
fn a_store_without_an_ability_is_refused_by_its_name() {
    let good = Quirks::default();
    let cases = [
        (Quirks { ignores_if_none_match: true, ..good }, Ability::ConditionalCreate, "If-None-Match"),
        (Quirks { ignores_if_match: true, ..good }, Ability::ConditionalReplace, "If-Match"),
        (Quirks { ignores_range: true, ..good }, Ability::RangeRead, "Range"),
    ];
    for (quirks, ability, name) in cases {
        let (server, store) = started(quirks, |_| Reply::Serve);
        let error = probe(&store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported { ability });
        assert!(
            error.to_string().contains(name) && error.to_string().contains("s3://bucket/pre/fix"),
            "{error}"
        );
        assert!(server.keys().is_empty(), "{:?}", server.keys());
    }
}

#[test]
fn throttling_is_waited_out_and_told() {
    let slow = Reply::Error(503, "SlowDown");
    let (server, store) =
        started(Quirks::default(), first("PUT", &[slow.clone(), slow, Reply::Error(429, "")]));
    store.put_new("a", content(1, 100)).unwrap();
    assert_eq!(server.log().len(), 4);
    let counters = store.counters();
    assert_eq!((counters.retries(), counters.throttled()), (3, 3));
    assert_eq!(counters.operation(Operation::PutNew).errors, 0);
    let last = store.last_error().unwrap().error;
    assert_eq!(last.kind(), ErrorKind::Throttled);
    assert!(last.to_string().contains("fewer requests") && last.is_transient(), "{last}");
}

#[test]
fn patience_ends() {
    let (server, store) = started(Quirks::default(), |_| Reply::Error(500, "InternalError"));
    drop(store);
    let quick = Limits { total: Duration::from_millis(50), ..SHORT_WAITS };
    let store = open(&StoreOptions { quick, ..options(&server) }).patient(Patience::Quick);
    let error = store.get("a").unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.is_transient(), "{error}");
    assert!(error.to_string().contains("HTTP 500 InternalError"), "{error}");
    assert_eq!(server.log().len() as u64, store.counters().retries() + 1);
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let server = Server::start(Quirks::default(), |_| Reply::Serve);
    let quick = Limits { total: Duration::from_millis(20), ..SHORT_WAITS };
    let options = StoreOptions { quick, patience: Patience::Quick, ..options(&server) };
    drop(server);
    let error = probe(&open(&options)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("check the endpoint"), "{error}");
}

#[test]
fn an_attempt_without_an_answer_is_repeated() {
    let server = Server::start(Quirks::default(), first("GET", &[Reply::Hang]));
    let patient =
        Limits { attempt: Duration::from_millis(200), total: Duration::from_mins(10), ..SHORT_WAITS };
    let store = open(&StoreOptions { patient, ..options(&server) });
    store.put_new("a", content(1, 100)).unwrap();
    assert_eq!(store.get("a").unwrap().0, content(1, 100));
    let last = store.last_error().unwrap().error.to_string();
    assert!(last.contains("no answer in time"), "{last}");
}

#[test]
fn half_an_answer_is_no_answer() {
    let cut = [Reply::CutBody, Reply::Serve, Reply::CutBody, Reply::Reset];
    let (_server, store) = started(Quirks::default(), first("GET", &cut));
    store.put_new("a", content(1, 100_000)).unwrap();
    assert_eq!(store.get("a").unwrap().0, content(1, 100_000));
    assert_eq!(store.get_range("a", 10..90_000).unwrap(), content(1, 100_000).slice(10..90_000));
    assert_eq!(store.counters().retries(), 3);
}

#[test]
fn refusals_have_their_kinds() {
    let cases = [
        (403, "InvalidAccessKeyId", ErrorKind::Unauthenticated, "~/.aws/credentials"),
        (403, "SignatureDoesNotMatch", ErrorKind::Unauthenticated, "renew the credential"),
        (400, "ExpiredToken", ErrorKind::Unauthenticated, "renew the credential"),
        (403, "AccessDenied", ErrorKind::Denied, "allow the credential"),
        (404, "NoSuchBucket", ErrorKind::NoBucket, "correct the URL"),
        (507, "InsufficientStorage", ErrorKind::NoSpace, "free space"),
        (400, "Strange", ErrorKind::Other, "HTTP 400 Strange: as told"),
    ];
    for (status, code, kind, words) in cases {
        let (server, store) = started(Quirks::default(), move |_| Reply::Error(status, code));
        let put = store.put_new("a", Bytes::new()).unwrap_err();
        let list = store.list("", None).unwrap_err();
        for error in [put, list] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words) && !error.is_transient(), "{error}");
        }
        assert_eq!(server.log().len(), 2, "a refusal is not repeated");
    }
}

fn write_credentials(file: &Path, key: &str) {
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n")).unwrap();
    fs::rename(fresh, file).unwrap();
}

fn accepts_only(key: &'static str) -> impl FnMut(&Request) -> Reply + Send + 'static {
    move |request| {
        if request.signed_by() == key { Reply::Serve } else { Reply::Error(403, "InvalidAccessKeyId") }
    }
}

#[test]
fn a_credential_is_renewed_by_its_file_while_the_store_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let server = Server::start(Quirks::default(), accepts_only("NEW"));
    let store = open(&StoreOptions { credentials_file: Some(file.clone()), ..options(&server) });
    assert_eq!(kind(store.put_new("a", Bytes::new())), ErrorKind::Unauthenticated);
    write_credentials(&file, "OLD");
    assert_eq!(kind(store.put_new("a", Bytes::new())), ErrorKind::Unauthenticated);
    write_credentials(&file, "NEW");
    store.put_new("a", Bytes::new()).unwrap();
    assert!(store.counters().credential_reloads() >= 1);
}

#[test]
fn a_credential_renewed_during_a_request_serves_its_next_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    write_credentials(&file, "OLD");
    let (renew, mut accepts) = (file.clone(), accepts_only("NEW"));
    let server = Server::start(Quirks::default(), move |request| {
        write_credentials(&renew, "NEW");
        accepts(request)
    });
    let store = open(&StoreOptions { credentials_file: Some(file), ..options(&server) });
    assert_eq!(kind(store.get("a")), ErrorKind::NotFound);
    assert_eq!(store.counters().credential_reloads(), 1);
    assert_eq!(server.log().len(), 2);
}

#[test]
fn options_that_make_no_sense_are_named() {
    let server = Server::start(Quirks::default(), |_| Reply::Serve);
    let good = options(&server);
    let extra =
        |name: &str, value: &str| StoreOptions { extra: vec![(name.into(), value.into())], ..good.clone() };
    let endpoint = |endpoint: &str| StoreOptions { endpoint: Some(endpoint.into()), ..good.clone() };
    let cases = [
        (extra("aws_acces_key", "x"), "no option \"aws_acces_key\""),
        (endpoint("minio:9000"), "is not a URL"),
        (endpoint("http://minio.example:9000"), "is not encrypted"),
        (StoreOptions { path_style: Some(false), ..good.clone() }, "use path style"),
    ];
    for (options, words) in cases {
        let error = ObjectStore::open(&"s3://bucket".parse().unwrap(), &options).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Other, Operation::Open));
        assert!(error.to_string().contains(words), "{error}");
    }
    let allowed = StoreOptions { allow_http: true, ..endpoint("http://minio.example:9000") };
    ObjectStore::open(&"s3://bucket".parse().unwrap(), &allowed).unwrap();
}

#[test]
fn no_credential_at_all_is_said_before_anything_is_sent() {
    const CHILD: &str = "FOREBAY_TEST_WITHOUT_CREDENTIALS";
    if std::env::var_os(CHILD).is_none() {
        let name = "bucket::no_credential_at_all_is_said_before_anything_is_sent";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env_clear()
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(
            child.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    let server = Server::start(Quirks::default(), |_| Reply::Serve);
    let store = open(&StoreOptions { extra: Vec::new(), ..options(&server) });
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("/nonexistent/credentials"), "{error}");
    assert!(server.log().is_empty());
}

#[test]
fn a_conflict_of_conditional_puts_is_decided_by_asking_again() {
    let conflict = Reply::Error(409, "ConditionalRequestConflict");
    let (server, store) = started(Quirks::default(), first("PUT", &[conflict]));
    store.put_new("a", content(1, 10)).unwrap();
    assert_eq!(server.log().len(), 2);
}

#[test]
fn one_refused_caller_does_not_stop_the_others() {
    let blocked = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&blocked);
    let (_server, store) = started(Quirks::default(), move |request| {
        if request.key.ends_with("/slow") && still.load(Ordering::SeqCst) {
            Reply::Error(500, "InternalError")
        } else {
            Reply::Serve
        }
    });
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| store.put_new("slow", content(1, 10)));
        for number in 0..20 {
            store.put_new(&format!("quick/{number}"), content(number, 10)).unwrap();
        }
        blocked.store(false, Ordering::SeqCst);
        slow.join().unwrap().unwrap();
    });
    assert_eq!(keys(&store, "").len(), 21);
}
