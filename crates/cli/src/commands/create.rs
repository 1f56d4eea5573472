//! `forebay create`

use std::process::ExitCode;

use forebay_object::StoreUrl;
use forebay_types::{Durability, Encryption};
use forebay_volume::{
    CreateOptions, RecoverOptions, RecoverProgress, SHIP_INTERVAL, VolumeConfig, create, recover,
};
use rustix::process::{getegid, geteuid};

use crate::{
    args::CreateArgs,
    control::Step,
    error::CliError,
    logging, output,
    progress::{StepBar, Waiting},
    size::human,
};

pub(crate) fn run(args: &CreateArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    if let Some(url) = &args.recover_from {
        return bring_back(args, url);
    }
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
    output::line(&format_args!("  {}", promise(&config)));
    output::line(&format_args!("mount it: forebay mount '{place}' MOUNTPOINT"));
    Ok(ExitCode::SUCCESS)
}

/// What survives, in a sentence.
pub(crate) fn promise(config: &VolumeConfig) -> String {
    match (config.durability, &config.store) {
        (Durability::Object, _) => "fsync returns when the store has the data".to_owned(),
        (Durability::Local, None) => "fsync makes data durable on this machine's disk".to_owned(),
        (Durability::Local, Some(_)) => format!(
            "fsync makes data durable on this machine's disk; if the machine is lost, the last {} s and what was still being uploaded are missing",
            SHIP_INTERVAL.as_secs()
        ),
    }
}

fn bring_back(args: &CreateArgs, url: &StoreUrl) -> Result<ExitCode, CliError> {
    let options = RecoverOptions {
        endpoint: args.endpoint.clone(),
        region: args.region.clone(),
        key: args.key.clone(),
        ..RecoverOptions::default()
    };
    let mut bar = StepBar::new("bringing back");
    let mut tell = |progress: RecoverProgress| {
        bar.at(&Step { what: "bytes read".to_owned(), done: progress.bytes, total: None });
    };
    let report = recover(&args.volume, url, &options, &mut tell);
    drop(bar);
    let report = report?;
    let place = args.volume.display();
    output::line(&format_args!("brought volume {} back in '{place}' from {url}", report.id));
    output::line(&format_args!("  it was last on {}, which can no longer write to it", report.former_host));
    output::line(&format_args!("  everything up to record {} is there", report.last));
    for missing in &report.missing {
        output::complain(&format_args!("warning: {missing}"));
    }
    output::line(&format_args!("mount it: forebay mount '{place}' MOUNTPOINT"));
    Ok(if report.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
