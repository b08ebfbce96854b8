//! The Redis keys of the list of partitions, which all fleets share.

use fred::types::Key;

/// The name of the key of the list. The names of the other keys begin with it.
pub(super) const NAME: &str = "tidegate:partitions";

/// Makes the keys of the list of partitions: its tags, its lock, its retired tags, and the notes of the gates.
#[derive(Clone, Copy, Debug)]
pub struct PartitionListKeys<'a> {
    /// The prefix of every key.
    pub(super) prefix: &'a str,
}

impl PartitionListKeys<'_> {
    fn key(&self, rest: &str) -> Key {
        format!("{}{NAME}{rest}", self.prefix).into()
    }

    /// The key of the tags of all partitions.
    #[must_use]
    pub fn tags(&self) -> Key {
        self.key("")
    }

    /// The key of the lock of a command that changes the list.
    #[must_use]
    pub fn change(&self) -> Key {
        self.key(":change")
    }

    /// The key of the tags of partitions that were in the list once.
    #[must_use]
    pub fn retired(&self) -> Key {
        self.key(":retired")
    }

    /// The key of the list that the gate of this name works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        self.key(&format!(":gate:{name}"))
    }
}
