//! `forebay create`

use std::process::ExitCode;

use forebay_types::{Durability, Encryption};
use forebay_volume::{CreateOptions, create};
use rustix::process::{getegid, geteuid};

use crate::{args::CreateArgs, error::CliError, logging, output, progress::Waiting, size::human};

pub(crate) fn run(args: &CreateArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let block_size = u32::try_from(args.block_size.0).unwrap_or(u32::MAX);
    let options = CreateOptions {
        store: args.store.clone(),
        endpoint: args.endpoint.clone(),
        region: args.region.clone(),
        block_size,
        compression: args.compression,
        encryption: args.encryption,
        durability: args.durability,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    };
    let waiting = Waiting::begin("trying out the store".to_owned());
    let made = create(&args.volume, &options);
    drop(waiting);
    let config = made?;
    let place = args.volume.display();
    let store = config.store.clone().unwrap_or_else(|| args.volume.join("objects").display().to_string());
    output::line(&format_args!("created volume {} in '{place}'", config.id));
    output::line(&format_args!("  data rests in {store}"));
    output::line(&format_args!(
        "  blocks of {}, compression {}, encryption {}, durability {}",
        human(u64::from(config.block_size)),
        config.compression,
        config.encryption,
        config.durability
    ));
    if config.encryption == Encryption::Aes256Gcm {
        output::line(&format_args!(
            "  the key is in '{}': without it the data is lost, so keep a copy",
            args.volume.join("key").display()
        ));
    }
    if config.durability == Durability::Local {
        output::line(
            &"  fsync makes data durable on this machine's disk; the store gets it in the background",
        );
    }
    output::line(&format_args!("mount it: forebay mount '{place}' MOUNTPOINT"));
    Ok(ExitCode::SUCCESS)
}
