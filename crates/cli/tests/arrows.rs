//! The crates' arrows point down only: what a crate may depend on is a table here, and every `Cargo.toml` is held to it.
//!
//! Dependencies of tests may point anywhere.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::{collections::BTreeMap, fs, path::Path};

/// A crate's layer. It may depend on crates of lower layers only.
const LAYERS: &[(&str, u32)] = &[
    ("types", 0),
    ("engine", 1),
    ("env", 1),
    ("format", 1),
    ("cluster", 1),
    ("locks", 1),
    ("object", 2),
    ("group", 2),
    ("rpc", 2),
    ("meta", 2),
    ("data", 2),
    ("cache", 2),
    ("reading", 3),
    ("slate", 3),
    ("protocol", 3),
    ("vfs", 3),
    ("volume", 4),
    ("owner", 4),
    ("server", 5),
    ("client", 5),
    ("proxy", 6),
    ("mount", 6),
    ("cli", 7),
];

/// Crates that know no other crate of the workspace: the kernel interface and the benchmark work for any file system.
const ALONE: &[&str] = &["fuse", "bench"];

/// Crates that only tests use.
const FOR_TESTS: &[&str] = &["testkit"];

/// The `forebay-…` crates that a manifest names in `[dependencies]` (and nowhere else).
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if matches!(section, "dependencies" | "build-dependencies" | "target")
            || section.starts_with("target.")
        {
            found.extend(
                line.strip_prefix("forebay-")
                    .and_then(|rest| rest.split(['.', ' ', '=']).next())
                    .map(str::to_owned),
            );
        }
        if let Some(name) = section.strip_prefix("dependencies.forebay-") {
            found.push(name.to_owned());
            section = "";
        }
    }
    found
}

fn wrong(name: &str, dependency: &str) -> Option<String> {
    let layer = |of: &str| LAYERS.iter().find(|(name, _)| *name == of).map(|(_, layer)| *layer);
    let alone = ALONE.contains(&dependency);
    match (layer(name), layer(dependency)) {
        _ if ALONE.contains(&name) => {
            Some(format!("{name} depends on {dependency}: it is to know none of ours"))
        }
        _ if FOR_TESTS.contains(&dependency) => {
            Some(format!("{name} depends on {dependency}, which is for tests"))
        }
        _ if FOR_TESTS.contains(&name) => None,
        (Some(upper), None) if alone && upper >= 6 => None,
        (Some(upper), Some(lower)) if upper > lower => None,
        _ => Some(format!("{name} depends on {dependency}: that arrow does not point down")),
    }
}

#[test]
fn arrows_point_down() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(crates).unwrap() {
        let dir = entry.unwrap();
        let Ok(manifest) = fs::read_to_string(dir.path().join("Cargo.toml")) else { continue };
        seen.insert(dir.file_name().into_string().unwrap(), dependencies(&manifest));
    }
    let known: Vec<_> = LAYERS
        .iter()
        .map(|(name, _)| *name)
        .chain(ALONE.iter().copied())
        .chain(FOR_TESTS.iter().copied())
        .collect();
    for name in &known {
        assert!(seen.contains_key(*name), "there is no crate {name}");
    }
    let unknown: Vec<_> = seen.keys().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "give these crates a layer: {unknown:?}");
    let wrong: Vec<_> = seen
        .iter()
        .flat_map(|(name, list)| list.iter().filter_map(|dependency| wrong(name, dependency)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        seen["cli"].contains(&"volume".to_owned()) && seen["mount"].contains(&"vfs".to_owned()),
        "manifests are not read"
    );
}

#[test]
fn wrong_arrows_are_seen() {
    for (name, dependency) in [
        ("meta", "data"),
        ("data", "cache"),
        ("vfs", "volume"),
        ("fuse", "types"),
        ("vfs", "fuse"),
        ("cli", "testkit"),
        ("format", "env"),
        ("engine", "meta"),
        ("engine", "slate"),
        ("bench", "types"),
    ] {
        assert!(wrong(name, dependency).is_some(), "{name} -> {dependency}");
    }
    for (name, dependency) in
        [("cli", "fuse"), ("mount", "fuse"), ("vfs", "meta"), ("testkit", "fuse"), ("env", "types")]
    {
        assert_eq!(wrong(name, dependency), None);
    }
    let manifest = "[dependencies]\nforebay-types.workspace = true\nforebay-meta = { path = \"x\" }\nbytes = \"1\"\n[dependencies.forebay-data]\npath = \"y\"\n[dev-dependencies]\nforebay-cli.workspace = true\n";
    assert_eq!(dependencies(manifest), ["types", "meta", "data"]);
}
