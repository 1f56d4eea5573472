//! `forebay completions`, `forebay man` and `forebay debug-sync-points`

use std::{fs, process::ExitCode};

use clap::CommandFactory;
use forebay_env::durable::Point;

use crate::{
    args::{Args, CompletionsArgs, ManArgs},
    error::CliError,
    output,
};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "forebay", &mut text);
    output::out(&String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, CliError> {
    fs::create_dir_all(&args.dir).map_err(CliError::io("make", &args.dir))?;
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![("forebay".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("forebay-{}", sub.get_name());
        // Pages are named as the usage line says, so that `man forebay-mount` finds itself.
        pages.push((name.clone(), sub.clone().name(name.clone()).display_name(name)));
    }
    for (name, page) in pages {
        let path = args.dir.join(format!("{name}.1"));
        let mut text = Vec::new();
        clap_mangen::Man::new(page).render(&mut text).map_err(CliError::io("write", &path))?;
        fs::write(&path, text).map_err(CliError::io("write", &path))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn sync_points() -> Result<ExitCode, CliError> {
    for point in Point::ALL {
        output::line(&point.name());
    }
    Ok(ExitCode::SUCCESS)
}
