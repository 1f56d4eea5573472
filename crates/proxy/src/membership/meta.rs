//! Asking metadata servers.

use std::time::Duration;

use bytes::Bytes;
use forebay_protocol::{Kind, Message, Refusal};
use forebay_rpc::{
    Address, Client, ClientConfig, Security,
    connection::{CallError, Outgoing},
    wire::{Code, Refusal as WireRefusal},
};

/// Bytes of an answer at most: a view of a few thousand members.
const REPLY_MAX: u32 = 1 << 20;
/// How long the first connection may take.
const CONNECT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetaError {
    /// Nobody answered, or cannot now: it may be asked again, and may have been done.
    #[error("{0}")]
    Unanswered(String),
    /// It is not done, now and later.
    #[error("{0}")]
    Refused(String),
    /// The servers are of an older release, which does not know the message.
    #[error("{0}")]
    Unsupported(String),
}

/// The metadata servers, any of which is asked.
#[derive(Clone, Debug)]
pub struct Meta {
    client: Client,
    names: String,
}

impl Meta {
    /// Connects to one of the servers, in the background, again and again.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(addresses: &[Address], security: &Security) -> std::io::Result<Meta> {
        let names: Vec<String> = addresses.iter().map(Address::to_string).collect();
        let client = Client::start(ClientConfig::new(addresses.to_vec(), security.clone()), None)?;
        Ok(Meta { client, names: names.join(", ") })
    }

    /// Waits for the first connection.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn wait(&self, stopped: &dyn Fn() -> bool) -> Result<(), String> {
        let began = std::time::Instant::now();
        while let Some(why) = self.client.down() {
            if began.elapsed() > CONNECT || stopped() {
                return Err(format!("no metadata server answers at {}: {why}", self.names));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Asks, in a thread that may wait.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn ask<T: Message>(&self, kind: Kind, message: &impl Message, wait_ms: u32) -> Result<T, MetaError> {
        let body = self.call(kind, message, wait_ms)?;
        T::decode(&body)
            .map_err(|error| MetaError::Refused(format!("the server's answer cannot be read: {error}")))
    }

    /// Asks for something that is answered by nothing.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn tell(&self, kind: Kind, message: &impl Message, wait_ms: u32) -> Result<(), MetaError> {
        self.call(kind, message, wait_ms).map(drop)
    }

    fn call(&self, kind: Kind, message: &impl Message, wait_ms: u32) -> Result<Bytes, MetaError> {
        let request = Outgoing {
            kind: kind as u16,
            body: message.encode().into(),
            bulk: Bytes::new(),
            deadline_ms: wait_ms,
            reply_max: REPLY_MAX,
        };
        match self.client.call_blocking(request) {
            Ok(reply) => Ok(reply.body),
            Err(CallError::Refused(refusal)) => Err(refused(&refusal)),
            Err(error) => Err(MetaError::Unanswered(format!("{}: {error}", self.names))),
        }
    }
}

fn refused(refusal: &WireRefusal) -> MetaError {
    if refusal.code == Code(Kind::REFUSED) {
        return match Refusal::decode(&refusal.detail) {
            Ok(Refusal::Unavailable(why)) => MetaError::Unanswered(why),
            Ok(refusal) => MetaError::Refused(refusal.to_string()),
            Err(error) => MetaError::Refused(format!("a refusal that cannot be read: {error}")),
        };
    }
    match refusal.code {
        Code::UNSUPPORTED => {
            MetaError::Unsupported("the metadata servers are of an older release, without this".to_owned())
        }
        Code::MALFORMED | Code::DENIED | Code::VERSION | Code::FEATURE => {
            MetaError::Refused(refusal.to_string())
        }
        _ => MetaError::Unanswered(refusal.to_string()),
    }
}
