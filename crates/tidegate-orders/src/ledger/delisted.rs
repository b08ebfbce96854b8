//! Which sales are over for good, for whoever finds nothing of them in Redis.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use super::Ledger;
use crate::order::VoucherId;

impl Ledger {
    /// Those of these vouchers that are delisted; none where MySQL does not answer.
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
