use forebay_engine::EngineError;
use forebay_meta::MetaError;
use forebay_owner::OpenError;
use forebay_rpc::BindError;

use crate::registry::RegistryError;

/// Why a metadata server does not run. Its text is a line for a person.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The registry cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A volume's rows cannot be read.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// A volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses.
    #[error("the system refuses: {0}")]
    Io(#[from] std::io::Error),
    /// Another server lives at the same address.
    #[error(
        "another metadata server of {place} says that it is reached at {address}: give each an address of its own with --advertise"
    )]
    Twin {
        /// Where both are members.
        place: String,
        /// The address.
        address: String,
    },
    /// Anything else, a sentence already.
    #[error("{0}")]
    Told(String),
}
