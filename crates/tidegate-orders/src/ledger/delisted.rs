//! Finds vouchers whose sale is over for good, for callers that find nothing about them in Redis.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use super::Ledger;
use crate::order::VoucherId;

impl Ledger {
    /// The vouchers among these that are delisted. The set is empty if MySQL does not answer.
    pub(crate) async fn delisted_of(&self, vouchers: &BTreeSet<VoucherId>) -> BTreeSet<VoucherId> {
        if vouchers.is_empty() {
            return BTreeSet::new();
        }
        let ids: Vec<String> = vouchers.iter().map(VoucherId::to_string).collect();
        let sql = format!(
            "SELECT CAST(voucher_id AS SIGNED) FROM tb_seckill_voucher \
             WHERE voucher_id IN ({}) AND delisted_at IS NOT NULL",
            ids.join(",")
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(&self.pool);
        let found: Vec<i64> =
            timeout(self.timeout, found).await.map_or_else(|_| Vec::new(), Result::unwrap_or_default);
        found.into_iter().filter_map(|id| id.try_into().ok()).collect()
    }
}
