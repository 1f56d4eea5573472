//! `forebay null-mount`: the do-nothing file system, in a process of its own so that its processor time can be told.

use std::{collections::BTreeMap, io::BufRead, process::ExitCode, sync::Arc, thread, time::Duration};

use forebay_fuse::{
    MountOptions, Observer, SessionOptions, Transport,
    flags::{Capabilities, OpenFlags},
    mount,
    null::{NullConfig, NullFs},
};

use forebay_mount::Stats;
use serde_json::json;

use crate::{args::NullMountArgs, error::CliError, output};

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
    let observer = if args.count { Some(counted()?) } else { None };
    let options = SessionOptions {
        read_ahead_kb: args.read_ahead_kb,
        transport,
        observer,
        ..SessionOptions::default()
    };
    session.run(Arc::new(NullFs::new(config)), &options)?;
    Ok(ExitCode::SUCCESS)
}

/// Counts requests, and prints how many of each kind there were for each line of standard input.
fn counted() -> Result<Arc<dyn Observer>, CliError> {
    let stats = Arc::new(Stats::default());
    let counted = Arc::clone(&stats);
    let answer = move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            let counts: BTreeMap<_, _> =
                stats.snapshot().into_iter().map(|op| (op.name, op.requests)).collect();
            output::line(&json!(counts));
        }
    };
    let thread = thread::Builder::new().name("null-counts".to_owned()).spawn(answer);
    thread.map_err(|error| CliError::Told(format!("cannot start a thread: {error}")))?;
    Ok(counted)
}
