//! Writes reach the volume one by one, and appends find the end where it is.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::fs::FileExt,
    thread,
};

use forebay_vfs::WriteAt;

use super::{mapping::Map, *};

fn text(mounted: &Mounted, name: &str) -> String {
    std::fs::read_to_string(mounted.at(name)).unwrap()
}

#[test]
fn an_append_lands_behind_what_others_appended() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "log", b"one ");
    assert_eq!(text(&mounted, "log"), "one ");
    let mut log = File::options().append(true).open(mounted.at("log")).unwrap();
    // The kernel is not told before the write, as where the lease to write is taken for it.
    mounted.files.put(ROOT, "log", b"one two ");
    log.write_all(b"three").unwrap();
    assert_eq!(mounted.files.bytes(ino), b"one two three");
    assert!(matches!(mounted.files.writes()[..], [WriteAt::End(_)]));
    mounted.recall(ino);
    assert_eq!(text(&mounted, "log"), "one two three");
}

#[test]
fn an_append_by_a_flag_set_later_lands_at_the_end_too() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "log", b"one ");
    let mut log = File::options().read(true).write(true).open(mounted.at("log")).unwrap();
    rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::APPEND).unwrap();
    mounted.files.put(ROOT, "log", b"one two ");
    log.write_all(b"three").unwrap();
    assert_eq!(mounted.files.bytes(ino), b"one two three");
}

#[test]
fn a_write_holds_no_page_while_it_waits() {
    let mounted = Mounted::new();
    // Not read before: a page that is not filled yet would be locked until it is written.
    let ino = mounted.files.put(ROOT, "file", b"text");
    let file = File::options().read(true).write(true).open(mounted.at("file")).unwrap();
    mounted.files.writing.close();
    let writer = thread::spawn(move || file.write_all_at(b"T", 0).map(|()| file));
    wait_until("it is being written", || mounted.files.writing.standing() == 1);
    // This is what the write waits for at the owner.
    mounted.recall(ino);
    mounted.files.writing.open();
    writer.join().unwrap().unwrap();
    mounted.recall(ino);
    assert_eq!(text(&mounted, "file"), "Text");
}

#[test]
fn who_reads_through_pages_sees_what_was_written_beside_them() {
    let mounted = Mounted::new();
    mounted.files.put(ROOT, "file", b"text");
    let read = |file: &File| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let reader = File::open(mounted.at("file")).unwrap();
    assert_eq!(&read(&reader), b"text");
    let writer = File::options().write(true).open(mounted.at("file")).unwrap();
    writer.write_all_at(b"TEXT", 0).unwrap();
    assert_eq!(&read(&reader), b"TEXT");
}

#[test]
fn a_shared_mapping_can_be_written() {
    let mounted = Mounted::new();
    let ino = mounted.files.put(ROOT, "file", &[b'a'; 8192]);
    let mut file = File::options().read(true).write(true).open(mounted.at("file")).unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    let map = Map::of(&file, 8192, true);
    map.set(4096, b'b');
    map.sync();
    assert_eq!(mounted.files.bytes(ino)[4096], b'b');
    assert!(mounted.files.writes().iter().any(|at| matches!(at, WriteAt::Pages(_))));
}
