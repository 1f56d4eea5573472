//! What servers and clients of shared volumes do in a second, on one machine, through the client core (no kernel in between).
//!
//! `cargo run --release -p forebay-server --example servers [-- SECONDS [ROUNDS]]`. Servers and clients are threads of this process, so processor time is of both; that of PostgreSQL
//! is its own. The cases take turns, `ROUNDS` times, and each figure is the median of its rounds, with the least and the greatest.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends where it cannot go on, and prints"
)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use forebay_client::{ConnectOptions, Settings, SharedVolume};
use forebay_cluster::Terms;
use forebay_engine::Batch;
use forebay_meta::NewInode;
use forebay_object::StoreOptions;
use forebay_protocol::{Kind, Message, VolumeInfo, VolumeRequest};
use forebay_rpc::{Client, ClientConfig, Security, connection::Outgoing};
use forebay_server::{DatabasePlace, MetaServer, ServerOptions, Ticking};
use forebay_testkit::{far::FarLink, postgres::PostgresServer};
use forebay_types::{Compression, FileKind, Ino, Timespec, VolumeId};
use forebay_vfs::Files;
use forebay_volume::{CreateOptions, OpenOptions, Volume, create};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// Each way between the servers and PostgreSQL: a commit is one round trip.
const EACH_WAY: Duration = Duration::from_millis(2);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What one round of a case was.
struct Round {
    rate: f64,
    p50_us: u64,
    p99_us: u64,
    cpu_us: f64,
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn new(kind: FileKind) -> NewInode {
    NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() }
}

/// Creates for `time`: each of the volumes by `threads`, in a directory a volume. With `sync` each file is synced before the next.
fn creates(volumes: &[Arc<dyn Files>], threads: usize, time: Duration, sync: bool) -> Round {
    let directories: Vec<Ino> = volumes
        .iter()
        .map(|volume| {
            let name = format!("d{}", NEXT.fetch_add(1, Relaxed));
            volume.make(Ino::ROOT, name.as_bytes(), &new(FileKind::Directory)).unwrap().ino
        })
        .collect();
    let (began, before) = (Instant::now(), cpu());
    let mut all = Histogram::<u64>::new(3).unwrap();
    std::thread::scope(|scope| {
        let mut work = Vec::new();
        for (volume, directory) in volumes.iter().zip(&directories) {
            for thread in 0..threads {
                work.push(scope.spawn(move || {
                    let mut latency = Histogram::<u64>::new(3).unwrap();
                    for number in 0_u64.. {
                        let one = Instant::now();
                        if one - began >= time {
                            break;
                        }
                        let name = format!("file-{thread}-{number}");
                        let made = volume.make(*directory, name.as_bytes(), &new(FileKind::Regular));
                        let made =
                            made.and_then(|made| if sync { volume.sync_file(made.ino) } else { Ok(()) });
                        if let Err(error) = made {
                            println!("ended after {number} creates: {error}");
                            break;
                        }
                        latency.record(one.elapsed().as_micros() as u64).unwrap();
                    }
                    latency
                }));
            }
        }
        work.into_iter().for_each(|work| all.add(work.join().unwrap()).unwrap());
    });
    let (took, used) = (began.elapsed(), cpu().saturating_sub(before));
    volumes.iter().for_each(|volume| volume.sync_all().unwrap());
    Round {
        rate: all.len() as f64 / took.as_secs_f64(),
        p50_us: all.value_at_quantile(0.5),
        p99_us: all.value_at_quantile(0.99),
        cpu_us: used.as_secs_f64() * 1e6 / all.len() as f64,
    }
}

fn server(engine: &str) -> MetaServer {
    let options = ServerOptions {
        engine: engine.parse::<DatabasePlace>().unwrap(),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        security: Security::Insecure,
        insecure: true,
        admins: Vec::new(),
        terms: Terms::default(),
        group_terms: forebay_group::GroupTerms::default(),
        ticks: Ticking::default(),
    };
    MetaServer::start(&options, &|| false).unwrap().unwrap()
}

