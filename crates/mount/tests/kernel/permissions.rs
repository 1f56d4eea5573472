use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    process::Command,
};

use rustix::{
    fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr},
    io::Errno,
};

use super::*;

const ACCESS: &str = "system.posix_acl_access";

/// The bytes of a list of (tag, permissions, id).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const ANY: u32 = u32::MAX;

/// Runs a shell command as user and group 4321.
fn as_other(command: &str) -> bool {
    use std::os::unix::process::CommandExt;
    Command::new("sh").arg("-c").arg(command).uid(4321).gid(4321).status().unwrap().success()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mount whose directory others can reach.
fn reachable() -> Mounted {
    let mounted = Mounted::new();
    let above = mounted.root().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o777)).unwrap();
    mounted
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn modes_and_lists_are_checked() {
    assert!(is_root(), "the tests of permissions change users and need root");
    let mounted = reachable();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    let read = format!("cat '{}' >/dev/null 2>&1", path.display());
    assert!(as_other(&read));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(!as_other(&read));
    let list = acl(&[(1, 6, ANY), (2, 4, 4321), (4, 0, ANY), (16, 4, ANY), (32, 0, ANY)]);
    setxattr(&path, ACCESS, &list, XattrFlags::empty()).unwrap();
    assert!(as_other(&read));
    assert_eq!(mode(&path), 0o640);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!as_other(&read), "the mask follows the mode");
    let mut bytes = [0; 256];
    let len = getxattr(&path, ACCESS, &mut bytes).unwrap();
    assert_eq!(bytes[..len], acl(&[(1, 6, ANY), (2, 4, 4321), (4, 0, ANY), (16, 0, ANY), (32, 0, ANY)]));
    removexattr(&path, ACCESS).unwrap();
    assert_eq!(getxattr(&path, ACCESS, &mut bytes), Err(Errno::NODATA));
}

#[test]
fn a_default_list_is_inherited_and_the_umask_is_not_applied() {
    assert!(is_root(), "the tests of permissions change users and need root");
    let mounted = reachable();
    let directory = mounted.at("d");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let make = |name: &str| {
        assert!(as_other(&format!(
            "umask 077; cd '{}' && touch {name} && mkdir {name}.d",
            directory.display()
        )));
    };
    make("before");
    assert_eq!((mode(&directory.join("before")), mode(&directory.join("before.d"))), (0o600, 0o700));
    let list = acl(&[(1, 7, ANY), (2, 7, 99), (4, 5, ANY), (16, 7, ANY), (32, 0, ANY)]);
    setxattr(&directory, "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
    make("after");
    assert_eq!((mode(&directory.join("after")), mode(&directory.join("after.d"))), (0o660, 0o770));
    let mut bytes = [0; 256];
    let len = getxattr(directory.join("after.d"), "system.posix_acl_default", &mut bytes).unwrap();
    assert_eq!(bytes[..len], list);
}

#[test]
fn set_id_bits_go_when_others_write_or_the_owner_changes() {
    assert!(is_root(), "the tests of permissions change users and need root");
    let mounted = reachable();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    let set = |bits| fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
    set(0o6777);
    fs::write(&path, b"by root").unwrap();
    assert_eq!(mode(&path), 0o6777);
    assert!(as_other(&format!("echo more >>'{}'", path.display())));
    assert_eq!(mode(&path), 0o777);
    set(0o6777);
    assert!(as_other(&format!(": >'{}'", path.display())));
    assert_eq!(mode(&path), 0o777);
    set(0o6755);
    chown(&path, Some(4321), None).unwrap();
    assert_eq!(mode(&path), 0o755);
    let directory = mounted.at("d");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o3777)).unwrap();
    chown(&directory, None, Some(77)).unwrap();
    assert_eq!(mode(&directory), 0o3777);
    fs::create_dir(directory.join("sub")).unwrap();
    let sub = fs::metadata(directory.join("sub")).unwrap();
    assert_eq!((sub.gid(), sub.mode() & 0o2000), (77, 0o2000));
    fs::write(directory.join("mine"), b"").unwrap();
    assert!(!as_other(&format!("rm -f '{}' 2>/dev/null", directory.join("mine").display())), "sticky");
}

#[test]
fn attributes_are_kept() {
    let mounted = Mounted::new();
    let path = mounted.at("a");
    fs::write(&path, b"text").unwrap();
    let mut bytes = [0; 64];
    setxattr(&path, "user.a", b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&path, "user.a", b"v", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.b", b"v", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(setxattr(&path, "system.no", b"v", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    setxattr(&path, "user.large", &vec![5; 65536], XattrFlags::empty()).unwrap();
    assert_eq!(getxattr(&path, "user.large", &mut bytes), Err(Errno::RANGE));
    let mounted = mounted.again();
    let path = mounted.at("a");
    assert_eq!(getxattr(&path, "user.a", &mut bytes), Ok(5));
    assert_eq!(&bytes[..5], b"value");
    assert_eq!(listxattr(&path, &mut bytes), Ok(18));
    assert_eq!(&bytes[..18], b"user.a\0user.large\0");
    removexattr(&path, "user.a").unwrap();
    assert_eq!(removexattr(&path, "user.a"), Err(Errno::NODATA));
}
