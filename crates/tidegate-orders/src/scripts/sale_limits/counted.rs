//! The numbers of counters that limits have in Redis, for each voucher and each campaign.

use std::collections::BTreeSet;

use fred::interfaces::HashesInterface;
use futures_util::future::try_join_all;

use crate::scripts::{SaleLimits, ScriptError, sale_limits::RULES};
use crate::{
    keys::naming,
    limits::{CountedWindows, LimitOwner},
    order::VoucherId,
};

impl SaleLimits {
    /// Returns the number of limit counters in Redis for the given vouchers and their campaigns. There is a counter for
    /// each value that a limit counts by, such as a phone, and a counter for each user who may have several orders. The
    /// call takes two round trips, whatever the number of counters.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn count_uses(&self, vouchers: &[VoucherId]) -> Result<Vec<(LimitOwner, u64)>, ScriptError> {
        let client = self.access.pool.next();
        let rules = vouchers.iter().map(async |voucher| {
            let key = self.access.keys.limits(LimitOwner::Voucher(*voucher)).rules();
            // HMGET, because a Redis user that may read a status may use it, too.
            let fields: Result<Vec<Option<String>>, _> = client.hmget(&key, vec![RULES]).await;
            let rules = fields.map_err(|error| naming(&key, error))?.into_iter().flatten().next();
            Ok::<_, ScriptError>(rules.map(|rules| (*voucher, rules)))
        });
        let limited: Vec<(VoucherId, String)> = try_join_all(rules).await?.into_iter().flatten().collect();
        let campaigns = limited.iter().filter_map(|(_, rules)| CountedWindows::parse(rules)?.campaign);
        let campaigns: BTreeSet<_> = campaigns.collect();
        let owners = limited.iter().map(|(voucher, _)| LimitOwner::Voucher(*voucher));
        let owners = owners.chain(campaigns.into_iter().map(LimitOwner::Campaign));
        try_join_all(owners.map(async |owner| {
            let key = self.access.keys.limits(owner).uses();
            let counters = client.hlen::<u64, _>(&key).await;
            Ok((owner, counters.map_err(|error| naming(&key, error))?))
        }))
        .await
    }
}
