//! Errors of Redis and of the connections to it.

use std::fmt;

use fred::{
    error::{Error, ErrorKind},
    prelude::FredResult,
    types::{Resp3Frame as Frame, Value},
};

/// An error from a reply of Redis, or from the connection to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisError(Error);

/// The kind of a Redis error, for callers that react differently to some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisErrorKind {
    /// Redis sent no reply within the timeout of the command. Whether Redis executed the command is unknown.
    Timeout,
    /// The connection failed or broke. Whether Redis executed the command is unknown.
    Connection,
    /// Any other error: mostly an error reply of Redis, whose text [`RedisError::details`] returns.
    Other,
}

impl RedisError {
    pub(crate) fn new(error: Error) -> Self {
        Self(error)
    }

    /// Like [`RedisError::new`], but adds the name of the key if it has the wrong type, because Redis does not name it.
    pub(crate) fn of_key(key: &str, error: Error) -> Self {
        if !error.details().starts_with("WRONGTYPE") {
            return Self(error);
        }
        Self(Error::new(error.kind().clone(), format!("{key}: {}", error.details())))
    }

    #[cfg(feature = "fred")]
    pub(crate) fn into_inner(self) -> Error {
        self.0
    }

    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> RedisErrorKind {
        match self.0.kind() {
            ErrorKind::Timeout => RedisErrorKind::Timeout,
            ErrorKind::IO | ErrorKind::Tls | ErrorKind::Canceled | ErrorKind::Routing => {
                RedisErrorKind::Connection
            }
            _ => RedisErrorKind::Other,
        }
    }

    /// The text of the error, as Redis or the operating system worded it.
    #[must_use]
    pub fn details(&self) -> &str {
        self.0.details()
    }

    /// Whether Redis has reached its memory limit (`maxmemory`) and accepts no more data. Redis can still read and
    /// acknowledge entries.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.details().contains("OOM command")
    }

    /// Whether Redis works, but refuses this write. The key has a wrong type, the memory limit is reached, a permission
    /// is missing, or the stream has used its last possible id. A refusal is no outage: everything else can continue.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        // `contains`, not `starts_with`: before Redis 7, an error from within a script has a text before it.
        let refusals = ["WRONGTYPE ", "OOM command", "NOPERM ", "exhausted the last possible ID"];
        refusals.iter().any(|words| self.details().contains(words))
    }

    /// Whether the key does not exist. Redis replies with this error only to commands that ask about a stream (XINFO).
    #[must_use]
    pub fn is_no_such_key(&self) -> bool {
        self.details().contains("no such key")
    }

    /// Whether the user may run the script, but lacks a permission for a command in the script. Redis 7.0 and 7.2 use
    /// different texts for this error.
    #[must_use]
    pub fn is_denied_within_script(&self) -> bool {
        let words = ["The user executing the script can't ", "ACL failure in script"];
        words.iter().any(|words| self.details().contains(words))
    }

    /// Whether the hash slot of a key is moving to another node of the cluster: the reply was `ASK` or `TRYAGAIN`. The
    /// command changed nothing, and the error ends when the slot has moved.
    #[must_use]
    pub fn is_slot_moving(&self) -> bool {
        ["ASK ", "TRYAGAIN "].iter().any(|words| self.details().contains(words))
    }

    /// Whether Redis refuses writes because it cannot write its own file, for example on a full disk.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        is_disk_full(self.details())
    }

    /// Whether Redis works, but this user lacks the permission for a key or a command.
    pub(crate) fn lacks_permission(&self) -> bool {
        self.details().contains("NOPERM ")
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&plain(&self.0.to_string()))
    }
}

impl std::error::Error for RedisError {}

/// Whether the text of an error says that Redis cannot write its own file, for example on a full disk. Error replies of
/// scripts can quote that error.
#[must_use]
pub fn is_disk_full(error: &str) -> bool {
    error.contains("MISCONF ")
}

/// Returns a reply unchanged, or the error that it holds.
pub(crate) fn no_error(reply: FredResult<Frame>) -> FredResult<Frame> {
    match reply? {
        error @ (Frame::SimpleError { .. } | Frame::BlobError { .. }) => Err(match Value::try_from(error) {
            Err(error) => error,
            Ok(value) => Error::new(ErrorKind::Protocol, format!("{value:?}")),
        }),
        reply => Ok(reply),
    }
}

/// Returns the text of an error in a form for people. For example, it shortens `Os { code: 111, kind:
/// ConnectionRefused, message: "Connection refused" }` to the message.
#[must_use]
pub fn readable(error: &str) -> String {
    const DISK: &str = " (Redis cannot write: is the disk of Redis full?)";
    match is_disk_full(error) && !error.ends_with(DISK) {
        true => format!("{error}{DISK}"),
        false => plain(error),
    }
}

/// Like [`readable`], without advice about the disk of Redis.
fn plain(error: &str) -> String {
    const HANDLES: &str = "Too many open files";
    const MORE_HANDLES: &str =
        " (this program has no file handles left: raise `ulimit -n`, or LimitNOFILE of systemd)";
    let error = without_debugging(error);
    match error.contains(HANDLES) && !error.contains(MORE_HANDLES) {
        true => error + MORE_HANDLES,
        false => error,
    }
}

fn without_debugging(error: &str) -> String {
    for (opening, message) in [("Os { code: ", "message: \""), ("Custom { kind: ", "error: \"")] {
        if let Some((before, rest)) = error.split_once(opening)
            && let Some((_, rest)) = rest.split_once(message)
            && let Some((message, after)) = rest.split_once("\" }")
        {
            return [before, message, after].concat();
        }
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::readable;

    #[test]
    fn a_redis_that_cannot_write_its_file_is_asked_about_its_disk() {
        let full = "lock.lua: MISCONF Errors writing to the AOF file: No space left on device";
        assert_eq!(readable(full), format!("{full} (Redis cannot write: is the disk of Redis full?)"));
    }

    #[test]
    fn of_an_error_of_the_operating_system_only_its_message_is_left() {
        let refused = format!("IO Error: {:?}", Error::from_raw_os_error(111));
        assert_eq!(readable(&refused), "IO Error: Connection refused");
        let handles = readable(&format!("IO Error: {:?}", Error::from_raw_os_error(24)));
        assert!(handles.starts_with("IO Error: Too many open files (this program has no"), "{handles}");
        assert_eq!(readable(&handles), handles, "said once");
        let unknown = format!("{:?}", Error::new(ErrorKind::NotFound, "no such host"));
        assert_eq!(readable(&unknown), "no such host");
        for other in ["", "Timeout Error: Request timed out.", "Os { code: ", "Kind(UnexpectedEof)"] {
            assert_eq!(readable(other), other);
        }
    }
}
