//! Locks of users in the layout of Redisson, the client of Redis for Java. So Tidegate and `RLock` exclude each other.
//!
//! A lock is a hash with one field, the holder: the id of a process, `:`, and a thread (Java) or batch (Tidegate). The layout is that of Redisson's `RedissonLock` from 3.17 to 4.7, as its scripts have it.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fred::{
    clients::Pool,
    types::{Key, Value},
};
use tidegate_stream::{RedisError, Script};

/// The beginning of each Tidegate process's id: the letters `tidega`, and version 8 of UUIDs (RFC 9562). So a person and a
/// script can tell a lock of Tidegate from a lock of Java.
pub(super) const OWN: &str = "74696465-6761-8";

/// The id of this process, a UUID.
static PROCESS: LazyLock<String> = LazyLock::new(|| {
    let random: u128 = rand::random();
    let (a, b, c) = (random & 0xfff, (random >> 12) & 0x3fff | 0x8000, (random >> 32) & 0xffff_ffff_ffff);
    format!("{OWN}{a:03x}-{b:04x}-{c:012x}")
});

static BATCHES: AtomicU64 = AtomicU64::new(1);

/// Returns a new holder, unique to one batch.
pub(super) fn new_holder() -> String {
    format!("{}:{}", *PROCESS, BATCHES.fetch_add(1, Relaxed))
}

/// The channel on which the release of a lock is published. Redisson puts a name without `{` in braces.
pub(super) fn channel(key: &str) -> String {
    if key.contains('{') { format!("{CHANNEL}{key}") } else { format!("{CHANNEL}{{{key}}}") }
}

const CHANNEL: &str = "redisson_lock__channel:";

/// A lock of another holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The position of the lock among the keys of the call.
    pub(super) at: usize,
    /// The time until the lock expires. None: it never expires.
    pub(super) left: Option<Duration>,
}

/// Calls of the scripts for this layout.
#[derive(Clone, Debug)]
pub(super) struct RedissonLocks {
    pool: Pool,
    lock: Script,
    unlock: Script,
}

impl RedissonLocks {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            lock: Script::new("lock_redisson", include_str!("../../../../lua/lock_redisson.lua")),
            unlock: Script::new("unlock_redisson", include_str!("../../../../lua/unlock_redisson.lua")),
        }
    }

    /// Takes or renews each lock, including locks of the holders in `abandoned`. Returns the locks that another holder has.
    ///
    /// # Errors
    /// If Redis does not answer; then some of the locks may be held.
    pub(super) async fn take(
        &self,
        keys: Vec<Key>,
        holder: &str,
        lease: Duration,
        abandoned: &[String],
    ) -> Result<Vec<Foreign>, RedisError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let mut args = vec![holder.into(), lease_ms.into()];
        args.extend(abandoned.iter().map(|holder| Value::from(holder.as_str())));
        let reply = self.lock.call(&self.pool, keys, args).await?;
        let refused: Vec<i64> = reply.convert().map_err(RedisError::from)?;
        let foreign = refused.chunks_exact(2).map(|pair| Foreign {
            at: usize::try_from(pair[0] - 1).unwrap_or(usize::MAX),
            left: (pair[1] != -1).then(|| Duration::from_millis(pair[1].try_into().unwrap_or(0))),
        });
        Ok(foreign.collect())
    }

    /// Releases those locks that `holder` still has, and publishes each release.
    ///
    /// # Errors
    /// Fails if Redis does not answer (then the locks expire), or refuses PUBLISH.
    pub(super) async fn end(&self, keys: Vec<Key>, holder: &str) -> Result<(), RedisError> {
        if !keys.is_empty() {
            self.unlock.call(&self.pool, keys, vec![holder.into()]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_a_uuid_and_a_number_and_no_batch_has_the_holder_of_another() {
        let (one, two) = (new_holder(), new_holder());
        let (uuid, batch) = one.split_once(':').expect("two parts");
        assert!(two.starts_with(uuid) && one != two && batch.parse::<u64>().is_ok(), "{one} {two}");
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(uuid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()));
        assert!(parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        assert_eq!(
            OWN[..13].replace('-', ""),
            "tidega".bytes().map(|byte| format!("{byte:02x}")).collect::<String>()
        );
    }

    #[test]
    fn a_channel_shares_the_slot_of_its_lock() {
        assert_eq!(channel("lock:order:7"), "redisson_lock__channel:{lock:order:7}");
        assert_eq!(channel("{p1}:lock:order:7"), "redisson_lock__channel:{p1}:lock:order:7");
        for key in ["lock:order:7", "{p1}:lock:order:7"] {
            let slot = |name: &str| fred::util::redis_keyslot(name.as_bytes());
            assert_eq!(slot(&channel(key)), slot(key));
        }
    }
}
