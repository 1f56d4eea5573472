//! What one processor moves as a proxy, beside a bare echo of tokio: cached data is read by ranges of 1 MiB, and messages of 1 MiB come back as they were.
//!
//! `cargo run --release -p forebay-proxy --example lean [-- SECONDS [ROUNDS]]`. The proxy, and the echo, is a process of its own that is bound to processor 0; who asks
//! is bound to processor 1, with four requests under way. Both go over TCP on loopback, in turn. A GiB counts where it leaves the process for the other.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends where it cannot go on, and tells what it found"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_cluster::Terms;
use forebay_format::row::ObjectRef;
use forebay_group::{GroupId, GroupTerms};
use forebay_object::{Backend as _, ObjectStore, StoreOptions};
use forebay_protocol::{
    Kind, Message, TokenInfo, TokenRequest, VolumeInfo, VolumeRequest,
    group::{Fetch, Fetched, Greet, GroupInfo, GroupRequest, Walk},
};
use forebay_proxy::{Proxy, ProxyOptions};
use forebay_rpc::{Address, Client, ClientConfig, Security, connection::Outgoing};
use forebay_server::{MetaServer, ServerOptions, Ticking};
use forebay_types::{Compression, Epoch, ObjectId, SegmentId, Timespec, VolumeId};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MESSAGE: usize = 1 << 20;
/// Of the object that is read: it stays in the page cache.
const OBJECT: u64 = 64 << 20;
const UNDER_WAY: u64 = 4;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("as-echo") => be_an_echo(),
        Some("as-proxy") => be_a_proxy(&args[1].parse().unwrap(), Path::new(&args[2])),
        _ => {
            let number = |at: usize, usual| args.get(at).map_or(usual, |value| value.parse().unwrap());
            measure(Duration::from_secs(number(0, 3)), number(1, 5));
        }
    }
}

fn bind_to(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).unwrap();
}

fn be_an_echo() {
    bind_to(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut message = vec![0; MESSAGE];
                while stream.read_exact(&mut message).await.is_ok()
                    && stream.write_all(&message).await.is_ok()
                {}
            });
        }
    });
}

fn be_a_proxy(meta: &Address, dir: &Path) {
    bind_to(0);
    let options = ProxyOptions {
        meta: vec![meta.clone()],
        group: "g".to_owned(),
        directory: dir.to_owned(),
        cache: 512 << 20,
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        security: Security::Insecure,
        insecure: true,
        weight: None,
        node: "node".to_owned(),
        zone: None,
        store: StoreOptions::default(),
        terms: GroupTerms::default(),
    };
    let proxy = Proxy::start(&options, &|| false).unwrap().unwrap();
    println!("{}", proxy.addresses()[0]);
    loop {
        std::thread::park();
    }
}

/// A process of this program that is measured.
struct Measured {
    child: Child,
    at: String,
}

