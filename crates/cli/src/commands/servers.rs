//! Asking metadata servers, for the commands that administer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_protocol::{Kind, Message, Refusal};
use forebay_rpc::{
    Address, CertificateFiles, Client, ClientConfig, Credentials, Security,
    connection::{CallError, Outgoing},
    wire::{Code, Refusal as WireRefusal},
};

use crate::{
    args::{ServersArgs, TlsArgs},
    error::CliError,
};

/// How long it may take until a server is connected.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take, in milliseconds: making a volume tries its store out.
const ANSWER_MS: u32 = 120_000;
/// How long no server need answer a command that watches something: another one may be taking over.
pub(crate) const UNHEARD: Duration = Duration::from_secs(60);
/// How long a volume may have no owner until that is said.
const OWNERLESS: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How connections are protected, as the flags say.
pub(crate) fn security(tls: &TlsArgs) -> Result<Security, CliError> {
    let (Some(authority), Some(certificate), Some(key)) = (&tls.tls_ca, &tls.tls_cert, &tls.tls_key) else {
        return Ok(Security::Insecure);
    };
    let files =
        CertificateFiles { authority: authority.clone(), certificate: certificate.clone(), key: key.clone() };
    Ok(Security::Tls(Credentials::load(files).map_err(|error| CliError::Told(error.to_string()))?))
}

/// What the commands that a hint names need besides, if they listen or mount: servers that are asked over the network without TLS serve none but such as
/// were told `--insecure`. Nothing is known of that behind a Unix socket.
pub(crate) fn insecure(args: &ServersArgs) -> &'static str {
    let networked = args.meta.first().is_some_and(|server| matches!(server, Address::Tcp { .. }));
    if networked && args.tls.tls_ca.is_none() { " --insecure" } else { "" }
}

/// The metadata servers that a command asks.
pub(crate) struct Servers {
    addresses: Vec<Address>,
    security: Security,
}

impl Servers {
    pub(crate) fn of(args: &ServersArgs) -> Result<Servers, CliError> {
        Ok(Servers { addresses: args.meta.clone(), security: security(&args.tls)? })
    }

    /// Asks one of the servers, and the one that it names if that is another.
    pub(crate) fn ask<T: Message>(&self, kind: Kind, body: Vec<u8>) -> Result<T, CliError> {
        let began = Instant::now();
        let mut addresses = self.addresses.clone();
        loop {
            let error = match self.ask_at(&addresses, kind, &body)? {
                Ok(body) => {
                    return T::decode(&body).map_err(|error| {
                        CliError::Told(format!("the server's answer cannot be read: {error}"))
                    });
                }
                Err(error) => error,
            };
            match error {
                CallError::Refused(refusal)
                    if matches!(refusal.code, Code::NOT_OWNER | Code::BUSY)
                        && began.elapsed() < OWNERLESS =>
                {
                    addresses = match refusal.redirect.parse() {
                        Ok(address) => vec![address],
                        Err(_) => self.addresses.clone(),
                    };
                    std::thread::sleep(LOOK_EVERY * 10);
                }
                error => return Err(CliError::Told(told(&error))),
            }
        }
    }

    /// Asks the server at this address alone, once.
    pub(crate) fn ask_one<T: Message>(&self, address: &str, kind: Kind, body: &[u8]) -> Result<T, CliError> {
        let address =
            address.parse::<Address>().map_err(|error| CliError::Told(format!("'{address}': {error}")))?;
        let body = self.ask_at(&[address], kind, body)?.map_err(|error| CliError::Told(told(&error)))?;
        T::decode(&body)
            .map_err(|error| CliError::Told(format!("the server's answer cannot be read: {error}")))
    }

    fn ask_at(
        &self,
        addresses: &[Address],
        kind: Kind,
        body: &[u8],
    ) -> Result<Result<Bytes, CallError>, CliError> {
        let client = connect(addresses, &self.security, CONNECT)?;
        let request = Outgoing {
            kind: kind as u16,
            body: body.to_vec().into(),
            bulk: Bytes::new(),
            deadline_ms: ANSWER_MS,
            reply_max: 1 << 20,
        };
        Ok(client.call_blocking(request).map(|reply| reply.body))
    }
}

/// A connection to one of the servers, which may take `patience` to come. A certificate that does not fit will not fit later: that is said after some seconds.
///
/// # Errors
/// No server answers; the message says why.
pub(crate) fn connect(
    addresses: &[Address],
    security: &Security,
    patience: Duration,
) -> Result<Client, CliError> {
    let names: Vec<String> = addresses.iter().map(Address::to_string).collect();
    let client = Client::start(ClientConfig::new(addresses.to_vec(), security.clone()), None)
        .map_err(|error| CliError::Told(format!("there can be no thread to ask a server: {error}")))?;
    let began = Instant::now();
    while let Some(why) = client.down() {
        let stays = ["certificate", "TLS", "version", "protocol"].iter().any(|word| why.contains(word));
        if began.elapsed() >= if stays { CONNECT } else { patience } {
            let ask = match security {
                Security::Insecure if why.contains("protocol") => {
                    "; a server with TLS asks for --tls-ca, --tls-cert and --tls-key"
                }
                _ if stays => "",
                _ => "; is `forebay meta` running there?",
            };
            return Err(CliError::Told(format!(
                "no metadata server answers at {}: {why}{ask}",
                names.join(", ")
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(client)
}

/// What a refusal says, in a line.
fn told(error: &CallError) -> String {
    match error {
        CallError::Refused(WireRefusal { code, detail, .. }) if *code == Code(Kind::REFUSED) => {
            match Refusal::decode(detail) {
                Ok(Refusal::NoVolume(name)) => {
                    format!("there is no volume '{name}': `forebay volume list` shows those that there are")
                }
                Ok(refusal) => refusal.to_string(),
                Err(_) => error.to_string(),
            }
        }
        CallError::Refused(refusal) if refusal.code == Code::NOT_OWNER => {
            "no server owns the volume now: `forebay meta status` shows which servers there are; try again in some seconds".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        servers: ServersArgs,
    }

    #[test]
    fn who_asks_over_the_network_without_tls_is_told_to_listen_and_mount_so() {
        let tls = ["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"];
        let hint = |at: &str, tls: &[&str]| {
            let mut words = vec!["forebay", "--meta", at];
            words.extend(tls);
            insecure(&Given::try_parse_from(words).unwrap().servers)
        };
        assert_eq!(hint("127.0.0.1:7300,unix:/run/meta.sock", &[]), " --insecure");
        assert_eq!(hint("127.0.0.1:7300", &tls), "");
        assert_eq!(hint("unix:/run/meta.sock", &[]), "", "others may well ask it with TLS");
    }
}
