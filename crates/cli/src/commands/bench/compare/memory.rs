//! Little memory for a while: this process, its children and a daemon in a control group of their own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::Trouble;
use crate::output;

/// Where the kernel's memory controller is, by version.
const VERSION_1: &str = "/sys/fs/cgroup/memory";
const VERSION_2: &str = "/sys/fs/cgroup";

/// Processes that are held to a limit; set free when dropped.
pub(super) struct Held {
    group: PathBuf,
    before: PathBuf,
    members: Vec<u32>,
}

impl Held {
    /// Holds this process, what it starts from now on, and `daemon` to `bytes` of memory together, page cache included.
    pub(super) fn to(bytes: u64, daemon: Option<u32>) -> Result<Held, Trouble> {
        let (root, limit) = controller().ok_or_else(|| left_out("there is no memory controller"))?;
        let before = own_group(&root).ok_or_else(|| left_out("this process's control group is unknown"))?;
        let group = root.join(format!("forebay-bench-{}", std::process::id()));
        fs::create_dir(&group).map_err(|error| left_out(&error.to_string()))?;
        let mut held = Held { group, before, members: Vec::new() };
        held.limit(limit, bytes, daemon).map_err(|error| left_out(&error.to_string()))?;
        Ok(held)
    }

    fn limit(&mut self, file: &str, bytes: u64, daemon: Option<u32>) -> io::Result<()> {
        fs::write(self.group.join(file), bytes.to_string())?;
        for pid in [Some(std::process::id()), daemon].into_iter().flatten() {
            join(&self.group, pid)?;
            self.members.push(pid);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for pid in &self.members {
            if let Err(error) = join(&self.before, *pid) {
                output::complain(&format_args!("process {pid} stays in a control group: {error}"));
            }
        }
        if let Err(error) = fs::remove_dir(&self.group) {
            output::complain(&format_args!("cannot remove '{}': {error}", self.group.display()));
        }
    }
}

fn left_out(why: &str) -> Trouble {
    Trouble::LeftOut(format!("memory cannot be held to a limit: {why}"))
}

fn join(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// The controller's root and the name of its limit.
fn controller() -> Option<(PathBuf, &'static str)> {
    if Path::new(VERSION_1).join("memory.limit_in_bytes").exists() {
        return Some((VERSION_1.into(), "memory.limit_in_bytes"));
    }
    let controllers = fs::read_to_string(Path::new(VERSION_2).join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|name| name == "memory").then(|| (VERSION_2.into(), "memory.max"))
}

/// The group that this process is in below `root`.
fn own_group(root: &Path) -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let below = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, below) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = if root == Path::new(VERSION_2) { "" } else { "memory" };
        controllers.split(',').any(|name| name == ours).then_some(below)
    })?;
    Some(root.join(below.trim_start_matches('/')))
}
