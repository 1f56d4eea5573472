//! Prometheus metrics over HTTP/1.1: `GET /metrics`, one request a connection.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use forebay_object::Operation;

use crate::{
    daemon::{life::Life, lives::Lives},
    error::CliError,
};

const REQUEST_MAX: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts to serve. One connection at a time: a scrape is short.
pub(crate) fn serve(lives: &Arc<Lives>, listener: TcpListener) -> Result<(), CliError> {
    let serving = Arc::clone(lives);
    let thread = thread::Builder::new().name("fb-metrics".to_owned()).spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            // Between two lives there is nothing to tell: the next scrape will find it.
            let Some(life) = serving.current() else { continue };
            if let Err(error) = answer(&life, &stream) {
                tracing::debug!("metrics: {error}");
            }
        }
    });
    thread.map(drop).map_err(CliError::io("start a thread for metrics of", &lives.settings.mountpoint))
}

fn answer(life: &Life, mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", text(life)),
        ("GET" | "HEAD", _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// All metrics in Prometheus' text format.
fn text(life: &Life) -> String {
    let mut text = life.stats.prometheus();
    let status = life.volume.status();
    let gauges: [(&str, &str, u64); 14] = [
        ("live_bytes", "Raw bytes in use.", status.live_bytes),
        ("dirty_bytes", "Raw bytes in use that the store does not have yet.", status.dirty_bytes),
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
        ("open_handles", "Open files and directories.", life.vfs.open_handles()),
        ("uptime_seconds", "Seconds since the mount.", life.began.elapsed().as_secs()),
    ];
    for (name, help, value) in gauges {
        let _ = writeln!(
            text,
            "# HELP forebay_{name} {help}\n# TYPE forebay_{name} gauge\nforebay_{name} {value}"
        );
    }
    assembled(life, &mut text);
    store(life, &mut text);
    text
}

/// Files that the kernel reads by itself.
fn assembled(life: &Life, text: &mut String) {
    let Some((through, assembled)) = life.fs.passthrough().zip(life.volume.assembled_status()) else {
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
        let name = format!("forebay_passthrough_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
}

fn store(life: &Life, text: &mut String) {
    let counters = life.volume.store().counters();
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
        let _ = writeln!(
            text,
            "# HELP forebay_store_{name} {help}\n# TYPE forebay_store_{name} counter\nforebay_store_{name} {value}"
        );
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
