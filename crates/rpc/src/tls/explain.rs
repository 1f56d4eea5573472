use rustls::{AlertDescription, CertificateError, Error};

/// What a TLS error means, in a line that says what to do.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "the peer says that our certificate has expired: issue a new one".to_owned()
            }
            AlertDescription::UnknownCA => {
                "the peer does not know the authority of our certificate".to_owned()
            }
            AlertDescription::CertificateRequired => "the peer asks for a certificate".to_owned(),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError => {
                format!(
                    "the peer does not accept our certificate ({alert:?}): it is to be of the authority that the peer knows, and for this side"
                )
            }
            other => format!("the peer ended the TLS handshake ({other:?})"),
        },
        Error::NoCertificatesPresented => "the peer has no certificate".to_owned(),
        Error::InvalidMessage(_) => {
            "the peer does not speak TLS: is it run with --insecure, or is this another service?".to_owned()
        }
        other => format!("TLS: {other}"),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the peer's certificate has expired: issue a new one for it (or is a clock wrong?)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the peer's certificate is not valid yet: is a clock wrong?".to_owned()
        }
        // Another authority of the same name signs otherwise.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the peer's certificate is from another authority than the one given".to_owned()
        }
        CertificateError::NotValidForName => "the peer's certificate is for another host".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!(
                "the peer's certificate is not for '{}', but for {}",
                expected.to_str(),
                presented.join(", ")
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the peer's certificate is for the other side (client or server)".to_owned()
        }
        other => format!("the peer's certificate is not accepted: {other}"),
    }
}
