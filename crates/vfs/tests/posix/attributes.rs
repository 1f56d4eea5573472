use forebay_vfs::{SetAttr, SetTime, SetXattr};

use super::*;

fn mode_of(world: &World, ino: Ino) -> u16 {
    world.vfs.getattr(ino).unwrap().mode
}

fn set(world: &World, ino: Ino, set: SetAttr) -> Attr {
    world.vfs.setattr(ino, &set).unwrap()
}

fn chmod(world: &World, ino: Ino, mode: u16) {
    set(world, ino, SetAttr { mode: Some(mode), ..SetAttr::default() });
}

#[test]
fn writes_by_others_take_set_id_bits_away() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let vfs = &world.vfs;
    let truncate = |kill: bool| SetAttr { size: Some(3), kill: kill.into(), ..SetAttr::default() };
    let writes: [(&str, &dyn Fn(bool)); 4] = [
        ("write", &|kill| assert_eq!(vfs.write(ino, 0, b"bytes", kill).unwrap(), 5)),
        ("truncate", &|kill| assert_eq!(set(&world, ino, truncate(kill)).size, 3)),
        ("fallocate", &|kill| {
            vfs.fallocate(ino, forebay_vfs::Fallocate::Allocate { keep_size: false }, (0, 9), kill).unwrap();
        }),
        ("copy", &|kill| assert_eq!(vfs.copy_range((ino, 0), (ino, 100), 1, kill).unwrap(), 1)),
    ];
    for (what, write) in writes {
        chmod(&world, ino, 0o6755);
        write(false);
        assert_eq!(mode_of(&world, ino), 0o6755, "{what} by one who may");
        write(true);
        assert_eq!(mode_of(&world, ino), 0o755, "{what}");
        chmod(&world, ino, 0o6745);
        write(true);
        assert_eq!(mode_of(&world, ino), 0o2745, "{what}, not executable by the group");
    }
}

#[test]
fn a_new_owner_takes_set_id_bits_away_except_from_directories() {
    let world = World::new();
    let (file, directory) = (world.file(ROOT, "a").ino, world.directory(ROOT, "d").ino);
    for ino in [file, directory] {
        chmod(&world, ino, 0o6755);
    }
    let chown = SetAttr { uid: Some(9), ..SetAttr::default() };
    assert_eq!(set(&world, file, chown).mode, 0o755);
    assert_eq!(set(&world, directory, chown).mode, 0o6755);
}

#[test]
fn capabilities_go_with_the_contents_and_the_owner() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let vfs = &world.vfs;
    let changes: [&dyn Fn(); 3] = [
        &|| assert_eq!(vfs.write(ino, 0, b"x", false).unwrap(), 1),
        &|| assert_eq!(set(&world, ino, SetAttr { size: Some(0), ..SetAttr::default() }).size, 0),
        &|| assert_eq!(set(&world, ino, SetAttr { gid: Some(4), ..SetAttr::default() }).gid, 4),
    ];
    for change in changes {
        vfs.setxattr(ino, b"security.capability", b"caps", SetXattr::Any, false).unwrap();
        chmod(&world, ino, 0o700);
        assert_eq!(vfs.getxattr(ino, b"security.capability").unwrap(), b"caps");
        change();
        refused(vfs.getxattr(ino, b"security.capability"), |error| matches!(error, VfsError::NoAttribute));
    }
}

#[test]
fn attributes_are_set_listed_and_removed() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    let vfs = &world.vfs;
    let put = |name: &[u8], value: &[u8], mode| vfs.setxattr(ino, name, value, mode, false);
    put(b"user.a", b"1", SetXattr::Create).unwrap();
    refused(put(b"user.a", b"2", SetXattr::Create), |error| matches!(error, VfsError::Exists));
    refused(put(b"user.b", b"2", SetXattr::Replace), |error| matches!(error, VfsError::NoAttribute));
    put(b"trusted.t", &[7; 65536], SetXattr::Any).unwrap();
    assert_eq!(vfs.getxattr(ino, b"trusted.t").unwrap().len(), 65536);
    assert_eq!(vfs.listxattr(ino, false).unwrap(), b"user.a\0");
    assert_eq!(vfs.listxattr(ino, true).unwrap(), b"trusted.t\0user.a\0");
    refused(put(b"user.big", &[0; 65537], SetXattr::Any), |error| {
        matches!(error, VfsError::AttributeTooLarge(65537))
    });
    refused(put(&[b'u'; 256], b"", SetXattr::Any), |error| {
        matches!(error, VfsError::AttributeNameTooLong(256))
    });
    refused(put(b"system.other", b"", SetXattr::Any), |error| matches!(error, VfsError::NotSupported(_)));
    refused(put(b"user.", b"", SetXattr::Any), |error| matches!(error, VfsError::Invalid(_)));
    vfs.removexattr(ino, b"user.a").unwrap();
    refused(vfs.removexattr(ino, b"user.a"), |error| matches!(error, VfsError::NoAttribute));
}

