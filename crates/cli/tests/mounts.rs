//! Volumes mounted, used, and taken off in every way that there is.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
};

use bed::{Bed, Running, contents, is_mounted, text, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Whether a process has ended, reaped or not.
fn gone(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Writes a few files and gives what must be read back.
fn fill(dir: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    fs::create_dir(dir.join("sub")).unwrap();
    for (name, len) in [("empty", 0), ("tiny", 100), ("sub/page", 4096), ("sub/large", 3_000_000)] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| (at * 7 + at / 251) as u8).collect();
        fs::write(dir.join(name), bytes).unwrap();
    }
    contents(dir)
}

#[test]
fn what_is_written_is_there_after_a_remount() {
    let bed = Bed::new();
    let volume = bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let status = bed.status("mnt");
    for key in [
        "id",
        "path",
        "store",
        "block_size",
        "compression",
        "encryption",
        "durability",
        "live_bytes",
        "dirty_bytes",
        "objects",
        "pid",
        "mountpoint",
        "log",
        "state",
        "troubles",
        "epoch",
        "uptime_s",
    ] {
        assert!(!status[key].is_null(), "{key} is not in {status}");
    }
    assert_eq!((status["state"].as_str(), status["mountpoint"].as_str()), (Some("mounted"), mnt.to_str()));
    assert_eq!(
        (status["path"].as_str(), status["log"].as_str()),
        (volume.to_str(), bed.path("v.log").to_str())
    );
    assert!(status["live_bytes"].as_u64().unwrap() >= 3_000_000);
    assert_eq!(bed.status("v")["pid"], status["pid"]);
    assert!(bed.good(&["status", "v"]).contains(mnt.to_str().unwrap()));
    let pid = bed.pid("mnt");
    let output = bed.umount("mnt");
    assert_eq!(text(&output.stderr), "", "nothing is left to say");
    assert!(gone(pid), "umount returned before the process had ended");
    let log = fs::read_to_string(bed.path("v.log")).unwrap();
    assert!(log.contains("is mounted on") && log.contains("closed"), "{log}");
    assert!(bed.status("v")["objects"].as_u64().unwrap() > 0, "the store has nothing");
    let again = bed.mount("v", "mnt", &[]);
    assert!(contents(&again) == before);
    assert_eq!(bed.status("mnt")["dirty_bytes"], 0);
}

#[test]
fn a_second_mount_names_the_first() {
    let bed = Bed::new();
    bed.volume("v");
    bed.volume("w");
    let mnt = bed.mount("v", "mnt", &[]);
    bed.dir("second");
    let log = bed.path("second.log");
    let line = bed.refused(1, &["mount", "v", "second", "--log", log.to_str().unwrap()]);
    assert!(line.contains("in use") && line.contains(mnt.to_str().unwrap()), "{line}");
    let line = bed.refused(1, &["mount", "w", "mnt"]);
    assert!(line.contains("busy") && line.contains(mnt.to_str().unwrap()), "{line}");
    let line = bed.refused(1, &["gc", "--dry-run", "missing"]);
    assert!(line.contains("missing"), "{line}");
    fs::write(mnt.join("still"), "here").unwrap();
    assert!(!is_mounted(&bed.path("second")));
}

#[test]
fn a_signal_drains_and_unmounts() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let pid = bed.pid("mnt");
    kill_process(process(pid), Signal::TERM).unwrap();
    wait_for("the process to end", || gone(pid));
    assert!(!is_mounted(&mnt));
    let status = bed.status("v");
    assert_eq!(
        (status["state"].as_str(), status["staging_disk_bytes"].as_u64()),
        (Some("not mounted"), Some(0))
    );
    assert!(status["objects"].as_u64().unwrap() > 0);
    assert!(contents(&bed.mount("v", "mnt", &[])) == before);
}

#[test]
fn a_second_signal_does_not_wait() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let pid = bed.pid("mnt");
    let held = File::open(mnt.join("tiny")).unwrap();
    kill_process(process(pid), Signal::TERM).unwrap();
    wait_for("the name to be free", || !is_mounted(&mnt));
    assert!(!gone(pid), "it ended although a file is open");
    kill_process(process(pid), Signal::TERM).unwrap();
    wait_for("the process to end", || gone(pid));
    drop(held);
    assert!(contents(&bed.mount("v", "mnt", &[])) == before);
}

