use std::{fmt, net::IpAddr};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Who the peer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// It has a certificate of our authority.
    Certificate(Subject),
    /// The kernel says who it is.
    Local {
        /// Its user.
        uid: u32,
        /// Its process.
        pid: i32,
    },
    /// Anybody on this machine.
    Unproven,
}

/// What a certificate says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// The common name.
    pub name: String,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Numbers of hosts.
    pub ips: Vec<IpAddr>,
    /// The serial number, in hexadecimal.
    pub serial: String,
    /// When it ends: seconds since 1970.
    pub ends: i64,
}

impl Subject {
    /// What a certificate in DER says; nothing if it is none.
    #[must_use]
    pub fn of(der: &[u8]) -> Option<Subject> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let name = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let mut subject = Subject {
            name: name.unwrap_or_default().to_owned(),
            serial: certificate.raw_serial_as_string(),
            ends: certificate.validity().not_after.timestamp(),
            ..Subject::default()
        };
        let names = certificate.subject_alternative_name().ok()?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(host) => subject.hosts.push((*host).to_owned()),
                GeneralName::IPAddress(bytes) => subject.ips.extend(ip(bytes)),
                _ => {}
            }
        }
        Some(subject)
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Certificate(subject) => write!(to, "'{}'", subject.name),
            Identity::Local { uid, pid } => write!(to, "process {pid} of user {uid}"),
            Identity::Unproven => to.write_str("an unproven peer"),
        }
    }
}
