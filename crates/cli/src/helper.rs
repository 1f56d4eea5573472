//! The forms in which mount(8) calls a file system's helper.
//!
//! - `mount.forebay VOLUME MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]`, with a link of that name to this program in `/sbin`.
//! - `forebay VOLUME MOUNTPOINT -o OPTIONS`, as mount.fuse3 calls what stands after `fuse.` in the type.

use std::ffi::OsString;

/// What a command line turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Called {
    /// To be parsed as it is here.
    Normally(Vec<OsString>),
    /// By mount(8) with `-f`: everything but the mount itself is to be done, which here is nothing.
    Faked,
}

/// Brings the forms of mount(8) into that of `forebay mount`; other command lines stay as they are.
#[must_use]
pub fn translate(argv: Vec<OsString>) -> Called {
    let name = argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let base = name.rsplit('/').next().unwrap_or_default();
    if matches!(base, "mount.forebay" | "mount.fuse.forebay") {
        return helper(argv);
    }
    let word = |index: usize| argv.get(index).map(|word| word.to_string_lossy());
    let from_fuse = word(1).is_some_and(|volume| volume.contains('/'))
        && word(2).is_some_and(|mountpoint| mountpoint.contains('/'))
        && word(3).is_some_and(|option| option == "-o");
    if from_fuse { helper(argv) } else { Called::Normally(argv) }
}

fn helper(argv: Vec<OsString>) -> Called {
    let mut translated: Vec<OsString> = vec!["forebay".into(), "mount".into()];
    let mut places = Vec::new();
    let mut words = argv.into_iter().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        match text.strip_prefix('-') {
            _ if text.starts_with("--") => translated.push(word),
            Some("o") => {
                translated.push("-o".into());
                translated.extend(words.next());
            }
            Some("t" | "N") => drop(words.next()),
            Some(letters)
                if !letters.is_empty() && letters.chars().all(|letter| "sfnvw".contains(letter)) =>
            {
                if letters.contains('f') {
                    return Called::Faked;
                }
            }
            Some("r") => translated.extend(["-o".into(), "ro".into()]),
            Some(_) => translated.push(word),
            None => places.push(word),
        }
    }
    translated.push("--".into());
    translated.extend(places);
    Called::Normally(translated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn normally(line: &str) -> Called {
        Called::Normally(words(line))
    }

    #[test]
    fn both_forms_of_mount_are_understood() {
        let expected = normally("forebay mount -o rw,noatime -- /srv/v /mnt");
        assert_eq!(translate(words("/sbin/mount.forebay /srv/v /mnt -n -v -o rw,noatime")), expected);
        assert_eq!(
            translate(words("mount.fuse.forebay /srv/v /mnt -o rw,noatime -t fuse.forebay")),
            expected
        );
        assert_eq!(translate(words("forebay /srv/v /mnt -o rw,noatime")), expected);
        assert_eq!(translate(words("mount.forebay /srv/v /mnt -sf")), Called::Faked);
        assert_eq!(translate(words("mount.forebay v /mnt -r")), normally("forebay mount -o ro -- v /mnt"));
    }

    #[test]
    fn ordinary_command_lines_stay() {
        for line in [
            "forebay",
            "forebay mount v m -o ro",
            "forebay create v",
            "forebay status /v --json",
            "forebay /v /m",
        ] {
            assert_eq!(translate(words(line)), normally(line));
        }
    }
}
