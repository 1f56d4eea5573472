//! Prometheus metrics over HTTP/1.1: `GET /metrics`, one request a connection.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

const REQUEST_MAX: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts to serve what `text` says, in a thread of its own. One connection at a time: a scrape is short. Where `text` says nothing, the connection is closed.
///
/// # Errors
/// When there can be no thread.
pub(crate) fn serve_metrics(
    listener: TcpListener,
    text: impl Fn() -> Option<String> + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("fb-metrics".to_owned()).spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            if let Some(text) = text()
                && let Err(error) = answer(text, &stream)
            {
                tracing::debug!("metrics: {error}");
            }
        }
    });
    thread.map(drop)
}

fn answer(text: String, mut stream: &TcpStream) -> io::Result<()> {
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
        ("GET" | "HEAD", "/metrics") => ("200 OK", text),
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
