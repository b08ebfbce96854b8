//! The keys of the list of partitions, which is one for all fleets.

use fred::types::Key;

/// The name of the list. Those of the other keys begin so.
pub(super) const NAME: &str = "tidegate:partitions";

/// Makes the keys of the list of partitions, and of those who work with it.
#[derive(Clone, Copy, Debug)]
pub struct PartitionListKeys<'a> {
    /// Before each of them.
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

    /// Held by whoever changes the list.
    #[must_use]
    pub fn change(&self) -> Key {
        self.key(":change")
    }

    /// The tags of partitions that were in the list once.
    #[must_use]
    pub fn retired(&self) -> Key {
        self.key(":retired")
    }

    /// Which list the gate over HTTP of this name works with.
    #[must_use]
    pub fn gate(&self, name: &str) -> Key {
        self.key(&format!(":gate:{name}"))
    }
}
