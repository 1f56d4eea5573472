use std::{fmt, path::PathBuf};

use forebay_rpc::Security;
use forebay_types::VolumeId;

/// Who reads, for servers and proxies.
#[derive(Clone)]
pub struct Reader {
    /// The volume.
    pub volume: String,
    /// Its number.
    pub id: VolumeId,
    /// The secret of a token for it.
    pub token: Option<String>,
    /// What it calls itself, for people.
    pub client: String,
    /// Where proxies of its machine listen: a member that is reached there is asked first.
    pub here: Vec<PathBuf>,
    /// How connections to members are protected.
    pub security: Security,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {})", self.client, self.volume)
    }
}
