//! After a recall the kernel asks again, and nothing waits in a circle.

use std::{fs::File, os::unix::fs::FileExt, thread};

use super::*;

#[test]
fn attributes_are_asked_again() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", b"text");
    let file = File::open(mounted.at("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    mounted.files.put(ROOT, "file", b"longer");
    assert_eq!(file.metadata().unwrap().len(), 4, "it is kept until it is recalled");
    mounted.wait(mounted.caches.drop_inode(ino, true));
    assert_eq!(file.metadata().unwrap().len(), 6);
}

#[test]
fn pages_are_asked_again() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", b"text");
    let file = File::open(mounted.at("file")).unwrap();
    // Without a look at its attributes, which a read makes old.
    let read = || {
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&read(), b"text");
    mounted.files.put(ROOT, "file", b"TEXT");
    assert_eq!(&read(), b"text", "it is kept until it is recalled");
    mounted.recall(ino);
    assert_eq!(&read(), b"TEXT");
}

#[test]
fn names_are_asked_again() {
    let mounted = Mounted::new();
    let dir = mounted.files.directory(ROOT, "dir");
    mounted.files.put(dir, "there", b"");
    let (there, missing) = (mounted.at("dir/there"), mounted.at("dir/missing"));
    mounted.costs_nothing(&["lookup"], || assert!(there.exists() && !missing.exists()));
    mounted.files.take(dir, "there");
    mounted.files.put(dir, "missing", b"");
    assert!(there.exists() && !missing.exists(), "they are kept until they are recalled");
    mounted.recall_names(dir);
    assert!(!there.exists() && missing.exists());
}

/// Whoever makes a name holds the directory's lock until the answer is there, which here waits for the recall.
#[test]
fn a_creation_under_way_does_not_hold_up_the_recall_of_its_directory() {
    let mounted = Mounted::new();
    let dir = mounted.files.directory(ROOT, "dir");
    let (missing, made) = (mounted.at("dir/missing"), mounted.at("dir/made"));
    mounted.costs_nothing(&["lookup"], || assert!(!missing.exists()));
    mounted.files.making.close();
    let maker = thread::spawn(move || File::create(made).map(drop));
    wait_until("it is being made", || mounted.files.making.standing() == 1);
    mounted.files.put(dir, "missing", b"");
    mounted.recall_names(dir);
    mounted.recall(dir);
    mounted.files.making.open();
    maker.join().unwrap().unwrap();
    assert!(missing.exists() && mounted.at("dir/made").exists());
}

/// The kernel waits for a page that is being read, here for another machine: other recalls go on.
#[test]
fn a_recall_that_waits_for_a_page_holds_up_no_other() {
    let mounted = Mounted::new();
    let slow = mounted.files.put(ROOT, "slow", b"slow");
    let other = mounted.files.put(ROOT, "other", b"other");
    assert_eq!(std::fs::metadata(mounted.at("other")).unwrap().len(), 5);
    mounted.files.reading.close();
    let path = mounted.at("slow");
    let reader = thread::spawn(move || std::fs::read(path).unwrap());
    wait_until("it is being read", || mounted.files.reading.standing() == 1);
    let waiting = mounted.caches.drop_inode(slow, false);
    // More than the threads that there are at first.
    let others: Vec<_> = (0..8).map(|_| mounted.caches.drop_inode(other, true)).collect();
    others.into_iter().for_each(|told| mounted.wait(told));
    mounted.recall_names(ROOT);
    mounted.files.put(ROOT, "slow", b"fast");
    mounted.files.reading.open();
    mounted.wait(waiting);
    // Whether the page was dropped before or after the bytes were taken out of it.
    assert!([b"slow", b"fast"].contains(&reader.join().unwrap().as_slice().try_into().unwrap()));
    assert_eq!(
        std::fs::read(mounted.at("slow")).unwrap(),
        b"fast",
        "what was read before the recall went with it"
    );
}

