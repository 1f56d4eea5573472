//! `forebay null-mount`: the do-nothing file system, in a process of its own so that its processor time can be told.

use std::{process::ExitCode, sync::Arc, time::Duration};

use forebay_fuse::{
    MountOptions, SessionOptions, Transport,
    flags::{Capabilities, OpenFlags},
    mount,
    null::{NullConfig, NullFs},
};

use crate::{args::NullMountArgs, error::CliError};

pub(crate) fn run(args: &NullMountArgs) -> Result<ExitCode, CliError> {
    let plain = NullConfig::default();
    let mut init = plain.init;
    if let Some(bits) = args.capabilities {
        init.capabilities = Capabilities::from_bits(bits);
    }
    let lifetime = Duration::from_millis(args.lifetime_ms);
    let config = NullConfig {
        entry_ttl: lifetime,
        attr_ttl: lifetime,
        init,
        open_flags: OpenFlags::from_bits(args.open_flags),
        dir_flags: OpenFlags::from_bits(args.dir_flags),
    };
    let options = MountOptions {
        fsname: "null".to_owned(),
        subtype: "forebay-null".to_owned(),
        ..MountOptions::default()
    };
    let session = mount(&args.mountpoint, &options)?;
    let transport = if args.io_uring { Transport::IoUring } else { Transport::DevFuse };
    let options =
        SessionOptions { read_ahead_kb: args.read_ahead_kb, transport, ..SessionOptions::default() };
    session.run(Arc::new(NullFs::new(config)), &options)?;
    Ok(ExitCode::SUCCESS)
}
