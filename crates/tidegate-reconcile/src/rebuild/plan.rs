//! The plan of a rebuild, with the present values in Redis and MySQL.

use std::collections::BTreeSet;

use anyhow::Context;
use serde::Serialize;
use tidegate_compare::text::counted;
use tidegate_operations::change::{Next, Plan};
use tidegate_orders::{Records, VoucherId, records::vouchers, sale};

use super::{Rebuild, RebuildRequest};

/// The plan to rebuild vouchers in Redis: the vouchers to rebuild, and the vouchers that are left out.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildPlan {
    /// The request that the plan was made for: a voucher to rebuild, and workers to ignore.
    #[serde(flatten)]
    pub request: RebuildRequest,
    /// The vouchers to rebuild, in ascending order of their ids.
    pub vouchers: Vec<VoucherPlan>,
    /// The number of vouchers whose sale is over, according to their rows in MySQL. A rebuild includes such vouchers
    /// only on request.
    pub ended: u64,
    /// The number of vouchers whose sale was ended permanently, so that they are never rebuilt.
    pub delisted: u64,
    /// The vouchers in MySQL that were never on sale through Redis. A rebuild includes such vouchers only on request.
    pub never_sold: Vec<VoucherId>,
}

/// The stocks and orders of a voucher in Redis and MySQL before its rebuild.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherPlan {
    /// The voucher that is rebuilt in Redis.
    pub voucher: VoucherId,
    /// The units left in MySQL. None: the voucher has no row, so it cannot be rebuilt.
    pub mysql_stock: Option<i64>,
    /// The number of the voucher's orders in MySQL that are not cancelled or refunded.
    pub live_orders: i64,
    /// The units left in Redis. None: no stock is loaded, or the stock cannot be read.
    pub redis_stock: Option<i64>,
    /// The number of notes in the voucher's present journal, the Redis hash of orders.
    pub journaled: u64,
    /// Whether the sale of the voucher was ended permanently, so that the voucher is not rebuilt.
    pub is_delisted: bool,
}

impl Plan for RebuildPlan {
    fn next(&self) -> Next {
        if self.vouchers.is_empty() {
            return Next::NothingToDo;
        }
        if self.vouchers.iter().all(|voucher| voucher.mysql_stock.is_none() || voucher.is_delisted) {
            return Next::Refused;
        }
        let vouchers = counted(self.vouchers.len() as u64, "voucher");
        Next::Ask(format!("Rebuild {vouchers} in Redis, from MySQL, the stream and the dead letters?"))
    }
}

impl Rebuild {
    /// Reads Redis and MySQL, and creates the plan of a rebuild. Changes nothing.
    ///
    /// # Errors
    /// Fails if a store does not answer, or the MySQL node lags.
    pub async fn plan(&self, request: RebuildRequest) -> anyhow::Result<RebuildPlan> {
        self.catch_up().await?;
        let mut plan =
            RebuildPlan { request, vouchers: Vec::new(), ended: 0, delisted: 0, never_sold: Vec::new() };
        let wanted = match plan.request.voucher {
            Some(voucher) => BTreeSet::from([voucher]),
            None => self.all_vouchers(&mut plan).await?,
        };
        for voucher in wanted {
            plan.vouchers.push(self.look_at(voucher).await?);
        }
        Ok(plan)
    }

    async fn all_vouchers(&self, plan: &mut RebuildPlan) -> anyhow::Result<BTreeSet<VoucherId>> {
        let not_ended = vouchers::not_ended(&self.mysql, self.redis.keys().partition()).await;
        let (open, ended) = not_ended.context("Failed to read the vouchers")?;
        (plan.ended, plan.delisted) = (ended.ended, ended.delisted);
        let in_redis = async {
            let mut known = sale::find_loaded(&self.redis, |_| {}).await?;
            known.extend(sale::find_known(&self.redis, |_| {}).await?);
            known.extend(sale::find_journaled(&self.redis, |_| {}).await?);
            known.extend(sale::find_bought(&self.redis, |_| {}).await?);
            Ok::<_, fred::error::Error>(BTreeSet::from_iter(known))
        };
        let in_redis: BTreeSet<VoucherId> = in_redis.await.context("Failed to look for vouchers in Redis")?;
        let (used, unused): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|open| open.is_used || in_redis.contains(&open.voucher));
        plan.never_sold = unused.into_iter().map(|open| open.voucher).collect();
        Ok(used.into_iter().map(|open| open.voucher).collect())
    }

    async fn look_at(&self, voucher: VoucherId) -> anyhow::Result<VoucherPlan> {
        let row =
            vouchers::find(&self.mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
        let live_orders =
            Records::new(&self.mysql, self.redis.keys().partition()).counts().live_of_voucher(voucher).await;
        // Values in Redis that cannot be read are replaced by the rebuild.
        let sale = self.redis.sales().read_voucher(voucher).await.ok();
        Ok(VoucherPlan {
            voucher,
            is_delisted: row.as_ref().is_some_and(|row| row.delisted_ms.is_some()),
            mysql_stock: row.map(|row| row.stock),
            live_orders: live_orders.context("Failed to count the orders of the voucher")?,
            redis_stock: sale.and_then(|sale| sale.stock),
            journaled: sale.map_or(0, |sale| sale.journaled),
        })
    }
}
