//! TLS: who is let in, who is not, and what each side is told.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{fs, sync::atomic::Ordering};

use bed::{Authority, BULK, Bed, ECHO, FOR_LOCALHOST, PUSH_BACK, WHO, Wanted, request_of, tls, until};
use forebay_rpc::{
    CertificateFiles, Client, ClientConfig, Credentials, Security, ServerConfig, TlsError,
    connection::{CallError, Outgoing},
};
use rcgen::ExtendedKeyUsagePurpose;

struct World {
    dir: tempfile::TempDir,
    authority: Authority,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    World { authority, dir }
}

impl World {
    fn bed(&self, wanted: Wanted<'_>) -> Bed {
        Bed::with(ServerConfig::new(tls(self.authority.issue("server", wanted))))
    }

    /// What a client with this certificate is told.
    fn told(&self, bed: &Bed, files: CertificateFiles) -> String {
        // An expired certificate is refused when it is loaded; one that expires later is not.
        refused(&bed.client_of(bed.tcp(), tls(files)))
    }
}

fn refused(client: &Client) -> String {
    let request = Outgoing { deadline_ms: 300, ..request_of(ECHO, b"") };
    let error = client.call_blocking(request).unwrap_err();
    assert!(error.not_done(), "{error}");
    // The reason is known once a connection has failed, however long that took.
    until("there is a reason", || client.down().is_some_and(|why| !why.contains("not connected yet")));
    client.down().unwrap()
}

#[test]
fn both_sides_know_each_other() {
    let world = world();
    let bed = world.bed(FOR_LOCALHOST);
    let client = bed.client_of(bed.tcp(), tls(world.authority.issue("node7", FOR_LOCALHOST)));
    let who = client.call_blocking(request_of(WHO, b"")).unwrap();
    assert_eq!(&who.body[..], b"'node7'");
    assert_eq!(&client.call_blocking(request_of(PUSH_BACK, b"pushed")).unwrap().body[..], b"pushed");
    let large = Outgoing { bulk: vec![9; 2 << 20].into(), reply_max: 3 << 20, ..request_of(ECHO, b"large") };
    for _ in 0..10 {
        let reply = client.call_blocking(large.clone()).unwrap();
        assert!(reply.bulk == large.bulk && reply.body == large.body);
        assert_eq!(client.call_blocking(request_of(BULK, b"1000000")).unwrap().bulk.len(), 1_000_000);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    client.call_blocking(request_of(ECHO, b"x")).unwrap();
                }
            });
        }
    });
    assert_eq!(bed.echo.opened.load(Ordering::SeqCst), 1);
}

#[test]
fn a_local_process_needs_no_certificate() {
    let world = world();
    let bed = world.bed(FOR_LOCALHOST);
    let client = bed.client_of(bed.unix(), Security::Insecure);
    client.call_blocking(request_of(ECHO, b"")).unwrap();
}

#[test]
fn who_is_not_of_the_same_authority_is_kept_out_and_told_why() {
    let world = world();
    let bed = world.bed(FOR_LOCALHOST);
    let other = Authority::new(world.dir.path(), "other");
    let stranger = other.issue("stranger", FOR_LOCALHOST);
    // It believes our server; our server does not believe it.
    let trusting =
        CertificateFiles { authority: world.dir.path().join("authority/ca.pem"), ..stranger.clone() };
    let told = world.told(&bed, trusting);
    assert!(
        told.contains("authority of our certificate") || told.contains("accept our certificate"),
        "{told}"
    );
    let told = world.told(&bed, stranger);
    assert!(told.contains("from another authority"), "{told}");
    let told = refused(&bed.client());
    assert!(told.contains("closed") || told.contains("does not speak Forebay"), "{told}");
    assert_eq!(bed.echo.opened.load(Ordering::SeqCst), 0, "no handler saw any of them");
}

#[test]
fn names_and_purposes_are_checked() {
    let world = world();
    let elsewhere = world.bed(Wanted { host: "elsewhere.example", ..FOR_LOCALHOST });
    let told = world.told(&elsewhere, world.authority.issue("node7", FOR_LOCALHOST));
    assert!(told.contains("not for '127.0.0.1'") && told.contains("elsewhere.example"), "{told}");
    let bed = world.bed(FOR_LOCALHOST);
    let server_only = Wanted { purposes: &[ExtendedKeyUsagePurpose::ServerAuth], ..FOR_LOCALHOST };
    let told = world.told(&bed, world.authority.issue("wrong", server_only));
    assert!(told.contains("accept our certificate"), "{told}");
    let client_only = Wanted { purposes: &[ExtendedKeyUsagePurpose::ClientAuth], ..FOR_LOCALHOST };
    let bed = Bed::with(ServerConfig::new(tls(world.authority.issue("client", client_only))));
    let told = world.told(&bed, world.authority.issue("node7", FOR_LOCALHOST));
    assert!(told.contains("for the other side"), "{told}");
}

