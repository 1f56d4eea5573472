//! The process behind a shared mount, over files that a volume in a directory keeps.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use forebay_vfs::KernelCaches;
use forebay_volume::{CreateOptions, OpenOptions, Volume, create};
use serde_json::{Value, json};

use super::*;
use crate::{
    control::{Client, Left},
    mounts,
    shared::{Access, Keeper},
};

/// Who keeps the files, with what became of the calls.
#[derive(Debug)]
struct Servers {
    volume: Arc<Volume>,
    unsettled: AtomicU64,
    closed: AtomicBool,
}

impl Keeper for Servers {
    fn serve(&self, kernel: Option<Arc<dyn KernelCaches>>) {
        assert!(kernel.is_none(), "these files are nobody else's");
    }

    fn status(&self) -> Value {
        json!({ "session": "41", "server": "meta1" })
    }

    fn empty_caches(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn unsettled_bytes(&self) -> u64 {
        self.unsettled.load(Ordering::SeqCst)
    }

    fn settle(&self) -> Result<(), String> {
        self.unsettled.store(0, Ordering::SeqCst);
        Ok(())
    }

    fn close(&self) -> Result<(), String> {
        assert!(!self.closed.swap(true, Ordering::SeqCst));
        self.volume.close().map_err(|error| error.to_string())
    }
}

fn setup(mountpoint: PathBuf) -> SharedSetup {
    let access = Access { security: forebay_rpc::Security::Insecure, token: Some("secret".to_owned()) };
    let options = SharedOptions {
        access,
        patience: None,
        read_only: false,
        ahead: true,
        cache_dir: None,
        cache_size: 1 << 30,
    };
    SharedSetup {
        url: "forebay://meta1,meta2/home".parse().unwrap(),
        options,
        mountpoint,
        flags: MountFlags::default(),
        lists: Vec::new(),
        metrics: None,
        log: None,
        passthrough: Passthrough::Off("not asked for".to_owned()),
        passthrough_dir: None,
    }
}

#[test]
fn a_mount_without_a_volume_here_is_served_asked_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    create(&dir.path().join("vol"), &CreateOptions::default()).unwrap();
    let mountpoint = dir.path().canonicalize().unwrap().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let volume = Volume::open(&dir.path().join("vol"), &OpenOptions::default()).unwrap();
    let servers = Arc::new(Servers {
        volume: volume.clone(),
        unsettled: AtomicU64::new(7),
        closed: AtomicBool::new(false),
    });
    let rights = Rights { no_exec: true, ..Rights::ALL };
    let opened = Opened { files: volume, keeper: Arc::clone(&servers) as Arc<dyn Keeper>, rights };
    let setup = setup(mountpoint.clone());
    let begun = begin(&setup, opened, None).unwrap();
    let server = thread::spawn(move || begun.run(&setup, None));
    fs::write(mountpoint.join("file"), b"text").unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(mountpoint.to_str().unwrap())).unwrap();
    assert!(line.contains("noexec") && !line.contains("ro,"), "the token's limits are the mount's: {line}");

    let mounted = mounts::on(&mountpoint).unwrap().unwrap();
    assert_eq!(
        mounted.volume,
        PathBuf::from(serde_json::from_value::<String>(status(&mounted)["path"].clone()).unwrap())
    );
    assert_eq!(mounts::meant(&mounted.volume).unwrap(), Some(mounted.clone()));
    let shown = status(&mounted);
    assert_eq!(
        (&shown["volume"], &shown["session"], &shown["state"]),
        (&json!("home"), &json!("41"), &json!("mounted"))
    );
    assert_eq!((&shown["dirty_bytes"], shown["servers"].as_array().unwrap().len()), (&json!(7), 2));
    let stats: Value = ask(&mounted, "stats").unwrap();
    assert!(stats["operations"].as_array().unwrap().iter().any(|operation| operation["name"] == "write"));
    for refused in ["fsck", "gc", "settle", "takeover 1"] {
        let refusal = ask::<Value>(&mounted, refused).unwrap_err().to_string();
        assert!(refusal.contains("is a shared volume") && !refusal.contains('\n'), "{refused}: {refusal}");
    }
    assert_eq!(ask::<Value>(&mounted, "chill").unwrap(), json!([]), "its caches are emptied");
    // Not waiting would lose it.
    let left: Left = ask(&mounted, "stop no-drain").unwrap();
    assert_eq!(left, Left::default());
    assert_eq!(server.join().unwrap().unwrap(), ExitCode::SUCCESS);
    assert!(servers.closed.load(Ordering::SeqCst));
}

fn ask<T: serde::de::DeserializeOwned>(
    mounted: &mounts::Mounted,
    what: &str,
) -> Result<T, crate::control::ControlError> {
    Client::of_mount(mounted).unwrap().ask(what)
}

fn status(mounted: &mounts::Mounted) -> Value {
    ask(mounted, "status").unwrap()
}

fn refusal(words: &[&str]) -> String {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MountArgs,
    }
    let args = Line::parse_from(["mount"].iter().chain(words)).args;
    let url = args.shared().unwrap().unwrap();
    check_shared(&args, url).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().to_str().unwrap();
    for (words, what) in [
        (vec!["forebay://a/v", place], "without TLS"),
        (vec!["forebay://a/v", place, "-o", "tls_ca=/ca.pem"], "belong together"),
        (vec!["forebay://a/v", place, "--insecure", "--passthrough-size", "1G"], "needs a place"),
        (vec!["forebay://a/v", place, "--insecure", "-o", "passthrough_plaintext"], "not encrypted"),
        (vec!["forebay://a/v", place, "--insecure", "-o", "passthrough_dir=relative"], "passthrough_dir"),
        (vec!["forebay://a/v", place, "--insecure", "--token", "/no/such/file"], "token"),
        (vec!["forebay://a/v", "/no/such/place", "--insecure"], "/no/such/place"),
        (vec!["forebay://a/v", place, "-o", "soft,timeout=never"], "timeout=never"),
        (vec!["forebay://a/v", place, "--insecure", "--cache-size", "1M"], "too small"),
    ] {
        let refusal = refusal(&words);
        assert!(refusal.contains(what) && !refusal.contains('\n'), "{words:?}: {refusal}");
    }
}
