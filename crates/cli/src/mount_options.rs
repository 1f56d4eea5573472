//! What comes after `-o`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use forebay_fuse::Transport;
use forebay_mount::Lifetimes;
use forebay_vfs::AtimeMode;

use crate::size::ByteSize;

/// The options of a mount. A later option overrides an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountFlags {
    /// Refuse changes.
    pub read_only: bool,
    /// Access times.
    pub atime: AtimeMode,
    /// Set-id bits have no effect.
    pub nosuid: bool,
    /// Device files have no effect.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// ACLs have no effect.
    pub noacl: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// For how long the kernel keeps names and attributes.
    pub lifetimes: Lifetimes,
    /// How requests travel.
    pub transport: TransportChoice,
    /// `cache_dir=`.
    pub cache_dir: Option<PathBuf>,
    /// `cache_size=`.
    pub cache_size: Option<ByteSize>,
    /// `passthrough_size=`.
    pub passthrough_size: Option<ByteSize>,
    /// `passthrough_min=`.
    pub passthrough_min: Option<ByteSize>,
    /// `passthrough_dir=`.
    pub passthrough_dir: Option<PathBuf>,
    /// `passthrough_plaintext`.
    pub passthrough_plaintext: bool,
    /// `metrics=`.
    pub metrics: Option<SocketAddr>,
    /// `log=`.
    pub log: Option<PathBuf>,
    /// `soft`: an operation on a shared volume whose servers do not answer fails in the end.
    pub soft: bool,
    /// `timeout=`: when.
    pub timeout: Option<Duration>,
    /// `local_locks`: locks of a shared volume are this machine's alone.
    pub local_locks: bool,
    /// `noahead`: each change of a shared volume waits for the servers, also in a directory that nobody else works in.
    pub no_ahead: bool,
    /// `tls_ca=`, `tls_cert=`, `tls_key=`.
    pub tls_ca: Option<PathBuf>,
    /// The certificate.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// `token=`: the file with it.
    pub token: Option<PathBuf>,
    /// `insecure`: servers are asked without TLS.
    pub insecure: bool,
}

/// `timeout=` of a soft mount.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// `transport=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportChoice {
    /// io_uring where it can be had.
    #[default]
    Auto,
    /// The same, with a warning in the log where it cannot.
    IoUring,
    /// `/dev/fuse`.
    DevFuse,
}

impl std::str::FromStr for TransportChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<TransportChoice, String> {
        match name {
            "auto" => Ok(TransportChoice::Auto),
            "io_uring" => Ok(TransportChoice::IoUring),
            "dev_fuse" => Ok(TransportChoice::DevFuse),
            _ => Err(format!(
                "mount option 'transport={name}' is not known; there are auto, io_uring and dev_fuse"
            )),
        }
    }
}

impl From<TransportChoice> for Transport {
    fn from(choice: TransportChoice) -> Transport {
        match choice {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::IoUring => Transport::IoUring,
            TransportChoice::DevFuse => Transport::DevFuse,
        }
    }
}

/// Options that are for mount(8), systemd or other tools.
const FOR_OTHERS: &[&str] = &[
    "_netdev",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "defaults",
    "async",
    "rw",
    "relatime",
    "atime",
    "diratime",
    "nodiratime",
    "suid",
    "dev",
    "exec",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "nostrictatime",
    "norelatime",
    "default_permissions",
    "nonempty",
    "lazytime",
    "nolazytime",
    "sync",
    "dirsync",
];

impl MountFlags {
    /// Reads the lists that were given, each separated by commas.
    ///
    /// # Errors
    /// A line that names the option which is unknown or has a wrong value.
    pub fn parse(lists: &[String]) -> Result<MountFlags, String> {
        let mut flags = MountFlags::default();
        for option in lists.iter().flat_map(|list| split(list)).filter(|option| !option.is_empty()) {
            flags.take(&option)?;
        }
        Ok(flags)
    }

