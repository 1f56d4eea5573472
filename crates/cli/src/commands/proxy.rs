//! `forebay proxy`

use std::{net::TcpListener, process::ExitCode, sync::atomic::Ordering::SeqCst, time::Duration};

use forebay_group::GroupTerms;
use forebay_object::StoreOptions;
use forebay_proxy::{Proxy, ProxyOptions};

use super::{meta::listen_to_signals, servers::security};
use crate::{args::ProxyArgs, error::CliError, http, logging, output};

/// How often the proxy looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &ProxyArgs) -> Result<ExitCode, CliError> {
    logging::start_daemon();
    let told = |error: &dyn std::fmt::Display| CliError::Told(error.to_string());
    let options = ProxyOptions {
        meta: args.servers.meta.clone(),
        group: args.group.clone(),
        directory: args.cache_dir.clone(),
        cache: args.cache_size.0,
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        security: security(&args.servers.tls)?,
        insecure: args.insecure,
        weight: args.weight,
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        zone: args.zone.clone(),
        store: StoreOptions::default(),
        terms: GroupTerms::default(),
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
    let Some(proxy) = Proxy::start(&options, &stopped).map_err(|error| told(&error))? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(listener) = metrics {
        let at = listener.local_addr().map_err(|error| told(&error))?;
        let text = proxy.metrics();
        http::serve_metrics(listener, move || Some(text())).map_err(|error| told(&error))?;
        output::line(&format_args!("metrics at http://{at}/metrics"));
    }
    for address in proxy.addresses() {
        output::line(&format_args!("listening at {address}"));
    }
    output::line(&format_args!("clients reach this proxy at {}", proxy.advertised()));
    while !stopped() {
        if let Some(why) = proxy.failure() {
            proxy.stop();
            return Err(CliError::Told(why));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    tracing::info!("asked to end: the group is left");
    proxy.stop();
    Ok(ExitCode::SUCCESS)
}
