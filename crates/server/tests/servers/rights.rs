//! Tokens, certificates, and who may administer.

use std::{fs, path::PathBuf};

use forebay_cluster::Lease;
use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_protocol::{
    Answer, Failure, Kind, Message, Operation, Push, Refusal, Return, TokenInfo, TokenRequest, VolumeRequest,
    group::Vouch,
};
use forebay_rpc::{
    Address, CertificateFiles, Client, ClientConfig, Credentials, Security,
    connection::{CallError, Outgoing},
};
use forebay_server::{MetaServer, ServerOptions, Ticking};
use forebay_types::{FileKind, Ino, Timespec};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::bed::{Asks, Bed, Not, PATIENCE, make_of, until, whole};

fn denied(result: Result<impl std::fmt::Debug, Not>) -> String {
    match result {
        Err(Not::Refused(Refusal::Denied(why))) => why,
        other => panic!("{other:?}"),
    }
}

/// Since 1970.
pub fn seconds() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A server that needs tokens, on a Unix socket by which it is administered.
pub fn strict(bed: &Bed) -> MetaServer {
    strict_by(bed, Ticking::default())
}

/// The same, with this clock.
pub fn strict_by(bed: &Bed, ticks: Ticking) -> MetaServer {
    let options = ServerOptions {
        insecure: false,
        listen: vec![Address::Unix(bed.dir.path().join("socket"))],
        ticks,
        ..bed.options()
    };
    MetaServer::start(&options, &|| false).unwrap().unwrap()
}

#[test]
fn a_volume_is_used_with_a_token_and_within_its_rights() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    asks.create(&bed, "w");
    let (made, secret) = asks.token(&whole("v"));
    assert!(secret.contains(&made.id) && made.root == "/" && made.expires.is_none());
    until("an owner", || asks.hello("v", 1, Some(&secret)).ok());
    assert!(denied(asks.hello("v", 2, None)).contains("needed"));
    for wrong in ["", "fbt-", "nonsense", &secret.replace("fbt-", "fbt-0"), &secret[..secret.len() - 1]] {
        assert!(denied(asks.hello("v", 2, Some(wrong))).contains("unknown"), "{wrong}");
    }
    let other_secret = asks.token(&whole("v")).1;
    let mixed = format!("{}{}", &secret[..20], &other_secret[20..]);
    assert!(denied(asks.hello("v", 2, Some(&mixed))).contains("unknown"));
    assert!(denied(asks.hello("w", 2, Some(&secret))).contains("not for the volume 'w'"));
    assert!(denied(asks.hello("missing", 2, Some(&secret))).contains("unknown"), "nothing is said of others");

    let session = asks.join_with("v", 1, &secret);
    assert!(matches!(session.answer(make_of("dir", FileKind::Directory)), Answer::Inode(_)));
    let narrow = TokenInfo {
        root: "/dir/".to_owned(),
        read_only: true,
        no_exec: true,
        root_squash: true,
        ..whole("v")
    };
    let (made, narrow) = asks.token(&narrow);
    assert_eq!(made.root, "/dir");
    let reader = Asks::of(&server);
    let welcome = reader.hello("v", 3, Some(&narrow)).unwrap();
    let rights = welcome.rights;
    assert!(rights.read_only && rights.no_exec && rights.root_squash && rights.root != Ino::ROOT);
    let narrowed = reader.join_with("v", 3, &narrow);
    let new = match make_of("file", FileKind::Regular) {
        forebay_protocol::Operation::Make(_, name, new) => {
            forebay_protocol::Operation::Make(rights.root, name, new)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(narrowed.answer(new), Answer::Failed(Failure::ReadOnly));
    for other in [&secret, &asks.token(&TokenInfo { root: "/dir".to_owned(), ..whole("v") }).1] {
        assert!(
            denied(asks.hello("v", 3, Some(other))).contains("other rights"),
            "it is not that token's session"
        );
    }
    // The session stays with its directory; a new one is shown what is there now.
    let moves = forebay_protocol::Operation::Rename {
        from: Ino::ROOT,
        name: b"dir".to_vec(),
        to: Ino::ROOT,
        new_name: b"moved".to_vec(),
        mode: forebay_meta::RenameMode::Replace,
        open: Vec::new(),
    };
    let moved = session.answer(moves);
    assert!(matches!(moved, Answer::Renamed(..)), "{moved:?}");
    assert_eq!(reader.hello("v", 3, Some(&narrow)).unwrap().rights, rights);
    assert!(denied(asks.hello("v", 6, Some(&narrow))).contains("'/dir'"));
    let nowhere = asks.token(&TokenInfo { root: "/none".to_owned(), ..whole("v") }).1;
    assert!(denied(asks.hello("v", 4, Some(&nowhere))).contains("'/none'"));
}

#[test]
fn a_token_that_expires_or_is_revoked_ends_its_sessions() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let now = seconds();
    let past = TokenInfo { expires: Some(Timespec { secs: now - 10, nanos: 0 }), ..whole("v") };
    let refused: Result<(Vec<TokenInfo>, String), _> = asks.call(Kind::Tokens, &TokenRequest::Create(past));
    assert!(matches!(refused, Err(Not::Refused(Refusal::Invalid(why))) if why.contains("expired")));
    let short = TokenInfo { expires: Some(Timespec { secs: now + 20, nanos: 0 }), ..whole("v") };
    let (expiring, short) = asks.token(&short);
    let (lasting, long) = asks.token(&whole("v"));
    let (listed, _): (Vec<TokenInfo>, String) =
        asks.call(Kind::Tokens, &TokenRequest::List(Some("v".to_owned()))).unwrap();
    assert!(listed.len() == 2 && listed.contains(&expiring) && listed.contains(&lasting));

    let (one, two) = (Asks::of(&server), Asks::of(&server));
    let (first, second) = (one.join_with("v", 1, &short), two.join_with("v", 2, &long));
    first.make("a");
    second.make("b");
    let (gone, _): (Vec<TokenInfo>, String) =
        asks.call(Kind::Tokens, &TokenRequest::Revoke(lasting.id.clone())).unwrap();
    assert_eq!(gone, std::slice::from_ref(&lasting));
    until("the second to hear it", || two.told().contains(&Push::Ended { session: second.id }).then_some(()));
    let why = denied(two.hello("v", 2, Some(&long)));
    assert!(why.contains("revoked"), "{why}");
    assert!(first.sees("a"), "the other one goes on");
    until("the first to hear it", || {
        // It lives until then, so it ends for no other reason.
        let _over_perhaps = one.raw(Kind::Renew as u16, first.id.encode());
        one.told().contains(&Push::Ended { session: first.id }).then_some(())
    });
    assert!(denied(one.hello("v", 9, Some(&short))).contains("has expired"));
    let again: Result<(Vec<TokenInfo>, String), _> =
        asks.call(Kind::Tokens, &TokenRequest::Revoke(lasting.id));
    assert!(matches!(again, Err(Not::Refused(Refusal::Invalid(why))) if why.contains("no token")));
}

