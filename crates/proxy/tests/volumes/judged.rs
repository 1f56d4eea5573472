//! What becomes of copies is the owner's to say, and nobody else's.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use bytes::Bytes;
use forebay_protocol::Refusal;
use forebay_types::{SegmentId, VolumeId};

use crate::bed::{World, until};

/// So long a test looks whether something stays: several offers.
const LONG: Duration = Duration::from_millis(400);

#[test]
fn what_is_unwanted_or_gone_is_given_up_and_nothing_else() {
    let world = World::new();
    let (a, b, mut c) = (world.member(1), world.member(2), world.member(3));
    let writer = world.writer(1);
    let (unwanted, whole, _) = writer.writes("a", &[&a, &b], 5000);
    let wanted = writer.open(&[&c, &b]);
    let gone = SegmentId(1 << 40);
    c.append(unwanted, 1, &whole);
    c.seal(unwanted, &whole);
    c.append(gone, 1, &Bytes::from_static(b"of nobody"));
    c.append(wanted, 1, &Bytes::from_static(b"open"));
    c.starts();
    until("two are given up", || !c.has(unwanted) && !c.has(gone));
    std::thread::sleep(LONG);
    assert!(c.has(wanted));
    assert_eq!(c.counted().dropped, 2);
}

#[test]
fn nothing_is_given_up_without_the_owner() {
    let world = World::new();
    let mut a = world.member(1);
    let gone = SegmentId(1 << 40);
    a.append(gone, 1, &Bytes::from_static(b"of nobody"));
    a.around.way.cut.store(true, SeqCst);
    a.starts();
    std::thread::sleep(LONG);
    assert!(a.has(gone), "nobody was asked");
    a.around.way.cut.store(false, SeqCst);
    until("it is asked", || !a.has(gone));
}

#[test]
fn nothing_is_offered_before_the_member_has_joined() {
    let world = World::new();
    let mut a = world.member(1);
    let gone = SegmentId(1 << 40);
    a.append(gone, 1, &Bytes::from_static(b"of nobody"));
    let acting = a.around.acting.lock().take();
    a.starts();
    std::thread::sleep(LONG);
    assert!(a.has(gone) && a.around.way.sessions.lock().is_empty());
    *a.around.acting.lock() = acting;
    until("it is asked", || !a.has(gone));
}

#[test]
fn the_owner_of_another_volume_of_the_same_name_is_not_believed() {
    let world = World::new();
    let mut a = world.member(1);
    let gone = SegmentId(1 << 40);
    a.append(gone, 1, &Bytes::from_static(b"of nobody"));
    *world.office.volume.lock() = Some(VolumeId([8; 16]));
    a.starts();
    until("it was asked", || a.around.way.sessions.lock().len() >= 2);
    assert!(a.has(gone));
    *world.office.volume.lock() = Some(crate::bed::V);
    until("it is asked", || !a.has(gone));
}

#[test]
fn what_is_of_a_deleted_volume_is_given_up_once_that_is_on_record() {
    let unknown = || Err(Refusal::NoVolume("v".to_owned()));
    let away = || Refusal::Unavailable("no server answers".to_owned());
    // Whatever is wrong, nothing is on record: a server may not have heard of the volume, or not be there.
    for (listed, deleted) in [
        (unknown(), Ok(false)),
        (unknown(), Err(away())),
        (Err(away()), Ok(true)),
        (Err(Refusal::Denied("no".to_owned())), Ok(true)),
        (Ok(()), Ok(true)),
    ] {
        let world = World::new();
        let mut a = world.member(1);
        let segment = SegmentId(1 << 40);
        a.append(segment, 1, &Bytes::from_static(b"acknowledged"));
        a.around.way.cut.store(true, SeqCst);
        *a.around.listed.lock() = listed;
        *a.around.deleted.lock() = deleted;
        a.starts();
        std::thread::sleep(LONG);
        assert!(a.has(segment));
        *a.around.listed.lock() = unknown();
        *a.around.deleted.lock() = Ok(true);
        until("it is on record", || !a.has(segment));
        until("it is counted", || a.counted().dropped == 1);
    }
}

#[test]
fn a_session_with_a_volume_that_is_deleted_ends_with_what_is_here_of_it() {
    let world = World::new();
    let mut a = world.member(1);
    let writer = world.writer(1);
    let segment = writer.open(&[&a]);
    a.append(segment, 1, &Bytes::from_static(b"open"));
    a.starts();
    until("a session", || a.around.way.sessions.lock().len() == 1);
    *world.office.owner.lock() = None;
    *a.around.listed.lock() = Err(Refusal::NoVolume("v".to_owned()));
    a.around.way.cut.store(true, SeqCst);
    std::thread::sleep(LONG);
    assert!(a.has(segment), "nobody has said so");
    *a.around.deleted.lock() = Ok(true);
    until("it is on record", || !a.has(segment));
}

#[test]
fn a_process_that_joins_again_begins_another_session() {
    let world = World::new();
    let (mut a, b) = (world.member(1), world.member(2));
    let writer = world.writer(1);
    let segment = writer.open(&[&a, &b]);
    a.append(segment, 1, &Bytes::from_static(b"open"));
    a.starts();
    let sessions = || a.around.way.sessions.lock().len();
    until("a session", || sessions() == 1);
    a.around.acting.lock().as_mut().unwrap().incarnation = forebay_group::Incarnation([5; 16]);
    until("another", || sessions() == 2);
    let first = a.around.way.sessions.lock()[0];
    until("the first one is over", || !world.owner.lives(first));
    assert!(a.has(segment));
}
