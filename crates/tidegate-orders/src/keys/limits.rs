//! The keys of the limits of a voucher or a campaign.

use fred::types::Key;

use crate::limits::LimitOwner;

/// Makes the keys of the limits of one voucher or one campaign.
#[derive(Clone, Copy, Debug)]
pub struct LimitKeys<'a> {
    prefix: &'a str,
    owner: LimitOwner,
}

impl<'a> LimitKeys<'a> {
    /// Keys of `owner`, with `prefix` before each.
    pub(super) const fn new(prefix: &'a str, owner: LimitOwner) -> Self {
        Self { prefix, owner }
    }

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
