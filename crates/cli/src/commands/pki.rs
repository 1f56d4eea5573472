//! `forebay pki`: a small certificate authority.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::{
    args::{PkiArgs, PkiCommand, PkiInitArgs, PkiIssueArgs},
    error::CliError,
    output,
};

/// What the authority's files are called.
const AUTHORITY: &str = "ca";
const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;
/// Certificates begin this long ago, for machines whose clock is behind.
const BACKDATED: Duration = Duration::DAY;

pub(crate) fn run(args: &PkiArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        PkiCommand::Init(args) => init(args),
        PkiCommand::Issue(args) => issue(args),
    }
}

fn init(args: &PkiInitArgs) -> Result<ExitCode, CliError> {
    let files = Files::of(&args.dir, AUTHORITY);
    files.refuse_if_there()?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.dir)
        .map_err(CliError::io("make", &args.dir))?;
    let mut params = valid_for(args.days);
    params.distinguished_name.push(DnType::CommonName, args.name.as_str());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    files.write(&certificate.pem(), &key.serialize_pem())?;
    let dir = args.dir.display();
    output::line(&format_args!("made the authority '{}'", args.name));
    output::line(&format_args!("  '{}' goes to every machine", files.certificate.display()));
    output::line(&format_args!(
        "  '{}' stays here: whoever has it can pass for any part of the cluster",
        files.key.display()
    ));
    output::line(&format_args!("issue a certificate: forebay pki issue '{dir}' NAME --host HOST"));
    Ok(ExitCode::SUCCESS)
}

fn issue(args: &PkiIssueArgs) -> Result<ExitCode, CliError> {
    check_name(&args.name)?;
    let files = Files::of(&args.dir, &args.name);
    files.refuse_if_there()?;
    let issuer = authority(&args.dir)?;
    let mut params = valid_for(args.days);
    params.distinguished_name.push(DnType::CommonName, args.name.as_str());
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.subject_alt_names = names(args)?;
    params.extended_key_usages = purposes(args);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    files.write(&certificate.pem(), &key.serialize_pem())?;
    output::line(&format_args!("issued a certificate for '{}', valid for {} days", args.name, args.days));
    output::line(&format_args!("  '{}'", files.certificate.display()));
    output::line(&format_args!("  '{}'", files.key.display()));
    Ok(ExitCode::SUCCESS)
}

/// The hosts that a certificate is for.
fn names(args: &PkiIssueArgs) -> Result<Vec<SanType>, CliError> {
    let mut names: Vec<SanType> = args.ips.iter().copied().map(SanType::IpAddress).collect();
    for host in &args.hosts {
        if let Ok(ip) = host.parse::<IpAddr>() {
            names.push(SanType::IpAddress(ip));
            continue;
        }
        check_host(host)?;
        let name = host.as_str().try_into().map_err(failed)?;
        names.push(SanType::DnsName(name));
    }
    Ok(names)
}

fn purposes(args: &PkiIssueArgs) -> Vec<ExtendedKeyUsagePurpose> {
    let either = !args.client && !args.server;
    let server = (args.server || either).then_some(ExtendedKeyUsagePurpose::ServerAuth);
    let client = (args.client || either).then_some(ExtendedKeyUsagePurpose::ClientAuth);
    server.into_iter().chain(client).collect()
}

fn authority(dir: &Path) -> Result<Issuer<'static, KeyPair>, CliError> {
    let files = Files::of(dir, AUTHORITY);
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CliError::Told(format!(
                "'{}' has no authority: `forebay pki init '{}'` makes one",
                dir.display(),
                dir.display()
            )),
            _ => CliError::io("read", path)(error),
        })
    };
    let (certificate, key) = (read(&files.certificate)?, read(&files.key)?);
    let wrong = |path: &Path, error: rcgen::Error| {
        CliError::Told(format!("'{}' cannot be used: {error}", path.display()))
    };
    let key = KeyPair::from_pem(&key).map_err(|error| wrong(&files.key, error))?;
    Issuer::from_ca_cert_pem(&certificate, key).map_err(|error| wrong(&files.certificate, error))
}

fn valid_for(days: u32) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - BACKDATED;
    params.not_after = now + Duration::days(i64::from(days));
    params
}

/// The name is also that of the files.
fn check_name(name: &str) -> Result<(), CliError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > 64 || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(CliError::Usage(format!(
            "'{name}' is not a name for a certificate: at most 64 letters, digits, '.', '-' and '_'"
        )));
    }
    match name {
        AUTHORITY => {
            Err(CliError::Usage(format!("'{AUTHORITY}' is the authority itself; choose another name")))
        }
        _ => Ok(()),
    }
}

fn check_host(host: &str) -> Result<(), CliError> {
    let label = |label: &str| {
        let plain = label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        !label.is_empty() && label.len() <= 63 && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let rest = host.strip_prefix("*.").unwrap_or(host);
    match host.len() <= 253 && rest.split('.').all(label) {
        true => Ok(()),
        false => Err(CliError::Usage(format!("'{host}' is not the name of a host"))),
    }
}

fn failed(error: rcgen::Error) -> CliError {
    CliError::Told(format!("cannot make the certificate: {error}"))
}

/// A certificate and its key.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(dir: &Path, name: &str) -> Files {
        Files { certificate: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) }
    }

    fn refuse_if_there(&self) -> Result<(), CliError> {
        for path in [&self.certificate, &self.key] {
            if path.symlink_metadata().is_ok() {
                let path = path.display();
                return Err(CliError::Told(format!("'{path}' is already there, and is never overwritten")));
            }
        }
        Ok(())
    }

    /// Writes both, or neither.
    fn write(&self, certificate: &str, key: &str) -> Result<(), CliError> {
        write_new(&self.key, key, PRIVATE)?;
        write_new(&self.certificate, certificate, PUBLIC).inspect_err(|_| {
            // A key without its certificate is of no use, and would be in the way of the next attempt.
            let _ = fs::remove_file(&self.key);
        })
    }
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    let options = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = options.map_err(CliError::io("make", path))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // It is ours, and not whole.
        let _ = fs::remove_file(path);
        CliError::io("write", path)(error)
    })
}