/// As where a client gives up what it knows too much of.
#[test]
fn of_many_at_once_attributes_and_names_are_dropped_at_once_and_pages_when_they_can_be_had() {
    let mounted = Mounted::new();
    let inos = ["slow", "other"].map(|name| mounted.files.put(ROOT, name, name.as_bytes()));
    let missing = mounted.at("missing");
    let file = File::open(mounted.at("other")).unwrap();
    let read = || {
        let mut text = [0; 5];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&read(), b"other");
    mounted.costs_nothing(&["lookup", "getattr"], || {
        assert!(file.metadata().unwrap().len() == 5 && !missing.exists());
    });
    mounted.files.reading.close();
    let path = mounted.at("slow");
    let reader = thread::spawn(move || std::fs::read(path).unwrap());
    wait_until("it is being read", || mounted.files.reading.standing() == 1);
    mounted.files.put(ROOT, "other", b"OTHERS");
    mounted.files.put(ROOT, "missing", b"");
    let told = mounted.caches.drop_inodes(&inos, true);
    assert!(file.metadata().unwrap().len() == 6 && missing.exists());
    mounted.files.put(ROOT, "slow", b"fast");
    mounted.files.reading.open();
    mounted.wait(told);
    reader.join().unwrap();
    assert_eq!(&read(), b"OTHER");
    assert_eq!(std::fs::read(mounted.at("slow")).unwrap(), b"fast");
    // Without names, these stay.
    mounted.costs_nothing(&["lookup"], || assert!(missing.exists()));
    mounted.files.take(ROOT, "missing");
    mounted.wait(mounted.caches.drop_inodes(&inos, false));
    assert!(missing.exists());
}

#[test]
fn a_recall_makes_no_answer_old_that_is_about_another_inode() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", b"text");
    let other = mounted.files.put(ROOT, "other", b"");
    assert_ne!(ino, other);
    let file = mounted.at("file");
    mounted.files.finding.close();
    let looked = file.clone();
    let looking = thread::spawn(move || std::fs::metadata(looked).unwrap().len());
    wait_until("it is looked at", || mounted.files.finding.standing() == 1);
    mounted.recall(other);
    mounted.files.finding.open();
    assert_eq!(looking.join().unwrap(), 4);
    mounted.files.put(ROOT, "file", b"longer");
    assert_eq!(file.metadata().unwrap().len(), 4, "it is kept until it is recalled itself");
}

/// The lease is there again by the time that the answer is made, but it is another one.
#[test]
fn an_answer_from_before_a_recall_carries_no_lifetime() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", b"text");
    let missing = mounted.at("missing");
    mounted.files.finding.close();
    let (one, two) = (mounted.at("file"), missing.clone());
    let lookups = [thread::spawn(move || one.exists()), thread::spawn(move || two.exists())];
    wait_until("both are looked up", || mounted.files.finding.standing() == 2);
    mounted.files.put(ROOT, "file", b"longer");
    mounted.files.put(ROOT, "missing", b"");
    mounted.recall(ino);
    mounted.recall_names(ROOT);
    mounted.files.finding.open();
    for lookup in lookups {
        // Either answer is right: nothing had ended when it was asked.
        let _: bool = lookup.join().unwrap();
    }
    assert_eq!(std::fs::metadata(mounted.at("file")).unwrap().len(), 6);
    assert!(missing.exists());
}

/// The answer that tells the kernel of an inode is under way while that is dropped, which the kernel cannot, as it does not know it.
#[test]
fn what_the_kernel_learns_just_after_a_recall_is_dropped_too() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", b"text");
    let began = std::time::Instant::now();
    mounted.recall(ino);
    let file = File::open(mounted.at("file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    mounted.files.put(ROOT, "file", b"longer");
    // Where this came too late to be what the recall missed, there is nothing to see.
    if began.elapsed() < std::time::Duration::from_millis(40) {
        wait_until("the attributes are asked for", || file.metadata().unwrap().len() == 6);
    }
}

#[test]
fn nobody_waits_for_a_kernel_that_is_gone() {
    let mounted = Mounted::new();
    let caches = Arc::clone(&mounted.caches);
    let ino = mounted.files.put(ROOT, "file", b"text");
    drop(mounted);
    caches.wait(caches.drop_inode(ino, false));
    caches.wait(caches.drop_entries(ROOT));
}