/// Somebody with a narrow token would keep the rights of a wide one that has ended.
#[test]
fn a_session_goes_on_by_the_token_with_which_it_began() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let (wide, narrow) = (asks.token(&whole("v")).1, asks.token(&whole("v")).1);
    let one = Asks::of(&server);
    let session = one.join_with("v", 1, &wide);
    session.make("a");
    let other = Asks::of(&server);
    let why = denied(other.hello("v", 1, Some(&narrow)));
    assert!(why.contains("another token"), "{why}");
    assert!(session.sees("a"));
    assert!(session.on(&other).ask(make_of("b", FileKind::Regular), None).is_err());
    other.hello("v", 1, Some(&wide)).unwrap();
}

/// Whoever greets twice on a connection is told what there is to tell, and ended with its token.
#[test]
fn a_session_that_greets_again_is_still_on_its_connection() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let (token, secret) = asks.token(&whole("v"));
    let (one, two) = (Asks::of(&server), Asks::of(&server));
    let keeper = one.join_with("v", 1, &secret);
    one.hello("v", 1, Some(&secret)).unwrap();
    keeper.ask(Operation::Inode(Ino::ROOT), Some(Lease::Write)).unwrap();
    let other = two.join_with("v", 2, &secret);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.make("a"));
        let (ino, stamp) = until("the recall", || {
            one.told().into_iter().find_map(|push| match push {
                Push::Recall { ino, stamp, .. } => Some((ino, stamp)),
                _ => None,
            })
        });
        let given = Return { session: keeper.id, ino, stamp, kept: None, open: false };
        one.raw(Kind::Return as u16, given.encode()).unwrap();
        assert!(waits.join().unwrap().inode().is_some());
    });
    let _: (Vec<TokenInfo>, String) = asks.call(Kind::Tokens, &TokenRequest::Revoke(token.id)).unwrap();
    until("the end", || one.told().contains(&Push::Ended { session: keeper.id }).then_some(()));
}

