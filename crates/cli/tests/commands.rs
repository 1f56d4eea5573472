//! What needs no mount: help, refusals, volumes made and looked at, pages and completions.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::fs;

use bed::{Bed, contents, text};

const COMMANDS: &[&str] = &[
    "create",
    "mount",
    "umount",
    "status",
    "stats",
    "fsck",
    "gc",
    "bench",
    "meta",
    "volume",
    "token",
    "proxy",
    "group",
    "pki",
    "completions",
    "man",
];

#[test]
fn every_command_has_help() {
    let bed = Bed::new();
    let all = bed.good(&["--help"]);
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} is not in\n{all}");
        let help = bed.good(&[command, "--help"]);
        assert!(help.contains("Usage: forebay") && help.len() > 200, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    assert!(!all.contains("debug-sync-points") && !all.contains("null-mount"));
    assert!(bed.good(&["--version"]).starts_with("forebay "));
    let create = bed.good(&["create", "--help"]);
    for word in ["--store", "4MiB", "lz4", "aes256-gcm", "--durability", "s3://"] {
        assert!(create.contains(word), "{word} is not in\n{create}");
    }
}

#[test]
fn alone_it_shows_its_help_and_a_slip_of_the_hand_is_named() {
    let bed = Bed::new();
    let output = bed.run(&[]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert_eq!(text(&output.stderr).trim_end(), bed.good(&["--help"]).trim_end());
    let line = bed.refused(2, &["moutn", "v", "mnt"]);
    assert!(
        line.contains("'moutn'") && line.contains("'mount'") && line.contains("`forebay --help`"),
        "{line}"
    );
    let line = bed.refused(2, &["mount", "v"]);
    assert!(line.contains("<MOUNTPOINT>") && line.contains("`forebay mount --help`"), "{line}");
}

#[test]
fn what_is_asked_wrongly_is_refused_in_one_line() {
    let bed = Bed::new();
    bed.dir("mnt");
    for (args, named) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["create"], "VOLUME"),
        (&["create", "v", "--block-size", "many"], "many"),
        (&["create", "v", "--block-size", "-5"], "-5"),
        (&["create", "v", "--block-size", "3MiB"], "power of two"),
        (&["create", "v", "--block-size", "1KiB"], "256 KiB"),
        (&["create", "v", "--block-size", "64MiB"], "8 MiB"),
        (&["create", "v", "--compression", "gzip"], "gzip"),
        (&["create", "v", "--encryption", "rot13"], "rot13"),
        (&["create", "v", "--durability", "never"], "never"),
        (&["create", "v", "--store", "ftp://somewhere/else"], "ftp://"),
        (&["create", "v", "--store", "s3://"], "s3://"),
        (&["create", "v", "--store", "file://relative"], "relative"),
        (&["mount", "v", "mnt", "-o", "no_such_option"], "no_such_option"),
        (&["mount", "v", "mnt", "--cache-size", "5"], "16MiB"),
        (&["mount", "v", "mnt", "--metrics", "nowhere"], "nowhere"),
        (&["stats", "mnt", "--interval", "0"], "--interval"),
        (&["bench", "mnt", "--workload", "nothing"], "sequential-write"),
        (&["bench", "mnt", "--null", "--reference", "x"], "--reference"),
        (&["completions", "basic"], "basic"),
        (&["fsck", "v", "--drop-lost"], "--repair"),
        (&["fsck", "v", "--cut-journal"], "--repair"),
        (&["create", "v", "--recover-from", "file:///x", "--store", "file:///y"], "--store"),
    ] {
        let line = bed.refused(2, args);
        assert!(line.contains(named), "{args:?}: {line}");
        assert!(!bed.path("v").exists(), "{args:?} made something");
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let bed = Bed::new();
    bed.volume("v");
    bed.dir("mnt");
    bed.dir("empty");
    fs::write(bed.path("file"), "x").unwrap();
    fs::create_dir_all(bed.path("full/of")).unwrap();
    let before = contents(&bed.path(""));
    for (args, named) in [
        (&["create", "v"][..], "volume already"),
        (&["create", "full"], "not empty"),
        (&["create", "file"], "not a directory"),
        (&["create", "no/such/parent"], "no/such/parent"),
        (&["create", "w", "--store", "file:///dev/null/objects"], "/dev/null"),
        (&["mount", "missing", "mnt"], "missing"),
        (&["mount", "empty", "mnt"], "forebay create"),
        (&["mount", "v", "missing"], "missing"),
        (&["mount", "v", "file"], "not a directory"),
        (&["mount", "v", "v"], "inside the volume"),
        (&["mount", "v", "v/meta"], "inside the volume"),
        (&["mount", "v", "."], "would hide"),
        (&["mount", "v", "mnt", "--cache-dir", "/proc/nowhere"], "/proc/nowhere"),
        (&["umount", "mnt"], "not where"),
        (&["umount", "missing"], "missing"),
        (&["status", "missing"], "missing"),
        (&["status", "empty"], "not a volume"),
        (&["stats", "mnt"], "not where"),
        (&["gc", "empty"], "not a volume"),
        (&["fsck", "empty"], "not a volume"),
        (&["fsck", "missing"], "missing"),
        (&["bench", "missing"], "missing"),
    ] {
        let line = bed.refused(1, args);
        assert!(line.contains(named), "{args:?}: {line}");
        assert!(contents(&bed.path("")) == before, "{args:?} changed something");
    }
}

