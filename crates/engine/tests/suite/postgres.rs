//! PostgreSQL: a real server, which is refused, restarted and found newer.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use forebay_engine::{Engine, EngineError, EngineHost, EngineUrl, Outcome, PostgresHost, PostgresUrl};
use forebay_testkit::postgres::PostgresServer;

use crate::{
    contract::{batch, contract},
    owner::{MARK, Owner, settled},
    place::host,
};

/// Conflicts of the tests are to be found soon, and nobody cuts the power.
const SETTINGS: &[&str] =
    &["fsync=off", "deadlock_timeout=20ms", "shared_buffers=32MB", "max_wal_size=4GB", "max_connections=100"];

/// One server for all tests that leave it as it is.
pub static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start_new(SETTINGS).unwrap());

/// The address of a new database, through a port.
pub fn fresh(server: &PostgresServer, port: u16) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    server.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    server.url(port, &name)
}

pub fn parsed(url: &str) -> PostgresUrl {
    let EngineUrl::Postgres(url) = url.parse().unwrap() else { panic!("{url} is not PostgreSQL's") };
    *url
}

pub fn open(url: &str, patience: Duration) -> Result<PostgresHost, EngineError> {
    PostgresHost::open_within(&parsed(url), patience)
}

pub fn engine(url: &str, patience: Duration) -> Arc<dyn Engine> {
    open(url, patience).unwrap().registry().unwrap()
}

const PATIENT: Duration = Duration::from_secs(120);
const IMPATIENT: Duration = Duration::from_millis(50);

#[test]
fn postgresql_keeps_the_contract() {
    let url = fresh(&SERVER, SERVER.port());
    let engine = engine(&url, PATIENT);
    contract(engine.as_ref());
    assert!(engine.size_on_disk() > 0);
    let nulls = SERVER
        .sql(url.rsplit_once('/').unwrap().1, "SELECT count(*) FROM forebay.rows_1 WHERE value IS NULL");
    assert_eq!(nulls.unwrap(), "0", "what locks an absent row is gone after the commit");
}

#[test]
fn postgresql_is_a_place() {
    let url = fresh(&SERVER, SERVER.port());
    host(&|| Box::new(open(&url, PATIENT).unwrap()));
    let place = open(&url, PATIENT).unwrap();
    let engine = place.create(&"removed".parse().unwrap()).unwrap();
    place.remove(&"removed".parse().unwrap()).unwrap();
    assert!(matches!(engine.get(b"row"), Err(EngineError::Missing { .. })));
    assert!(matches!(engine.commit(&batch(&[], &[(b"row", None)])), Err(EngineError::Missing { .. })));
}

/// Many processes come up at once over a database that has nothing yet.
#[test]
fn a_place_is_made_once() {
    let url = fresh(&SERVER, SERVER.port());
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let engine = engine(&url, PATIENT);
                let key = format!("{:?}", thread::current().id()).into_bytes();
                engine.commit(&batch(&[], &[(&key, Some(b"here"))])).unwrap();
            });
        }
    });
    assert_eq!(engine(&url, PATIENT).scan(b"", None, 10).unwrap().rows.len(), 6);
}

#[test]
fn what_keeps_a_place_from_being_opened_is_told_apart() {
    let url = fresh(&SERVER, SERVER.port());
    let (base, database) = url.rsplit_once('/').unwrap();
    let refused = |url: &str, what: &str| match open(url, PATIENT) {
        Err(error @ EngineError::Refused { .. }) => {
            let text = error.to_string();
            assert!(text.contains(what) && !text.contains("only"), "{text}");
        }
        other => panic!("{url}: {other:?}"),
    };
    refused(&url.replace("tests@", "tesst@"), "look at the user and the password");
    refused(&url.replace("forebay:", "nobody:"), "look at the user and the password");
    refused(&format!("{base}/nowhere"), "createdb");
    SERVER.sql(database, "CREATE ROLE guest LOGIN PASSWORD 'only for tests'").unwrap();
    refused(&url.replace("forebay:", "guest:"), "needs CREATE");
    let nobody = open(&format!("postgres://me@127.0.0.1:1/{database}"), IMPATIENT).unwrap_err();
    assert!(matches!(nobody, EngineError::Unreachable { .. }), "{nobody}");
    drop(engine(&url, PATIENT));
    SERVER.sql(database, "UPDATE forebay.schema SET version = 99").unwrap();
    let newer = open(&url, PATIENT).unwrap_err();
    assert!(matches!(newer, EngineError::Newer { found: 99, known: 1, .. }), "{newer}");
}

#[test]
fn tls_is_checked() {
    let url = fresh(&SERVER, SERVER.port());
    let trusted = format!("{url}?sslrootcert={}", SERVER.certificate().display());
    let engine = engine(&trusted, PATIENT);
    engine.commit(&batch(&[], &[(b"row", Some(b"secret"))])).unwrap();
    let database = url.rsplit_once('/').unwrap().1;
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE datname = current_database() AND application_name = 'forebay'";
    assert_eq!(SERVER.sql(database, encrypted).unwrap(), "t");
    let stranger = open(&format!("{url}?sslmode=verify-full"), PATIENT).unwrap_err();
    assert!(matches!(stranger, EngineError::Refused { .. }), "{stranger}");
    assert!(stranger.to_string().contains("sslrootcert"), "{stranger}");
}

#[test]
fn a_server_that_goes_and_comes_loses_nothing() {
    let mut server = PostgresServer::start_new(&["shared_buffers=16MB", "fsync=off"]).unwrap();
    let url = fresh(&server, server.port());
    let (impatient, patient) = (engine(&url, IMPATIENT), engine(&url, PATIENT));
    let mut owner = Owner::new();
    assert_eq!(owner.next(|batch| impatient.commit(batch)), Some(Outcome::Committed));
    server.stop().unwrap();
    let (gone, lost) = (impatient.get(MARK).unwrap_err(), owner.next(|batch| impatient.commit(batch)));
    assert!(matches!(gone, EngineError::Unreachable { .. }), "{gone}");
    assert_eq!(lost, None, "nothing was sent, so nothing was changed");
    let closed = open(&url, IMPATIENT).unwrap_err();
    assert!(matches!(closed, EngineError::Unreachable { .. }), "{closed}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.get(MARK));
        server.start().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), Some(1_u32.to_be_bytes().to_vec()), "it came back");
    });
    owner.check(impatient.as_ref());

    // Stopped and started while commits are on their way.
    let committed = AtomicU32::new(0);
    let mut owner = thread::scope(|scope| {
        let committing = scope.spawn(|| {
            while owner.committed.len() < 400 {
                owner.next(|batch| match patient.commit(batch) {
                    Ok(Outcome::Unknown) => Ok(settled(patient.as_ref(), batch)),
                    outcome => outcome,
                });
                committed.store(owner.committed.len() as u32, Ordering::Release);
            }
            owner
        });
        for round in 1..=3 {
            while committed.load(Ordering::Acquire) < round * 100 && !committing.is_finished() {
                thread::yield_now();
            }
            server.stop().unwrap();
            server.start().unwrap();
        }
        committing.join().unwrap()
    });
    owner.check(patient.as_ref());
    assert_eq!(owner.next(|batch| impatient.commit(batch)), Some(Outcome::Committed));
}