#[test]
fn an_access_is_seen_at_once_and_written_later() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    world.vfs.write(ino, 0, b"text", false).unwrap();
    let before = world.vfs.getattr(ino).unwrap();
    world.vfs.read(ino, 0, 4, true).unwrap();
    assert_eq!(world.vfs.getattr(ino).unwrap().atime, before.atime, "O_NOATIME");
    world.vfs.read(ino, 0, 4, false).unwrap();
    let seen = world.vfs.getattr(ino).unwrap();
    assert_eq!(seen.atime, world.clock.now());
    assert_eq!((seen.mtime, seen.ctime), (before.mtime, before.ctime));
    world.clock.advance_ns(1_000_000_000);
    world.vfs.read(ino, 0, 4, false).unwrap();
    assert_eq!(world.vfs.getattr(ino).unwrap().atime, seen.atime, "once is enough for a day");
    let world = world.again();
    assert_eq!(world.vfs.getattr(ino).unwrap().atime, seen.atime);
}

#[test]
fn a_time_that_is_set_overrules_an_access() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    world.vfs.write(ino, 0, b"text", false).unwrap();
    world.vfs.read(ino, 0, 4, false).unwrap();
    let time = forebay_types::Timespec { secs: -5, nanos: 999_999_999 };
    let times = SetAttr { atime: Some(SetTime::To(time)), ..SetAttr::default() };
    assert_eq!(set(&world, ino, times).atime, time);
    assert_eq!(world.vfs.getattr(ino).unwrap().atime, time);
}

#[test]
fn a_label_that_nobody_set_is_not_supported() {
    let world = World::new();
    let (ino, label) = (world.file(ROOT, "a").ino, b"security.selinux");
    refused(world.vfs.getxattr(ino, label), |error| matches!(error, VfsError::NotSupported(_)));
    world.vfs.setxattr(ino, label, b"a_label", SetXattr::Any, false).unwrap();
    assert_eq!(world.vfs.getxattr(ino, label).unwrap(), b"a_label");
}

#[test]
fn opening_for_reading_is_an_access() {
    let world = World::new();
    let reader = Open { read_only: true, ..Open::default() };
    let ino = world.file(ROOT, "a").ino;
    let atime = || world.vfs.getattr(ino).unwrap().atime;
    let made = atime();
    world.clock.advance_ns(10);
    assert!(!world.vfs.open(ino, reader).unwrap().accessed);
    assert_eq!(atime(), made, "nothing to read");
    world.vfs.write(ino, 0, b"text", false).unwrap();
    world.vfs.open(ino, Open::default()).unwrap();
    assert_eq!(atime(), made, "it may be for writing");
    world.vfs.open(ino, Open { no_atime: true, ..reader }).unwrap();
    assert_eq!(atime(), made, "it is not wanted");
    assert!(world.vfs.open(ino, reader).unwrap().accessed);
    assert_eq!(atime(), world.clock.now());
}

#[test]
fn access_times_can_be_off() {
    let world = World::with(AtimeMode::Off);
    let ino = world.file(ROOT, "a").ino;
    world.vfs.write(ino, 0, b"text", false).unwrap();
    let before = world.vfs.getattr(ino).unwrap().atime;
    world.vfs.read(ino, 0, 4, false).unwrap();
    assert_eq!(world.vfs.getattr(ino).unwrap().atime, before);
}

#[test]
fn a_read_only_volume_refuses_changes() {
    let world = World::new();
    let ino = world.file(ROOT, "a").ino;
    world.vfs.write(ino, 0, b"text", false).unwrap();
    let World { vfs, volume, dir, .. } = world;
    volume.close().unwrap();
    drop((vfs, volume));
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(&dir.path().join("volume"), &options).unwrap();
    let vfs = Vfs::new(volume, VfsOptions::default());
    let before = vfs.getattr(ino).unwrap();
    let refusals = [
        vfs.write(ino, 0, b"x", false).err(),
        vfs.setattr(ino, &SetAttr { mode: Some(0), ..SetAttr::default() }).err(),
        vfs.unlink(ROOT, b"a").err(),
        vfs.mkdir(ROOT, b"d", 0o755, 0, &Caller::ROOT).err(),
        vfs.link(ino, ROOT, b"b").err(),
        vfs.setxattr(ino, b"user.a", b"", SetXattr::Any, false).err(),
        vfs.removexattr(ino, b"user.a").err(),
        vfs.copy_range((ino, 0), (ino, 10), 2, false).err(),
        vfs.fallocate(ino, forebay_vfs::Fallocate::Punch, (0, 1), false).err(),
        vfs.open(ino, Open { truncate: true, ..Open::default() }).err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(VfsError::ReadOnly)), "{refusal:?}");
    }
    vfs.read(ino, 0, 4, false).unwrap();
    assert_eq!(vfs.getattr(ino).unwrap(), before);
}
