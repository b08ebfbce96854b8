//! What MySQL knows of the orders.

use std::collections::BTreeSet;

use tidegate_orders::{Records, RecordsError, VoucherId};

use super::{admissions::OrderKey, input::AuditInput};

/// Reads MySQL.
pub(super) struct MysqlReader<'a> {
    records: Records<'a>,
    only: Option<VoucherId>,
}

impl<'a> MysqlReader<'a> {
    pub(super) fn new(records: Records<'a>, only: Option<VoucherId>) -> Self {
        Self { records, only }
    }

    /// Stocks and orders, all as they were at one moment.
    pub(super) async fn read(&self, input: &mut AuditInput) -> Result<(), RecordsError> {
        let mut snapshot = self.records.stocks().snapshot(self.only).await?;
        snapshot.all().await?.iter().for_each(|row| input.add_stock(row));
        snapshot.orders(|row| input.add_row(row)).await?;
        for (voucher, slot) in snapshot.shared_slots().await? {
            input.voucher(voucher).shared_slots.add(slot);
        }
        snapshot.end().await
    }

    /// Looks for orders that were nowhere: they may have been written since.
    pub(super) async fn look_again(
        &self,
        input: &mut AuditInput,
        unresolved: &[OrderKey],
    ) -> Result<(), RecordsError> {
        if unresolved.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = unresolved.iter().map(|(_, order)| *order).collect();
        for row in self.records.orders().by_ids(&ids).await? {
            input.add_row_again(&row);
        }
        // Of vouchers whose journals are removed, or will be.
        let stocks = self.records.stocks().all(self.only).await?;
        let delisted: BTreeSet<i64> =
            stocks.iter().filter(|row| row.is_delisted).map(|row| row.voucher.get()).collect();
        for it in
            self.records.refusals().by_ids(&ids).await?.iter().filter(|it| delisted.contains(&it.voucher))
        {
            if let Ok(voucher) = it.voucher.try_into() {
                input.add_refusal((voucher, it.order), it.user);
            }
        }
        Ok(())
    }
}
