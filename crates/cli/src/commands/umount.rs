//! `forebay umount`

use std::{process::ExitCode, time::Duration};

use crate::{
    args::UmountArgs,
    control::{Client, ControlError, Left},
    error::CliError,
    logging, mounts, output,
    progress::DrainBar,
    shared::SharedUrl,
    size::human,
};

/// How long the process may take to end once it has said that the volume is closed.
const END_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &UmountArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let place = &args.mountpoint;
    let Some(mounted) = mounts::on(place).map_err(CliError::io("look at", place))? else {
        return Err(CliError::Told(format!(
            "'{}' is not where a Forebay volume is mounted",
            place.display()
        )));
    };
    let client = match Client::of_mount(&mounted) {
        Err(ControlError::Gone(_)) if !mounts::answers(&mounted.mountpoint) => return detach(&mounted),
        Err(ControlError::Gone(_)) => {
            return Err(CliError::Told(format!(
                "'{}' is alive, but its process cannot be reached from here; unmount it with umount(8), or as the user who mounted it",
                place.display()
            )));
        }
        client => client?,
    };
    let process = client.process()?;
    let mut request = "stop".to_owned();
    for (wanted, word) in [(args.lazy, " lazy"), (args.no_drain, " no-drain")] {
        if wanted {
            request += word;
        }
    }
    let mut bar = DrainBar::new("storing");
    let left: Left = client.follow(&request, &mut |progress| bar.at(progress))?;
    drop(bar);
    if left.detached {
        output::note(&format_args!(
            "'{}' is detached; process {} ends with its last user",
            place.display(),
            process.pid()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if !process.wait(END_PATIENCE) {
        output::complain(&format_args!("the volume is closed, but process {} has not ended", process.pid()));
    }
    if let Some(error) = left.close_error {
        return Err(CliError::Told(format!("unmounted, but closing the volume failed: {error}")));
    }
    if left.dirty_bytes > 0 {
        let why = left.error.map_or_else(String::new, |error| format!(" ({error})"));
        let fate = match SharedUrl::is_one(&mounted.volume) {
            true => ("did not reach the servers", "they are lost"),
            false => {
                ("are not in the store", "they are durable on this machine and stored after the next mount")
            }
        };
        output::complain(&format_args!(
            "warning: {} of '{}' {}{why}; {}",
            human(left.dirty_bytes),
            mounted.volume.display(),
            fate.0,
            fate.1
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes away the mount of a process that died.
fn detach(mounted: &mounts::Mounted) -> Result<ExitCode, CliError> {
    forebay_fuse::unmount(&mounted.mountpoint, true)?;
    output::complain(&format_args!(
        "warning: the process behind '{}' was gone; detached. The next mount of '{}' brings back what was synced",
        mounted.mountpoint.display(),
        mounted.volume.display()
    ));
    Ok(ExitCode::SUCCESS)
}
