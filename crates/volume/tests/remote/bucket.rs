//! What is in a bucket, and who may begin there.

use forebay_types::{Durability, Encryption, Sequence};
use forebay_volume::{CreateOptions, RecoverOptions, VolumeError, create, recover};

use crate::world::{Bucket, Random, pattern};

#[test]
fn a_bucket_takes_one_volume() {
    let mut bucket = Bucket::new(1);
    let machine = bucket.create(Durability::Local, Encryption::None);
    let id = machine.volume().config().id.to_string();
    let before = bucket.keys("");
    let other = bucket.path().join("../other");
    let options = CreateOptions { store: Some(bucket.url()), ..CreateOptions::default() };
    let error = create(&other, &options).unwrap_err();
    assert!(matches!(error, VolumeError::Occupied { .. }), "{error}");
    assert!(error.to_string().contains(&id), "{error}");
    assert!(!other.exists());
    assert_eq!(bucket.keys(""), before);
}

#[test]
fn recovery_says_what_it_lacks_and_leaves_nothing() {
    let mut bucket = Bucket::new(2);
    let root = bucket.path().join("../nothing");
    let options = RecoverOptions { store: Some(bucket.store()), ..RecoverOptions::default() };
    let error = recover(&root, &bucket.url(), &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no volume"), "{error}");
    assert!(!root.exists());

    let mut machine = bucket.create(Durability::Object, Encryption::Aes256Gcm);
    machine.write(b"a", 0, b"secret").unwrap();
    machine.sync().unwrap();
    let error = recover(&root, &bucket.url(), &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("encrypted"), "{error}");
    let wrong = bucket.path().join("../wrong-key");
    let digits = "0".repeat(64);
    std::fs::write(&wrong, format!("{digits}\ncrc32c {:08x}\n", crc32c::crc32c(digits.as_bytes()))).unwrap();
    let options = RecoverOptions { key: Some(wrong), ..options };
    let error = recover(&root, &bucket.url(), &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("decrypt"), "{error}");
    assert!(!root.exists());
    // None of them deposed the owner.
    machine.write(b"b", 0, b"more").unwrap();
    machine.sync().unwrap();
}

#[test]
fn nothing_readable_of_an_encrypted_volume_is_in_the_bucket() {
    let mut bucket = Bucket::new(3);
    let mut machine = bucket.create(Durability::Object, Encryption::Aes256Gcm);
    let secret = b"a telling sentence that nobody else must see".repeat(20);
    machine.write(b"a", 0, &secret).unwrap();
    machine.write(b"b", 0, &secret.repeat(10)).unwrap();
    machine.write(b"c", 0, &secret.repeat(200)).unwrap();
    machine.sync().unwrap();
    machine.volume().checkpoint_now().unwrap();
    machine.volume().publish().unwrap();
    assert!(bucket.keys("journal").len() + bucket.keys("meta/delta").len() >= 2);
    for key in bucket.keys("") {
        let bytes = std::fs::read(bucket.path().join(&key)).unwrap();
        assert!(!bytes.windows(20).any(|window| window == &secret[..20]), "{key}");
    }
}

#[test]
fn a_bucket_does_not_grow_for_ever() {
    let mut random = Random(4);
    let mut bucket = Bucket::new(4);
    let mut machine = bucket.create(Durability::Local, Encryption::None);
    for _ in 0..150 {
        machine.write(b"a", 0, &pattern(&mut random, 10_000)).unwrap();
        machine.volume().checkpoint_now().unwrap();
        machine.volume().publish().unwrap();
    }
    let wholes = bucket.keys("meta/base").iter().filter(|key| key.ends_with("/whole")).count();
    assert_eq!(wholes, 1, "{:?}", bucket.keys("meta/base"));
    assert!(!bucket.keys("meta/base").iter().any(|key| key.contains("/0000000000000000-")));
    assert!(bucket.keys("meta/delta").len() < 100, "{:?}", bucket.keys("meta/delta"));
    for _ in 0..3 {
        machine.volume().drain(&mut |_| {}).unwrap();
    }
    assert!(bucket.keys("journal").len() <= 2, "{:?}", bucket.keys("journal"));
    assert!(bucket.keys("data").len() <= 3, "{:?}", bucket.keys("data"));
    let (last, all) = (machine.volume().status().bucket.unwrap().journal_last, machine.files.clone());
    machine.lose(&mut bucket, Sequence(last));
    assert_eq!(machine.files, all);
    machine.volume().drain(&mut |_| {}).unwrap();
    machine.reopen(&bucket);
    let cache = machine.volume().status().cache.unwrap();
    assert!(cache.hits > 0 && cache.used_bytes > 0, "{cache:?}");
    machine.volume().drain(&mut |_| {}).unwrap();
    machine.volume().drain(&mut |_| {}).unwrap();
    assert!(bucket.keys("journal").len() <= 2, "{:?}", bucket.keys("journal"));
}
