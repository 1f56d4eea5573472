use std::{io, path::Path};

use crate::EngineError;

/// What an error of fjall's means to the caller.
pub(super) fn explain(place: &Path, error: fjall::Error) -> EngineError {
    let place = place.display().to_string();
    let io = |error: &io::Error, place: &String| {
        is_full(error).then(|| EngineError::NoSpace { place: place.clone() })
    };
    match &error {
        fjall::Error::Locked => EngineError::Locked { place },
        fjall::Error::Io(source) => {
            io(source, &place).unwrap_or_else(|| EngineError::Failed { place, detail: source.to_string() })
        }
        fjall::Error::Poisoned => EngineError::Failed {
            place,
            detail: "an earlier write failed, so it takes no more until it is opened again".into(),
        },
        fjall::Error::JournalRecovery(_)
        | fjall::Error::InvalidVersion(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Unrecoverable => EngineError::Damaged { place, detail: error.to_string() },
        fjall::Error::Storage(inner) => explain_storage(place, inner),
        _ => EngineError::Failed { place, detail: error.to_string() },
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn explain_storage(place: String, error: &(dyn std::error::Error + 'static)) -> EngineError {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(source) = inner.downcast_ref::<io::Error>() {
            if is_full(source) {
                return EngineError::NoSpace { place };
            }
            return EngineError::Failed { place, detail: source.to_string() };
        }
        cause = inner.source();
    }
    EngineError::Damaged { place, detail: error.to_string() }
}
