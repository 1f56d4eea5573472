//! What a mount was started with, as the process that takes it over is told.

use std::{net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    args::MountArgs,
    daemon::{Setup, SharedSetup},
    size::ByteSize,
};

/// All that a mount was started with. Paths are absolute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) volume: PathBuf,
    pub(crate) mountpoint: PathBuf,
    /// Lists of `-o`.
    options: Vec<String>,
    cache_dir: Option<PathBuf>,
    cache_size: u64,
    /// 0: the kernel reads no file by itself.
    passthrough_size: u64,
    metrics: Option<SocketAddr>,
    pub(crate) log: Option<PathBuf>,
    /// Variables that are text; credentials of the store may be among them.
    pub(crate) environment: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn of(setup: &Setup, log: Option<PathBuf>) -> Settings {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Settings {
            volume: setup.volume.clone(),
            mountpoint: setup.mountpoint.clone(),
            options: setup.options.clone(),
            cache_dir: setup.cache_dir.clone(),
            cache_size: setup.cache_size.0,
            passthrough_size: setup.passthrough.size(),
            metrics: setup.metrics,
            log,
            environment: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// Of a mount of a shared volume, which is not taken over.
    pub(crate) fn of_shared(setup: &SharedSetup, log: Option<PathBuf>) -> Settings {
        Settings {
            volume: setup.source(),
            mountpoint: setup.mountpoint.clone(),
            options: setup.lists.clone(),
            cache_dir: setup.options.cache_dir.clone(),
            cache_size: setup.options.cache_size,
            passthrough_size: 0,
            metrics: setup.metrics,
            log,
            environment: Vec::new(),
        }
    }

    /// The arguments of `forebay mount` that say the same.
    pub(crate) fn args(&self, foreground: bool) -> MountArgs {
        MountArgs {
            places: vec![self.volume.clone(), self.mountpoint.clone()],
            foreground,
            options: self.options.clone(),
            cache_dir: self.cache_dir.clone(),
            cache_size: Some(ByteSize(self.cache_size)),
            passthrough_size: Some(ByteSize(self.passthrough_size)),
            // What has room was allowed.
            passthrough_plaintext: self.passthrough_size > 0,
            metrics: self.metrics,
            log: self.log.clone(),
            takeover: true,
            detached: !foreground,
            ..MountArgs::default()
        }
    }
}