impl Measured {
    fn start(args: &[&str]) -> Measured {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut at = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut at).unwrap();
        Measured { child, at: at.trim().to_owned() }
    }

    /// Processor time so far, user and system.
    fn processor(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Moves messages for so long. Returns GiB a second, and GiB for each second of the process's processor time.
fn rates(of: &Measured, how_long: Duration, run: impl FnOnce(Instant) -> u64) -> (f64, f64) {
    let (begun, before) = (Instant::now(), of.processor());
    let messages = run(begun + how_long);
    let gib = (messages * MESSAGE as u64) as f64 / f64::from(1 << 30);
    (gib / begun.elapsed().as_secs_f64(), gib / (of.processor() - before).as_secs_f64())
}

fn echoes(at: &str, until: Instant) -> u64 {
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..UNDER_WAY {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut message = vec![7; MESSAGE];
                while Instant::now() < until {
                    let mut writes = stream.try_clone().unwrap();
                    let sent = message.clone();
                    std::thread::scope(|both| {
                        both.spawn(move || writes.write_all(&sent).unwrap());
                        stream.read_exact(&mut message).unwrap();
                    });
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

fn reads(client: &Client, object: ObjectRef, until: Instant) -> u64 {
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for lane in 0..UNDER_WAY {
            let count = &count;
            scope.spawn(move || {
                let mut at = lane * (OBJECT / UNDER_WAY);
                while Instant::now() < until {
                    assert!(read(client, object, at), "it is cached");
                    at = (at + MESSAGE as u64) % OBJECT;
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

/// Reads a message. Returns whether there were bytes.
fn read(client: &Client, object: ObjectRef, offset: u64) -> bool {
    let (segment, walk) = (SegmentId(1 << 8), Walk::Sequential);
    let fetch = Fetch { object, offset, len: MESSAGE as u32, segment, at: offset, walk, waits: true };
    let (body, bulk) = ask(client, Kind::Fetch, &fetch);
    matches!(Fetched::decode(&body).unwrap(), Fetched::Here { .. }) && bulk.len() == MESSAGE
}

fn ask(client: &Client, kind: Kind, message: &impl Message) -> (Vec<u8>, Bytes) {
    let reply = client.call_blocking(Outgoing {
        kind: kind as u16,
        body: message.encode().into(),
        bulk: Bytes::new(),
        deadline_ms: 60_000,
        reply_max: 9 << 20,
    });
    let reply = reply.unwrap();
    (reply.body.to_vec(), reply.bulk)
}

fn client(at: &Address) -> Client {
    Client::start(ClientConfig::new(vec![at.clone()], Security::Insecure), None).unwrap()
}

/// A metadata server with a volume that is read through a group; who may read it; and an object in its store.
struct Around {
    dir: tempfile::TempDir,
    server: MetaServer,
    greet: Greet,
    object: ObjectRef,
}

impl Around {
    fn new() -> Around {
        let dir = tempfile::tempdir().unwrap();
        let options = ServerOptions {
            engine: format!("dir:{}/engine", dir.path().display()).parse().unwrap(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            advertise: None,
            security: Security::Insecure,
            insecure: true,
            admins: Vec::new(),
            terms: Terms::default(),
            group_terms: GroupTerms::default(),
            ticks: Ticking::default(),
        };
        let server = MetaServer::start(&options, &|| false).unwrap().unwrap();
        let servers = client(&server.advertised().parse().unwrap());
        let store = format!("file://{}/store", dir.path().display());
        let (volume, group) = made(&servers, &store);
        let token = TokenInfo {
            id: String::new(),
            volume: "v".to_owned(),
            root: "/".to_owned(),
            read_only: true,
            no_exec: false,
            root_squash: false,
            created: Timespec::default(),
            expires: None,
        };
        let (body, _) = ask(&servers, Kind::Tokens, &TokenRequest::Create(token));
        let (_, secret) = <(Vec<TokenInfo>, String)>::decode(&body).unwrap();
        let object = ObjectRef { epoch: Epoch(1), id: ObjectId(1) };
        let contents: Vec<u8> =
            (0..OBJECT as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let opened = ObjectStore::open(&store.parse().unwrap(), &StoreOptions::default()).unwrap();
        opened.put_new(&forebay_reading::object_key(object), contents.into()).unwrap();
        let greet = Greet { group, volume, token: Some(secret), client: "a measurement".to_owned() };
        Around { dir, server, greet, object }
    }
}

fn made(servers: &Client, store: &str) -> (VolumeId, GroupId) {
    let wanted = VolumeInfo {
        name: "v".to_owned(),
        id: VolumeId([0; 16]),
        store: store.to_owned(),
        endpoint: None,
        region: None,
        block_size: 4 << 20,
        compression: Compression::None,
        created: Timespec::default(),
        limit: None,
        generation: 0,
    };
    let (body, _) = ask(servers, Kind::Volumes, &VolumeRequest::Create(wanted));
    let volume = Vec::<VolumeInfo>::decode(&body).unwrap()[0].id;
    let (body, _) = ask(servers, Kind::Groups, &GroupRequest::Create("g".to_owned(), 2));
    let group = Vec::<GroupInfo>::decode(&body).unwrap()[0].id;
    ask(servers, Kind::Groups, &GroupRequest::Assign("v".to_owned(), Some("g".to_owned())));
    (volume, group)
}

fn measure(how_long: Duration, rounds: u64) {
    bind_to(1);
    let around = Around::new();
    let proxy_dir = around.dir.path().join("proxy");
    let proxy = Measured::start(&["as-proxy", around.server.advertised(), proxy_dir.to_str().unwrap()]);
    let echo = Measured::start(&["as-echo"]);
    let asks = client(&proxy.at.parse().unwrap());
    ask(&asks, Kind::Greet, &around.greet);
    for at in 0..OBJECT / MESSAGE as u64 {
        read(&asks, around.object, at * MESSAGE as u64);
    }
    let (mut echoed, mut served) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        echoed.push(rates(&echo, how_long, |until| echoes(&echo.at, until)));
        served.push(rates(&proxy, how_long, |until| reads(&asks, around.object, until)));
    }
    let echoed = tell("echo", echoed);
    let served = tell("cached reads", served);
    println!("ratio by processor time: {:.2}", served / echoed);
}

/// Tells the medians with the least and the greatest; returns the GiB for each second of processor time.
fn tell(what: &str, mut found: Vec<(f64, f64)>) -> f64 {
    let mut by = |of: fn(&(f64, f64)) -> f64| {
        found.sort_by(|one, other| of(one).total_cmp(&of(other)));
        (of(&found[found.len() / 2]), of(&found[0]), of(&found[found.len() - 1]))
    };
    let (rate, processor) = (by(|found| found.0), by(|found| found.1));
    println!(
        "{what:>12}: {:.2} GiB/s ({:.2}–{:.2}), {:.2} GiB for each second of its processor time ({:.2}–{:.2})",
        rate.0, rate.1, rate.2, processor.0, processor.1, processor.2
    );
    processor.0
}
