//! The keys of the limits of a voucher or a campaign.

use fred::types::Key;

use crate::limits::LimitOwner;

/// Before the owner of limits.
pub(super) const RULES: &str = "seckill:limits";
/// Before the owner of what is used of them.
pub(super) const USES: &str = "seckill:uses";

/// Makes the keys of the limits of one voucher or one campaign.
#[derive(Clone, Copy, Debug)]
pub struct LimitKeys<'a> {
    /// Before each of them.
    pub(super) prefix: &'a str,
    /// Whose limits they are.
    pub(super) owner: LimitOwner,
}

impl LimitKeys<'_> {
    /// The limits.
    #[must_use]
    pub fn rules(&self) -> Key {
        format!("{}{RULES}:{}", self.prefix, self.owner).into()
    }

    /// What is used of them.
    #[must_use]
    pub fn uses(&self) -> Key {
        format!("{}{USES}:{}", self.prefix, self.owner).into()
    }
}
