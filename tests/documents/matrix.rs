//! Tests of the list of `just matrix`, which chooses test programs by their names, in all crates. If a test program
//! starts a server and the matrix does not run it, this file must name the reason.

use std::collections::BTreeSet;

use crate::tree::Tree;

/// The test programs with servers that the matrix does not run, each with the reason.
const LEFT_OUT: [(&str, &str); 6] = [
    ("documents", "what documents and deploy/ say is said of the servers that `just servers` installs"),
    ("bench", "it starts the servers of its matrix by itself"),
    ("clusters", "it starts clusters of both kinds by itself"),
    ("proxy", "it promises something of the lab, whatever server is behind it"),
    ("servers", "it starts each kind of server by itself"),
    ("up_and_down", "it promises something of the lab, whatever server it starts"),
];
/// Names that only tests with servers contain.
const STARTS: [&str; 6] =
    ["RedisServer", "MysqlServer", "RedisSentinel", "MysqlCluster", "Fixture::", "migrated_mysql"];

#[test]
fn every_test_program_with_servers_is_in_the_matrix_or_left_out_for_a_reason() {
    let tree = Tree::read_all();
    let (run, left_out) = (in_matrix(&tree.read("justfile")), LEFT_OUT.map(|(name, _)| name));
    let mut seen = BTreeSet::new();
    for path in tree.paths_of(".rs").filter(|path| path.starts_with("tests/") || path.contains("/tests")) {
        let text = tree.read(path);
        if !STARTS.iter().any(|word| text.contains(word)) {
            continue;
        }
        match program(path) {
            // The tests of the crates themselves run with `--lib --bins`.
            None => assert!(run.contains("lib") && run.contains("bins"), "{path} starts servers"),
            Some(name) if SHARED.contains(&name) => {}
            Some(name) => {
                assert!(run.contains(name) || left_out.contains(&name), "`just matrix` does not run {path}");
                seen.insert(name.to_owned());
            }
        }
    }
    let named: BTreeSet<String> = run.into_iter().filter(|name| name != "lib" && name != "bins").collect();
    let missing: Vec<_> = named.difference(&seen).collect();
    assert!(missing.is_empty(), "`just matrix` runs {missing:?}, where no server is started");
}

#[test]
fn what_ci_runs_of_the_pipeline_on_mysql_is_there() {
    let tree = Tree::read_all();
    let justfile = tree.read("justfile");
    let sample = justfile.lines().find(|line| line.starts_with("matrix-sample:")).expect("the sample");
    let modules: Vec<&str> = sample.split(['"', ' ']).filter_map(|word| word.strip_suffix("::")).collect();
    assert!(!modules.is_empty(), "{sample}");
    for module in modules {
        let file = format!("tests/pipeline/{module}.rs");
        assert!(tree.paths_of(".rs").any(|path| path == file), "there is no {file}");
    }
}

#[test]
fn each_test_that_redis_6_2_cannot_run_is_there() {
    let tree = Tree::read_all();
    let list = tree.read("crates/tidegate-lab/scripts/not-on-redis62.txt");
    for line in list.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase())) {
        let (module, test) = line.rsplit_once("::").expect("a module");
        let file = format!("/{module}.rs");
        let mut files = tree.paths_of(".rs").filter(|path| path.ends_with(&file));
        let is_there = files.any(|path| test.is_empty() || tree.read(path).contains(&format!("fn {test}()")));
        assert!(is_there, "there is no test {line}");
    }
}

/// Folders of `tests/` that several test programs share.
const SHARED: [&str; 5] = ["browser", "database", "program", "fixture", "terminal"];

#[test]
fn the_test_program_of_a_file_is_known() {
    assert_eq!(program("tests/pipeline/faults/kills.rs"), Some("pipeline"));
    assert_eq!(program("tests/traces.rs"), Some("traces"));
    assert_eq!(program("crates/tidegate-lab/tests/proxy.rs"), Some("proxy"));
    assert_eq!(program("crates/tidegate-orders/tests/promises/fixture/mod.rs"), Some("promises"));
    assert_eq!(program("crates/tidegate-orders/src/sessions/tests.rs"), None);
}

/// The words after `--` in the variable by which the recipe chooses.
fn in_matrix(justfile: &str) -> BTreeSet<String> {
    let chosen =
        justfile.lines().find_map(|line| line.strip_prefix("with_servers := ")).expect("with_servers");
    chosen
        .trim_matches('"')
        .split_whitespace()
        .filter(|word| *word != "--test")
        .map(|word| word.trim_start_matches("--").to_owned())
        .collect()
}

/// The test program of a file. None: the file belongs to a library or to the program itself.
fn program(path: &str) -> Option<&str> {
    let (_, inside) = path.split_once("tests/").filter(|(before, _)| !before.contains("/src/"))?;
    let name = inside.split('/').next()?;
    Some(name.strip_suffix(".rs").unwrap_or(name))
}
