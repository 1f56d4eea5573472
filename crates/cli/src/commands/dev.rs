//! `forebay dev cluster`: one machine plays a whole cluster, with the same binary and the same commands as a real one.

use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    args::{DevArgs, DevClusterArgs, DevCommand},
    error::CliError,
    output,
    progress::Waiting,
};

/// The volume's name.
const VOLUME: &str = "play";

/// The group's name.
const GROUP: &str = "play";
/// What each proxy caches at most.
const PROXY_CACHE: &str = "1GiB";

/// How long a server may take to answer for the first time, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &DevArgs) -> Result<ExitCode, CliError> {
    match &args.command {
        DevCommand::Cluster(args) => cluster(args),
    }
}

fn cluster(args: &DevClusterArgs) -> Result<ExitCode, CliError> {
    // Heard from the start: what was begun is ended in order.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| CliError::Told(format!("cannot listen to signals: {error}")))?;
    let mut cluster = Cluster::prepare(args)?;
    cluster.start_servers(args.servers)?;
    cluster.make_volume()?;
    cluster.start_proxies(args.proxies)?;
    for number in 1..=args.mounts {
        cluster.mount(number)?;
    }
    cluster.explain();
    signals.forever().next();
    output::line(&"");
    cluster.end()?;
    Ok(ExitCode::SUCCESS)
}

/// What runs. Dropped, it is taken down as far as it got.
#[derive(Debug)]
struct Cluster {
    directory: PathBuf,
    temporary: bool,
    program: PathBuf,
    servers: Vec<(String, Child)>,
    proxies: Vec<(String, Child)>,
    mounts: Vec<PathBuf>,
}

