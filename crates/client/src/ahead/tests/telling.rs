//! Who tells the owner.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use forebay_types::Ino;

use super::cluster::Cluster;
use crate::{error::ClientError, link::Patience};

/// A thread that sleeps need not be woken for it, nor wake who waits.
#[test]
fn who_waits_tells_the_owner_himself() {
    let cluster = Cluster::new();
    let alone = cluster.client(1);
    let top = alone.directory(Ino::ROOT, "top");
    alone.ahead.settle_all().unwrap();
    let here = Some(thread::current().id());
    // The thread for what nobody waits for may come first.
    let by_itself = (0..50).filter(|number| {
        let file = alone.file(top, &format!("{number:02}"));
        alone.ahead.settle(&[file]).unwrap();
        *alone.link.told_by.lock() == here
    });
    assert!(by_itself.count() > 0);
    // What nobody waits for is told, too.
    let asked = alone.asked();
    alone.file(top, "last");
    while alone.asked() == asked {
        thread::sleep(Duration::from_millis(1));
    }
    assert_ne!(*alone.link.told_by.lock(), here);
}

#[test]
fn what_somebody_tells_who_waits_no_longer_is_told_before_anything_else() {
    let cluster = Cluster::new();
    let (alone, other) = (cluster.client(1), cluster.client(2));
    let top = alone.directory(Ino::ROOT, "top");
    alone.ahead.settle_all().unwrap();
    alone.link.ends.store(true, Ordering::SeqCst);
    alone.link.gate.close(0);
    let first = alone.file(top, "a");
    let soon = Duration::from_millis(30);
    let told = |file| alone.ahead.settle_within(&[file], &Patience::new(Some(soon), None));
    assert_eq!(told(first), Err(ClientError::TimedOut(soon)));
    // Others wait for what is under way.
    let second = alone.file(top, "b");
    assert_eq!(told(second), Err(ClientError::TimedOut(soon)));
    let beside = Arc::clone(&alone);
    let waits = thread::spawn(move || beside.ahead.settle(&[second]));
    thread::sleep(soon);
    assert_eq!(alone.link.gate.came(), 1, "one request at a time");
    alone.link.gate.open();
    waits.join().unwrap().unwrap();
    assert_eq!(alone.ahead.settle(&[first]), Ok(()));
    assert_eq!(alone.ahead.settle_all(), Ok(()));
    assert_eq!(other.names(top), ["a", "b"]);
}
