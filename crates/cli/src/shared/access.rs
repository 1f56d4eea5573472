//! Certificates and tokens, by flags, mount options and the environment, in this order.

use std::{fs, path::PathBuf};

use forebay_rpc::Address;

use super::{Access, SharedUrl};
use crate::{
    args::{MountArgs, TlsArgs},
    commands::servers::security,
    error::CliError,
    mount_options::MountFlags,
};

/// The variable with the secret of a token.
const TOKEN: &str = "FOREBAY_TOKEN";

/// What is to be used for this volume.
pub(crate) fn access(args: &MountArgs, flags: &MountFlags, url: &SharedUrl) -> Result<Access, CliError> {
    let either = |flag: &Option<PathBuf>, option: &Option<PathBuf>| flag.clone().or_else(|| option.clone());
    let tls = TlsArgs {
        tls_ca: either(&args.tls.tls_ca, &flags.tls_ca),
        tls_cert: either(&args.tls.tls_cert, &flags.tls_cert),
        tls_key: either(&args.tls.tls_key, &flags.tls_key),
    };
    let given = [&tls.tls_ca, &tls.tls_cert, &tls.tls_key].iter().filter(|file| file.is_some()).count();
    if ![0, 3].contains(&given) {
        let message = "tls_ca, tls_cert and tls_key belong together; `forebay pki` makes the files";
        return Err(CliError::Usage(message.to_owned()));
    }
    let networked = url.servers.iter().any(|server| matches!(server, Address::Tcp { .. }));
    if networked && given == 0 && !args.insecure && !flags.insecure {
        let message = format!(
            "'{url}' is not asked without TLS: give --tls-ca, --tls-cert and --tls-key (`forebay pki` makes them), or --insecure"
        );
        return Err(CliError::Usage(message));
    }
    let token = match either(&args.token, &flags.token) {
        Some(path) => Some(read_token(path)?),
        None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
    };
    Ok(Access { security: security(&tls)?, token })
}

fn read_token(path: PathBuf) -> Result<String, CliError> {
    let text = fs::read_to_string(&path).map_err(CliError::io("read the token", &path))?;
    match text.trim() {
        "" => Err(CliError::Told(format!("'{}' has no token in it", path.display()))),
        token => Ok(token.to_owned()),
    }
}