/// A session is on one connection: on another one that it has left, it is not answered, as recalls would not reach it there.
#[test]
fn a_connection_that_its_session_has_left_is_to_greet_again() {
    let bed = Bed::directory();
    let server = strict(&bed);
    let asks = Asks::of(&server);
    asks.create(&bed, "v");
    let secret = asks.token(&whole("v")).1;
    let (one, two) = (Asks::of(&server), Asks::of(&server));
    let first = one.join_with("v", 1, &secret);
    let second = two.join_with("v", 1, &secret);
    second.make("a");
    drop(two);
    let look = || first.ask(Operation::Lookup(Ino::ROOT, b"a".to_vec()), None);
    assert!(matches!(look(), Err(Not::Elsewhere(None))));
    one.hello("v", 1, Some(&secret)).unwrap();
    assert!(look().is_ok());
}

#[test]
fn tcp_without_tls_is_asked_for_and_stays_on_this_machine() {
    let bed = Bed::directory();
    let start = |listen: &str, insecure: bool| {
        let options = ServerOptions { insecure, listen: vec![listen.parse().unwrap()], ..bed.options() };
        MetaServer::start(&options, &|| false).map(drop).unwrap_err().to_string()
    };
    let error = start("127.0.0.1:0", false);
    assert!(error.contains("--tls-ca") && error.contains("--insecure"), "{error}");
    let error = start("0.0.0.0:0", true);
    assert!(error.contains("without TLS"), "{error}");
}

/// Certificates of one authority.
struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(bed: &Bed) -> Authority {
        let dir = bed.dir.path().join("pki");
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join("ca.pem"), certificate.pem()).unwrap();
        Authority { dir, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> Security {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (pem, secret) = (self.dir.join(format!("{name}.pem")), self.dir.join(format!("{name}.key")));
        fs::write(&pem, certificate.pem()).unwrap();
        fs::write(&secret, key.serialize_pem()).unwrap();
        let files = CertificateFiles { authority: self.dir.join("ca.pem"), certificate: pem, key: secret };
        Security::Tls(Credentials::load(files).unwrap())
    }
}

#[test]
fn a_certificate_administers_if_its_name_is_among_those_and_never_mounts_alone() {
    let bed = Bed::directory();
    let authority = Authority::new(&bed);
    let options = ServerOptions {
        security: authority.issue("server"),
        insecure: false,
        admins: vec!["chief".to_owned()],
        ..bed.options()
    };
    let server = MetaServer::start(&options, &|| false).unwrap().unwrap();
    let ask = |name: &str, kind: Kind, body: Vec<u8>| {
        let config = ClientConfig::new(vec![server.advertised().parse().unwrap()], authority.issue(name));
        let client = Client::start(config, None).unwrap();
        client.call_blocking(Outgoing {
            kind: kind as u16,
            body: body.into(),
            bulk: Default::default(),
            deadline_ms: PATIENCE.as_millis() as u32,
            reply_max: 1 << 20,
        })
    };
    let create = VolumeRequest::Create(bed.wanted("v")).encode();
    let refused = ask("node", Kind::Volumes, create.clone()).unwrap_err();
    assert!(refused.to_string().contains("'node' may not administer"), "{refused}");
    ask("chief", Kind::Volumes, create).unwrap();
    let hello = forebay_protocol::Hello {
        volume: "v".to_owned(),
        token: None,
        session: forebay_cluster::SessionId(1),
        client: "a test".to_owned(),
        resumes: false,
    };
    // Whoever reads through a group knows its members' names.
    let name = Vouch::member(GroupId([1; 16]), MemberId([2; 16]), Incarnation([3; 16]));
    let as_member = forebay_protocol::Hello { token: Some(name.clone()), ..hello.clone() };
    let refused = ask("node", Kind::Hello, as_member.encode()).unwrap_err();
    assert!(refused.to_string().contains("'node' may not administer"), "{refused}");
    let volume = forebay_types::VolumeId([1; 16]);
    let vouch = |certificate: &str| Vouch {
        volume,
        token: Some(name.clone()),
        certificate: Some(certificate.to_owned()),
    };
    let refused = ask("chief", Kind::Vouch, vouch("node").encode()).unwrap_err();
    assert!(refused.to_string().contains("'node' may not administer, so it is no member"), "{refused}");
    let refused = ask("chief", Kind::Vouch, vouch("chief").encode()).unwrap_err();
    assert!(refused.to_string().contains("knows no member"), "{refused}");
    let refused = ask("chief", Kind::Hello, hello.encode()).unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused(refusal) if refusal.text.contains("a token is needed")),
        "{refused}"
    );
}
