//! A bucket of a real server: the one that `tools/s3-server` has, unless the environment names another.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use forebay_engine::{EngineError, EngineHost, Outcome};
use forebay_object::{ObjectStore, StoreOptions, StoreUrl};
use forebay_slate::SlateHost;
use forebay_testkit::relay::{Direction, Relay};

use crate::{
    contract::contract,
    fencing::the_last_that_opened_it_writes,
    owner::{Owner, settled},
    place::host,
    places::PATIENT,
};

/// Every so many bytes a commit's connection is cut.
const STRIDE: usize = 17;

struct Server {
    endpoint: String,
    bucket: String,
    extra: Vec<(String, String)>,
    /// Of the server that was started for this, and its directory.
    started: Option<(String, tempfile::TempDir)>,
}

fn tool() -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/s3-server");
    let mut command = Command::new(path);
    command.stderr(Stdio::inherit());
    command
}

impl Server {
    fn find() -> Option<Server> {
        if let Ok(endpoint) = env::var("FOREBAY_S3_ENDPOINT") {
            let bucket = env::var("FOREBAY_S3_BUCKET").expect("FOREBAY_S3_BUCKET must name a bucket");
            return Some(Server { endpoint, bucket, extra: Vec::new(), started: None });
        }
        let installed = tool().arg("path").output().ok()?;
        if !Path::new(String::from_utf8_lossy(&installed.stdout).trim()).exists() {
            println!(
                "NOT RUN: tools/s3-server install gets an S3 server for this, or FOREBAY_S3_ENDPOINT names one"
            );
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let output = tool().arg("start").arg(dir.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let value = |name: &str| {
            let found = said.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("no {name} in {said:?}")).to_owned()
        };
        std::fs::create_dir(dir.path().join("buckets/slate")).unwrap();
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        Some(Server {
            endpoint: value("AWS_ENDPOINT_URL"),
            bucket: "slate".to_owned(),
            extra: keys.map(|key| (key.to_lowercase(), value(key))).to_vec(),
            started: Some((value("S3_SERVER_PID"), dir)),
        })
    }

    fn open(&self, bucket: &str, prefix: &str) -> Result<SlateHost, EngineError> {
        self.open_at(&self.endpoint, bucket, prefix)
    }

    fn open_at(&self, endpoint: &str, bucket: &str, prefix: &str) -> Result<SlateHost, EngineError> {
        let url = StoreUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        let options = StoreOptions {
            endpoint: Some(endpoint.to_owned()),
            extra: self.extra.clone(),
            ..StoreOptions::default()
        };
        SlateHost::over(ObjectStore::open(&url, &options).unwrap(), PATIENT)
    }

    /// A prefix that no former run used.
    fn prefix(&self, test: &str) -> String {
        let id: [u8; 8] = forebay_env::random().unwrap();
        format!("{test}-{:x}", u64::from_be_bytes(id))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((pid, _)) = &self.started {
            tool().arg("stop").arg(pid).status().unwrap();
        }
    }
}

#[test]
fn a_bucket_keeps_the_contract() {
    let Some(server) = Server::find() else { return };
    let place = server.open(&server.bucket, &server.prefix("contract")).unwrap();
    contract(place.registry().unwrap().as_ref());
}

#[test]
fn a_bucket_is_a_place_with_one_writer_a_database() {
    let Some(server) = Server::find() else { return };
    let prefix = server.prefix("place");
    host(&|| Box::new(server.open(&server.bucket, &prefix).unwrap()));
    let prefix = server.prefix("fencing/deep");
    the_last_that_opened_it_writes(&|| Box::new(server.open(&server.bucket, &prefix).unwrap()));
}

#[test]
fn a_bucket_that_is_not_there_or_does_not_let_us_in_is_told() {
    let Some(mut server) = Server::find() else { return };
    let missing = server.open("no-such-bucket", "place").unwrap_err();
    assert!(matches!(missing, EngineError::Refused { .. }), "{missing}");
    assert!(missing.to_string().contains("create it, or correct the URL"), "{missing}");
    server.extra =
        vec![("aws_access_key_id".into(), "nobody".into()), ("aws_secret_access_key".into(), "wrong".into())];
    let stranger = server.open(&server.bucket, "place").unwrap_err();
    assert!(stranger.to_string().contains("AWS_ACCESS_KEY_ID"), "{stranger}");
}

/// The put of a commit is cut at every few bytes of what is said in either direction. It is tried again by itself, and what is said of the commit is true.
#[test]
fn whatever_byte_the_put_of_a_commit_is_cut_at_what_is_said_of_it_is_true() {
    let Some(server) = Server::find() else { return };
    // One that is not on this machine cannot be reached through the relay.
    let Some(port) = server.endpoint.strip_prefix("http://127.0.0.1:") else { return };
    let relay = Relay::new(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
    let through = format!("http://127.0.0.1:{}", relay.port());
    let prefix = server.prefix("cuts");
    let place = server.open_at(&through, &server.bucket, &prefix).unwrap();
    let mut engine = place.registry().unwrap();
    let mut owner = Owner::new();
    let (mut tried, mut cut, mut unknown) = (0, 0, 0);
    for direction in [Direction::ToServer, Direction::ToClient] {
        // At first, and now and then, something else is asked beside it.
        let whole = (0..20).map(|_| {
            let before = relay.carried(direction);
            assert_eq!(owner.next(|batch| engine.commit(batch)), Some(Outcome::Committed));
            relay.carried(direction) - before
        });
        let whole = whole.min().unwrap();
        assert!((100..5000).contains(&whole), "{whole} bytes of a put");
        for bytes in (0..=whole).step_by(STRIDE) {
            relay.cut_after(direction, bytes);
            owner.next(|batch| {
                let said = engine.commit(batch);
                (tried, cut) = (tried + 1, cut + u32::from(relay.has_cut()));
                relay.pass();
                match said {
                    Ok(Outcome::Unknown) => {
                        unknown += 1;
                        return Ok(settled(engine.as_ref(), batch));
                    }
                    Ok(Outcome::Fenced) => {
                        panic!("nobody else writes: cut after {bytes} bytes {direction:?}")
                    }
                    Ok(Outcome::Committed) | Err(_) => {}
                }
                said
            });
            owner.check(engine.as_ref());
            if unknown > 0 {
                // It may have taken its own object for another writer's.
                (engine, unknown) = (place.registry().unwrap(), 0);
            }
        }
    }
    assert!(cut > 20 && cut + 2 >= tried, "{cut} of {tried} were cut");
    drop(engine);
    owner.check(server.open(&server.bucket, &prefix).unwrap().registry().unwrap().as_ref());
}
