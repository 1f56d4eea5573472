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
use forebay_group::GroupTerms;
use forebay_server::{DatabasePlace, DatabasePlaceError, MetaServer, ServerOptions, Ticking};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use super::{overview, servers::security};
use crate::{
    args::{MetaArgs, MetaCommand, MetaServerArgs},
    error::CliError,
    http, logging, output,
};

/// How often the server looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &MetaArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        Some(MetaCommand::Status(args)) => {
            logging::start_command();
            overview::show(&args.servers, args.json)
        }
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
        group_terms: GroupTerms::default(),
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
pub(crate) fn listen_to_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // In this order: the first one finds it not yet set.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
