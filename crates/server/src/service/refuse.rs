//! Refusals as they go over the wire.

use forebay_protocol::{Kind, Message, Refusal};
use forebay_rpc::wire::{Code, Refusal as WireRefusal};

use crate::registry::RegistryError;

/// How long a client waits before it asks again where nobody owns a volume yet, in milliseconds.
const NOBODY_YET_MS: u32 = 200;

/// Why a request is not answered as its caller wished.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) WireRefusal);

impl From<WireRefusal> for Refused {
    fn from(refusal: WireRefusal) -> Refused {
        Refused(refusal)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let (text, detail) = (refusal.to_string(), refusal.encode());
        Refused(match refusal {
            Refusal::NotOwner { address: Some(address) } => {
                WireRefusal::new(Code::NOT_OWNER, text).redirected(address).detailed(detail)
            }
            Refusal::NotOwner { address: None } => {
                let refusal = WireRefusal::new(Code::NOT_OWNER, text).detailed(detail);
                WireRefusal { retry_after_ms: NOBODY_YET_MS, ..refusal }
            }
            _ => WireRefusal::new(Code(Kind::REFUSED), text).detailed(detail),
        })
    }
}

impl From<RegistryError> for Refused {
    fn from(error: RegistryError) -> Refused {
        Refusal::Unavailable(error.to_string()).into()
    }
}