#[test]
fn a_volume_of_a_newer_format_is_refused() {
    let bed = Bed::new();
    let volume = bed.volume("v");
    bed.dir("mnt");
    let path = volume.join("forebay.volume");
    let newer = fs::read_to_string(&path).unwrap().replace("\"format\":1", "\"format\":99");
    let json = newer.lines().next().unwrap();
    fs::write(&path, format!("{json}\ncrc32c {:08x}\n", crc32c(json.as_bytes()))).unwrap();
    let before = contents(&volume);
    for args in [&["mount", "v", "mnt"][..], &["status", "v"], &["gc", "v"], &["fsck", "v"]] {
        let line = bed.refused(1, args);
        assert!(line.contains("format 99") && line.contains("newer"), "{line}");
    }
    fs::write(&path, "{\"format\":1").unwrap();
    assert!(bed.refused(1, &["mount", "v", "mnt"]).contains("damaged"));
    fs::write(&path, newer).unwrap();
    assert!(bed.refused(1, &["mount", "v", "mnt"]).contains("checksum"));
    assert_eq!(before.len(), contents(&volume).len());
}

/// Castagnoli's CRC, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_volume_that_is_not_mounted_has_a_status() {
    let bed = Bed::new();
    let volume = bed.volume("v");
    let before = contents(&volume);
    let status = bed.status("v");
    assert_eq!(status["state"], "not mounted");
    assert_eq!((&status["block_size"], &status["compression"]), (&(4_u64 << 20).into(), &"lz4".into()));
    assert_eq!(status["path"], volume.to_str().unwrap());
    assert!(status["pid"].is_null() && status["id"].as_str().unwrap().len() == 32);
    assert_eq!(
        (&status["live_bytes"], &status["dirty_bytes"], &status["objects"]),
        (&0.into(), &0.into(), &0.into())
    );
    let told = bed.good(&["gc", "v", "--dry-run"]);
    assert!(told.contains("0 objects of 0 B hold 0 B") && told.contains("0 further objects"), "{told}");
    let text = bed.good(&["status", "v"]);
    assert!(text.contains("not mounted") && text.contains(volume.to_str().unwrap()), "{text}");
    assert!(contents(&volume) == before, "looking changed something");
}

#[test]
fn create_takes_what_it_is_told() {
    let bed = Bed::new();
    let store = bed.path("store");
    let url = format!("file://{}", store.display());
    let told = bed.good(&[
        "create",
        "v",
        "--store",
        &url,
        "--block-size",
        "256KiB",
        "--compression",
        "zstd",
        "--encryption",
        "aes256-gcm",
        "--durability",
        "object",
    ]);
    assert!(told.contains("256 KiB") && told.contains(&url) && told.contains("key"), "{told}");
    let status = bed.status("v");
    let text = |key: &str| status[key].as_str().unwrap().to_owned();
    assert_eq!(status["block_size"], 256 << 10);
    assert_eq!(
        (text("compression"), text("encryption"), text("durability")),
        ("zstd".into(), "aes256-gcm".into(), "object".into())
    );
    assert_eq!(text("store"), url);
}

#[test]
fn completions_and_pages_come_from_the_flags() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bed.good(&["completions", shell]);
        assert!(script.contains("umount") && script.contains("cache-size"), "{shell}");
        assert!(
            script.contains("zstd") && script.contains("tree-remove"),
            "{shell} does not know the values"
        );
        for hidden in ["null-mount", "debug-sync-points", "detached"] {
            assert!(!script.contains(hidden), "{shell} offers {hidden}");
        }
    }
    bed.good(&["man", "pages/man1"]);
    for command in COMMANDS {
        let page = fs::read_to_string(bed.path(&format!("pages/man1/forebay-{command}.1"))).unwrap();
        assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    }
    let mount = fs::read_to_string(bed.path("pages/man1/forebay-mount.1")).unwrap();
    assert!(mount.contains("cache\\-size") && mount.contains("fstab"), "{mount}");
    assert!(mount.contains(".SH SYNOPSIS\nforebay mount [OPTIONS] <VOLUME> <MOUNTPOINT>\n"), "{mount}");
    assert!(!mount.contains("detached"), "{mount}");
    let all = fs::read_to_string(bed.path("pages/man1/forebay.1")).unwrap();
    assert!(all.contains("umount") && !all.contains("null\\-mount"), "{all}");
}

#[test]
fn sync_points_are_named_one_a_line() {
    let bed = Bed::new();
    let names = bed.good(&["debug-sync-points"]);
    let expected: Vec<_> = forebay_env::durable::Point::ALL.iter().map(|point| point.name()).collect();
    assert_eq!(names.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let bed = Bed::new();
    let binary = env!("CARGO_BIN_EXE_forebay");
    let script = format!("'{binary}' completions zsh | head -n 1; echo \"${{PIPESTATUS[0]}}\"");
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(text(&output.stdout).ends_with("0\n") && output.stderr.is_empty(), "{}", text(&output.stderr));
    drop(bed);
}
