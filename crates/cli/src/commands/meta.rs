//! `forebay meta`

use std::{
    net::TcpListener,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_cluster::Terms;
use forebay_protocol::{Kind, OwnedStatus, ServerStatus};
use forebay_server::{DatabasePlace, DatabasePlaceError, MetaServer, ServerOptions, Ticking};
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::servers::{Servers, security};
use crate::{
    args::{MetaArgs, MetaCommand, MetaServerArgs, MetaStatusArgs},
    error::CliError,
    http, logging, output,
    size::human,
    table::table,
};

/// How often the server looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &MetaArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        Some(MetaCommand::Status(args)) => status(args),
        None => serve(&args.server),
    }
}

fn serve(args: &MetaServerArgs) -> Result<ExitCode, CliError> {
    logging::start_daemon();
    let told = |error: &dyn std::fmt::Display| CliError::Told(error.to_string());
    let engine = args.engine.as_deref().unwrap_or_default();
    let engine: DatabasePlace =
        engine.parse().map_err(|error: DatabasePlaceError| CliError::Usage(error.to_string()))?;
    let options = ServerOptions {
        engine,
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        security: security(&args.tls)?,
        insecure: args.insecure,
        admins: args.admins.clone(),
        terms: Terms::default(),
        ticks: Ticking::default(),
    };
    let metrics = match args.metrics {
        Some(address) => Some(
            TcpListener::bind(address)
                .map_err(|error| CliError::Told(format!("cannot serve metrics at {address}: {error}")))?,
        ),
        None => None,
    };
    let stop = listen_to_signals().map_err(|error| told(&error))?;
    let stopped = || stop.load(SeqCst);
    let Some(server) = MetaServer::start(&options, &stopped).map_err(|error| told(&error))? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(listener) = metrics {
        let at = listener.local_addr().map_err(|error| told(&error))?;
        let text = server.metrics();
        http::serve_metrics(listener, move || Some(text())).map_err(|error| told(&error))?;
        output::line(&format_args!("metrics at http://{at}/metrics"));
    }
    for address in server.addresses() {
        output::line(&format_args!("listening at {address}"));
    }
    output::line(&format_args!("clients reach this server at {}", server.advertised()));
    while !stopped() {
        if let Some(error) = server.failure() {
            return Err(told(&error));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    tracing::info!("asked to end: volumes are given up");
    server.stop();
    Ok(ExitCode::SUCCESS)
}

/// Set by the first signal; the second ends the process as it is.
fn listen_to_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // In this order: the first one finds it not yet set.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn status(args: &MetaStatusArgs) -> Result<ExitCode, CliError> {
    logging::start_command();
    let status: ServerStatus = Servers::of(&args.servers)?.ask(Kind::Status, Vec::new())?;
    if args.json {
        output::line(&format_args!("{:#}", as_json(&status)));
    } else {
        output::out(&for_people(&status));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(status: &ServerStatus) -> Value {
    let members = status.members.iter().map(|member| {
        json!({
            "id": member.id, "address": member.address, "alive": member.alive, "release": member.release,
        })
    });
    let volumes = status.volumes.iter().map(|volume| {
        json!({
            "name": volume.name,
            "owner": Some(&volume.owner).filter(|owner| !owner.is_empty()),
            "epoch": volume.epoch,
            "sessions": volume.sessions,
            "clients": volume.clients,
            "waiting": volume.sessions.map(|_| volume.waiting),
            "batches": volume.sessions.map(|_| volume.batches),
            "used_bytes": volume.sessions.map(|_| volume.used),
        })
    });
    json!({
        "server": status.server,
        "engine": status.engine,
        "servers": members.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
    })
}

fn for_people(status: &ServerStatus) -> String {
    let mut text = format!("{:<13} {}\n{:<13} {}\n\n", "server", status.server, "engine", status.engine);
    let members: Vec<_> = status
        .members
        .iter()
        .map(|member| {
            let state = if member.alive { "lives" } else { "is not heard of" };
            [member.address.clone(), state.to_owned(), member.release.clone()]
        })
        .collect();
    text.push_str(&table(["SERVER", "STATE", "RELEASE"], &members));
    text.push('\n');
    if status.volumes.is_empty() {
        text.push_str("there are no volumes: `forebay volume create` makes one\n");
        return text;
    }
    let known = |volume: &OwnedStatus, value: String| match volume.sessions {
        Some(_) => value,
        None => "-".to_owned(),
    };
    let volumes: Vec<_> = status
        .volumes
        .iter()
        .map(|volume| {
            [
                volume.name.clone(),
                if volume.owner.is_empty() { "nobody".to_owned() } else { volume.owner.clone() },
                volume.epoch.to_string(),
                known(volume, volume.sessions.unwrap_or(0).to_string()),
                known(volume, volume.waiting.to_string()),
                known(volume, human(volume.used)),
            ]
        })
        .collect();
    text.push_str(&table(["VOLUME", "OWNER", "EPOCH", "SESSIONS", "WAITING", "USED"], &volumes));
    if status.volumes.iter().any(|volume| volume.sessions.is_none()) {
        text.push_str("\n'-': ask the server that owns the volume\n");
    }
    text
}
