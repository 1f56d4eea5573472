//! What a request costs on one machine: `cargo run --release -p forebay-rpc --example wire [-- SECONDS [pin]]`.
//!
//! Server and clients are threads of this process; processor time is of both together. `pin` keeps everything on one processor.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement ends where it cannot go on, and prints"
)]

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_rpc::{
    Address, CertificateFiles, Client, ClientConfig, Credentials, Handler, Handling, Peer, Security, Server,
    ServerConfig,
    connection::{Outgoing, Reply, Request},
};
use hdrhistogram::Histogram;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// Answers with the first `bulk` bytes of a buffer, where `bulk` is the body's first number.
struct Answers(Bytes);

impl Handler for Answers {
    fn handle(&self, _: &Arc<Peer>, request: Request) -> Handling {
        let len = request.body.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
        let reply = Reply { bulk: self.0.slice(..len as usize), body: request.body };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

#[derive(Clone, Copy)]
struct Load {
    in_flight: usize,
    threads: bool,
    up: usize,
    down: u32,
}

fn certificates(dir: &Path) -> Security {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let files = CertificateFiles {
        authority: dir.join("ca.pem"),
        certificate: dir.join("one.pem"),
        key: dir.join("one.key"),
    };
    fs::write(&files.authority, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    fs::write(&files.certificate, params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    Security::Tls(Credentials::load(files).unwrap())
}

/// A server in a thread of its own.
fn serve(address: &Address, security: Security) -> Address {
    let (tell, told) = std::sync::mpsc::channel();
    let address = address.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answers = Arc::new(Answers(vec![7; 8 << 20].into()));
            let server = Server::bind(&[address], ServerConfig::new(security), answers).unwrap();
            tell.send(server.addresses()[0].clone()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn request(load: Load) -> Outgoing {
    let mut body = vec![0; 100];
    body[..4].copy_from_slice(&load.down.to_le_bytes());
    let bulk = vec![5; load.up].into();
    Outgoing { kind: 1, body: body.into(), bulk, deadline_ms: 60_000, reply_max: load.down + 4096 }
}

fn by_threads(client: &Client, load: Load, until: Instant) -> Histogram<u64> {
    let each = || {
        let mut times = Histogram::new(3).unwrap();
        while Instant::now() < until {
            let begun = Instant::now();
            client.call_blocking(request(load)).unwrap();
            times.record(begun.elapsed().as_nanos() as u64).unwrap();
        }
        times
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..load.in_flight).map(|_| scope.spawn(each)).collect();
        let all = all.into_iter().map(|thread| thread.join().unwrap());
        all.fold(Histogram::new(3).unwrap(), |mut sum, one| {
            sum.add(one).unwrap();
            sum
        })
    })
}

async fn by_tasks(client: &Client, load: Load, until: Instant) -> Histogram<u64> {
    let each = || async {
        let mut times = Histogram::<u64>::new(3).unwrap();
        while Instant::now() < until {
            let begun = Instant::now();
            client.call(request(load)).await.unwrap();
            times.record(begun.elapsed().as_nanos() as u64).unwrap();
        }
        times
    };
    let all = futures::future::join_all((0..load.in_flight).map(|_| each())).await;
    all.into_iter().fold(Histogram::new(3).unwrap(), |mut sum, one| {
        sum.add(one).unwrap();
        sum
    })
}

fn measure(name: &str, address: &Address, security: &Security, load: Load, time: Duration) {
    let config = ClientConfig::new(vec![address.clone()], security.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = match load.threads {
        true => Client::start(config, None).unwrap(),
        false => Client::within(runtime.handle(), config, None),
    };
    let run = |time: Duration| match load.threads {
        true => by_threads(&client, load, Instant::now() + time),
        false => runtime.block_on(by_tasks(&client, load, Instant::now() + time)),
    };
    run(time / 10);
    let (begun, before) = (Instant::now(), processor_time());
    let times = run(time);
    let (took, used) = (begun.elapsed().as_secs_f64(), processor_time() - before);
    let us = |ns: u64| ns as f64 / 1000.0;
    let rate = times.len() as f64 / took;
    let bytes = (load.up as f64 + f64::from(load.down)) * rate / f64::from(1 << 20);
    println!(
        "| {name} | {} | {} | {:.1} | {:.1} | {rate:.0} | {:.1} | {bytes:.0} |",
        if load.threads { "thread" } else { "task" },
        load.in_flight,
        us(times.value_at_quantile(0.5)),
        us(times.value_at_quantile(0.99)),
        used.as_secs_f64() * 1e6 / times.len() as f64,
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(1.0);
    if args.iter().any(|arg| arg == "pin") {
        let mut one = CpuSet::new();
        one.set(0);
        sched_setaffinity(None, &one).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let secure = certificates(dir.path());
    let loopback: Address = "127.0.0.1:0".parse().unwrap();
    let kinds = [
        ("TCP", serve(&loopback, Security::Insecure), Security::Insecure),
        ("TLS", serve(&loopback, secure.clone()), secure),
        (
            "Unix socket",
            serve(&Address::Unix(dir.path().join("socket")), Security::Insecure),
            Security::Insecure,
        ),
    ];
    println!(
        "| | caller | in flight | p50 µs | p99 µs | requests/s | processor µs | MiB/s |\n|---|---|---|---|---|---|---|---|"
    );
    for (what, up, down) in [("100 B", 0, 0), ("1 MiB read", 0, 1 << 20), ("1 MiB write", 1 << 20, 0)] {
        for (name, address, security) in &kinds {
            for threads in [true, false] {
                for in_flight in [1, 16] {
                    let load = Load { in_flight, threads, up, down };
                    let name = format!("{what}, {name}");
                    measure(&name, address, security, load, Duration::from_secs_f64(seconds));
                }
            }
        }
    }
}