#[test]
fn an_expired_certificate_has_one_clear_line() {
    let world = world();
    let expired = world.authority.issue("late", Wanted { days: (-10, -1), ..FOR_LOCALHOST });
    let error = Credentials::load(expired.clone()).unwrap_err();
    assert!(matches!(error, TlsError::Expired { .. }), "{error}");
    assert!(error.to_string().contains("'late' has expired: issue a new one"), "{error}");
    let future = world.authority.issue("early", Wanted { days: (1, 10), ..FOR_LOCALHOST });
    let bed = Bed::with(ServerConfig::new(tls(future)));
    let told = world.told(&bed, world.authority.issue("node7", FOR_LOCALHOST));
    assert!(told.contains("not valid yet: is a clock wrong?"), "{told}");
    // A server whose certificate expires while it runs: its files are changed to an expired one.
    let files = world.authority.issue("aging", FOR_LOCALHOST);
    let bed = Bed::with(ServerConfig::new(tls(files.clone())));
    let client = bed.client_of(bed.tcp(), tls(world.authority.issue("node8", FOR_LOCALHOST)));
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    world.authority.issue("aging", Wanted { days: (-10, -1), ..FOR_LOCALHOST });
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let told = world.told(&bed, world.authority.issue("node9", FOR_LOCALHOST));
    assert!(told.contains("the peer's certificate has expired"), "{told}");
    client.call_blocking(request_of(ECHO, b"")).unwrap();
}

#[test]
fn changed_files_are_read_again_and_connections_go_on() {
    let world = world();
    let files = world.authority.issue("server", FOR_LOCALHOST);
    let credentials = Credentials::load(files.clone()).unwrap();
    let bed = Bed::with(ServerConfig::new(Security::Tls(credentials.clone())));
    let old = world.authority.issue("node7", FOR_LOCALHOST);
    let client = bed.client_of(bed.tcp(), tls(old.clone()));
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    let before = credentials.subject().serial;
    // Nonsense changes nothing.
    fs::write(&files.certificate, "nonsense").unwrap();
    assert_eq!(credentials.subject().serial, before);
    bed.client_of(bed.tcp(), tls(old.clone())).call_blocking(request_of(ECHO, b"")).unwrap();
    // Another authority altogether.
    let next = Authority::new(world.dir.path(), "next");
    let new = next.issue("server", FOR_LOCALHOST);
    fs::copy(&new.authority, &files.authority).unwrap();
    fs::copy(&new.key, &files.key).unwrap();
    fs::copy(&new.certificate, &files.certificate).unwrap();
    let node = next.issue("node8", FOR_LOCALHOST);
    bed.client_of(bed.tcp(), tls(node)).call_blocking(request_of(ECHO, b"")).unwrap();
    assert_ne!(credentials.subject().serial, before);
    client.call_blocking(request_of(ECHO, b"")).unwrap();
    assert_eq!(bed.echo.opened.load(Ordering::SeqCst), 3, "the connection of before goes on");
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let world = world();
    let good = world.authority.issue("good", FOR_LOCALHOST);
    let other = world.authority.issue("other", FOR_LOCALHOST);
    let missing = CertificateFiles { key: world.dir.path().join("missing"), ..good.clone() };
    let swapped = CertificateFiles { key: good.certificate.clone(), ..good.clone() };
    let foreign = CertificateFiles { key: other.key, ..good };
    for (files, says) in [(missing, "cannot read"), (swapped, "no private key"), (foreign, "cannot be used")]
    {
        let error = Credentials::load(files).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn plain_speech_to_a_tls_server_and_the_reverse_are_named() {
    let world = world();
    let plain = Bed::new();
    let secure = tls(world.authority.issue("node7", FOR_LOCALHOST));
    let config = ClientConfig::new(vec![plain.tcp()], secure);
    let client = Client::start(config, None).unwrap();
    let error = client.call_blocking(Outgoing { deadline_ms: 300, ..request_of(ECHO, b"") }).unwrap_err();
    assert!(matches!(error, CallError::Lost { sent: false, .. }), "{error}");
    until("it is named", || client.down().is_some_and(|why| why.contains("closed") || why.contains("TLS")));
}
