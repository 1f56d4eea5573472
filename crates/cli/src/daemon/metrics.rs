//! Prometheus metrics of a mount.

use std::{fmt::Write as _, net::TcpListener, sync::Arc};

use forebay_object::Operation;
use forebay_volume::{Status, Volume};

use crate::{
    daemon::{life::Life, lives::Lives},
    error::CliError,
    http,
};

/// Starts to serve.
pub(crate) fn serve(lives: &Arc<Lives>, listener: TcpListener) -> Result<(), CliError> {
    let serving = Arc::clone(lives);
    // Between two lives there is nothing to tell: the next scrape will find it.
    let serving = http::serve_metrics(listener, move || serving.current().map(|life| text(&life)));
    serving.map_err(CliError::io("start a thread for metrics of", &lives.settings.mountpoint))
}

/// All metrics in Prometheus' text format.
fn text(life: &Life) -> String {
    let mut text = life.stats.prometheus();
    gauges(
        &mut text,
        &[
            ("dirty_bytes", "Raw bytes in use that the store does not have yet.", life.kept.dirty_bytes()),
            ("open_handles", "Open files and directories.", life.vfs.open_handles()),
            ("uptime_seconds", "Seconds since the mount.", life.began.elapsed().as_secs()),
        ],
    );
    places(&mut text, ("bytes", "from", "Bytes of objects that were read."), life.kept.read_from());
    places(&mut text, ("written_bytes", "to", "Bytes of files that were written."), life.kept.written_to());
    if let Some(volume) = life.kept.volume() {
        held(volume, &mut text);
        work(&volume.status(), &mut text);
        store(volume, &mut text);
    }
    assembled(life, &mut text);
    text
}

