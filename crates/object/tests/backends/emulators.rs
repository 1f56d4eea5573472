//! Google Cloud Storage and Azure: what this process can speak itself, and the suite against the real ones, or what stands in for them, where a
//! bucket or container is named.

use std::env;

use forebay_object::{Backend, ErrorKind, ObjectStore, Patience, StoreOptions, StoreUrl, probe};

use crate::{
    bucket::{SHORT_WAITS, first},
    server::{BUCKET, Quirks, Reply, Server},
    suite::{content, keys, suite},
};

const NO_OAUTH: &str =
    r#"{"private_key":"none","private_key_id":"none","client_email":"none","disable_oauth":true}"#;

fn google(server: &Server) -> ObjectStore {
    let options = StoreOptions {
        endpoint: Some(server.endpoint()),
        extra: vec![("google_service_account_key".into(), NO_OAUTH.into())],
        quick: SHORT_WAITS,
        patient: SHORT_WAITS,
        ..StoreOptions::default()
    };
    ObjectStore::open(&format!("gs://{BUCKET}/pre/fix").parse().unwrap(), &options).unwrap()
}

#[test]
fn google_passes_the_suite_with_generations_for_tags() {
    let quirks = Quirks { google: true, ignores_if_match: true, ..Quirks::default() };
    let server = Server::start(quirks, |_| Reply::Serve);
    let store = google(&server);
    suite(&store);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    assert!(server.log().iter().any(|line| line.starts_with("PUT pre/fix/suite-")));
}

#[test]
fn google_s_lost_answers_and_refusals_are_told_apart() {
    let quirks = Quirks { google: true, ..Quirks::default() };
    let server = Server::start(
        quirks,
        first("PUT", &[Reply::ServeThenReset, Reply::Serve, Reply::Serve, Reply::StoreOtherThenReset(b"x")]),
    );
    let store = google(&server);
    store.put_new("a", content(1, 1000)).unwrap();
    store.put_new("b", content(2, 1000)).unwrap();
    assert_eq!(store.put_new("c", content(3, 1000)).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let server = Server::start(quirks, |_| {
        Reply::Refuse(401, "<Error><Code>AuthenticationRequired</Code></Error>", &[])
    });
    let error = google(&server).put_new("a", content(1, 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("GOOGLE_APPLICATION_CREDENTIALS"), "{error}");
    assert!(!error.to_string().contains("AWS"), "{error}");
}

fn passes(scheme: &str, variable: &str, endpoint: &str) {
    let Ok(bucket) = env::var(variable) else {
        println!(
            "NOT RUN: {variable} names no bucket; set it, and what {scheme}:// needs (docs/operations.md)"
        );
        return;
    };
    for prefix in ["", "some/prefix"] {
        let url: StoreUrl = format!("{scheme}://{bucket}/{prefix}").parse().unwrap();
        let options = StoreOptions { endpoint: env::var(endpoint).ok(), ..StoreOptions::default() };
        let store = ObjectStore::open(&url, &options).unwrap().patient(Patience::Quick);
        println!("{}", probe(&store).unwrap());
        assert!(keys(&store, "probe").is_empty());
        suite(&store);
        println!("{url}: {} retries", store.counters().retries());
    }
}

#[test]
fn google_itself_passes_the_suite() {
    passes("gs", "FOREBAY_GS_BUCKET", "FOREBAY_GS_ENDPOINT");
}

#[test]
fn azure_itself_passes_the_suite() {
    passes("az", "FOREBAY_AZ_CONTAINER", "FOREBAY_AZ_ENDPOINT");
}
