use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

/// The port where none is named.
pub const PORT_DEFAULT: u16 = 7300;

/// Where a server listens: `HOST`, `HOST:PORT`, `[IPv6]:PORT`, or `unix:/PATH`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp {
        /// The host; an IPv6 number without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// Not an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not an address: HOST, HOST:PORT, [IPv6]:PORT or unix:/PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(wrong()) };
        }
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Address::Tcp { host: text.to_owned(), port: PORT_DEFAULT });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') && !host.starts_with('[') => return Err(wrong()),
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (text, PORT_DEFAULT),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or_else(wrong)?;
                inner.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                inner
            }
            None => host,
        };
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(named) {
            return Err(wrong());
        }
        Ok(Address::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(to, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(to, "{host}:{port}"),
            Address::Unix(path) => write!(to, "unix:{}", path.display()),
        }
    }
}

/// Whether a number reaches only this machine.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (text, written) in [
            ("a.example", "a.example:7300"),
            ("a.example:1", "a.example:1"),
            ("10.0.0.1:65535", "10.0.0.1:65535"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:7300"),
            ("::1", "[::1]:7300"),
            ("unix:/run/a b", "unix:/run/a b"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse(), Ok(address));
        }
        for wrong in [
            "", ":1", "a:", "a:b", "a:70000", "a:-1", "unix:", "unix:x", "[::1", "[a]:1", "a b", "a:1:2",
            "http://a",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
