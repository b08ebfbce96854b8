//! The keys of the limits of a voucher or a campaign.

use fred::types::Key;

use crate::limits::LimitOwner;

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
        format!("{}seckill:limits:{}", self.prefix, self.owner).into()
    }

    /// What is used of them.
    #[must_use]
    pub fn uses(&self) -> Key {
        format!("{}seckill:uses:{}", self.prefix, self.owner).into()
    }
}
