//! `forebay pki`: an authority, certificates, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod bed;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use bed::{Bed, contents};
use forebay_rpc::{CertificateFiles, Credentials, Subject};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn files(dir: &Path, name: &str) -> CertificateFiles {
    CertificateFiles {
        authority: dir.join("ca.pem"),
        certificate: dir.join(format!("{name}.pem")),
        key: dir.join(format!("{name}.key")),
    }
}

fn subject(dir: &Path, name: &str) -> Subject {
    Credentials::load(files(dir, name)).unwrap().subject()
}

#[test]
fn an_authority_issues_certificates_that_are_good() {
    let bed = Bed::new();
    let told = bed.good(&["pki", "init", "new/authority"]);
    assert!(told.contains("ca.pem") && told.contains("forebay pki issue"), "{told}");
    let dir = bed.path("new/authority");
    assert_eq!((mode(&dir), mode(&dir.join("ca.key")), mode(&dir.join("ca.pem"))), (0o700, 0o600, 0o644));
    let told = bed.good(&[
        "pki",
        "issue",
        "new/authority",
        "meta1",
        "--host",
        "meta1.example.org",
        "--host",
        "10.0.0.1",
        "--ip",
        "::1",
    ]);
    assert!(told.contains("'meta1'") && told.contains("365 days"), "{told}");
    bed.good(&["pki", "issue", "new/authority", "node7", "--client", "--days", "90"]);
    for name in ["meta1", "node7"] {
        let files = files(&dir, name);
        assert_eq!((mode(&files.key), mode(&files.certificate)), (0o600, 0o644));
        assert_eq!(subject(&dir, name).name, name);
    }
    let meta1 = subject(&dir, "meta1");
    assert_eq!(meta1.hosts, ["meta1.example.org"]);
    assert_eq!(meta1.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["::1", "10.0.0.1"]);
    let node7 = subject(&dir, "node7");
    assert!(node7.ends < meta1.ends && node7.serial != meta1.serial);
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_half_made() {
    let bed = Bed::new();
    bed.good(&["pki", "init", "authority"]);
    bed.good(&["pki", "issue", "authority", "node7"]);
    bed.dir("empty");
    fs::write(bed.path("authority/taken.key"), "somebody's").unwrap();
    fs::create_dir(bed.path("broken")).unwrap();
    fs::write(bed.path("broken/ca.pem"), "nonsense").unwrap();
    fs::write(bed.path("broken/ca.key"), "nonsense").unwrap();
    fs::write(bed.path("file"), "").unwrap();
    let before = contents(&bed.path(""));
    for (args, code, named) in [
        (&["pki", "init", "authority"][..], 1, "never overwritten"),
        (&["pki", "init", "file"], 1, "file"),
        (&["pki", "issue", "authority", "node7"], 1, "never overwritten"),
        (&["pki", "issue", "authority", "taken"], 1, "taken.key"),
        (&["pki", "issue", "empty", "node8"], 1, "forebay pki init"),
        (&["pki", "issue", "broken", "node8"], 1, "cannot be used"),
        (&["pki", "issue", "authority", "ca"], 2, "the authority itself"),
        (&["pki", "issue", "authority", "../node8"], 2, "not a name"),
        (&["pki", "issue", "authority", ".hidden"], 2, "not a name"),
        (&["pki", "issue", "authority", ""], 2, "not a name"),
        (&["pki", "issue", "authority", "node8", "--host", "a b"], 2, "not the name of a host"),
        (&["pki", "issue", "authority", "node8", "--host", "-a"], 2, "`forebay pki"),
        (&["pki", "issue", "authority", "node8", "--ip", "10.0.0"], 2, "10.0.0"),
        (&["pki", "issue", "authority", "node8", "--days", "0"], 2, "--days"),
        (&["pki", "issue", "authority", "node8", "--client", "--server"], 2, "--server"),
    ] {
        let line = bed.refused(code, args);
        assert!(line.contains(named), "{args:?}: {line}");
        assert!(contents(&bed.path("")) == before, "{args:?} changed something");
    }
}

#[test]
fn its_commands_have_help_and_pages() {
    let bed = Bed::new();
    let help = bed.good(&["pki", "--help"]);
    assert!(
        help.contains("\n  init ") && help.contains("\n  issue ") && help.contains("never ca.key"),
        "{help}"
    );
    for command in ["init", "issue"] {
        let help = bed.good(&["pki", command, "--help"]);
        assert!(help.contains("Usage: forebay pki") && help.contains("--days"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    bed.good(&["man", "pages"]);
    let page = fs::read_to_string(bed.path("pages/forebay-pki.1")).unwrap();
    assert!(page.contains("issue"), "{page}");
    let page = fs::read_to_string(bed.path("pages/forebay-pki-issue.1")).unwrap();
    assert!(page.contains(r"\-\-host") && page.contains("forebay pki issue"), "{page}");
    assert!(bed.good(&["completions", "bash"]).contains("issue"));
}
