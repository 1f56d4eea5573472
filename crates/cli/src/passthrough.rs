//! Whether the kernel is to read files of a mount by itself, and what that may take on disk.

use forebay_mount::VolumeFs;
use forebay_types::Encryption;
use forebay_volume::VolumeConfig;
use serde_json::{Value, json};

use crate::{error::CliError, size::ByteSize, size::human};

/// The share of the cache's size that a read-only mount takes where nothing was chosen.
const SHARE_READ_ONLY: u64 = 4;

/// What was chosen, and what of it is possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Passthrough {
    /// So many bytes on disk for files that the kernel reads by itself.
    UpTo(u64),
    /// None, and why.
    Off(String),
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) size: Option<ByteSize>,
    /// The smallest file.
    pub(crate) min: ByteSize,
    pub(crate) plaintext: bool,
    pub(crate) read_only: bool,
    pub(crate) cache_size: ByteSize,
}

impl Passthrough {
    /// What of a wish is possible, for a process that `may` register files with the kernel or not.
    pub(crate) fn new(wish: &Wish, config: &VolumeConfig, may: bool) -> Result<Passthrough, CliError> {
        Passthrough::chosen(wish, config.encryption != Encryption::None, may)
    }

    fn chosen(wish: &Wish, encrypted: bool, may: bool) -> Result<Passthrough, CliError> {
        let size = match wish.size {
            Some(ByteSize(size)) if size > 0 && size < wish.min.0 => {
                let least = human(wish.min.0);
                let message =
                    format!("--passthrough-size {size} has no room for a file: give at least {least}, or 0");
                return Err(CliError::Usage(message));
            }
            Some(ByteSize(size)) => size,
            None if wish.read_only => wish.cache_size.0 / SHARE_READ_ONLY,
            None => return Ok(off("a writable mount must ask for it: --passthrough-size")),
        };
        Ok(match size {
            0 => off("as asked"),
            _ if !may => off("it needs root's CAP_SYS_ADMIN"),
            _ if encrypted && !wish.plaintext => {
                off("the volume is encrypted; --passthrough-plaintext allows plain text on the cache's disk")
            }
            size => Passthrough::UpTo(size),
        })
    }

    /// What of a wish is possible on a shared volume, of which those files are handed over that are final: then nothing can go wrong but speed. `place`: whether there is a directory for them.
    pub(crate) fn of_shared(wish: &Wish, place: bool, may: bool) -> Result<Passthrough, CliError> {
        match wish.size {
            None if !place => {
                return Ok(off("there is no place for its files: --cache-dir, or -o passthrough_dir=DIR"));
            }
            Some(size) if size.0 > 0 && !place => {
                let message = "--passthrough-size of a shared volume needs a place for its files: --cache-dir, or -o passthrough_dir=DIR";
                return Err(CliError::Usage(message.to_owned()));
            }
            _ => {}
        }
        let wish = Wish { size: wish.size.or(Some(ByteSize(wish.cache_size.0 / SHARE_READ_ONLY))), ..*wish };
        Passthrough::chosen(&wish, false, may)
    }

    /// Bytes that assembled files may take; 0: there are to be none.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Passthrough::UpTo(size) => *size,
            Passthrough::Off(_) => 0,
        }
    }

    /// For who mounts.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Passthrough::UpTo(size) => {
                format!("passthrough: large files that are read again take up to {} on disk", human(*size))
            }
            Passthrough::Off(why) => format!("no passthrough: {why}"),
        }
    }

    /// As part of a status.
    pub(crate) fn status(&self, fs: &VolumeFs) -> Value {
        let Some((through, assembled)) = fs.passthrough().zip(fs.assembled()) else {
            let why = match self {
                Passthrough::Off(why) => why.as_str(),
                Passthrough::UpTo(_) => "the volume assembles no files",
            };
            return json!({ "on": false, "why_not": why });
        };
        json!({
            "on": through.on,
            "why_not": through.why_not,
            "opens": through.opens,
            "open": through.open,
            "assembled": assembled,
        })
    }
}

fn off(why: &str) -> Passthrough {
    Passthrough::Off(why.to_owned())
}

/// A status for people.
pub(crate) fn line(status: &Value) -> Option<String> {
    let on = status["on"].as_bool()?;
    if !on {
        return Some(format!("off: {}", status["why_not"].as_str().unwrap_or("the mount has not begun")));
    }
    let number = |key: &str| status["assembled"][key].as_u64().unwrap_or(0);
    let damaged = match number("damaged") {
        0 => String::new(),
        damaged => format!(", {damaged} pieces were damaged"),
    };
    Some(format!(
        "on: {} files assembled, {} of {}, {} open{damaged}",
        number("files"),
        human(number("used_bytes")),
        human(number("capacity_bytes")),
        status["open"].as_u64().unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use forebay_types::{Compression, Durability, VolumeId};
    use forebay_volume::{ASSEMBLED_MIN, FORMAT};

    use super::*;

    fn chosen(size: Option<u64>, read_only: bool, encryption: Encryption, may: bool) -> String {
        let config = VolumeConfig {
            format: FORMAT,
            id: VolumeId([7; 16]),
            block_size: 1 << 22,
            compression: Compression::None,
            encryption,
            durability: Durability::Local,
            store: None,
            endpoint: None,
            region: None,
        };
        let wish = Wish {
            size: size.map(ByteSize),
            min: ByteSize(ASSEMBLED_MIN),
            plaintext: false,
            read_only,
            cache_size: ByteSize(8 << 30),
        };
        match Passthrough::new(&wish, &config, may) {
            Ok(Passthrough::UpTo(size)) => size.to_string(),
            Ok(Passthrough::Off(why)) => why,
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn it_is_on_where_nothing_can_change_and_by_wish_elsewhere() {
        let plain = Encryption::None;
        assert_eq!(chosen(None, true, plain, true), (2_u64 << 30).to_string());
        assert_eq!(chosen(Some(5 << 20), false, plain, true), (5 << 20).to_string());
        for (size, read_only, encryption, may, word) in [
            (None, false, plain, true, "--passthrough-size"),
            (Some(0), true, plain, true, "as asked"),
            (None, true, plain, false, "CAP_SYS_ADMIN"),
            (None, true, Encryption::Aes256Gcm, true, "--passthrough-plaintext"),
            (Some(1000), true, plain, true, "1.00 MiB"),
        ] {
            let said = chosen(size, read_only, encryption, may);
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn of_a_shared_volume_it_is_on_where_there_is_a_place() {
        let chosen = |size: Option<u64>, place, may| {
            let wish = Wish {
                size: size.map(ByteSize),
                min: ByteSize(ASSEMBLED_MIN),
                plaintext: false,
                read_only: false,
                cache_size: ByteSize(8 << 30),
            };
            match Passthrough::of_shared(&wish, place, may) {
                Ok(Passthrough::UpTo(size)) => size.to_string(),
                Ok(Passthrough::Off(why)) => why,
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(chosen(None, true, true), (2_u64 << 30).to_string());
        assert_eq!(chosen(Some(5 << 20), true, true), (5 << 20).to_string());
        for (size, place, may, word) in [
            (None, false, true, "there is no place"),
            (Some(5 << 20), false, true, "needs a place"),
            (Some(0), false, true, "as asked"),
            (Some(0), true, true, "as asked"),
            (None, true, false, "CAP_SYS_ADMIN"),
            (Some(1000), true, true, "1.00 MiB"),
        ] {
            let said = chosen(size, place, may);
            assert!(said.contains(word), "{said}");
        }
    }
}
