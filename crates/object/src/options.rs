//! How a store is reached and how long a call waits for it.

use std::{path::PathBuf, time::Duration};

/// How long a call goes on when the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Patience {
    /// Somebody waits: mount, probe, a read. About 10 s in all.
    Quick,
    /// Nobody waits: uploads, checkpoints, garbage. About 60 s in all.
    #[default]
    Patient,
}

/// The numbers behind a [`Patience`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// No new attempt begins this long after the first.
    pub total: Duration,
    /// One attempt may take this long, and a second more for each 512 KiB it moves; the answer to a read begins without that second.
    pub attempt: Duration,
    /// The wait before the second attempt; it doubles with each one after that, and up to half of it is taken off at random.
    pub first_wait: Duration,
    /// No single wait is longer.
    pub longest_wait: Duration,
}

impl Limits {
    /// Of [`Patience::Quick`].
    pub const QUICK: Limits = Limits {
        total: Duration::from_secs(10),
        attempt: Duration::from_secs(5),
        first_wait: Duration::from_millis(100),
        longest_wait: Duration::from_secs(2),
    };
    /// Of [`Patience::Patient`].
    pub const PATIENT: Limits = Limits {
        total: Duration::from_mins(1),
        attempt: Duration::from_secs(20),
        first_wait: Duration::from_millis(200),
        longest_wait: Duration::from_secs(10),
    };
}

/// How to reach a store. What is not given here is taken from the environment variables that each store's own tools use.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The address of a service that is not the provider's own, such as `https://minio.example:9000`; for Azure with what stands
    /// before the container in its URLs.
    pub endpoint: Option<String>,
    /// The region that requests are signed for; `us-east-1` when neither this nor the environment says another.
    pub region: Option<String>,
    /// Whether an endpoint may be spoken to without encryption. One on this machine always may.
    pub allow_http: bool,
    /// Whether the bucket is in the path of a URL (`true`) or in the host name. By default in the path where an endpoint is given.
    pub path_style: Option<bool>,
    /// The credentials file, instead of what `AWS_SHARED_CREDENTIALS_FILE` names, or `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// The profile in it, instead of what `AWS_PROFILE` names, or `default`.
    pub profile: Option<String>,
    /// Further settings by the names of the crate `object_store`, such as `("aws_sse_kms_key_id", "…")`.
    pub extra: Vec<(String, String)>,
    /// Directory stores only: make the directory where it is missing.
    pub create_directory: bool,
    /// The patience that the store starts with.
    pub patience: Patience,
    /// At most so many requests at a time.
    pub concurrency: usize,
    /// What [`Patience::Quick`] means.
    pub quick: Limits,
    /// What [`Patience::Patient`] means.
    pub patient: Limits,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            endpoint: None,
            region: None,
            allow_http: false,
            path_style: None,
            credentials_file: None,
            profile: None,
            extra: Vec::new(),
            create_directory: false,
            patience: Patience::default(),
            concurrency: 64,
            quick: Limits::QUICK,
            patient: Limits::PATIENT,
        }
    }
}

impl StoreOptions {
    pub(crate) fn limits(&self, patience: Patience) -> Limits {
        match patience {
            Patience::Quick => self.quick,
            Patience::Patient => self.patient,
        }
    }
}
