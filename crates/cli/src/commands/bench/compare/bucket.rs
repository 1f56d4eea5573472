//! The far-away bucket of a run, and curl, which fetches the same objects from it.

use std::{
    fmt::Write as _,
    io::{self, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use forebay_bench::{Rival, Workload};

use super::Trouble;
use crate::{commands::bench::talk::Talk, error::CliError};

/// Connections of curl.
const CONNECTIONS: &str = "16";

/// The service, in a process of its own for as long as this lives.
pub(super) struct Bucket {
    child: Child,
    address: String,
    talk: Arc<Mutex<Talk>>,
}

impl Bucket {
    /// Starts a service that answers `delay_ms` after each request.
    pub(super) fn start(delay_ms: u64) -> Result<Bucket, Trouble> {
        let curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
        if !curl.is_ok_and(|status| status.success()) {
            return Err(Trouble::LeftOut("curl is not installed".to_owned()));
        }
        let program = std::env::current_exe().map_err(CliError::io("find", "/proc/self/exe"))?;
        let mut command = Command::new(&program);
        command.args(["late-store", &delay_ms.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(CliError::io("start", &program))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(CliError::Told("no pipes to the store".to_owned()).into());
        };
        let mut talk = Talk::new(to, from);
        let address = talk.ask::<String>("address").map_err(CliError::io("ask", &program))?;
        Ok(Bucket { child, address, talk: Arc::new(Mutex::new(talk)) })
    }

    /// How `forebay create` is told of it.
    pub(super) fn create_options(&self) -> Vec<String> {
        let endpoint = format!("http://{}", self.address);
        ["--store", "s3://bench/volume", "--endpoint", &endpoint, "--region", "here"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Curl, which fetches every object that holds data.
    pub(super) fn rival(&self) -> Rival {
        let (address, talk) = (self.address.clone(), Arc::clone(&self.talk));
        let perform = move || {
            let mut talk = talk.lock().unwrap_or_else(PoisonError::into_inner);
            let objects: Vec<(String, u64)> = talk.ask("objects")?;
            fetch(&address, objects.into_iter().filter(|(path, _)| path.contains("/data/")))
        };
        Rival { workload: Workload::SequentialReadCold, perform: Box::new(perform) }
    }
}

/// Fetches objects with curl; how many bytes, and how long that took.
fn fetch(address: &str, objects: impl Iterator<Item = (String, u64)>) -> io::Result<(u64, Duration)> {
    let (mut config, mut bytes) = (String::new(), 0);
    for (path, size) in objects {
        let _ = writeln!(config, "url = \"http://{address}/{path}\"\noutput = \"/dev/null\"");
        bytes += size;
    }
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--fail",
        "--noproxy",
        "*",
        "--parallel",
        "--parallel-max",
        CONNECTIONS,
    ]);
    let begin = Instant::now();
    let mut child = command.args(["--config", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut to) = child.stdin.take() {
        to.write_all(config.as_bytes())?;
    }
    let status = child.wait()?;
    let took = begin.elapsed();
    if status.success() {
        Ok((bytes, took))
    } else {
        Err(io::Error::other(format!("curl ended with {status}")))
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
