use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};

use super::Subject;

const ALPN: &[u8] = b"forebay/1";

/// Where a side's certificates are, in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The authorities whose certificates are believed.
    pub authority: PathBuf,
    /// This side's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file has something else in it.
    #[error("'{}' has no {what} in PEM: {detail}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The parts do not fit together.
    #[error("the certificate '{}' cannot be used: {detail}", path.display())]
    Unusable {
        /// The certificate.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// It is too late for it.
    #[error("the certificate '{}' of '{name}' has expired: issue a new one, for example with `forebay pki issue`", path.display())]
    Expired {
        /// The certificate.
        path: PathBuf,
        /// Its subject.
        name: String,
    },
}

/// A side's certificates, as the files have them: a changed file is seen at the next handshake. Connections that are there go on. If what the files have
/// then cannot be used, that is logged once, and the certificates before are used on.
#[derive(Debug)]
pub struct Credentials {
    files: CertificateFiles,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamp: Stamp,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    subject: Subject,
    warned: bool,
}

/// Size, time and inode of each file.
type Stamp = [Option<(u64, Option<SystemTime>, u64)>; 3];

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them; an expired certificate too.
    pub fn load(files: CertificateFiles) -> Result<Arc<Credentials>, TlsError> {
        let loaded = load(&files)?;
        if loaded.subject.ends < now() {
            return Err(TlsError::Expired { path: files.certificate, name: loaded.subject.name });
        }
        Ok(Arc::new(Credentials { files, loaded: Mutex::new(loaded) }))
    }

    /// What this side's certificate says.
    #[must_use]
    pub fn subject(&self) -> Subject {
        self.fresh().0
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.fresh().1
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.fresh().2
    }

    fn fresh(&self) -> (Subject, Arc<ServerConfig>, Arc<ClientConfig>) {
        let mut loaded = self.loaded.lock();
        let stamp = stamp(&self.files);
        if stamp != loaded.stamp {
            match load(&self.files) {
                Ok(new) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "certificates were read again");
                    *loaded = new;
                }
                Err(error) => {
                    tracing::warn!("changed certificates are not used, those before are: {error}");
                    loaded.stamp = stamp;
                }
            }
        }
        let expired = loaded.subject.ends < now();
        if expired && !loaded.warned {
            let path = self.files.certificate.clone();
            tracing::error!("{}", TlsError::Expired { path, name: loaded.subject.name.clone() });
        }
        loaded.warned = expired;
        (loaded.subject.clone(), loaded.server.clone(), loaded.client.clone())
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn stamp(files: &CertificateFiles) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    [&files.authority, &files.certificate, &files.key].map(|path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.len(), meta.modified().ok(), meta.ino()))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |detail: String| TlsError::Content { path: path.to_owned(), what: "certificate", detail };
    let pem = read(path)?;
    let all = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() { Err(wrong("there is none".to_owned())) } else { Ok(all) }
}

fn load(files: &CertificateFiles) -> Result<Loaded, TlsError> {
    // Before the files are read: a change in between is seen the next time.
    let stamp = stamp(files);
    let path = &files.certificate;
    let unusable = |detail: &dyn std::fmt::Display| TlsError::Unusable {
        path: path.clone(),
        detail: detail.to_string(),
    };
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.authority)? {
        roots.add(root).map_err(|error| TlsError::Unusable {
            path: files.authority.clone(),
            detail: error.to_string(),
        })?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(path)?;
    let subject = chain.first().and_then(|first| Subject::of(first)).unwrap_or_default();
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| TlsError::Content {
        path: files.key.clone(),
        what: "private key",
        detail: error.to_string(),
    })?;
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| unusable(&error))?;
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| unusable(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(|error| unusable(&error))?;
    // Each handshake looks at certificates anew, whatever was believed before.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable(&error))?;
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![ALPN.to_vec()];
    let (server, client) = (Arc::new(server), Arc::new(client));
    Ok(Loaded { stamp, server, client, subject, warned: false })
}
