//! docs/dependencies.md against the manifests: one row for each direct dependency.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::tree::Tree;

const PAGE: &str = "docs/dependencies.md";

#[test]
fn every_direct_dependency_has_its_row_and_every_row_is_a_dependency() {
    let tree = Tree::read_all();
    let of_members = |path: &&str| path.starts_with("crates/");
    let manifests: Vec<String> =
        tree.paths_of("/Cargo.toml").filter(of_members).map(|path| tree.read(path)).collect();
    let complaints = complaints(&tree.read(PAGE), &manifests);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn a_wrong_page_would_be_seen() {
    let orders = "[dependencies]\nours.workspace = true\ntidegate-stream.workspace = true\n";
    let lab = "[dependencies]\nours.workspace = true\n[dev-dependencies]\ntheirs = \"1\"\n";
    let seen = |rows: &[&str]| complaints(&rows.join("\n"), &[orders.to_owned(), lab.to_owned()]);
    let (ours, theirs) = ("| `ours` | SQL. |", "| `theirs` | Log. |");
    assert!(seen(&["| crate | purpose |", "|---|---|", ours, theirs]).is_empty());
    assert_eq!(seen(&[ours]), ["docs/dependencies.md has no row for theirs"]);
    for wrong in [ours, "| `nobodys` | |", "| `tidegate-stream` | |"] {
        assert_eq!(seen(&[ours, theirs, wrong]).len(), 1, "{wrong}");
    }
}

fn complaints(page: &str, manifests: &[String]) -> Vec<String> {
    let declared = manifests.iter().flat_map(|manifest| dependencies(manifest));
    let mut declared: BTreeSet<String> = declared.collect();
    let mut complaints = Vec::new();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    for (name, _) in rows {
        if !declared.remove(name) {
            complaints.push(format!("{PAGE}: {name} is no dependency, or has two rows"));
        }
    }
    complaints.extend(declared.into_iter().map(|name| format!("{PAGE} has no row for {name}")));
    complaints
}

/// The foreign crates that a member's manifest names, also for its tests and its build script.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: Table = manifest.parse().expect("TOML");
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = kinds.into_iter().filter_map(|kind| manifest.get(kind).and_then(Value::as_table));
    let names = tables.flat_map(Table::keys).filter(|name| !name.starts_with("tidegate"));
    names.cloned().collect()
}
