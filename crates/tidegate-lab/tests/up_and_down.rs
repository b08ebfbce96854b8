//! Tests of `tidegate-lab up` and `tidegate-lab down`.

mod redis_call;

use std::path::Path;
use std::process::Command;

use redis_call::call;

/// Runs the program in `folder` and returns what it printed on stdout.
fn lab(folder: &Path, args: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_tidegate-lab");
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} failed: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of a line in a shell into which `exports` was pasted.
fn typed(exports: &str, line: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("{exports}{line}\n")]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn redis_port(exports: &str) -> u16 {
    let line = exports.lines().find(|line| line.starts_with("export TIDEGATE_REDIS_URL=")).unwrap();
    line.trim_end_matches('\'').rsplit(':').next().unwrap().parse().unwrap()
}

/// Ends the servers even when the test fails.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        lab(self.0, &["down"]);
    }
}

#[test]
fn up_is_idempotent_keeps_data_on_demand_and_down_removes_everything() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _down = Down(folder);

    let exports = lab(folder, &["up"]);
    let is_environment = |line: &str| line.starts_with("export TIDEGATE_") || line.starts_with("alias ");
    assert!(exports.lines().all(is_environment), "{exports}");
    call(redis_port(&exports), "SET voucher 7");
    assert_eq!(typed(&exports, "redis GET voucher"), "7\n");
    assert_eq!(typed(&exports, "mysql --skip-column-names -e 'SELECT DATABASE()'"), "tidegate\n");
    assert_eq!(lab(folder, &["up"]), exports, "what runs is left as it is");
    assert_eq!(call(redis_port(&exports), "GET voucher"), "$1\r\n7\r\n");

    lab(folder, &["down", "--keep-data"]);
    assert_eq!(lab(folder, &["up"]), exports, "on the same ports");
    assert_eq!(call(redis_port(&exports), "GET voucher"), "$1\r\n7\r\n");

    lab(folder, &["down"]);
    assert!(!folder.join(".lab").exists());
    lab(folder, &["down"]);
}