#[test]
fn umount_by_the_system_ends_cleanly() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let pid = bed.pid("mnt");
    rustix::mount::unmount(&mnt, rustix::mount::UnmountFlags::empty()).unwrap();
    // A mount at once: it waits for the process that is still closing.
    let mnt = bed.mount("v", "mnt", &[]);
    assert!(contents(&mnt) == before);
    assert!(gone(pid));
    let log = fs::read_to_string(bed.path("v.log")).unwrap();
    assert!(log.contains("closed"), "{log}");
}

#[test]
fn a_mount_in_use_is_not_taken_away_unless_lazily() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let mut held = File::create(mnt.join("held")).unwrap();
    let line = bed.refused(1, &["umount", "mnt"]);
    assert!(line.contains("in use") && line.contains(mnt.to_str().unwrap()), "{line}");
    assert!(is_mounted(&mnt));
    let pid = bed.pid("mnt");
    let output = bed.run(&["umount", "--lazy", "mnt"]);
    assert!(output.status.success() && text(&output.stderr).contains("detached"), "{}", text(&output.stderr));
    assert!(!is_mounted(&mnt) && !gone(pid));
    held.write_all(b"late").unwrap();
    drop(held);
    wait_for("the process to end", || gone(pid));
    let mnt = bed.mount("v", "mnt", &[]);
    assert_eq!(fs::read(mnt.join("held")).unwrap(), b"late");
}

#[test]
fn what_was_not_drained_is_said_and_stored_later() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let output = bed.run(&["umount", "--no-drain", "mnt"]);
    let told = text(&output.stderr);
    assert!(output.status.success() && told.contains("not in the store") && told.contains("MiB"), "{told}");
    assert_eq!(bed.status("v")["objects"], 0);
    let mnt = bed.mount("v", "mnt", &[]);
    assert!(contents(&mnt) == before);
    assert!(bed.status("mnt")["dirty_bytes"].as_u64().unwrap() > 0);
    bed.umount("mnt");
    assert!(bed.status("v")["objects"].as_u64().unwrap() > 0);
}

#[test]
fn a_process_that_was_killed_is_cleared_away() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    File::open(mnt.join("tiny")).unwrap().sync_all().unwrap();
    let pid = bed.pid("mnt");
    kill_process(process(pid), Signal::KILL).unwrap();
    wait_for("the process to end", || gone(pid));
    let line = bed.refused(1, &["mount", "v", "mnt"]);
    assert!(line.contains("died") && line.contains("umount -l"), "{line}");
    let line = bed.refused(1, &["status", "mnt"]);
    assert!(line.contains("gone"), "{line}");
    let output = bed.run(&["umount", "mnt"]);
    assert!(output.status.success() && text(&output.stderr).contains("gone"), "{}", text(&output.stderr));
    assert!(contents(&bed.mount("v", "mnt", &[])) == before);
}

#[test]
fn read_only_is_read_only() {
    let bed = Bed::new();
    bed.volume("v");
    let before = fill(&bed.mount("v", "mnt", &[]));
    bed.umount("mnt");
    let mnt = bed.mount("v", "mnt", &["-o", "ro,noatime"]);
    let error = File::create(mnt.join("new")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(contents(&mnt) == before);
    assert_eq!(bed.status("mnt")["read_only"], true);
    assert!(bed.refused(1, &["gc", "v"]).contains("read-only"));
}

#[test]
fn mount_8_can_call_it() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.dir("mnt");
    let helper = bed.path("mount.forebay");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), &helper).unwrap();
    let options = format!("rw,suid,dev,_netdev,x-systemd.automount,log={}", bed.path("v.log").display());
    let (volume, place) = (bed.path("v"), mnt.clone());
    let call = |program: &std::path::Path| {
        let mut command = std::process::Command::new(program);
        let output =
            command.args([&volume, &place]).args(["-o", &options]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success() && is_mounted(&place), "{}", text(&output.stderr));
        bed.umount("mnt");
    };
    call(&helper);
    call(std::path::Path::new(env!("CARGO_BIN_EXE_forebay")));
    let faked = std::process::Command::new(&helper).args([&volume, &mnt]).arg("-f").status().unwrap();
    assert!(faked.success() && !is_mounted(&mnt), "-f of mount(8) does everything but mount");
}

