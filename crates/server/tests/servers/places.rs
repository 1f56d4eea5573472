//! Engines that are away, in use, or of a later release.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_engine::{Batch, DirectoryHost, EngineHost};
use forebay_protocol::Answer;
use forebay_server::MetaServer;
use forebay_testkit::postgres::PostgresServer;

use crate::bed::{Asks, Bed, POSTGRES, until};

#[test]
fn a_directory_has_one_server_at_a_time_and_the_next_one_waits() {
    one_server_at_a_time(&Bed::directory());
}

#[test]
fn an_object_store_has_one_server_at_a_time_and_the_next_one_waits() {
    one_server_at_a_time(&Bed::slate());
}

fn one_server_at_a_time(bed: &Bed) {
    let one = bed.server();
    let asks = Asks::of(&one);
    asks.create(bed, "v");
    let session = asks.join("v", 1);
    session.make("a");
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let options = bed.options();
        let stopped = &stopped;
        let waits =
            scope.spawn(move || MetaServer::start(&options, &|| stopped.load(Ordering::SeqCst)).unwrap());
        stopped.store(true, Ordering::SeqCst);
        assert!(waits.join().unwrap().is_none(), "it can be stopped while it waits");
        let options = bed.options();
        let waits = scope.spawn(move || MetaServer::start(&options, &|| false).unwrap().unwrap());
        session.make("b");
        assert!(!waits.is_finished());
        drop(one);
        let two = waits.join().unwrap();
        let asks = Asks::of(&two);
        assert!(asks.join("v", 2).sees("b"));
        two.stop();
    });
    let three = bed.server();
    assert!(Asks::of(&three).join("v", 3).sees("a"));
}

/// Who has a directory's lock knows that the former server has ended: its volumes are served without a wait.
#[test]
fn what_a_server_leaves_in_a_directory_when_it_is_killed_the_next_one_serves_at_once() {
    let bed = Bed::directory();
    let killed = bed.server();
    let asks = Asks::of(&killed);
    asks.create(&bed, "v");
    asks.join("v", 1).make("a");
    drop(killed);
    let next = bed.still_server();
    // No time passes, so none is waited for.
    assert!(Asks::of(&next).join("v", 2).sees("a"));
    next.stop();
}

#[test]
fn an_engine_that_is_away_at_the_start_is_one_clear_line() {
    let mut bed = Bed::directory();
    bed.engine = "postgres://forebay:secret@127.0.0.1:1/none".to_owned();
    let error = bed.try_server().unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("127.0.0.1:1"), "{error}");
    assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
    bed.engine = POSTGRES.url(POSTGRES.port(), "no_such_database");
    let error = bed.try_server().unwrap_err().to_string();
    assert!(error.contains("no_such_database") && !error.contains('\n'), "{error}");
}

#[test]
fn a_registry_of_a_later_release_is_left_alone() {
    let bed = Bed::directory();
    drop(bed.server());
    let dir = bed.dir.path().join("engine");
    let registry = DirectoryHost::open(&dir).unwrap().registry().unwrap();
    let later = [(vec![0], Some(2_u32.to_le_bytes().to_vec()))];
    registry.commit(&Batch::of(&later)).unwrap();
    drop(registry);
    let error = bed.try_server().unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("use a later one"), "{error}");
}

#[test]
fn an_engine_that_goes_away_and_comes_back_loses_nothing() {
    let mut engine = PostgresServer::start_new(&["max_connections=50"]).unwrap();
    engine.sql("postgres", "CREATE DATABASE own").unwrap();
    let mut bed = Bed::directory();
    bed.engine = engine.url(engine.port(), "own");
    let server = bed.server();
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let session = asks.join("v", 1);
    session.make("a");
    let impatient = Asks::of(&server).impatient();
    engine.stop().unwrap();
    std::thread::scope(|scope| {
        let session = &session;
        let waiting = scope.spawn(move || {
            // Repeated under the same number, as a client does.
            let request = session.request(crate::bed::make("b"), None);
            until("the change", || session.send(&request).ok().map(|response| response.answer))
        });
        until("the server to be silent", || {
            matches!(impatient.hello("v", 2, None), Err(crate::bed::Not::Elsewhere(None))).then_some(())
        });
        engine.start().unwrap();
        assert!(matches!(waiting.join().unwrap(), Answer::Inode(_)));
    });
    assert!(session.sees("a") && session.sees("b"));
}
