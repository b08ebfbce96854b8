//! Tests of docs/dependencies.md against the manifests: each direct dependency has a row with the crates that use it
//! and its features.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::tree::Tree;

const PAGE: &str = "docs/dependencies.md";

/// The use of a dependency, as a row describes it or as the manifests declare it.
#[derive(Debug, Default, PartialEq)]
struct Use {
    /// Our crates without `tidegate-`. ` (tests)` follows the name if only the tests of a crate need the dependency.
    by: BTreeSet<String>,
    features: BTreeSet<String>,
    has_no_defaults: bool,
}

#[test]
fn every_direct_dependency_has_its_row_and_every_row_is_a_dependency() {
    let tree = Tree::read_all();
    let complaints = complaints(&tree.read(PAGE), &tree.read("Cargo.toml"), &members(&tree));
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_wrong_row_would_be_seen() {
    let manifest = "[workspace.dependencies]\n\
                    tidegate-stream = { path = \"crates/tidegate-stream\" }\n\
                    ours = \"1\"\n\
                    theirs = { version = \"1\", default-features = false, features = [\"a\"] }\n";
    let member = "[dependencies]\nours.workspace = true\ntidegate-stream.workspace = true\n\
                  [dev-dependencies]\ntheirs = { workspace = true, features = [\"b\"] }\n";
    let members = BTreeMap::from([("orders".to_owned(), member.to_owned())]);
    let seen = |rows: &[&str]| complaints(&rows.join("\n"), manifest, &members).len();
    let (ours, theirs) = ("| `ours` | orders | |", "| `theirs` | orders (tests) | | no defaults; `a`, `b` |");
    assert_eq!(seen(&["| crate | used by |", "|---|---|", ours, theirs]), 0);
    assert_eq!(seen(&[ours]), 1, "a row is missing");
    assert_eq!(seen(&[ours, ours, theirs]), 1, "there are two");
    assert_eq!(seen(&[ours, theirs, "| `nobodys` | orders | |"]), 1, "nobody has it");
    assert_eq!(seen(&[ours, theirs, "| `tidegate-stream` | orders | |"]), 1, "it is our own");
    for wrong in [
        "| `theirs` | orders | | no defaults; `a`, `b` |",
        "| `theirs` | orders (tests), lab | | no defaults; `a`, `b` |",
        "| `theirs` | orders (tests) | | `a`, `b` |",
        "| `theirs` | orders (tests) | | no defaults; `a` |",
    ] {
        assert_eq!(seen(&[ours, wrong]), 1, "{wrong}");
    }
}

/// The manifests of our crates, by their names without `tidegate-`.
fn members(tree: &Tree) -> BTreeMap<String, String> {
    let manifests = tree.paths_of("/Cargo.toml").filter_map(|path| {
        let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        Some((name.strip_prefix("tidegate-").unwrap_or("program").to_owned(), tree.read(path)))
    });
    manifests.collect()
}

fn complaints(page: &str, manifest: &str, members: &BTreeMap<String, String>) -> Vec<String> {
    let mut declared = declared(manifest, members);
    let mut complaints = Vec::new();
    for (name, told) in rows(page) {
        match declared.remove(&name) {
            None => complaints.push(format!("{PAGE}: {name} is no dependency, or has two rows")),
            Some(real) if real != told => {
                complaints.push(format!("{PAGE}: {name}: {told:?}, but the manifests say {real:?}"));
            }
            Some(_) => {}
        }
    }
    complaints.extend(declared.into_keys().map(|name| format!("{PAGE} has no row for {name}")));
    complaints
}

/// Rows `| `name` | users | ... | features |`.
fn rows(page: &str) -> impl Iterator<Item = (String, Use)> {
    page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` |")?;
        let cells: Vec<&str> = rest.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
        let of = cells.last().filter(|_| cells.len() > 1).copied().unwrap_or_default();
        let told = Use {
            by: cells[0].split(", ").map(str::to_owned).collect(),
            features: of.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            has_no_defaults: of.contains("no defaults"),
        };
        Some((name.to_owned(), told))
    })
}

/// The dependencies that the workspace declares, without its own crates. The features include those that a member adds.
fn declared(manifest: &str, members: &BTreeMap<String, String>) -> BTreeMap<String, Use> {
    let manifest: Table = manifest.parse().expect("TOML");
    let named = manifest["workspace"]["dependencies"].as_table().expect("a table");
    let named = named.iter().filter(|(_, of)| of.get("path").is_none());
    let mut declared: BTreeMap<String, Use> = named
        .map(|(name, of)| {
            let has_no_defaults = of.get("default-features") == Some(&Value::Boolean(false));
            (name.clone(), Use { features: features(of).collect(), has_no_defaults, ..Use::default() })
        })
        .collect();
    for (member, manifest) in members {
        let manifest: Table = manifest.parse().expect("TOML");
        for (kind, suffix) in [("dependencies", ""), ("dev-dependencies", " (tests)")] {
            for (name, of) in manifest.get(kind).and_then(Value::as_table).into_iter().flatten() {
                if let Some(dependency) = declared.get_mut(name) {
                    // A dependency that the program needs anyway is not listed once more for tests.
                    if !dependency.by.contains(member) {
                        dependency.by.insert(format!("{member}{suffix}"));
                    }
                    dependency.features.extend(features(of));
                }
            }
        }
    }
    declared
}

fn features(of: &Value) -> impl Iterator<Item = String> {
    let listed = of.get("features").and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(|feature| Some(feature.as_str()?.to_owned()))
}
