//! The Redis keys of the limits of a voucher or a campaign.

use fred::types::Key;

use crate::limits::LimitOwner;

/// The name of the keys of limits; their owner follows.
pub(super) const RULES: &str = "seckill:limits";
/// The name of the keys that count the use of limits; their owner follows.
pub(super) const USES: &str = "seckill:uses";

/// The maker of the keys for the limits of one voucher or one campaign.
#[derive(Clone, Copy, Debug)]
pub struct LimitKeys<'a> {
    /// The prefix of every key.
    pub(super) prefix: &'a str,
    /// The voucher or the campaign that has the limits.
    pub(super) owner: LimitOwner,
}

impl LimitKeys<'_> {
    /// The key for the rules: the limits and rates of a voucher or campaign.
    #[must_use]
    pub fn rules(&self) -> Key {
        format!("{}{RULES}:{}", self.prefix, self.owner).into()
    }

    /// The key for the counters that show how much of each limit is taken.
    #[must_use]
    pub fn uses(&self) -> Key {
        format!("{}{USES}:{}", self.prefix, self.owner).into()
    }
}
