//! Restores the counters of limits, by `lua/recount.lua`, from the orders that are known to hold them.

use std::collections::BTreeMap;

use fred::types::{Key, Value};

use crate::scripts::{SaleLimits, ScriptError};
use crate::{
    limits::LimitOwner,
    order::{CampaignId, Quantity, UserId, Uses, VoucherId},
    records::journal::UnderLimits,
};

/// The maximum number of fields in one call.
const PIECE: usize = 500;

/// The sums of what the orders of a voucher or a campaign count against its limits. For each counter, only the latest
/// time window counts.
#[derive(Debug, Default)]
pub struct LimitUsage {
    counts: BTreeMap<(LimitOwner, String), Count>,
    /// The slots of each user, with a bit for each slot.
    slots: BTreeMap<(VoucherId, UserId), u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    window: u64,
    orders: u64,
    units: u64,
}

impl LimitUsage {
    /// Adds what an order counts against limits. The order must not have ended.
    pub fn add(&mut self, voucher: VoucherId, user: UserId, quantity: Quantity, limited: &UnderLimits) {
        for used in limited.uses.iter() {
            let owner = used.campaign.map_or(LimitOwner::Voucher(voucher), LimitOwner::Campaign);
            self.count((owner, used.field()), used.window, quantity.get().unsigned_abs());
        }
        *self.slots.entry((voucher, user)).or_default() |= 1 << (limited.slot.get() - 1);
    }

    /// Adds what an order counts against the limits of its campaign. The order may be from any region of the campaign.
    pub fn add_common(&mut self, campaign: CampaignId, units: u64, uses: &Uses) {
        for used in uses.iter().filter(|used| used.campaign == Some(campaign)) {
            self.count((LimitOwner::Campaign(campaign), used.field()), used.window, units);
        }
    }

    fn count(&mut self, field: (LimitOwner, String), window: u64, units: u64) {
        let count = self.counts.entry(field).or_default();
        if window > count.window {
            *count = Count { window, ..Count::default() };
        }
        if window == count.window {
            count.orders += 1;
            count.units += units;
        }
    }
}

impl SaleLimits {
    /// Raises the limit counters in Redis that are lower than the sums of the added orders. Never lowers a counter.
    /// Returns the number of raised counters.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn recount(&self, held: &LimitUsage) -> Result<u64, ScriptError> {
        let mut fields: BTreeMap<LimitOwner, Vec<[Value; 3]>> = BTreeMap::new();
        for ((owner, field), Count { window, orders, units }) in &held.counts {
            let counts = format!("{orders}:{units}");
            let triple = [field.as_str().into(), window.to_string().into(), counts.into()];
            fields.entry(*owner).or_default().push(triple);
        }
        for ((voucher, user), slots) in &held.slots {
            let triple = [format!("u:{user}").into(), "".into(), slots.to_string().into()];
            fields.entry(LimitOwner::Voucher(*voucher)).or_default().push(triple);
        }
        let mut raised = 0;
        for (owner, fields) in fields {
            let key = self.access.keys.limits(owner).uses();
            for piece in fields.chunks(PIECE) {
                raised += self.raise(&key, piece).await?;
            }
        }
        Ok(raised)
    }

    async fn raise(&self, key: &Key, fields: &[[Value; 3]]) -> Result<u64, ScriptError> {
        let args = fields.iter().flatten().cloned().collect();
        let reply = self.recount.call(&self.access.pool, vec![key.clone()], args).await?;
        let raised = reply.as_i64().and_then(|raised| u64::try_from(raised).ok());
        let got = || ScriptError::Unexpected { place: "recount.lua".to_owned(), got: format!("{reply:?}") };
        raised.ok_or_else(got)
    }
}
