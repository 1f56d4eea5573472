//! A far-away network as a process: `far-link LISTEN SERVER MILLISECONDS`, then a line of standard input each: `delay MILLISECONDS`, `hold`, `cut`, `heal`.
//! Prints the address that it listens on, and each line when it is done. Ends with its standard input.

use std::{
    env, io,
    io::{BufRead, Write},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};

use forebay_testkit::far::FarLink;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "far-link: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let wrong = |what: &str| io::Error::other(what.to_owned());
    let args: Vec<String> = env::args().skip(1).collect();
    let [listen, server, delay] = args.as_slice() else {
        return Err(wrong("usage: far-link LISTEN SERVER MILLISECONDS"));
    };
    let server: SocketAddr = server.parse().map_err(|_| wrong("the server is no address with a port"))?;
    let link = FarLink::new(listen.as_str(), server, milliseconds(delay)?)?;
    let mut out = io::stdout();
    writeln!(out, "{}", link.address())?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["delay", time] => link.delay(milliseconds(time)?),
            ["hold"] => link.hold(),
            ["cut"] => link.cut(),
            ["heal"] => link.heal(),
            _ => return Err(wrong(&format!("{line:?} is no command"))),
        }
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(())
}

fn milliseconds(text: &str) -> io::Result<Duration> {
    let number: f64 =
        text.parse().map_err(|_| io::Error::other(format!("{text:?} is no number of milliseconds")))?;
    Duration::try_from_secs_f64(number / 1000.0).map_err(io::Error::other)
}