impl Cluster {
    fn prepare(args: &DevClusterArgs) -> Result<Cluster, CliError> {
        let program = std::env::current_exe().map_err(CliError::io("find", "this program"))?;
        let temporary = args.directory.is_none();
        let directory = args
            .directory
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join(format!("forebay-cluster-{}", std::process::id())));
        for part in ["engine", "store"] {
            make_directory(&directory.join(part))?;
        }
        let directory = fs::canonicalize(&directory).map_err(CliError::io("use", directory.clone()))?;
        Ok(Cluster {
            directory,
            temporary,
            program,
            servers: Vec::new(),
            proxies: Vec::new(),
            mounts: Vec::new(),
        })
    }

    /// Starts the servers, and waits until one of them serves.
    fn start_servers(&mut self, count: u8) -> Result<(), CliError> {
        for number in 1..=count {
            let address = free_address()?;
            let mut command = self.command(["meta", "--insecure", "--listen", &address]);
            command.arg("--engine").arg(format!("dir:{}", self.directory.join("engine").display()));
            let child = self.spawn(command, &format!("server-{number}.log"))?;
            self.servers.push((address, child));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let failure = match self.ask(["volume", "list"]) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            self.servers_live()?;
            if Instant::now() > deadline {
                return Err(CliError::Told(format!("no metadata server answers: {failure}")));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Starts a part that runs until the end, with a log of its own.
    fn spawn(&self, mut command: Command, log: &str) -> Result<Child, CliError> {
        let log = self.directory.join(log);
        let file = File::create(&log).map_err(CliError::io("write", log.clone()))?;
        let errors = file.try_clone().map_err(CliError::io("write", log.clone()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        // Ctrl-C is for this process, which ends the others in their order.
        command.process_group(0);
        command.spawn().map_err(CliError::io("start", self.program.clone()))
    }

    /// Starts the proxies, waits until the group has them, and has the volume read through it.
    fn start_proxies(&mut self, count: u8) -> Result<(), CliError> {
        if count == 0 {
            return Ok(());
        }
        if self.ask(["group", "show", GROUP]).is_err() {
            self.ask(["group", "create", GROUP])?;
        }
        let meta = self.addresses();
        for number in 1..=count {
            let address = free_address()?;
            let mut command = self.command(["proxy", "--insecure", "--listen", &address, "--meta", &meta]);
            command.args(["--group", GROUP, "--cache-size", PROXY_CACHE, "--zone", &format!("z{number}")]);
            command.arg("--cache-dir").arg(self.directory.join(format!("proxy-{number}")));
            let child = self.spawn(command, &format!("proxy-{number}.log"))?;
            self.proxies.push((address, child));
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.all_joined()? {
            for (number, (_, child)) in self.proxies.iter_mut().enumerate() {
                if let Ok(Some(status)) = child.try_wait() {
                    let log = self.directory.join(format!("proxy-{}.log", number + 1));
                    return Err(CliError::Told(format!("a proxy ended ({status}): {}", last_line(&log))));
                }
            }
            if Instant::now() > deadline {
                return Err(CliError::Told("the proxies do not join their group".to_owned()));
            }
            thread::sleep(Duration::from_millis(100));
        }
        self.ask(["volume", "set", VOLUME, "--group", GROUP])?;
        // One disk alone is not what a sync waits for.
        self.ask(["volume", "set", VOLUME, "--durability", if count > 1 { "replica" } else { "object" }])
    }

    /// Waits until the store has what the proxies keep. What it still has not is there the next time.
    fn wait_for_store(&self) {
        if self.temporary || self.proxies.is_empty() {
            return;
        }
        let _waiting = Waiting::begin("what was written goes into the store".to_owned());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut command = self.command(["group", "show", GROUP, "--json", "--meta", &self.addresses()]);
            let said = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success());
            let shown = said.and_then(|output| serde_json::from_slice::<Value>(&output.stdout).ok());
            let Some(members) = shown.as_ref().and_then(|shown| shown["members"].as_array()) else { break };
            if members.iter().all(|member| member["dirty_bytes"] == 0) {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
        output::complain(
            &"some of what was written is on the proxies' disks alone: start it again with --proxies",
        );
    }

    /// Whether the group has all proxies.
    fn all_joined(&self) -> Result<bool, CliError> {
        let mut command = self.command(["group", "show", GROUP, "--meta", &self.addresses()]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(CliError::io("start", self.program.clone()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(self.proxies.iter().all(|(address, _)| text.contains(address)))
    }

    /// Fails if a server has ended.
    fn servers_live(&mut self) -> Result<(), CliError> {
        for (number, (_, child)) in self.servers.iter_mut().enumerate() {
            if let Ok(Some(status)) = child.try_wait() {
                let log = self.directory.join(format!("server-{}.log", number + 1));
                return Err(CliError::Told(format!(
                    "a metadata server ended ({status}): {}",
                    last_line(&log)
                )));
            }
        }
        Ok(())
    }

    fn make_volume(&self) -> Result<(), CliError> {
        if self.ask(["volume", "show", VOLUME]).is_ok() {
            return Ok(());
        }
        let store = format!("file://{}", self.directory.join("store").display());
        self.ask(["volume", "create", VOLUME, "--store", &store])
    }

    fn mount(&mut self, number: u8) -> Result<(), CliError> {
        let point = self.directory.join(format!("mount-{number}"));
        make_directory(&point)?;
        let url = format!("forebay://{}/{VOLUME}", self.addresses());
        let mut command = self.command(["mount", &url]);
        command.arg(&point).arg("--insecure");
        succeed(command)?;
        self.mounts.push(point);
        Ok(())
    }

    fn explain(&self) {
        let directory = self.directory.display();
        let mounts: Vec<_> = self.mounts.iter().map(|point| format!("  {}", point.display())).collect();
        let servers: Vec<_> = self
            .servers
            .iter()
            .map(|(address, child)| format!("  {address}  process {}", child.id()))
            .collect();
        output::line(&format!(
            "One volume, mounted {} times:\n{}\nMetadata servers, of which one serves and the others stand by:\n{}",
            mounts.len(),
            mounts.join("\n"),
            servers.join("\n")
        ));
        if !self.proxies.is_empty() {
            let line = |(address, child): &(String, Child)| format!("  {address}  process {}", child.id());
            let proxies: Vec<_> = self.proxies.iter().map(line).collect();
            output::line(&format!(
                "Proxies of the group '{GROUP}', through which the mounts read, and write if there are two:\n{}",
                proxies.join("\n")
            ));
        }
        let group = match self.proxies.is_empty() {
            true => String::new(),
            false => format!("  forebay group show {GROUP} --meta {}\n", self.addresses()),
        };
        output::line(&format!(
            "\nTry, in another terminal:\n  echo hello > {directory}/mount-1/file && cat {directory}/mount-2/file\n  \
             forebay meta status --meta {}\n{group}  kill -9 {}      # the next server goes on where this one was\n\nCtrl-C ends it{}.",
            self.addresses(),
            self.servers.first().map_or(0, |(_, child)| child.id()),
            if self.temporary {
                " and removes all of it".to_owned()
            } else {
                format!("; it is kept in {directory}")
            },
        ));
    }

    /// Takes it down in order: mounts, servers, and what is not to be kept.
    fn end(&mut self) -> Result<(), CliError> {
        let mut failure = None;
        for point in std::mem::take(&mut self.mounts) {
            let mut command = self.command(["umount"]);
            command.arg(&point);
            if let Err(error) = succeed(command) {
                // What is in use is let go of: its process ends with the last user.
                output::complain(&error);
                let mut lazily = self.command(["umount", "--lazy"]);
                lazily.arg(&point);
                failure = succeed(lazily).err().or(failure);
            }
        }
        self.wait_for_store();
        // Proxies first: they tell the servers that they leave.
        for (what, mut parts) in [
            ("proxy", std::mem::take(&mut self.proxies)),
            ("metadata server", std::mem::take(&mut self.servers)),
        ] {
            parts.iter().for_each(|(_, child)| terminate(child));
            for (address, child) in &mut parts {
                if !ends(child) {
                    failure = Some(CliError::Told(format!("the {what} at {address} does not end: killed")));
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if self.temporary {
            fs::remove_dir_all(&self.directory).map_err(CliError::io("remove", self.directory.clone()))?;
            self.temporary = false;
        }
        Ok(())
    }

    fn addresses(&self) -> String {
        self.servers.iter().map(|(address, _)| address.as_str()).collect::<Vec<_>>().join(",")
    }

    fn command<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args);
        command
    }

    /// Runs a command that talks to the servers.
    fn ask<const N: usize>(&self, args: [&str; N]) -> Result<(), CliError> {
        let mut command = self.command(args);
        command.args(["--meta", &self.addresses()]);
        succeed(command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if (self.temporary || !self.servers.is_empty() || !self.proxies.is_empty() || !self.mounts.is_empty())
            && let Err(error) = self.end()
        {
            output::complain(&error);
        }
    }
}

/// What a part said last.
fn last_line(log: &Path) -> String {
    let said = fs::read_to_string(log).unwrap_or_default();
    said.lines().last().unwrap_or("it said nothing").to_owned()
}

/// Runs a command to its end. What it said is the error.
fn succeed(mut command: Command) -> Result<(), CliError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(CliError::io("start", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("forebay: ");
    Err(CliError::Told(if said.is_empty() { output.status.to_string() } else { said.to_owned() }))
}

fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // One that has ended is waited for all the same.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Whether it ends by itself.
fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

fn make_directory(path: &Path) -> Result<(), CliError> {
    fs::create_dir_all(path).map_err(CliError::io("make the directory", path))
}

/// An address of this machine that is free now.
fn free_address() -> Result<String, CliError> {
    let taken = |error: io::Error| CliError::Told(format!("there is no free port on 127.0.0.1: {error}"));
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(taken)?;
    Ok(address.to_string())
}