fn make_volume(server: &MetaServer, dir: &Path) {
    let client = ClientConfig::new(vec![server.advertised().parse().unwrap()], Security::Insecure);
    let client = Client::start(client, None).unwrap();
    let wanted = VolumeInfo {
        name: "v".to_owned(),
        id: VolumeId([0; 16]),
        store: format!("file://{}/store-{}", dir.display(), NEXT.fetch_add(1, Relaxed)),
        endpoint: None,
        region: None,
        block_size: 4 << 20,
        compression: Compression::Lz4,
        created: Timespec { secs: 0, nanos: 0 },
        limit: None,
        generation: 0,
    };
    let body = VolumeRequest::Create(wanted).encode().into();
    let request = Outgoing {
        kind: Kind::Volumes as u16,
        body,
        bulk: Vec::new().into(),
        deadline_ms: 60_000,
        reply_max: 1 << 20,
    };
    client.call_blocking(request).unwrap();
}

fn client(server: &MetaServer, number: usize, ahead: bool) -> Arc<dyn Files> {
    let options = ConnectOptions {
        addresses: vec![server.advertised().parse().unwrap()],
        security: Security::Insecure,
        store: StoreOptions::default(),
        cache: None,
        patience: Duration::from_secs(30),
        settings: Settings { ahead, ..Settings::of("v", &format!("client {number}")) },
    };
    Arc::new(SharedVolume::connect(options).unwrap())
}

/// The median of some figures, with the least and the greatest.
fn middle(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0}–{:.0})", all[all.len() / 2], all[0], all[all.len() - 1])
}

fn print(name: &str, rounds: &[Round]) {
    let of = |figure: fn(&Round) -> f64| middle(rounds.iter().map(figure).collect());
    println!(
        "| {name} | {} | {} | {} | {} |",
        of(|round| round.rate),
        of(|round| round.p50_us as f64),
        of(|round| round.p99_us as f64),
        of(|round| round.cpu_us)
    );
}

type Case<'a> = (&'a str, Box<dyn Fn() -> Round + 'a>);

fn take_turns(cases: &[Case<'_>], rounds: usize) {
    let mut all: Vec<Vec<Round>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, case), rounds) in cases.iter().zip(&mut all) {
            rounds.push(case());
        }
    }
    println!("| creates | a second | p50, µs | p99, µs | processor, µs |\n| --- | --- | --- | --- | --- |");
    cases.iter().zip(&all).for_each(|((name, _), rounds)| print(name, rounds));
    println!();
}

/// PostgreSQL, 4 ms away.
fn far_postgres(dir: &Path, time: Duration, rounds: usize) {
    let postgres = PostgresServer::start_new(&["fsync=off", "max_connections=50"]).unwrap();
    postgres.sql("postgres", "CREATE DATABASE meta").unwrap();
    let there = format!("127.0.0.1:{}", postgres.port()).parse().unwrap();
    let far = FarLink::new("127.0.0.1:0", there, Duration::ZERO).unwrap();
    let server = server(&postgres.url(far.address().port(), "meta"));
    make_volume(&server, dir);
    let clients: Vec<_> = (0..16).map(|number| client(&server, number, false)).collect();
    far.delay(EACH_WAY);
    println!(
        "PostgreSQL, {} ms away, 16 clients over TCP, none ahead of the owner",
        2 * EACH_WAY.as_millis()
    );
    take_turns(
        &[
            ("64 in flight, of 16 clients", Box::new(|| creates(&clients, 4, time, false))),
            ("16 in flight, of 16 clients", Box::new(|| creates(&clients, 1, time, false))),
            ("1 in flight", Box::new(|| creates(&clients[..1], 1, time, false))),
        ],
        rounds,
    );
    server.stop();
}

