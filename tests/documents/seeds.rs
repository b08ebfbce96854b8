//! Tests that a green run means that every test passed. Random values have a seed, and a failure with a seed counts. A
//! test that passes only the second time fails, unless a short list in the repository names the reason.

use std::{
    fs,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::tree::Tree;

/// Sources of random values that no seed repeats.
const UNSEEDED: [&str; 4] = ["rand::random", "rand::rng()", "from_os_rng", "fastrand::"];

#[test]
fn no_test_draws_chance_that_no_seed_repeats() {
    let tree = Tree::read_all();
    for path in tree.paths_of(".rs").filter(|path| path.starts_with("tests/") || path.contains("/tests/")) {
        // This file itself names the forbidden words.
        if path != "tests/documents/seeds.rs" {
            let text = tree.read(path);
            let found = UNSEEDED.iter().find(|word| text.contains(**word));
            assert!(found.is_none(), "{path}: {found:?}; take the chance of tidegate_lab::Seeds");
        }
    }
}

/// Tests of a crate of its own. Each fails only in its first run.
const TESTS: &str = r#"
fn fails_the_first_time(name: &str) {
    let mark = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if !mark.exists() {
        std::fs::write(mark, "").unwrap();
        panic!("the first time");
    }
}
#[test]
fn always_passes() {}
#[test]
fn passes_the_second_time() { fails_the_first_time("unsteady") }
#[test]
fn draws_a_seed() {
    println!("TIDEGATE_TEST_SEED={}", std::env::var("TIDEGATE_TEST_SEED").unwrap());
    fails_the_first_time("seeded")
}
#[test]
fn fails_in_proptest() { if !std::path::Path::new("x").exists() { panic!("minimal failing input: 3") } }
#[test]
fn always_fails() { panic!("always") }
#[test]
fn draws_the_same_seed_again() {
    let seed = std::env::var("TIDEGATE_TEST_SEED").unwrap() + &std::env::var("PROPTEST_RNG_SEED").unwrap();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("seed");
    match std::fs::read_to_string(&file) {
        Ok(before) => assert_eq!(before, seed),
        Err(_) => { std::fs::write(file, seed).unwrap(); panic!("the first time") }
    }
}
"#;

struct Runs(TempDir);

/// Whether a run succeeded, and its output.
type Run = (bool, String);

impl Runs {
    /// The script with a list of these lines, and a crate with [`TESTS`].
    fn new(list: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let scripts = Tree::root().join("crates/tidegate-lab/scripts");
        fs::copy(scripts.join("timed-tests.sh"), folder.path().join("timed-tests.sh")).expect("copied");
        fs::write(folder.path().join("unsteady-tests.txt"), format!("# A comment.\n\n{list}"))
            .expect("written");
        let manifest = "[package]\nname = \"tried\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(folder.path().join("Cargo.toml"), manifest).expect("written");
        fs::create_dir(folder.path().join("src")).expect("a folder");
        fs::write(folder.path().join("src/lib.rs"), TESTS).expect("written");
        Self(folder)
    }

    /// Runs the test with this name as `just test` does.
    fn run(&self, test: &str) -> Run {
        let folder = self.0.path();
        // bash runs the script, because a child of another test may still have the copy open for writing, so the kernel
        // may refuse to execute it.
        let mut command = Command::new("bash");
        command
            .arg(folder.join("timed-tests.sh"))
            .args(["--offline", "--lib", "--", test])
            .current_dir(folder)
            .stdin(Stdio::null());
        command.env_remove("TIDEGATE_TEST_SEED").env_remove("PROPTEST_RNG_SEED");
        // All packages of these tests are the same, so one build serves all of them.
        command.env("CARGO_TARGET_DIR", folder.join("target"));
        let ended = command.output().expect("the script runs");
        let said = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (ended.status.success(), said.concat())
    }
}

#[track_caller]
fn ends((is_green, said): Run, expected: bool, verdict: &str) {
    assert_eq!(is_green, expected, "{said}");
    assert!(said.contains(verdict), "no {verdict:?} in {said}");
}

#[test]
fn a_test_that_passes_only_the_second_time_fails_and_one_with_seeds_is_not_tried_again() {
    let runs = Runs::new("");
    ends(runs.run("always_passes"), true, "1 passed");
    ends(runs.run("always_fails"), false, "FAILED twice: always_fails");
    ends(runs.run("passes_the_second_time"), false, "UNSTEADY, passed only the second time");
    ends(runs.run("draws_the_same_seed_again"), false, "UNSTEADY, passed only the second time");
    for seeded in ["draws_a_seed", "fails_in_proptest"] {
        let (is_green, said) = runs.run(seeded);
        assert!(!is_green && !said.contains("Once more"), "{said}");
        assert!(
            said.contains(&format!("not tried again: {seeded}; all ran with TIDEGATE_TEST_SEED=")),
            "{said}"
        );
    }
}

#[test]
fn an_unsteady_test_passes_if_the_list_names_it_with_date_and_reason() {
    let line = "2026-11-25 passes_the_second_time It is late on a busy machine.\n";
    ends(Runs::new(line).run("passes_the_second_time"), true, "UNSTEADY, as unsteady-tests.txt says");
    // A test is not listed because its name begins or ends like a listed one, and a test with seeds is never listed.
    let others = "2026-11-25 the_second_time It is late on a busy machine.\n\
                  2026-11-25 passes It is late on a busy machine.\n\
                  2026-11-25 draws_a_seed It is late on a busy machine.\n";
    let runs = Runs::new(others);
    ends(runs.run("passes_the_second_time"), false, "UNSTEADY, passed only the second time");
    ends(runs.run("draws_a_seed"), false, "not tried again");
}

#[test]
fn a_list_without_dates_or_reasons_or_with_more_than_five_tests_fails_before_any_test_runs() {
    let reason = "It is late on a busy machine.";
    let six: String = (0..6).map(|at| format!("2026-11-25 test_{at} {reason}\n")).collect();
    for (list, expected) in [
        (format!("always_passes {reason}\n"), "a line is a date"),
        ("2026-11-25 always_passes\n".to_owned(), "a line is a date"),
        ("2026-11-25 always_passes late\n".to_owned(), "a line is a date"),
        (six, "has more than 5 tests"),
    ] {
        let (is_green, said) = Runs::new(&list).run("always_passes");
        assert!(!is_green && said.contains(expected) && !said.contains("1 passed"), "{list}: {said}");
    }
}

#[test]
fn the_tests_on_the_list_exist() {
    let tree = Tree::read_all();
    let list = tree.read("crates/tidegate-lab/scripts/unsteady-tests.txt");
    let sources = tree.sources("", &[".rs"]);
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(' ').nth(1).and_then(|name| name.rsplit("::").next()).expect("a name");
        assert!(sources.contains(&format!("fn {name}(")), "unsteady-tests.txt names {name}, which is gone");
    }
}