/// Bytes by where they came from or went to: the proxy of this machine, others, the store.
fn places(
    text: &mut String,
    (name, label, help): (&str, &str, &str),
    counted: Option<[(&'static str, u64); 3]>,
) {
    let Some(counted) = counted else { return };
    let name = format!("forebay_client_{name}_total");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    for (place, bytes) in counted {
        let _ = writeln!(text, "{name}{{{label}=\"{place}\"}} {bytes}");
    }
}

/// What a volume on this machine holds.
fn held(volume: &Volume, text: &mut String) {
    let status = volume.status();
    let all = [
        ("live_bytes", "Raw bytes in use.", status.live_bytes),
        ("journal_bytes", "Raw bytes in use in the journal.", status.journal_bytes),
        ("segments", "Segments.", status.segments),
        ("dirty_segments", "Segments that the store does not have yet.", status.dirty_segments),
        ("objects", "Objects in the store.", status.objects),
        ("stored_bytes", "Bytes of these objects.", status.stored_bytes),
        ("garbage_bytes", "Raw bytes in objects that nothing refers to.", status.garbage_bytes),
        ("metadata_bytes", "Bytes of the metadata engine on disk.", status.metadata_bytes),
        (
            "pending_metadata_bytes",
            "Bytes of rows that wait for a checkpoint.",
            status.pending_metadata_bytes,
        ),
        ("uncleaned_files", "Files with deleted data that is still to be removed.", status.uncleaned_files),
        ("troubles", "Kinds of background work that fail.", status.troubles.len() as u64),
    ];
    gauges(text, &all);
}

/// What has been done for it, by background work and by the cache of a store elsewhere.
fn work(status: &Status, text: &mut String) {
    let done = &status.upkeep;
    let mut all = vec![
        ("compacted_bytes_total", "counter", "Bytes moved out of wasteful objects.", done.compacted_bytes),
        ("compacted_objects_total", "counter", "Objects emptied so.", done.compacted_objects),
        ("deleted_objects_total", "counter", "Objects deleted in the store.", done.deleted_objects),
    ];
    if let Some(cache) = &status.cache {
        all.extend([
            ("cache_used_bytes", "gauge", "Bytes that the cache keeps.", cache.used_bytes),
            ("cache_capacity_bytes", "gauge", "Bytes that it may keep.", cache.capacity_bytes),
            ("cache_hits_total", "counter", "Chunks that reads found in the cache.", cache.hits),
            ("cache_misses_total", "counter", "Chunks that reads had to fetch.", cache.misses),
            (
                "cache_fetched_bytes_total",
                "counter",
                "Bytes fetched, read-ahead included.",
                cache.fetched_bytes,
            ),
            ("cache_evictions_total", "counter", "Chunks that left to make room.", cache.evictions),
            ("cache_damaged_total", "counter", "Chunks found wrong.", cache.damaged),
            ("cache_not_kept_total", "counter", "Chunks that the disk did not take.", cache.not_kept),
        ]);
    }
    for (name, kind, help, value) in all {
        metric(text, name, kind, help, value);
    }
}

/// One metric without labels. `kind`: as Prometheus has them.
fn metric(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    let name = format!("forebay_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

fn gauges(text: &mut String, gauges: &[(&str, &str, u64)]) {
    for (name, help, value) in gauges {
        metric(text, name, "gauge", help, *value);
    }
}

/// Files that the kernel reads by itself.
fn assembled(life: &Life, text: &mut String) {
    let Some((through, assembled)) = life.fs.passthrough().zip(life.fs.assembled()) else {
        return;
    };
    for (name, kind, help, value) in [
        ("files", "gauge", "Files assembled.", assembled.files),
        ("bytes", "gauge", "Bytes that they take on disk.", assembled.used_bytes),
        ("open", "gauge", "Opens that the kernel serves.", through.open),
        ("opens_total", "counter", "Opens that the kernel was given.", through.opens),
        ("evictions_total", "counter", "Files that left to make room.", assembled.evictions),
        ("withdrawn_total", "counter", "Files that left because they were changed.", assembled.withdrawn),
        ("given_up_total", "counter", "Files that could not be assembled.", assembled.given_up),
        ("damaged_total", "counter", "Pieces found damaged.", assembled.damaged),
    ] {
        metric(text, &format!("passthrough_{name}"), kind, help, value);
    }
}

fn store(volume: &Volume, text: &mut String) {
    let counters = volume.store().counters();
    let counts: Vec<_> = Operation::ALL.iter().map(|operation| counters.operation(*operation)).collect();
    let counter = |text: &mut String,
                   name: &str,
                   help: &str,
                   value: &dyn Fn(&forebay_object::OperationCounts) -> u64| {
        let _ = writeln!(text, "# HELP forebay_store_{name} {help}\n# TYPE forebay_store_{name} counter");
        for count in &counts {
            let _ =
                writeln!(text, "forebay_store_{name}{{op=\"{}\"}} {}", count.operation.name(), value(count));
        }
    };
    counter(text, "calls_total", "Calls to the store.", &|count| count.calls);
    counter(text, "errors_total", "Calls that ended with trouble.", &|count| count.errors);
    counter(text, "bytes_total", "Bytes of content moved.", &|count| count.bytes);
    for (name, help, value) in [
        ("retries_total", "Attempts after the first.", counters.retries()),
        ("throttled_total", "Attempts that the store asked to be fewer of.", counters.throttled()),
        ("credential_reloads_total", "Changed credentials taken up.", counters.credential_reloads()),
    ] {
        metric(text, &format!("store_{name}"), "counter", help, value);
    }
    let name = "forebay_store_seconds";
    let _ = writeln!(text, "# HELP {name} Time of calls, retries included.\n# TYPE {name} summary");
    for count in &counts {
        let (op, seconds) = (count.operation.name(), count.latency_us as f64 / 1e6);
        let _ = writeln!(
            text,
            "{name}_sum{{op=\"{op}\"}} {seconds}\n{name}_count{{op=\"{op}\"}} {}",
            count.calls
        );
    }
}
