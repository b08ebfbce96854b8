//! Tests of `tidegate-bench`: its demo loses nothing, its benchmark runs, and the page has every section. They check no
//! speed.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;
use tempfile::TempDir;

/// The program under test. If `cargo test` did not build it, this builds it.
fn tidegate() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_tidegate-bench")).with_file_name("tidegate");
    if !path.is_file() {
        let build = Command::new(env!("CARGO")).args(["build", "--package", "tidegate"]).status().unwrap();
        assert!(build.success());
    }
    path
}

fn run(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).args(args).output().unwrap();
    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?} failed: {shown}{said}");
    shown.into_owned()
}

fn bench(args: &[&str]) -> String {
    run(&[&["bench"][..], args].concat())
}

/// A short sale that lasts until workers have compared both stores, which they do after five seconds.
fn small_demo(more: &[&str]) {
    let tidegate = tidegate();
    let sale = ["--buyers=4000", "--vouchers=800", "--rate=1000", "--tidegate", tidegate.to_str().unwrap()];
    let shown = run(&[&["demo"][..], &sale, more].concat());
    assert!(shown.contains("VERDICT: every admitted order was written exactly once"), "{shown}");
}

#[test]
fn the_demo_loses_nothing() {
    small_demo(&[]);
}

#[test]
fn the_demo_of_a_campaign_loses_nothing() {
    small_demo(&["--campaign"]);
}

#[test]
fn the_demo_of_a_cluster_loses_nothing() {
    small_demo(&["--cluster"]);
}

#[test]
fn a_tiny_run_has_every_section_and_can_be_compared() {
    let folder = TempDir::new().unwrap();
    let (out, tidegate) = (folder.path().to_str().unwrap(), tidegate());
    let parts = "ceiling,tutorial,drain,admission,gate,latency,memory,cost,trouble,books";
    bench(&[
        "full",
        "--scale=0.002",
        "--mysql=mariadb",
        "--only",
        parts,
        "--out",
        out,
        "--tidegate",
        tidegate.to_str().unwrap(),
    ]);

    let file = folder.path().join("results.json");
    let results: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(results["schema"], 1);
    let server = &results["servers"][0];
    for section in
        ["ceiling", "tutorial", "admission", "gate", "latency", "memory", "cost", "trouble", "books"]
    {
        assert!(server[section].is_object(), "no {section} in {server}");
    }
    assert_eq!(server["drains"].as_array().unwrap().len(), 3, "default, many vouchers, history");
    let rates = server["latency"]["rates"].as_array().unwrap();
    let rates: Vec<f64> = rates.iter().map(|at| at["rate"].as_f64().unwrap()).collect();
    let all = [100.0, 1e3, 5e3, 2e4, 4e4, 6e4, 8e4, 1e5, 1.5e5, 2e5];
    assert!(rates.len() > 4 && all.starts_with(&rates), "four, then rising until the knee: {rates:?}");

    assert_eq!(server["books"]["sizes"].as_array().unwrap().len(), 2, "and the tenfold");
    let trouble = &server["trouble"];
    assert_eq!(
        trouble["cases"].as_array().unwrap().len(),
        11 + 4 + 2,
        "all; those that could grow; the flat one"
    );
    for row in ["held_voucher", "long_hold", "large_entries", "cluster"] {
        assert!(trouble[row].is_object(), "no {row} in {trouble}");
    }

    let report = fs::read_to_string(folder.path().join("README.md")).unwrap();
    for heading in
        ["## Targets", "### The cost against a bare insert", "### The gate over HTTP", "### Trouble"]
    {
        assert!(report.contains(heading), "no {heading} in {report}");
    }
    for chart in ["mariadb-writers.svg", "mariadb-latency.svg"] {
        assert!(report.contains(chart) && folder.path().join(chart).is_file(), "{chart}");
    }

    let file = file.to_str().unwrap();
    let compared = bench(&["compare", file, file]);
    assert!(
        compared.lines().any(|line| line.contains("ceiling (a)") && line.contains(" 1.00 ")),
        "{compared}"
    );
}

#[test]
fn a_tiny_run_over_http_has_every_section() {
    let folder = TempDir::new().unwrap();
    let (out, tidegate) = (folder.path().to_str().unwrap(), tidegate());
    bench(&["http", "--scale=0.002", "--out", out, "--tidegate", tidegate.to_str().unwrap()]);
    let page = fs::read_to_string(folder.path().join("http.md")).unwrap();
    for row in
        ["| events, many in a request |", "| 10 followers and 1,000 buyers |", "1 that never answers |"]
    {
        assert!(page.contains(row), "no {row} in {page}");
    }
}

#[test]
fn two_programs_are_measured_in_turn() {
    let program = tidegate();
    let program = program.to_str().unwrap();
    let compared = bench(&["compare", program, program, "--scale=0.002", "--mysql=mariadb"]);
    for said in [
        "cost: an order, rate",
        "cost: an order, the worker",
        "the gate over HTTP, costs its process",
        "MariaDB",
        "A is ",
        "round by round",
    ] {
        assert!(compared.contains(said), "no {said} in {compared}");
    }
    assert!(!compared.contains("script"), "of a file, the script is not known: {compared}");
    for (pair, why) in [
        ([program, "no-such-commit"], "neither a file nor a commit"),
        (["a.json", program], "two JSON files, or none"),
    ] {
        let compare = ["bench", "compare", pair[0], pair[1]];
        let refused = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).args(compare).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}