#[test]
fn in_front_it_logs_to_standard_error_and_ends_on_a_signal() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.dir("mnt");
    let mut running =
        Running(bed.command().args(["mount", "-f", "v", "mnt"]).stderr(Stdio::piped()).spawn().unwrap());
    wait_for("the mount", || is_mounted(&mnt) && bed.run(&["status", "mnt"]).status.success());
    assert_eq!(bed.pid("mnt"), running.0.id());
    let before = fill(&mnt);
    kill_process(process(running.0.id()), Signal::INT).unwrap();
    assert!(running.end().success());
    let mut log = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("asked to end") && log.contains("closed"), "{log}");
    assert!(!is_mounted(&mnt));
    assert!(contents(&bed.mount("v", "mnt", &[])) == before);
}

#[test]
fn metrics_are_served() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &["--metrics", "127.0.0.1:0"]);
    fill(&mnt);
    let addr = bed.status("mnt")["metrics"].as_str().unwrap().to_owned();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&addr).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = get("/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    for line in [
        "forebay_fuse_requests_total{op=\"create\"} 4\n",
        "# TYPE forebay_live_bytes gauge\n",
        "# TYPE forebay_deleted_objects_total counter\nforebay_deleted_objects_total 0\n",
        "forebay_store_calls_total{op=\"put_file\"} ",
        "forebay_fuse_request_seconds_bucket{op=\"write\",le=\"+Inf\"} ",
    ] {
        assert!(body.contains(line), "{line} is not in\n{body}");
    }
    assert!(get("/").starts_with("HTTP/1.1 404"));
}

#[test]
fn an_error_of_the_daemon_comes_through() {
    let bed = Bed::new();
    let volume = bed.volume("v");
    bed.dir("mnt");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let before = contents(&volume);
    let line = bed.refused(1, &["mount", "v", "mnt", "--metrics", &addr, "--log", "v.log"]);
    assert!(line.contains(&addr) && line.contains("v.log"), "{line}");
    assert!(contents(&volume) == before && !is_mounted(&bed.path("mnt")));
}

#[test]
fn stats_and_gc_speak_of_a_mount() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    fill(&mnt);
    let stats: Value = serde_json::from_str(&bed.good(&["stats", "mnt", "--once", "--json"])).unwrap();
    let creates = stats["operations"].as_array().unwrap().iter().find(|op| op["name"] == "create").unwrap();
    assert_eq!(creates["requests"], 4);
    let table = bed.good(&["stats", "mnt", "--once"]);
    assert!(table.contains("\ncreate ") && table.contains("p99"), "{table}");
    assert!(table.contains("memory cache: ") && !table.contains("disk cache"), "{table}");
    assert!(stats["caches"]["memory"]["hits"].is_u64(), "{stats}");
    let told = bed.good(&["gc", "mnt"]);
    assert!(told.contains("objects"), "{told}");
    assert_eq!(bed.status("mnt")["dirty_bytes"], 0, "gc brings everything into the store");
    fs::remove_file(mnt.join("sub/large")).unwrap();
    let leaked = bed.path("v/objects/data/ff/00000000-00000000000000ff");
    let stored = first_object(&bed.path("v/objects/data"));
    fs::create_dir_all(leaked.parent().unwrap()).unwrap();
    fs::copy(&stored, &leaked).unwrap();
    fs::write(bed.path("v/objects/.forebay/put/0123"), "x").unwrap();
    let told = bed.good(&["gc", "mnt", "--dry-run"]);
    assert!(told.contains("\n1 further objects") && told.contains("\n1 files of 1 B"), "{told}");
    let live = bed.status("mnt")["live_bytes"].clone();
    bed.umount("mnt");
    let before = contents(&bed.path("v"));
    let told = bed.good(&["gc", "v", "--dry-run"]);
    assert!(told.contains("nothing refers to") && told.contains("\n1 further objects"), "{told}");
    let status = bed.status("v");
    assert_eq!((&status["live_bytes"], &status["dirty_bytes"]), (&live, &0.into()));
    assert!(contents(&bed.path("v")) == before, "looking changed something");
    let told = bed.good(&["gc", "v"]);
    assert!(told.contains("1 are deleted") && told.contains("1 files"), "{told}");
    assert!(!leaked.exists() && contents(&bed.path("v")) != before);
}

