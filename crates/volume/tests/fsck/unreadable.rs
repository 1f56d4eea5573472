//! Volumes of which so much is gone that a check cannot go to its end.

use std::fs;

use forebay_format::key::Key;
use forebay_types::Encryption;
use forebay_volume::{
    CreateOptions, VolumeError, create,
    fsck::{FsckOptions, Report, check, repair},
};

use crate::{
    plant::Rows,
    volumes::{fingerprint, full, looked_at},
};

#[test]
fn what_cannot_be_read_is_said_and_left_alone() {
    type Plant = fn(&std::path::Path);
    let cases: [(&str, Plant); 4] = [
        ("volume-file", |root| fs::write(root.join("forebay.volume"), "{").unwrap()),
        ("volume-file", |root| fs::remove_file(root.join("forebay.volume")).unwrap()),
        ("engine-damaged", |root| fs::remove_dir_all(root.join("meta")).unwrap()),
        ("applied-position", |root| Rows::of(root).set(Key::Applied.encode(), None)),
    ];
    for (code, plant) in cases {
        let (_dir, root) = full();
        plant(&root);
        let before = fingerprint(&root);
        let report = looked_at(&root);
        assert_eq!(report.codes(), [code], "{report}");
        assert!(!report.complete && !report.is_clean() && !report.is_sound());
        let repaired = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.codes(), [code]);
        assert_eq!(fingerprint(&root), before, "{code}: repair changed something");
    }
}

#[test]
fn a_key_that_is_gone_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    create(&root, &CreateOptions { encryption: Encryption::Aes256Gcm, ..CreateOptions::default() }).unwrap();
    assert!(looked_at(&root).is_clean());
    fs::write(root.join("key"), "none").unwrap();
    let report = looked_at(&root);
    assert_eq!(report.codes(), ["key"], "{report}");
}

#[test]
fn nothing_is_not_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let refused = check(dir.path(), &FsckOptions::default(), &mut |_| {});
    assert!(matches!(refused, Err(VolumeError::NotAVolume { .. })), "{refused:?}");
}

#[test]
fn a_report_survives_its_way_through_json() {
    let (_dir, root) = full();
    fs::remove_file(root.join("lock")).unwrap();
    let report = looked_at(&root);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    assert!(report.to_string().lines().any(|line| line.starts_with("damage lock-missing: ")));
}
