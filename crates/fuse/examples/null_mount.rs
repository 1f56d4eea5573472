//! Mounts the do-nothing file system on the directory given as the argument and serves it until it is unmounted.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_fuse::null::{NullConfig, NullFs};
use forebay_fuse::{MountOptions, SessionOptions, mount};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: null_mount DIRECTORY")?;
    let session = mount(&path, &MountOptions { fsname: "null".to_owned(), ..MountOptions::default() })?;
    let options = SessionOptions { read_ahead_kb: Some(1024), ..SessionOptions::default() };
    session.run(Arc::new(NullFs::new(NullConfig::default())), &options)?;
    Ok(())
}
