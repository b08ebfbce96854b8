//! The Redis keys of the list of partitions, which all fleets share.

use fred::types::Key;

/// The name of the key of the list. The names of the other keys begin with it.
pub(super) const NAME: &str = "tidegate:partitions";

/// The maker of the keys for the list of partitions. These keys hold the tags (names) of present and former partitions,
/// the lock of the list, and the list that each gate uses.
#[derive(Clone, Copy, Debug)]
pub struct PartitionListKeys<'a> {
    /// The prefix of every key.
    pub(super) prefix: &'a str,
}

impl PartitionListKeys<'_> {
    fn key(&self, rest: &str) -> Key {
        format!("{}{NAME}{rest}", self.prefix).into()
    }

    /// The key for the tags (names) of all partitions.
    #[must_use]
    pub fn tags(&self) -> Key {
        self.key("")
    }

    /// The key for the lock of a command that changes the list of partitions.
    #[must_use]
    pub fn change(&self) -> Key {
        self.key(":change")
    }

    /// The key for the tags (names) of former partitions, which are no longer in the list.
    #[must_use]
    pub fn retired(&self) -> Key {
        self.key(":retired")
    }

    /// The key for the list of partitions that the given gate (HTTP server) works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        self.key(&format!(":gate:{name}"))
    }
}