    /// How long an operation on a shared volume waits for its servers; `None`: until they answer.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.soft.then(|| self.timeout.unwrap_or(TIMEOUT_DEFAULT))
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("noatime", None) => self.atime = AtimeMode::Off,
            ("strictatime", None) => self.atime = AtimeMode::Strict,
            ("relatime" | "atime" | "nostrictatime", None) => self.atime = AtimeMode::Relative,
            ("nosuid", None) => self.nosuid = true,
            ("suid", None) => self.nosuid = false,
            ("nodev", None) => self.nodev = true,
            ("dev", None) => self.nodev = false,
            ("noexec", None) => self.noexec = true,
            ("exec", None) => self.noexec = false,
            // What mount(8) makes of these where they are not followed by their contrary.
            ("user" | "users", None) => (self.nosuid, self.nodev, self.noexec) = (true, true, true),
            ("owner" | "group", None) => (self.nosuid, self.nodev) = (true, true),
            ("defaults", None) => {
                (self.read_only, self.nosuid, self.nodev, self.noexec) = (false, false, false, false)
            }
            ("noacl", None) => self.noacl = true,
            ("acl", None) => self.noacl = false,
            ("allow_other", None) => self.allow_other = true,
            ("attr_timeout", Some(seconds)) => self.lifetimes.attr = seconds_of(name, seconds)?,
            ("entry_timeout", Some(seconds)) => self.lifetimes.entry = seconds_of(name, seconds)?,
            ("transport", Some(name)) => self.transport = name.parse()?,
            ("cache_dir", Some(dir)) => self.cache_dir = Some(absolute(name, dir)?),
            ("log", Some(file)) => self.log = Some(absolute(name, file)?),
            ("soft", None) => self.soft = true,
            ("hard", None) => (self.soft, self.timeout) = (false, None),
            ("timeout", Some(seconds)) => {
                (self.soft, self.timeout) = (true, Some(seconds_of(name, seconds)?));
            }
            ("local_locks", None) => self.local_locks = true,
            ("noahead" | "no_ahead", None) => self.no_ahead = true,
            ("ahead", None) => self.no_ahead = false,
            ("tls_ca", Some(file)) => self.tls_ca = Some(absolute(name, file)?),
            ("tls_cert", Some(file)) => self.tls_cert = Some(absolute(name, file)?),
            ("tls_key", Some(file)) => self.tls_key = Some(absolute(name, file)?),
            ("token", Some(file)) => self.token = Some(absolute(name, file)?),
            ("insecure", None) => self.insecure = true,
            ("passthrough_plaintext", None) => self.passthrough_plaintext = true,
            ("passthrough_dir", Some(dir)) => self.passthrough_dir = Some(absolute(name, dir)?),
            ("passthrough_size", Some(size)) => self.passthrough_size = Some(value_of(name, size)?),
            ("passthrough_min", Some(size)) => self.passthrough_min = Some(value_of(name, size)?),
            ("cache_size", Some(size)) => self.cache_size = Some(value_of(name, size)?),
            ("metrics", Some(addr)) => self.metrics = Some(value_of(name, addr)?),
            (
                "attr_timeout" | "entry_timeout" | "transport" | "cache_dir" | "log" | "cache_size"
                | "passthrough_size" | "passthrough_min" | "passthrough_dir" | "metrics" | "timeout"
                | "tls_ca" | "tls_cert" | "tls_key" | "token",
                None,
            ) => {
                return Err(format!("mount option '{name}' needs a value: {name}=..."));
            }
            ("sync" | "dirsync", None) => {
                return Err(format!(
                    "mount option '{name}' is not supported: open with O_SYNC, or call fsync"
                ));
            }
            ("user" | "uhelper" | "fsname" | "subtype" | "comment", Some(_)) => {}
            _ if name.starts_with("x-") || (value.is_none() && FOR_OTHERS.contains(&name)) => {}
            _ => {
                return Err(format!(
                    "mount option '{option}' is not known; `forebay mount --help` lists them"
                ));
            }
        }
        Ok(())
    }
}

