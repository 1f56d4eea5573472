//! Whose word is taken for it that a server is the one that was meant.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Trust;

/// What makes connections secure. Without trust in anybody, for connections that are not to be, it lets none through.
pub(super) fn connector(trust: Option<&Trust>) -> Result<MakeRustlsConnect, String> {
    let mut roots = RootCertStore::empty();
    match trust {
        None => {}
        Some(Trust::System) => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine has no certificates of authorities (Debian: ca-certificates); \
                            sslrootcert=FILE names one"
                    .into());
            }
        }
        Some(Trust::File(path)) => {
            let failed =
                |error: String| format!("cannot read the certificates in '{}': {error}", path.display());
            let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(failed("there are none".into()));
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}
