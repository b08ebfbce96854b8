//! The keys of the list of partitions, which is one for all fleets.

use fred::types::Key;

/// The name of the list. The names of the other keys begin with it.
pub(super) const NAME: &str = "tidegate:partitions";

/// Makes the keys of the list of partitions: its tags, its lock, its retired tags, and those of gates.
#[derive(Clone, Copy, Debug)]
pub struct PartitionListKeys<'a> {
    /// The prefix of every key.
    pub(super) prefix: &'a str,
}

impl PartitionListKeys<'_> {
    fn key(&self, rest: &str) -> Key {
        format!("{}{NAME}{rest}", self.prefix).into()
    }

    /// The tags of all partitions.
    #[must_use]
    pub fn tags(&self) -> Key {
        self.key("")
    }

    /// The lock of a command that changes the list.
    #[must_use]
    pub fn change(&self) -> Key {
        self.key(":change")
    }

    /// The tags of partitions that were in the list once.
    #[must_use]
    pub fn retired(&self) -> Key {
        self.key(":retired")
    }

    /// The list that the gate over HTTP of this name works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        self.key(&format!(":gate:{name}"))
    }
}