/// Splits at commas; a backslash takes the next character as it is.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        match (character, options.last_mut()) {
            (',', _) => options.push(String::new()),
            ('\\', Some(option)) => option.extend(characters.next()),
            (other, Some(option)) => option.push(other),
            (_, None) => {}
        }
    }
    options
}

fn absolute(name: &str, path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    if path.is_absolute() { Ok(path) } else { Err(format!("mount option '{name}' needs an absolute path")) }
}

/// Seconds, also parts of one.
fn seconds_of(name: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("mount option '{name}={value}' needs seconds, such as 0 or 1.5"))
}

fn value_of<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("mount option '{name}={value}': {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountFlags, String> {
        MountFlags::parse(&[list.to_owned()])
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let flags = parse("rw,noatime,allow_other,_netdev,nofail,x-systemd.automount,user=joe,cache_size=2G,metrics=127.0.0.1:9187").unwrap();
        assert!(flags.allow_other && !flags.read_only && !flags.nosuid);
        let through = parse("passthrough_size=64M,passthrough_min=4K,passthrough_plaintext").unwrap();
        assert_eq!(
            (through.passthrough_size, through.passthrough_min, through.passthrough_plaintext),
            (Some(ByteSize(64 << 20)), Some(ByteSize(4 << 10)), true)
        );
        assert_eq!((flags.atime, flags.cache_size), (AtimeMode::Off, Some(ByteSize(2 << 30))));
        assert_eq!(flags.metrics, Some("127.0.0.1:9187".parse().unwrap()));
        assert_eq!(parse("").unwrap(), MountFlags::default());
        assert!(parse("noacl").unwrap().noacl && !parse("noacl,acl").unwrap().noacl);
        assert!(parse("noahead").unwrap().no_ahead && parse("no_ahead").unwrap().no_ahead);
        assert!(!parse("rw").unwrap().no_ahead && !parse("noahead,ahead").unwrap().no_ahead);
        let lifetimes = parse("attr_timeout=0,entry_timeout=1.5").unwrap().lifetimes;
        assert_eq!((lifetimes.attr, lifetimes.entry), (Duration::ZERO, Duration::from_millis(1500)));
        assert_eq!(parse("transport=dev_fuse").unwrap().transport, TransportChoice::DevFuse);
    }

    #[test]
    fn the_later_option_counts() {
        assert!(!parse("ro,rw").unwrap().read_only && parse("rw,ro").unwrap().read_only);
        let flags = parse("users,exec,dev").unwrap();
        assert!(flags.nosuid && !flags.noexec && !flags.nodev);
        let lists = ["noatime".to_owned(), "relatime".to_owned()];
        assert_eq!(MountFlags::parse(&lists).unwrap().atime, AtimeMode::Relative);
    }

    #[test]
    fn a_mount_is_hard_until_it_is_said_to_be_soft() {
        let patience = |list: &str| parse(list).unwrap().patience();
        assert_eq!((patience("rw"), patience("soft,hard"), patience("timeout=5,hard")), (None, None, None));
        assert_eq!(patience("soft"), Some(TIMEOUT_DEFAULT));
        assert_eq!(patience("timeout=1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(patience("timeout=5,soft"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn commas_in_values_are_escaped() {
        assert_eq!(parse(r"cache_dir=/a\,b,ro").unwrap().cache_dir, Some(PathBuf::from("/a,b")));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (list, named) in [
            ("no_such_option", "no_such_option"),
            ("cache_size=much", "cache_size=much"),
            ("cache_size", "cache_size"),
            ("ro=1", "ro=1"),
            ("cache_dir=here", "absolute"),
            ("metrics=nowhere", "metrics"),
            ("sync", "O_SYNC"),
            ("transport=pigeon", "dev_fuse"),
            ("transport", "transport=..."),
            ("attr_timeout=-1", "attr_timeout=-1"),
            ("entry_timeout=soon", "seconds"),
        ] {
            let message = parse(list).unwrap_err();
            assert!(message.contains(named) && !message.contains('\n'), "{list}: {message}");
        }
    }
}