/// The embedded engine over loopback, beside a volume of one machine on the same disk.
fn embedded(dir: &Path, time: Duration, rounds: usize) {
    let server = server(&format!("dir:{}/engine", dir.display()));
    make_volume(&server, dir);
    let asking: Vec<_> = (0..2).map(|number| client(&server, number, false)).collect();
    let ahead: Vec<_> = (2..4).map(|number| client(&server, number, true)).collect();
    let alone = dir.join("alone");
    create(&alone, &CreateOptions::default()).unwrap();
    let alone: Vec<Arc<dyn Files>> = vec![Volume::open(&alone, &OpenOptions::default()).unwrap()];
    println!("Embedded engine, clients over TCP, beside one machine's volume");
    for threads in [1, 4] {
        println!("{threads} in flight a client");
        take_turns(
            &[
                ("one machine", Box::new(|| creates(&alone, threads, time, false))),
                ("shared, 1 client ahead", Box::new(|| creates(&ahead[..1], threads, time, false))),
                ("shared, 2 clients ahead", Box::new(|| creates(&ahead, threads, time, false))),
                ("one machine, each synced", Box::new(|| creates(&alone, threads, time, true))),
                ("shared, 1 client asking", Box::new(|| creates(&asking[..1], threads, time, false))),
                ("shared, 2 clients asking", Box::new(|| creates(&asking, threads, time, false))),
            ],
            rounds,
        );
    }
    drop(alone);
    server.stop();
}

/// What one commit of 20 rows of 150 bytes takes, one after the other.
fn commits(engine: &str, time: Duration) -> Round {
    let host = engine.parse::<DatabasePlace>().unwrap().open().unwrap();
    let name = format!("commits{}", NEXT.fetch_add(1, Relaxed)).parse().unwrap();
    let engine = host.create(&name).unwrap();
    let (mut latency, mut number) = (Histogram::<u64>::new(3).unwrap(), 0_u64);
    let (began, before) = (Instant::now(), cpu());
    while began.elapsed() < time {
        let row =
            |row: u64| (format!("{:016x}", (number + row) * 7919 % 100_003).into_bytes(), Some(vec![7; 150]));
        let rows: std::collections::BTreeMap<_, _> = (0..20).map(row).collect();
        let rows: Vec<_> = rows.into_iter().collect();
        number += 20;
        let one = Instant::now();
        engine.commit(&Batch::of(&rows)).unwrap();
        latency.record(one.elapsed().as_micros() as u64).unwrap();
    }
    let (took, used) = (began.elapsed(), cpu().saturating_sub(before));
    drop(engine);
    host.remove(&name).unwrap_or_else(|error| println!("{error}"));
    Round {
        rate: latency.len() as f64 / took.as_secs_f64(),
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        cpu_us: used.as_secs_f64() * 1e6 / latency.len() as f64,
    }
}

fn engines(dir: &Path, time: Duration, rounds: usize) {
    let postgres = PostgresServer::start_new(&["max_connections=50"]).unwrap();
    postgres.sql("postgres", "CREATE DATABASE meta").unwrap();
    let places = [
        ("commit: embedded", format!("dir:{}/commits", dir.display())),
        ("commit: PostgreSQL on this machine, synced", postgres.url(postgres.port(), "meta")),
        ("commit: SlateDB in a directory", format!("slate:file://{}/slate", dir.display())),
    ];
    println!("Commits of 20 rows of 150 bytes, one after the other");
    let cases: Vec<Case<'_>> = places
        .iter()
        .map(|(name, place)| -> Case<'_> { (name, Box::new(move || commits(place, time))) })
        .collect();
    take_turns(&cases, rounds);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().map_or(3.0, |seconds| seconds.parse().unwrap());
    let rounds = args.next().map_or(5, |rounds| rounds.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let dir = tempfile::tempdir_in(".").unwrap();
    let dir = dir.path().canonicalize().unwrap();
    // The third argument says which of them: all, unless one is named.
    let wanted = args.next();
    let is_wanted = |part: &str| wanted.as_deref().is_none_or(|wanted| wanted == part);
    if is_wanted("far") {
        far_postgres(&dir, time, rounds);
    }
    if is_wanted("embedded") {
        embedded(&dir, time, rounds);
    }
    if is_wanted("engines") {
        engines(&dir, time, rounds);
    }
}
