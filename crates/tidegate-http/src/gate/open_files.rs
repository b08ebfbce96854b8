//! Each connection takes a file descriptor, of which a process has so many.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// File descriptors for all else of the process: what goes to the stores, the log, the admin page. Callers never take them.
const RESERVE: u64 = 256;

/// So many connections at a time as are wanted, or as fit. Raises the limit as far as the process may.
pub fn connections_that_fit(wanted: usize) -> usize {
    // Where it is not told, nobody can know better than the settings.
    let Some(files) = open_files() else { return wanted };
    let fitting = fitting(wanted, files);
    if fitting < wanted {
        tracing::warn!(
            wanted,
            connections = fitting,
            open_files = files,
            "gate.connections does not fit into the limit of open files: fewer callers are let in at a time; \
             raise the limit (ulimit -n, LimitNOFILE) to {RESERVE} above gate.connections, or lower gate.connections"
        );
    }
    fitting
}

/// The limit, after it was raised.
fn open_files() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Some(if raised { hard } else { soft })
}

fn fitting(wanted: usize, files: u64) -> usize {
    let room = usize::try_from(files.saturating_sub(RESERVE)).unwrap_or(usize::MAX);
    // At least one, or nobody were ever answered.
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
