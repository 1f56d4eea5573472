//! Servers, clients, certificates and a relay for tests.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_rpc::{
    Address, CertificateFiles, Client, ClientConfig, Credentials, Handler, Handling, Peer, Security, Server,
    ServerConfig,
    connection::{Outgoing, Reply, Request},
    wire::{Code, Refusal},
};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

pub const ECHO: u16 = 1;
/// Answered with as many bytes of bulk as the body says.
pub const BULK: u16 = 2;
/// Never answered; counted when its future is dropped.
pub const NEVER: u16 = 3;
/// The server pushes an echo to its client before it answers with what came back.
pub const PUSH_BACK: u16 = 4;
pub const PANIC: u16 = 5;
/// Answered with the peer's identity.
pub const WHO: u16 = 6;

/// How long anything may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Echo {
    pub begun: AtomicUsize,
    pub dropped: Arc<AtomicUsize>,
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    pub peers: Mutex<Vec<Arc<Peer>>>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Handler for Echo {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let Request { kind, body, bulk, .. } = request;
        let peer = peer.clone();
        let guard = CountDrop(self.dropped.clone());
        Box::pin(async move {
            let plain = |body: Bytes| Reply { body, bulk: Bytes::new() };
            match kind {
                ECHO => Ok(Reply { body, bulk }),
                BULK => {
                    let len: usize = std::str::from_utf8(&body).unwrap().parse().unwrap();
                    Ok(Reply { body, bulk: vec![7; len].into() })
                }
                NEVER => {
                    let _guard = guard;
                    std::future::pending().await
                }
                PUSH_BACK => {
                    let call = peer.call(request_of(ECHO, &body)).unwrap();
                    Ok(plain(call.await.map_err(|error| Refusal::new(Code::FAILED, error.to_string()))?.body))
                }
                PANIC => panic!("as asked"),
                WHO => Ok(plain(peer.identity.to_string().into())),
                _ => Err(Refusal::new(Code::UNSUPPORTED, "?")),
            }
        })
    }

    fn opened(&self, peer: &Arc<Peer>) {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.peers.lock().push(peer.clone());
    }

    fn closed(&self, _: &Arc<Peer>) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn request_of(kind: u16, body: &[u8]) -> Outgoing {
    let (body, bulk) = (Bytes::copy_from_slice(body), Bytes::new());
    Outgoing { kind, body, bulk, deadline_ms: 60_000, reply_max: 2 << 20 }
}

/// A server that echoes, in a runtime of two threads.
pub struct Bed {
    pub runtime: tokio::runtime::Runtime,
    pub server: Option<Server>,
    pub echo: Arc<Echo>,
    pub dir: tempfile::TempDir,
}

impl Bed {
    pub fn with(config: ServerConfig) -> Bed {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let echo = Arc::new(Echo::default());
        let addresses = ["127.0.0.1:0".parse().unwrap(), Address::Unix(dir.path().join("socket"))];
        let server = runtime.block_on(async { Server::bind(&addresses, config, echo.clone()) }).unwrap();
        Bed { runtime, server: Some(server), echo, dir }
    }

    pub fn new() -> Bed {
        Bed::with(ServerConfig::new(Security::Insecure))
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn tcp(&self) -> Address {
        self.server().addresses()[0].clone()
    }

    pub fn unix(&self) -> Address {
        self.server().addresses()[1].clone()
    }

    pub fn client_of(&self, address: Address, security: Security) -> Client {
        let echo: Arc<dyn Handler> = Arc::new(Echo::default());
        Client::start(ClientConfig::new(vec![address], security), Some(echo)).unwrap()
    }

    pub fn client(&self) -> Client {
        self.client_of(self.tcp(), Security::Insecure)
    }
}

/// Waits for a condition.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// An authority in a directory.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is for, and for how long, in days from now.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub host: &'a str,
    pub purposes: &'a [ExtendedKeyUsagePurpose],
    pub days: (i64, i64),
}

pub const FOR_LOCALHOST: Wanted<'static> = Wanted { host: "127.0.0.1", purposes: &[], days: (-1, 100) };

impl Authority {
    pub fn new(dir: &Path, name: &str) -> Authority {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        fs::write(dir.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), dir }
    }

    pub fn issue(&self, name: &str, wanted: Wanted<'_>) -> CertificateFiles {
        let mut params = CertificateParams::new(vec![wanted.host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = wanted.purposes.to_vec();
        let now = time::OffsetDateTime::now_utc();
        params.not_before = now + time::Duration::days(wanted.days.0);
        params.not_after = now + time::Duration::days(wanted.days.1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = CertificateFiles {
            authority: self.dir.join("ca.pem"),
            certificate: self.dir.join(format!("{name}.pem")),
            key: self.dir.join(format!("{name}.key")),
        };
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        files
    }
}

pub fn tls(files: CertificateFiles) -> Security {
    Security::Tls(Credentials::load(files).unwrap())
}
