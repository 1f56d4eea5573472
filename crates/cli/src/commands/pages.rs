//! What is made from the definition of the flags: completions and man pages; and the names of sync points.

use std::{fs, io::Write, path::Path, process::ExitCode};

use clap::CommandFactory;
use clap_mangen::Man;
use forebay_env::durable::Point;

use crate::{
    args::{Args, CompletionsArgs, ManArgs},
    error::CliError,
    output,
};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&Args::command()), "forebay", &mut text);
    output::out(&String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

/// The command without what is hidden, which completions would offer.
fn shown(command: &clap::Command) -> clap::Command {
    let mut shown = clap::Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(self::shown));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    match command.get_version() {
        Some(version) => shown.version(version.to_owned()),
        None => shown,
    }
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, CliError> {
    fs::create_dir_all(&args.dir).map_err(CliError::io("make", &args.dir))?;
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = vec![("forebay".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("forebay-{}", sub.get_name());
        for inner in sub.get_subcommands().filter(|inner| inner.get_name() != "help") {
            pages.push(named(inner, format!("{name}-{}", inner.get_name())));
        }
        pages.push(named(sub, name));
    }
    for (name, page) in pages {
        let path = args.dir.join(format!("{name}.1"));
        let text = render(&name, page).map_err(CliError::io("write", &path))?;
        write(&path, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Pages are named as the usage line says, so that `man forebay-mount` finds itself.
fn named(command: &clap::Command, name: String) -> (String, clap::Command) {
    (name.clone(), command.clone().name(name.clone()).display_name(name))
}

fn write(path: &Path, text: &[u8]) -> Result<(), CliError> {
    fs::write(path, text).map_err(CliError::io("write", path))
}

/// A page: the synopsis is the usage line, with the names of values, and what stands below the options has a heading of its own.
fn render(name: &str, mut page: clap::Command) -> std::io::Result<Vec<u8>> {
    let usage = page.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().replace('\\', "\\\\").replace('-', "\\-");
    let notes = page.get_after_help().map(ToString::to_string);
    let (has_commands, man) = (page.has_subcommands(), Man::new(page));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{usage}")?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    if notes.is_some() {
        let mut extra = Vec::new();
        man.render_extra_section(&mut extra)?;
        text.extend(String::from_utf8_lossy(&extra).replacen(".SH EXTRA", ".SH NOTES", 1).bytes());
    }
    match name {
        "forebay" => man.render_version_section(&mut text)?,
        _ => writeln!(text, ".SH \"SEE ALSO\"\n.BR forebay (1)")?,
    }
    Ok(text)
}

pub(crate) fn sync_points() -> Result<ExitCode, CliError> {
    for point in Point::ALL {
        output::line(&point.name());
    }
    Ok(ExitCode::SUCCESS)
}
