//! Metadata servers as processes, and the commands that administer them.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use bed::{Bed, Running, text, wait_for};
use forebay_testkit::postgres::PostgresServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server that runs, and what it said when it began.
struct Meta {
    running: Running,
    said: Vec<String>,
}

impl Meta {
    fn start(bed: &Bed, args: &[&str]) -> Meta {
        let mut running = Meta::begin(bed, args);
        let mut said = Vec::new();
        for line in BufReader::new(running.0.stdout.take().unwrap()).lines() {
            said.push(line.unwrap());
            if said.last().unwrap().starts_with("clients reach") {
                return Meta { running, said };
            }
        }
        let mut errors = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        panic!("the server did not start: {said:?}\n{errors}");
    }

    /// Starts one that perhaps waits.
    fn begin(bed: &Bed, args: &[&str]) -> Running {
        let mut command = bed.command();
        command.arg("meta").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// What follows these words in what it said.
    fn after(&self, words: &str) -> &str {
        self.said.iter().find_map(|line| line.strip_prefix(words)).unwrap()
    }

    fn address(&self) -> &str {
        self.after("clients reach this server at ")
    }

    fn signal(&self, signal: Signal) {
        send(&self.running.0, signal);
    }

    fn ends_well(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.running.end().success());
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
}

fn socket(bed: &Bed) -> String {
    format!("unix:{}", bed.path("socket").display())
}

fn engine(bed: &Bed) -> String {
    format!("dir:{}", bed.path("engine").display())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn volumes_and_tokens_are_made_shown_and_taken_away() {
    let bed = Bed::new();
    let at = socket(&bed);
    let mut meta = Meta::start(&bed, &["--engine", &engine(&bed), "--listen", &at]);
    assert_eq!(meta.address(), at);
    let ask = |args: &[&str]| bed.good(&[args, &["--meta", &at]].concat());
    assert!(ask(&["volume", "list"]).contains("`forebay volume create`"));
    let store = format!("file://{}", bed.path("store").display());
    let made = ask(&["volume", "create", "scratch", "--store", &store, "--limit", "1T"]);
    for words in ["'scratch'", &store, "1.00 TiB", "forebay token create scratch", "forebay mount forebay://"]
    {
        assert!(made.contains(words), "{words} is not in\n{made}");
    }
    let list = ask(&["volume", "list"]);
    assert!(list.starts_with("NAME     STORE") && list.contains("\nscratch  file://"), "{list}");
    let shown = json(&ask(&["volume", "show", "scratch", "--json"]));
    assert_eq!((&shown["limit"], &shown["compression"]), (&json("1099511627776"), &json("\"lz4\"")));
    let set = ask(&["volume", "set", "scratch", "--limit", "none", "--compression", "zstd"]);
    assert!(set.contains("limit         none\n") && set.contains("compression zstd"), "{set}");

    let made = bed.run(&[
        "token",
        "create",
        "scratch",
        "--root",
        "/a",
        "--read-only",
        "--expires",
        "30d",
        "--meta",
        &at,
    ]);
    let secret = text(&made.stdout);
    assert!(secret.starts_with("fbt-") && secret.lines().count() == 1, "{secret}");
    assert!(text(&made.stderr).contains("read-only"), "{}", text(&made.stderr));
    let tokens = json(&ask(&["token", "list", "scratch", "--json"]));
    let id = tokens[0]["id"].as_str().unwrap();
    assert!(secret.contains(id) && tokens[0]["root"] == "/a" && tokens[0]["expires"].as_i64().is_some());
    let list = ask(&["token", "list"]);
    assert!(list.starts_with("TOKEN             VOLUME   ROOT  RIGHTS     CREATED"), "{list}");
    assert!(ask(&["token", "revoke", id]).contains("revoked"));
    assert!(ask(&["token", "list"]).contains("there are no tokens"));

    let status = ask(&["meta", "status"]);
    assert!(status.contains("VOLUME   OWNER") && status.contains(&at), "{status}");
    let replica = ["volume", "set", "scratch", "--durability", "replica", "--meta", &at];
    let alone = bed.refused(1, &replica);
    assert!(alone.contains("group"), "{alone}");
    assert!(bed.refused(2, &["volume", "delete", "scratch", "--meta", &at]).contains("--yes"));
    wait_for("an owner to delete it", || {
        bed.run(&["volume", "delete", "scratch", "--objects", "--yes", "--meta", &at]).status.success()
    });
    assert!(ask(&["volume", "list"]).contains("there are no volumes"));
    meta.ends_well();
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_to_do() {
    let bed = Bed::new();
    let (at, place) = (socket(&bed), engine(&bed));
    let line = bed.refused(1, &["volume", "list", "--meta", &at]);
    assert!(line.contains(&at) && line.contains("`forebay meta`"), "{line}");
    let _meta = Meta::start(&bed, &["--engine", &place, "--listen", &at]);
    for (args, code, words) in [
        (&["volume", "show", "none", "--meta", &at][..], 1, "`forebay volume list`"),
        (&["volume", "set", "none", "--meta", &at], 2, "--limit"),
        (&["volume", "create", "A", "--store", "file:///x", "--meta", &at], 1, "cannot be the name"),
        (&["volume", "create", "a", "--store", "x", "--meta", &at], 2, "file:///DIR"),
        (&["volume", "list"], 2, "--meta"),
        (&["volume", "list", "--meta", "a b"], 2, "HOST:PORT"),
        (&["token", "create", "none", "--meta", &at], 1, "there is no volume 'none'"),
        (&["token", "create", "none", "--expires", "soon", "--meta", &at], 2, "30d"),
        (&["token", "revoke", "7", "--meta", &at], 1, "`forebay token list`"),
        (&["meta", "--listen", &at], 2, "--engine"),
        (&["meta", "--engine", "mysql://u:secret@h/d", "--listen", &at], 2, "postgres://"),
        (&["meta", "--engine", "dir:/x", "--listen", "127.0.0.1:0"], 1, "--insecure"),
        (&["meta", "--engine", "dir:/x", "--listen", "0.0.0.0:0", "--insecure"], 1, "without TLS"),
        (&["meta", "--engine", "dir:/x", "--listen", &at, "--tls-ca", "ca.pem"], 2, "--tls-cert"),
        (&["meta", "--engine", "postgres://u:secret@127.0.0.1:1/d", "--listen", &at], 1, "cannot be reached"),
    ] {
        let line = bed.refused(code, args);
        assert!(line.contains(words) && !line.contains("secret"), "{args:?}: {line}");
    }
}

#[test]
fn a_second_server_of_a_directory_says_that_it_waits_and_follows() {
    let bed = Bed::new();
    let (at, place) = (socket(&bed), engine(&bed));
    let args = ["--engine", &place, "--listen", &at];
    let mut first = Meta::start(&bed, &args);
    let store = format!("file://{}", bed.path("store").display());
    bed.good(&["volume", "create", "v", "--store", &store, "--meta", &at]);
    let mut second = Meta::begin(&bed, &args);
    let mut log = BufReader::new(second.0.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("in use by another process") && line.contains("stands by"), "{line}");
    first.signal(Signal::KILL);
    first.running.end();
    wait_for("the second one to answer", || {
        let list = bed.run(&["volume", "list", "--meta", &at]);
        list.status.success() && text(&list.stdout).contains("\nv ")
    });
    send(&second.0, Signal::TERM);
    assert!(second.end().success());
}

#[test]
fn another_process_has_the_volumes_of_one_that_was_killed() {
    let bed = Bed::new();
    let server = PostgresServer::start_new(&["fsync=off"]).unwrap();
    let place = server.url(server.port(), "postgres");
    let args = ["--engine", &place, "--listen", "127.0.0.1:0", "--insecure"];
    let mut all = [Meta::start(&bed, &args), Meta::start(&bed, &args)];
    let store = format!("file://{}", bed.path("store").display());
    bed.good(&["volume", "create", "v", "--store", &store, "--meta", all[0].address()]);
    let owner = |at: &str| -> Option<String> {
        let status = bed.run(&["meta", "status", "--json", "--meta", at]);
        let status = json(&text(&status.stdout));
        status["volumes"][0]["owner"].as_str().map(str::to_owned)
    };
    wait_for("an owner", || owner(all[0].address()).is_some());
    let killed = usize::from(owner(all[0].address()).unwrap() != all[0].address());
    all[killed].signal(Signal::KILL);
    all[killed].running.end();
    let other = all[1 - killed].address().to_owned();
    wait_for("the other one to own it", || owner(&other).is_some_and(|owner| owner == other));
    // Asked at a server that is gone, and at the one that is there.
    let both = format!("{},{other}", all[killed].address());
    assert!(bed.good(&["volume", "list", "--meta", &both]).contains("\nv "));
    all[1 - killed].ends_well();
}

#[test]
fn servers_and_commands_know_each_other_by_certificates() {
    let bed = Bed::new();
    bed.good(&["pki", "init", "pki"]);
    bed.good(&["pki", "issue", "pki", "meta", "--ip", "127.0.0.1"]);
    bed.good(&["pki", "issue", "pki", "chief", "--client"]);
    bed.good(&["pki", "issue", "pki", "node", "--client"]);
    let tls = |name: &str| {
        [
            "--tls-ca".into(),
            "pki/ca.pem".into(),
            "--tls-cert".into(),
            format!("pki/{name}.pem"),
            "--tls-key".into(),
            format!("pki/{name}.key"),
        ]
    };
    let with = |args: &[&str], name: &str| -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).chain(tls(name)).collect()
    };
    let place = engine(&bed);
    let args = with(
        &["--engine", &place, "--listen", "127.0.0.1:0", "--admin", "chief", "--metrics", "127.0.0.1:0"],
        "meta",
    );
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let meta = Meta::start(&bed, &args);
    let list = |name: &str| {
        let args = with(&["volume", "list", "--meta", meta.address()], name);
        bed.command().args(args).output().unwrap()
    };
    assert!(list("chief").status.success());
    let refused = list("node");
    assert!(text(&refused.stderr).contains("'node' may not administer"), "{}", text(&refused.stderr));
    let line = bed.refused(1, &["volume", "list", "--meta", meta.address()]);
    assert!(line.contains("no metadata server answers"), "{line}");
    let at = meta.after("metrics at http://").split('/').next().unwrap().to_owned();
    let mut scrape = TcpStream::connect(at).unwrap();
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut metrics = String::new();
    scrape.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("forebay_meta_requests_total{kind=\"volumes\"} 2"), "{metrics}");
}
