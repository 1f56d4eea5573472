//! `forebay token`

use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use forebay_protocol::{Kind, Message, TokenInfo, TokenRequest};
use forebay_types::Timespec;
use serde_json::{Value, json};

use super::servers::Servers;
use crate::{
    args::{ServersArgs, TokenArgs, TokenCommand, TokenCreateArgs, TokenListArgs, TokenRevokeArgs},
    duration::{Lifetime, stamp},
    error::CliError,
    logging, output,
    table::table,
};

pub(crate) fn run(args: &TokenArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    match &args.command {
        TokenCommand::Create(args) => create(args),
        TokenCommand::List(args) => list(args),
        TokenCommand::Revoke(args) => revoke(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn ask(servers: &ServersArgs, request: &TokenRequest) -> Result<(Vec<TokenInfo>, String), CliError> {
    Servers::of(servers)?.ask(Kind::Tokens, request.encode())
}

fn create(args: &TokenCreateArgs) -> Result<(), CliError> {
    let wanted = TokenInfo {
        id: String::new(),
        volume: args.volume.clone(),
        root: args.root.clone(),
        read_only: args.read_only,
        no_exec: args.no_exec,
        root_squash: args.root_squash,
        created: Timespec::default(),
        expires: args.expires.map(from_now),
    };
    let (made, secret) = ask(&args.servers, &TokenRequest::Create(wanted))?;
    let none = || CliError::Told("the server's answer names no token".to_owned());
    let token = made.first().ok_or_else(none)?;
    if args.json {
        let mut shown = as_json(token);
        shown["secret"] = Value::String(secret);
        output::line(&format_args!("{shown:#}"));
        return Ok(());
    }
    // The secret alone goes to standard output, so that it can be sent to a file.
    output::note(&format_args!(
        "made token {} for '{}': {}; keep what follows, nobody can read it again",
        token.id,
        token.volume,
        rights(token)
    ));
    output::line(&secret);
    Ok(())
}

fn from_now(Lifetime(seconds): Lifetime) -> Timespec {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Timespec { secs: i64::try_from(now.saturating_add(seconds)).unwrap_or(i64::MAX), nanos: 0 }
}

fn list(args: &TokenListArgs) -> Result<(), CliError> {
    let (all, _) = ask(&args.servers, &TokenRequest::List(args.volume.clone()))?;
    if args.json {
        let all: Vec<Value> = all.iter().map(as_json).collect();
        output::line(&format_args!("{:#}", Value::Array(all)));
    } else if all.is_empty() {
        output::line(&"there are no tokens: `forebay token create` makes one");
    } else {
        let rows: Vec<_> = all
            .iter()
            .map(|token| {
                let ends = token.expires.map_or_else(|| "never".to_owned(), |at| stamp(at.secs));
                [
                    token.id.clone(),
                    token.volume.clone(),
                    token.root.clone(),
                    rights(token),
                    stamp(token.created.secs),
                    ends,
                ]
            })
            .collect();
        let titles = ["TOKEN", "VOLUME", "ROOT", "RIGHTS", "CREATED (UTC)", "EXPIRES (UTC)"];
        output::out(&table(titles, &rows));
    }
    Ok(())
}

fn revoke(args: &TokenRevokeArgs) -> Result<(), CliError> {
    let (gone, _) = ask(&args.servers, &TokenRequest::Revoke(args.id.clone()))?;
    let volume = gone.first().map_or("", |token| token.volume.as_str());
    output::line(&format_args!("revoked token {} of '{volume}'; mounts that were made with it end", args.id));
    Ok(())
}

fn rights(token: &TokenInfo) -> String {
    let words = [
        Some(if token.read_only { "read-only" } else { "read and write" }),
        token.no_exec.then_some("no exec"),
        token.root_squash.then_some("root squashed"),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn as_json(token: &TokenInfo) -> Value {
    json!({
        "id": token.id,
        "volume": token.volume,
        "root": token.root,
        "read_only": token.read_only,
        "no_exec": token.no_exec,
        "root_squash": token.root_squash,
        "created": token.created.secs,
        "expires": token.expires.map(|at| at.secs),
    })
}
