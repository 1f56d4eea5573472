//! What went wrong, in the engine's words.

use std::error::Error;

use forebay_engine::EngineError;
use forebay_object::{ErrorKind, ObjectError};
use slatedb::{CloseReason, ErrorKind as Kind};

/// Of a request that the host itself made.
pub(crate) fn of_store(place: &str, error: &ObjectError) -> EngineError {
    let (place, detail) = (place.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::Throttled => EngineError::Unreachable { place, detail },
        ErrorKind::Unauthenticated
        | ErrorKind::Denied
        | ErrorKind::NoBucket
        | ErrorKind::Unsupported { .. } => EngineError::Refused { place, detail },
        ErrorKind::NoSpace => EngineError::NoSpace { place },
        ErrorKind::Corrupt => EngineError::Damaged { place, detail },
        _ => EngineError::Failed { place, detail },
    }
}

/// Of SlateDB.
pub(crate) fn of_slate(place: &str, error: &slatedb::Error) -> EngineError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(one) = cause {
        match one.downcast_ref::<ObjectError>() {
            Some(error) if error.kind() != ErrorKind::NotFound => return of_store(place, error),
            _ => cause = one.source(),
        }
    }
    let (place, detail) = (place.to_owned(), error.to_string());
    match error.kind() {
        Kind::Unavailable => EngineError::Unreachable { place, detail },
        Kind::Data if detail.contains("format version") => {
            let detail = format!("{detail}: another release wrote it");
            EngineError::Failed { place, detail }
        }
        Kind::Data => EngineError::Damaged { place, detail },
        Kind::Closed(CloseReason::Fenced) => EngineError::Locked { place },
        _ => EngineError::Failed { place, detail },
    }
}

/// Nothing came in time.
pub(crate) fn too_late(place: &str, last: Option<String>) -> EngineError {
    let detail = last.unwrap_or_else(|| "the store does not answer".to_owned());
    EngineError::Unreachable { place: place.to_owned(), detail }
}
