//! Sealed files that the kernel reads by itself.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

use forebay_types::PolicyId;

use super::{mapping::Map, *};

const SIZE: usize = 300_000;

fn bytes(seed: u64) -> Vec<u8> {
    (0..SIZE as u64).map(|at| (at * 7 + (at >> 9) + seed * 13) as u8).collect()
}

/// A sealed file.
fn sealed(mounted: &Mounted, name: &str, seed: u64) -> PathBuf {
    let ino = mounted.files.put(ROOT, name, &bytes(seed));
    mounted.files.seal_file(ino);
    mounted.at(name)
}

/// Opens the file until the kernel reads it by itself.
fn handed(mounted: &Mounted, path: &Path) -> File {
    let mut opened = None;
    wait_until("the kernel has the file", || {
        let before = mounted.through();
        // The last one is released a moment after it was closed.
        drop(opened.take());
        opened = Some(File::open(path).unwrap());
        mounted.through() > before
    });
    opened.unwrap()
}

fn read(file: &File) -> Vec<u8> {
    let mut found = vec![0; SIZE + 1];
    let mut at = 0;
    while let got @ 1.. = file.read_at(&mut found[at..], at as u64).unwrap() {
        at += got;
    }
    found.truncate(at);
    found
}

fn mapped(mapping: &Map) -> Vec<u8> {
    (0..SIZE).map(|at| mapping.get(at)).collect()
}

#[test]
fn a_sealed_file_that_is_opened_again_costs_no_reads() {
    let mounted = Mounted::handing_over(8 << 20);
    let path = sealed(&mounted, "a", 1);
    let file = handed(&mounted, &path);
    let before = mounted.requests("read");
    assert!(read(&file) == bytes(1) && fs::read(&path).unwrap() == bytes(1));
    let mapping = Map::of(&file, SIZE, false);
    drop(file);
    assert!(mapped(&mapping) == bytes(1));
    mounted.recall_names(ROOT);
    assert_eq!(mounted.requests("read"), before);
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64);
}

#[test]
fn what_others_may_change_is_not_handed_over() {
    let mounted = Mounted::handing_over(8 << 20);
    let ino = mounted.files.put(ROOT, "open", &bytes(1));
    for seed in 1..20 {
        mounted.files.put(ROOT, "open", &bytes(seed));
        mounted.recall(ino);
        assert!(fs::read(mounted.at("open")).unwrap() == bytes(seed));
    }
    drop(handed(&mounted, &sealed(&mounted, "other", 2)));
    let through = mounted.through();
    (0..20).for_each(|_| drop(File::open(mounted.at("open")).unwrap()));
    assert_eq!(mounted.through(), through);
}

#[test]
fn what_may_be_on_no_disk_is_not_handed_over_and_what_other_policies_say_does_not_count() {
    let mounted = Mounted::handing_over(8 << 20);
    let (pinned, barred) = (PolicyId(1), PolicyId(2));
    *mounted.files.off_disk.lock() = Some(barred);
    let sealed = |name, seed, policy| {
        let ino = mounted.files.put(ROOT, name, &bytes(seed));
        mounted.files.set_policy(ino, policy);
        mounted.files.seal_file(ino);
        mounted.at(name)
    };
    let secret = sealed("secret", 1, barred);
    (0..5).for_each(|_| assert!(read(&File::open(&secret).unwrap()) == bytes(1)));
    // Files are assembled in turn: the other one was looked at by then.
    drop(handed(&mounted, &sealed("pinned", 2, pinned)));
    let through = mounted.through();
    (0..20).for_each(|_| assert!(read(&File::open(&secret).unwrap()) == bytes(1)));
    assert_eq!(mounted.through(), through);
}

#[test]
fn opens_of_both_kinds_take_turns() {
    let mounted = Mounted::handing_over(8 << 20);
    let path = sealed(&mounted, "a", 1);
    // One from before it was assembled keeps others from the plain file, and none from the bytes.
    let early = File::open(&path).unwrap();
    let (mapping, other) = (Map::of(&early, SIZE, false), sealed(&mounted, "other", 2));
    drop(early);
    drop(handed(&mounted, &other));
    let other = mounted.through();
    for _ in 0..20 {
        assert!(fs::read(&path).unwrap() == bytes(1));
    }
    assert_eq!(mounted.through(), other, "a mapping by the page cache is there");
    assert!(mapped(&mapping) == bytes(1));
    drop(mapping);
    // Then all have it.
    let file = handed(&mounted, &path);
    let before = mounted.through();
    let many: Vec<File> = (0..20).map(|_| File::open(&path).unwrap()).collect();
    assert_eq!(mounted.through(), before + 20);
    let refused = OpenOptions::new().write(true).open(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::PERM.raw_os_error()));
    assert!(many.iter().all(|file| read(file) == bytes(1)));
    // It is removed elsewhere while it is open.
    mounted.files.take(ROOT, "a");
    mounted.recall_names(ROOT);
    drop(file);
    assert!(many.iter().all(|file| read(file) == bytes(1)) && !path.exists());
}

#[test]
fn a_mount_ends_while_a_file_is_assembled_that_cannot_be_read() {
    let mut mounted = Mounted::handing_over(8 << 20);
    let path = sealed(&mounted, "a", 1);
    mounted.files.reading.close();
    (0..2).for_each(|_| drop(File::open(&path).unwrap()));
    wait_until("it is being assembled", || mounted.files.reading.standing() > 0);
    unmount(mounted.dir.path(), false).unwrap();
    let server = mounted.server.take().unwrap();
    wait_until("the mount has ended", || server.is_finished());
    assert!(mounted.files.reading.standing() > 0, "nobody answered it");
    server.join().unwrap().unwrap();
}

#[test]
fn many_open_read_map_and_close_more_files_than_have_room() {
    let mounted = Mounted::handing_over(2 * SIZE as u64 + 100_000);
    let paths: Vec<PathBuf> = (0..5).map(|seed| sealed(&mounted, &format!("{seed}"), seed)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let paths = &paths;
            scope.spawn(move || {
                for step in 0..250_usize {
                    // Some more often than others, by turns.
                    let which = [thread % 5, step / 50, (thread * 31 + step * 7) % 5][step % 3];
                    let file = File::open(&paths[which]).unwrap();
                    let (at, want) = ((step * 4099) % (SIZE - 5000), bytes(which as u64));
                    let mut found = vec![0; 5000];
                    file.read_exact_at(&mut found, at as u64).unwrap();
                    assert!(found == want[at..at + 5000], "{which} at {at}");
                    if step % 5 == 0 {
                        let mapping = Map::of(&file, SIZE, false);
                        drop(file);
                        assert!(mapped(&mapping) == want, "{which}");
                    }
                }
            });
        }
    });
    assert!(mounted.through() > 0, "nothing was handed over");
}
