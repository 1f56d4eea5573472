//! For how long the kernel keeps what it was told.

use super::*;

fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_a_lease_stands_for_is_asked_once() {
    let mounted = Mounted::new();
    mounted.files.put(ROOT, "file", b"text");
    let file = mounted.at("file");
    mounted.costs_nothing(&["lookup", "getattr"], || assert!(std::fs::metadata(&file).unwrap().is_file()));
    let absent = mounted.at("absent");
    mounted.costs_nothing(&["lookup"], || assert!(!absent.exists()));
    mounted.costs_nothing(&["read"], || assert_eq!(std::fs::read(&file).unwrap(), b"text"));
}

#[test]
fn without_a_lease_everything_is_asked_again() {
    let mounted = Mounted::new();
    *mounted.files.lifetime.lock() = Duration::ZERO;
    let (file, absent) = (mounted.at("file"), mounted.at("absent"));
    let ino = mounted.files.put(ROOT, "file", b"text");
    for (mode_there, text) in [(0o600, b"one!"), (0o640, b"two!"), (0o644, b"more")] {
        mounted.files.chmod(ino, mode_there);
        mounted.files.put(ROOT, "file", text);
        assert_eq!(mode(&file), u32::from(mode_there));
        assert_eq!(std::fs::read(&file).unwrap(), text);
    }
    assert!(!absent.exists());
    mounted.files.put(ROOT, "absent", b"");
    assert!(absent.exists());
    mounted.files.take(ROOT, "absent");
    assert!(!absent.exists());
}

#[test]
fn a_lifetime_ends() {
    let mounted = Mounted::new();
    *mounted.files.lifetime.lock() = Duration::from_millis(50);
    let ino = mounted.files.put(ROOT, "file", b"text");
    let (file, absent) = (mounted.at("file"), mounted.at("absent"));
    assert!(!absent.exists());
    assert_eq!(mode(&file), 0o644);
    mounted.files.chmod(ino, 0o600);
    mounted.files.put(ROOT, "absent", b"");
    mounted.files.put(ROOT, "file", b"other");
    wait_until("the mode is asked for", || mode(&file) == 0o600);
    wait_until("the name is asked for", || absent.exists());
    // The pages too, as they are compared with the attributes.
    wait_until("the bytes are asked for", || std::fs::read(&file).unwrap() == b"other");
}

#[test]
fn a_listing_with_attributes_has_lifetimes() {
    let mounted = Mounted::new();
    for number in 0..20 {
        mounted.files.put(ROOT, &format!("file-{number}"), b"text");
    }
    let list = || {
        for entry in std::fs::read_dir(mounted.dir.path()).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().len(), 4);
        }
    };
    list();
    assert_eq!(mounted.requests("lookup"), 0);
    let file = mounted.at("file-7");
    mounted.costs_nothing(&["lookup", "getattr"], || assert_eq!(std::fs::metadata(&file).unwrap().len(), 4));
    assert_eq!(mounted.requests("lookup"), 0);
    *mounted.files.lifetime.lock() = Duration::ZERO;
    mounted.recall_names(ROOT);
    list();
    mounted.files.put(ROOT, "file-3", b"longer than before");
    let len = std::fs::metadata(mounted.at("file-3")).unwrap().len();
    assert_eq!(len, 18);
}

#[test]
fn what_is_sealed_is_kept_without_a_lease() {
    let mounted = Mounted::new();
    *mounted.files.lifetime.lock() = Duration::ZERO;
    let (sealed, other) =
        (mounted.files.put(ROOT, "sealed", b"text"), mounted.files.put(ROOT, "other", b"text"));
    *mounted.files.sealed.lock() = Some(sealed);
    let (file, absent) = (mounted.at("sealed"), mounted.at("absent"));
    mounted.costs_nothing(&["lookup"], || assert_eq!(std::fs::metadata(&file).unwrap().len(), 4));
    mounted.costs_nothing(&["lookup", "read"], || assert_eq!(std::fs::read(&file).unwrap(), b"text"));
    // A name beside it that is missing or stands for something else is asked for as ever.
    assert!(!absent.exists());
    mounted.files.put(ROOT, "absent", b"");
    assert!(absent.exists());
    mounted.files.chmod(other, 0o600);
    assert_eq!(mode(&mounted.at("other")), 0o600);
    // A recall of names reaches those that are kept without a limit of time.
    mounted.files.take(ROOT, "sealed");
    assert!(file.exists(), "the kernel has not been told");
    mounted.recall_names(ROOT);
    assert!(!file.exists());
}
