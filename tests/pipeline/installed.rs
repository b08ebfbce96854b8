//! Tests of what users install: the image, and the Debian package. Their services run in a root of their own (chroot), which needs root.
//! `just image-test` and `just deb-test` make what these tests need, and run them.

mod image;
mod package;

use std::{fs, io::ErrorKind, path::Path, process::Command};

use crate::fixture::Worker;

/// The user and group of the services. systemd chooses such numbers, too.
const SERVICE_USER: &str = "65532:65532";
const IN_ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tidegate-lab/scripts/in-root.sh");

/// The command that runs `command` with this folder as its root, to which it cannot write.
fn in_root(root: &Path, user: &str, command: &[&str]) -> Vec<String> {
    let root = root.to_str().expect("a path in UTF-8");
    [IN_ROOT, root, user].iter().chain(command).map(ToString::to_string).collect()
}

/// Runs a command to its end; returns stdout.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
}

/// Checks that a process runs as the user of the services, and that not even root can write to the process's root.
#[track_caller]
fn assert_confined(worker: &Worker) {
    let process = format!("/proc/{}", worker.pid());
    let status = fs::read_to_string(format!("{process}/status")).expect("the process is there");
    let user = SERVICE_USER.split(':').next().expect("a user");
    for ids in ["Uid:", "Gid:"] {
        let ids = status.lines().find_map(|line| line.strip_prefix(ids)).expect("ids");
        assert!(ids.split_whitespace().all(|id| id == user), "{ids}");
    }
    let refused = fs::write(format!("{process}/root/written"), "").expect_err("the root is read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
}
