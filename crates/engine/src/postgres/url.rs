//! `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST…]/DATABASE[?…]`, with the parameters of libpq, as far as they make sense here.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

/// After so long without an answer on the network a connection is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// Where a PostgreSQL server is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct PostgresUrl {
    pub(super) config: Config,
    /// `None`: without TLS.
    pub(super) tls: Option<Trust>,
}

/// Whose certificates are believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Those of the system's authorities.
    System,
    /// Those of the authorities in a PEM file.
    File(PathBuf),
}

impl PostgresUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(url: &str) -> Result<PostgresUrl, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut mode, mut roots) = (Vec::new(), None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => roots = Some(PathBuf::from(decoded(value)?)),
                _ => kept.push(parameter),
            }
        }
        let rest = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            format!("{error}{why}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err("the host is missing: write postgres://USER@HOST/DATABASE, or \
                        postgres://USER@%2Frun%2Fpostgresql/DATABASE for a socket in /run/postgresql"
                .into());
        }
        if config.get_dbname().is_none() {
            return Err("the database is missing: write postgres://USER@HOST/DATABASE".into());
        }
        if config.get_user().is_none() {
            return Err("the user is missing: write postgres://USER@HOST/DATABASE".into());
        }
        let tls = match mode.as_deref() {
            Some("disable") => None,
            Some("require" | "verify-ca" | "verify-full") => Some(trust(roots)),
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is not offered: verify-full checks the server's certificate, disable goes without TLS"
                ));
            }
            None => (roots.is_some() || !is_local(&config)).then(|| trust(roots)),
        };
        config
            .ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable })
            .application_name("forebay")
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3)
            .tcp_user_timeout(SILENCE);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(SILENCE);
        }
        Ok(PostgresUrl { config, tls })
    }

    /// The address without its password.
    pub(super) fn place(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let names: Vec<String> = if config.get_hosts().is_empty() {
            config.get_hostaddrs().iter().map(IpAddr::to_string).collect()
        } else {
            config.get_hosts().iter().map(shown).collect()
        };
        let hosts: Vec<_> =
            names.iter().enumerate().map(|(at, name)| format!("{name}:{}", port(at))).collect();
        let (user, database) =
            (config.get_user().unwrap_or_default(), config.get_dbname().unwrap_or_default());
        format!("postgres://{user}@{}/{database}", hosts.join(","))
    }
}

fn trust(roots: Option<PathBuf>) -> Trust {
    roots.map_or(Trust::System, Trust::File)
}

fn shown(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(dir) => dir.display().to_string(),
    }
}

/// Whether nothing of what is said leaves this machine.
fn is_local(config: &Config) -> bool {
    let loopback =
        |name: &str| name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    config.get_hostaddrs().iter().all(IpAddr::is_loopback)
        && config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => loopback(name),
            Host::Unix(dir) => Path::new(dir).is_absolute(),
        })
}

fn decoded(value: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let digits = [(); 2].map(|()| if byte == b'%' { rest.next() } else { None });
        match digits {
            [Some(high), Some(low)] => {
                let number =
                    std::str::from_utf8(&[high, low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.push(number.ok_or_else(|| format!("{value:?} has a % without two digits"))?);
            }
            _ if byte == b'%' => return Err(format!("{value:?} has a % without two digits")),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("{value:?} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood_and_shown_without_the_password() {
        let url =
            PostgresUrl::parse("postgres://me:secret@db1:5433,db2:5434/files?connect_timeout=3").unwrap();
        assert_eq!(url.place(), "postgres://me@db1:5433,db2:5434/files");
        assert_eq!(url.tls, Some(Trust::System), "what leaves the machine is encrypted");
        assert!(!format!("{url:?}").contains("secret"));
        for local in
            ["postgres://me@localhost/x", "postgres://me@127.0.0.1/x", "postgresql://me@%2Frun%2Fpg/x"]
        {
            assert_eq!(PostgresUrl::parse(local).unwrap().tls, None, "{local}");
        }
        let file =
            PostgresUrl::parse("postgres://me@db/x?sslmode=verify-full&sslrootcert=%2Fa%20b.pem").unwrap();
        assert_eq!(file.tls, Some(Trust::File("/a b.pem".into())));
        assert_eq!(PostgresUrl::parse("postgres://me@db/x?sslmode=disable").unwrap().tls, None);
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        for (url, what) in [
            ("postgres://me@/x", "host is missing"),
            ("postgres://me@host", "database is missing"),
            ("postgres://host/x", "user is missing"),
            ("postgres://me@host/x?sslmode=prefer", "sslmode=prefer"),
            ("postgres://me@host:port/x", "postgres://USER"),
            ("postgres://me@host/x?nonsense=1", "nonsense"),
            ("postgres://me@host/x?sslrootcert=%2", "without two digits"),
        ] {
            let error = PostgresUrl::parse(url).unwrap_err();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}
