//! Credentials for S3 that can be renewed while a volume is mounted.
//!
//! The first that is there is used: the keys that were given when the store was opened (options or environment), else the profile in
//! the credentials file. The file is looked at before each request, one `stat`, and read when it changed; after a refusal it is read in
//! any case, and from then on it wins over keys that were given, because those cannot be renewed.

use std::{
    fmt, fs,
    future::Future,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use object_store::{CredentialProvider, aws::AwsCredential};
use parking_lot::Mutex;

use super::profile;

/// Tells versions of the file apart: time, size, inode.
type FileVersion = (i64, i64, u64, u64);

#[derive(Default)]
struct State {
    current: Option<Arc<AwsCredential>>,
    from_file: bool,
    version: Option<FileVersion>,
    /// Grows with each new credential.
    stamp: u64,
}

/// A credential that follows its file.
pub(super) struct Credentials {
    file: Option<PathBuf>,
    profile: String,
    state: Mutex<State>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, profile {})", self.file, self.profile)
    }
}

impl Credentials {
    /// With keys that were given, if any, and the file that may replace them.
    pub(super) fn new(given: Option<AwsCredential>, file: Option<PathBuf>, profile: String) -> Credentials {
        let state = State { current: given.map(Arc::new), stamp: 1, ..State::default() };
        let credentials = Credentials { file, profile, state: Mutex::new(state) };
        {
            let mut state = credentials.state.lock();
            if state.current.is_none() {
                credentials.read(&mut state, true);
            }
        }
        credentials
    }

    /// Whether there is one now.
    pub(super) fn is_some(&self) -> bool {
        self.state.lock().current.is_some()
    }

    /// Which credential the next request uses.
    pub(super) fn stamp(&self) -> u64 {
        let mut state = self.state.lock();
        self.follow(&mut state);
        state.stamp
    }

    /// The credential of this stamp was refused. Whether another is there now.
    pub(super) fn refused(&self, stamp: u64) -> bool {
        let mut state = self.state.lock();
        if state.stamp == stamp {
            self.read(&mut state, true);
        }
        state.stamp != stamp
    }

    fn follow(&self, state: &mut State) {
        if state.from_file || state.current.is_none() {
            self.read(state, false);
        }
    }

    /// Takes up what the file says. One that is missing, or half written, changes nothing.
    fn read(&self, state: &mut State, anyway: bool) {
        let Some(file) = &self.file else { return };
        let version = version(file);
        if version.is_none() || (!anyway && version == state.version) {
            return;
        }
        let Some(keys) = fs::read_to_string(file).ok().and_then(|text| profile::find(&text, &self.profile))
        else {
            return;
        };
        let (key_id, secret_key, token) = keys;
        let fresh = AwsCredential { key_id, secret_key, token };
        state.version = version;
        if state.current.as_deref() == Some(&fresh) {
            return;
        }
        if state.current.is_some() {
            tracing::info!(file = %file.display(), profile = self.profile, "took up a new credential");
        }
        state.current = Some(Arc::new(fresh));
        state.from_file = true;
        state.stamp += 1;
    }

    fn current(&self) -> Result<Arc<AwsCredential>, object_store::Error> {
        let mut state = self.state.lock();
        self.follow(&mut state);
        state.current.clone().ok_or_else(|| {
            let file = self.file.as_deref().unwrap_or(Path::new("~/.aws/credentials")).display();
            object_store::Error::Unauthenticated {
                path: String::new(),
                source: format!(
                    "neither AWS_ACCESS_KEY_ID nor the profile {} in {file} is there",
                    self.profile
                )
                .into(),
            }
        })
    }
}

fn version(file: &Path) -> Option<FileVersion> {
    let meta = fs::metadata(file).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
}

impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    fn get_credential<'life0, 'async_trait>(
        &'life0 self,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<AwsCredential>, object_store::Error>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async { self.current() })
    }
}
