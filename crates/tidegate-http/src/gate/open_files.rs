//! The limit of open files. Each connection takes a file descriptor, and a process has a limited number.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The file descriptors for the rest of the process: the stores, the log, the admin page. Connections never take them.
const RESERVE: u64 = 256;

/// The number of connections that the process can serve at the same time: `wanted`, or fewer if the limit of open files
/// is too low. This function first raises the limit of open files as far as possible.
pub fn connections_that_fit(wanted: usize) -> usize {
    // If the limit is unknown, the settings are the best guess.
    let Some(files) = open_files() else { return wanted };
    let fitting = fitting(wanted, files);
    if fitting < wanted {
        tracing::warn!(
            wanted,
            connections = fitting,
            open_files = files,
            "gate.connections exceeds the limit of open files, so the gate accepts fewer connections at a time: \
             raise the limit of open files (ulimit -n, LimitNOFILE) to gate.connections plus {RESERVE}, or lower \
             gate.connections"
        );
    }
    fitting
}

/// The limit of open files, after this has raised it.
fn open_files() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

fn fitting(wanted: usize, files: u64) -> usize {
    let room = usize::try_from(files.saturating_sub(RESERVE)).unwrap_or(usize::MAX);
    // At least one connection, because otherwise the gate would answer no request at all.
    wanted.min(room.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_never_take_what_the_rest_of_the_process_needs() {
        for (wanted, files, expected) in [
            (20_000, 1_048_576, 20_000),
            (20_000, 20_256, 20_000),
            (20_000, 20_255, 19_999),
            (20_000, 1024, 768),
            (20_000, 300, 44),
            (100, 1024, 100),
            (20_000, 256, 1),
            (20_000, 0, 1),
        ] {
            assert_eq!(fitting(wanted, files), expected, "{wanted} {files}");
        }
    }
}
