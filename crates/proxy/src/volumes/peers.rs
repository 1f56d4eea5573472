//! Connections to other members of the group, for copies.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_protocol::{
    Kind, Message,
    group::{Copied, Greet, Seal, SegmentAnswer, Taken, Vouch},
};
use forebay_rpc::{
    Address, Client, ClientConfig, Security,
    connection::{Outgoing, Reply},
};
use forebay_types::VolumeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// How long another member may take for one message, in milliseconds.
const ANSWER_MS: u32 = 10_000;
/// Bytes of an answer at most.
const REPLY_MAX: u32 = 64 << 10;
/// How long a first connection may take.
const CONNECT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Other members, as this one reaches them. Shared by all sessions.
pub struct Peers {
    group: GroupId,
    member: MemberId,
    security: Security,
    /// By address and volume: a connection is for one volume.
    links: Mutex<FxHashMap<(String, VolumeId), Arc<Client>>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peers({} connections)", self.links.lock().len())
    }
}

impl Peers {
    /// Nobody yet.
    #[must_use]
    pub fn new((group, member): (GroupId, MemberId), security: Security) -> Peers {
        Peers { group, member, security, links: Mutex::default() }
    }

    /// Gives the member at `address` a sealed segment of a volume, as this process, and waits until it has all of it on stable storage. Blocks.
    ///
    /// # Errors
    /// Why it has not, in words.
    pub fn copy(
        &self,
        address: &str,
        (incarnation, volume): (Incarnation, VolumeId),
        seal: &Seal,
        bytes: Bytes,
    ) -> Result<(), String> {
        let key = (address.to_owned(), volume);
        let client = self.client(&key)?;
        let copied = self.copy_over(&client, (incarnation, volume), seal, bytes);
        if copied.is_err() {
            // Another connection next time: this one may be to a process that is gone.
            self.links.lock().remove(&key);
        }
        copied
    }

    fn client(&self, key: &(String, VolumeId)) -> Result<Arc<Client>, String> {
        if let Some(client) = self.links.lock().get(key) {
            return Ok(Arc::clone(client));
        }
        let address: Address =
            key.0.parse().map_err(|error| format!("'{}' is no address: {error}", key.0))?;
        let config = ClientConfig::new(vec![address], self.security.clone());
        let client = Client::start(config, None).map_err(|error| error.to_string())?;
        let began = Instant::now();
        while let Some(why) = client.down() {
            if began.elapsed() > CONNECT {
                return Err(format!("the proxy at {} is not reached: {why}", key.0));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let client = Arc::new(client);
        self.links.lock().insert(key.clone(), Arc::clone(&client));
        Ok(client)
    }

    fn copy_over(
        &self,
        client: &Client,
        (incarnation, volume): (Incarnation, VolumeId),
        seal: &Seal,
        bytes: Bytes,
    ) -> Result<(), String> {
        let greet = Greet {
            group: self.group,
            volume,
            token: Some(Vouch::member(self.group, self.member, incarnation)),
            client: format!("member {}", self.member),
        };
        // Each time: the connection comes back by itself, and nobody there knows who asks then.
        call(client, Kind::Greet, &greet, Bytes::new())?;
        let reply = call(client, Kind::Copy, &Copied { seal: *seal }, bytes)?;
        let taken = Taken::decode(&reply.body).map_err(|error| error.to_string())?;
        match taken.parts.as_slice() {
            [SegmentAnswer::Synced { end }] if *end == seal.len => Ok(()),
            [SegmentAnswer::Refused(why)] => Err(why.to_string()),
            other => Err(format!("{other:?} to a copy")),
        }
    }
}

fn call(client: &Client, kind: Kind, message: &impl Message, bulk: Bytes) -> Result<Reply, String> {
    let (kind, body) = (kind as u16, message.encode().into());
    let request = Outgoing { kind, body, bulk, deadline_ms: ANSWER_MS, reply_max: REPLY_MAX };
    client.call_blocking(request).map_err(|error| error.to_string())
}