#[test]
fn a_mount_whose_process_cannot_be_reached_is_left_alone() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    let id = bed.status("mnt")["id"].as_str().unwrap().to_owned();
    let sockets = fs::read_dir("/run/forebay").unwrap().map(|entry| entry.unwrap().path());
    let ours = sockets.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&id));
    let ours: Vec<_> = ours.collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    let hidden = ours[0].with_extension("hidden");
    fs::rename(&ours[0], &hidden).unwrap();
    let line = bed.refused(1, &["umount", "mnt"]);
    assert!(line.contains("alive") && line.contains("mnt"), "{line}");
    assert!(is_mounted(&mnt) && contents(&mnt) == before);
    fs::rename(&hidden, &ours[0]).unwrap();
    bed.umount("mnt");
}

#[test]
fn a_check_finds_nothing_on_what_is_whole() {
    let bed = Bed::new();
    bed.volume("v");
    let mnt = bed.mount("v", "mnt", &[]);
    fill(&mnt);
    for args in [&["fsck", "mnt"][..], &["fsck", "v"], &["fsck", "v", "--quick"]] {
        let told = bed.good(args);
        assert!(told.lines().last().unwrap().contains(" inodes"), "{told}");
    }
    let report: Value = serde_json::from_str(&bed.good(&["fsck", "v", "--json"])).unwrap();
    assert_eq!((&report["complete"], &report["volume"]), (&true.into(), &bed.status("v")["id"]));
    assert!(bed.refused(1, &["fsck", "v", "--repair"]).contains("unmount"));
    bed.umount("mnt");
    let before = contents(&bed.path("v/objects"));
    assert!(bed.good(&["fsck", "v"]).starts_with("clean"));
    assert!(bed.good(&["fsck", "v", "--repair"]).starts_with("clean"));
    assert!(contents(&bed.path("v/objects")) == before);
}

#[test]
fn a_lost_object_is_told_everywhere() {
    let bed = Bed::new();
    let store = bed.dir("store");
    bed.good(&["create", "v", "--compression", "none", "--store", &format!("file://{}", store.display())]);
    let mnt = bed.mount("v", "mnt", &[]);
    fill(&mnt);
    bed.umount("mnt");
    let objects = contents(&store.join("data"));
    let (lost, _) = objects.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    fs::remove_file(lost).unwrap();
    let mnt = bed.mount("v", "mnt", &[]);
    assert!(fs::read(mnt.join("sub/large")).is_err(), "lost data was read");
    let name = lost.file_name().unwrap().to_str().unwrap();
    let status = bed.status("mnt");
    assert!(status["last_errors"].to_string().contains(name), "{status}");
    assert!(bed.good(&["status", "mnt"]).contains(name));
    bed.run(&["umount", "--no-drain", "mnt"]);
    let output = bed.run(&["fsck", "v"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains(name), "{}", text(&output.stdout));
    assert!(text(&output.stderr).starts_with("forebay: ") && text(&output.stderr).lines().count() == 1);
}

#[test]
fn a_volume_comes_back_from_its_store() {
    let bed = Bed::new();
    let url = format!("file://{}", bed.dir("store").display());
    let told = bed.good(&["create", "v", "--store", &url]);
    assert!(told.contains("if the machine is lost"), "{told}");
    let mnt = bed.mount("v", "mnt", &[]);
    let before = fill(&mnt);
    bed.umount("mnt");
    fs::rename(bed.path("v"), bed.path("lost")).unwrap();
    let told = bed.good(&["create", "v", "--recover-from", &url]);
    assert!(told.contains("brought") && told.contains(&url), "{told}");
    assert!(contents(&bed.mount("v", "mnt", &[])) == before);
    // The one that was lost and comes back finds that it was followed.
    bed.dir("second");
    let line = bed.refused(1, &["mount", "lost", "second"]);
    assert!(line.contains("taken"), "{line}");
}

fn first_object(dir: &std::path::Path) -> std::path::PathBuf {
    let first = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    if first.is_dir() { first_object(&first) } else { first }
}
