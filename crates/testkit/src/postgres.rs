//! A PostgreSQL server of a test's own: in a scratch directory, as an unprivileged user, on a socket and a loopback port.

use std::{
    fs,
    io::{self, Write},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::geteuid;

/// The server's superuser, and that role's password over TCP.
pub const USER: &str = "forebay";
/// See [`USER`].
pub const PASSWORD: &str = "only for tests";

/// A wait that should end; far longer than it takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the server until its input ends, and removes everything then; a word on its input keeps the files. So nothing is left however the
/// test ends.
const KEEPER: &str = r#"
scratch=$1; shift
"$@" >>"$scratch/log" 2>&1 </dev/null &
server=$!
word=; read -r word || true
kill -QUIT "$server" 2>/dev/null; wait "$server"
[ -n "$word" ] || rm -rf -- "$scratch"
"#;

/// A server. It and its files go when this is dropped, or when the process ends.
pub struct PostgresServer {
    scratch: PathBuf,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
    owner: Option<(u32, u32)>,
    keeper: Option<Child>,
}

impl PostgresServer {
    /// Makes one below the directory for temporary files, with settings like `fsync=off`, and starts it.
    ///
    /// # Errors
    /// What is missing, or what a program said.
    pub fn start_new(settings: &[&str]) -> io::Result<PostgresServer> {
        let bin = programs()?;
        let owner = if geteuid().is_root() { Some(unprivileged()?) } else { None };
        let scratch = scratch(owner)?;
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = PostgresServer { scratch, bin, port: 0, settings, owner, keeper: None };
        server.make_files()?;
        for _ in 0..5 {
            server.port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            if server.start().is_ok() {
                return Ok(server);
            }
        }
        Err(io::Error::other(format!("postgres did not start in five tries:\n{}", server.log())))
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that it shows, for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.scratch.join("server.crt")
    }

    /// An address of a database in it.
    #[must_use]
    pub fn url(&self, port: u16, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{port}/{database}", PASSWORD.replace(' ', "%20"))
    }

    /// Starts it again after [`PostgresServer::stop`], and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(&mut self) -> io::Result<()> {
        let (data, scratch) = (self.scratch.join("data"), self.scratch.display().to_string());
        let mut command = self.unprivileged(Path::new("sh"));
        command.args(["-c", KEEPER, "keeper", &scratch]).arg(self.bin.join("postgres")).arg("-D").arg(data);
        let own = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={scratch}"),
            "ssl=on".into(),
            format!("ssl_cert_file={scratch}/server.crt"),
            format!("ssl_key_file={scratch}/server.key"),
        ];
        for setting in own.iter().chain(&self.settings) {
            command.args(["-c", setting]);
        }
        // Signals to the test's group are not the server's: it ends when the test has.
        command.process_group(0);
        let said_before = self.log().len();
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let ends = Instant::now() + LIMIT;
        while !self.is_ready()? {
            // Its port was taken by another process, say.
            let gone = self.log()[said_before..].contains("could not") || keeper.try_wait()?.is_some();
            if gone || Instant::now() > ends {
                end(keeper, b"keep\n")?;
                return Err(io::Error::other(format!("postgres does not come up:\n{}", self.log())));
            }
            sleep(Duration::from_millis(20));
        }
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Ends it at once, as a crash would, and keeps its files.
    ///
    /// # Errors
    /// The system's.
    pub fn stop(&mut self) -> io::Result<()> {
        self.keeper.take().map_or(Ok(()), |keeper| end(keeper, b"keep\n"))
    }

    /// Runs statements as the superuser; returns what they print, one row a line.
    ///
    /// # Errors
    /// What the server said.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        let mut command = self.unprivileged(&self.bin.join("psql"));
        command.arg("-h").arg(&self.scratch).args(["-p", &self.port.to_string(), "-U", USER]);
        output(command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statements]))
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut command = self.unprivileged(&self.bin.join("pg_isready"));
        command.arg("-q").arg("-h").arg(&self.scratch).args(["-p", &self.port.to_string()]);
        Ok(command.status()?.success())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }

    fn make_files(&self) -> io::Result<()> {
        let file = |name: &str| self.scratch.join(name);
        fs::write(file("password"), PASSWORD)?;
        fs::set_permissions(file("password"), fs::Permissions::from_mode(0o644))?;
        let mut initdb = self.unprivileged(&self.bin.join("initdb"));
        initdb.arg("-D").arg(file("data")).args(["-U", USER, "-E", "UTF8", "--no-locale", "--no-sync"]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
        output(initdb.arg("--pwfile").arg(file("password")))?;
        let mut openssl = self.unprivileged(Path::new("openssl"));
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args([
            "-days",
            "30",
            "-subj",
            "/CN=localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        output(openssl.arg("-keyout").arg(file("server.key")).arg("-out").arg(file("server.crt")))?;
        fs::set_permissions(file("server.key"), fs::Permissions::from_mode(0o600))
    }

    fn unprivileged(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.scratch).env("HOME", &self.scratch).env_remove("PGPASSWORD");
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        match self.keeper.take() {
            Some(keeper) => drop(end(keeper, b"")),
            None => drop(fs::remove_dir_all(&self.scratch)),
        }
    }
}

/// Says the last word to a keeper and waits until it has done what it does.
fn end(mut keeper: Child, word: &[u8]) -> io::Result<()> {
    if let Some(mut input) = keeper.stdin.take() {
        // It may have ended by itself.
        let _ = input.write_all(word);
    }
    keeper.wait().map(drop)
}

fn output(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let missing =
        |error| io::Error::other(format!("cannot run {program} (tools/setup test installs it): {error}"));
    let output = command.stdin(Stdio::null()).output().map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{program}: {}: {said}", output.status)))
}

/// Where the newest installed release has its programs.
fn programs() -> io::Result<PathBuf> {
    let releases = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = releases
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists() && path.join("bin/postgres").exists())
        .max_by_key(|path| number(path));
    newest.map(|path| path.join("bin")).ok_or_else(|| {
        io::Error::other(
            "no PostgreSQL in /usr/lib/postgresql/*/bin: `tools/setup test` installs the package postgresql",
        )
    })
}

/// User and group that Debian's package made: PostgreSQL does not run as root.
fn unprivileged() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(str::parse);
        Some((fields.next()?.ok()?, fields.next()?.ok()?))
    };
    find("postgres")
        .or_else(|| find("nobody"))
        .ok_or_else(|| io::Error::other("there is no user `postgres` to run PostgreSQL as"))
}

/// A directory of the server's user; short, since a socket is in it.
fn scratch(owner: Option<(u32, u32)>) -> io::Result<PathBuf> {
    for number in 0..1000 {
        let path = std::env::temp_dir().join(format!("forebay-pg.{}.{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => {
                if let Some((uid, gid)) = owner {
                    chown(&path, Some(uid), Some(gid))?;
                }
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("a thousand servers of one process"))
}
