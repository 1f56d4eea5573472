//! What a server says when it does not do what was asked, and what that means.

use std::{error::Error as _, io::ErrorKind};

use tokio_postgres::error::Severity;

use crate::EngineError;

/// How connections end that had nothing wrong with them.
const ENDS: [ErrorKind; 4] = [
    ErrorKind::UnexpectedEof,
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::BrokenPipe,
];

/// Why a request was not answered as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The server refused it, and said so. `last`: it hung up with that.
    Said { code: String, message: String, last: bool },
    /// Nothing is known: the connection broke, or there was no answer in time.
    Lost(String),
    /// TLS was not agreed on.
    Tls(String),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        if let Some(said) = error.as_db_error() {
            let last =
                said.parsed_severity().map_or(said.severity() != "ERROR", |how| how != Severity::Error);
            return Trouble::Said {
                code: said.code().code().to_owned(),
                message: said.message().to_owned(),
                last,
            };
        }
        let (mut text, mut cause) = (error.to_string(), error.source());
        let mut broke = false;
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            broke |= inner.downcast_ref::<std::io::Error>().is_some_and(|error| ENDS.contains(&error.kind()));
            cause = inner.source();
        }
        if broke {
            // Also said of TLS: a server that is killed does not say good-bye.
            Trouble::Lost(text)
        } else if text.contains("TLS") || text.contains("certificate") {
            Trouble::Tls(text)
        } else {
            Trouble::Lost(text)
        }
    }
}

impl Trouble {
    /// Whether the connection can be used no more.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Trouble::Said { last, code, .. } => *last || code == "25006",
            Trouble::Lost(_) | Trouble::Tls(_) => true,
        }
    }

    /// Whether the same may succeed soon, on another connection.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            // Servers that start, stop, are full of connections or stand by; conflicts.
            Trouble::Said { code, .. } => {
                ["57P0", "08", "40", "533"].iter().any(|class| code.starts_with(class)) || code == "25006"
            }
            Trouble::Lost(_) => true,
            Trouble::Tls(_) => false,
        }
    }

    /// Whether a COMMIT that ended so changed nothing for certain.
    pub(super) fn undid(&self) -> bool {
        let certain = ["40001", "40P01", "23", "53100", "55P03"];
        matches!(self, Trouble::Said { code, last: false, .. } if certain.iter().any(|class| code.starts_with(class)))
    }

    pub(super) fn has_code(&self, wanted: &str) -> bool {
        matches!(self, Trouble::Said { code, .. } if code == wanted)
    }

    /// The error for the caller.
    pub(super) fn explain(self, place: &str) -> EngineError {
        let place = place.to_owned();
        let (code, message) = match self {
            Trouble::Lost(detail) => return EngineError::Unreachable { place, detail },
            Trouble::Tls(detail) => {
                let detail = format!(
                    "{detail}; sslrootcert=FILE names the authority of its certificate, sslmode=disable goes without TLS"
                );
                return EngineError::Refused { place, detail };
            }
            Trouble::Said { code, message, .. } => (code, message),
        };
        let said = format!("{message} (SQLSTATE {code})");
        match code.as_str() {
            "53100" => EngineError::NoSpace { place },
            "3D000" => EngineError::Refused { place, detail: format!("{said}; make it with `createdb`") },
            "42501" => EngineError::Refused {
                place,
                detail: format!("{said}; the role needs CREATE on the database, and its own tables"),
            },
            "XX001" | "XX002" => EngineError::Damaged { place, detail: said },
            "25006" => EngineError::Unreachable {
                place,
                detail: format!("{said}; this is a standby, no primary was found"),
            },
            "57014" | "55P03" => EngineError::Unreachable { place, detail: said },
            code if code.starts_with("28") => {
                EngineError::Refused { place, detail: format!("{said}; look at the user and the password") }
            }
            code if ["08", "40", "53", "57P0"].iter().any(|class| code.starts_with(class)) => {
                EngineError::Unreachable { place, detail: said }
            }
            _ => EngineError::Failed { place, detail: said },
        }
    }
}
