//! Which orders a complete journal still holds as admitted.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use fred::interfaces::HashesInterface;
use futures_util::future::try_join_all;

use super::{Gate, GateError};
use crate::{
    journal::{COMPLETE, JournalEntry},
    keys::naming,
    order::{OrderId, UserId, VoucherId},
};

impl Gate {
    /// Of each of these orders that a complete journal holds as admitted for its user, since when, in Unix milliseconds: what it
    /// holds is to be given back where nobody else can have done that. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn held_since(
        &self,
        orders: &[(OrderId, UserId, VoucherId)],
    ) -> Result<Vec<Option<i64>>, GateError> {
        let ids: Vec<_> = orders.iter().map(|(order, _, voucher)| (*voucher, *order)).collect();
        let entries = self.journal_entries(&ids).await?;
        let vouchers: BTreeSet<VoucherId> = ids.iter().map(|(voucher, _)| *voucher).collect();
        let is_complete = async |voucher: VoucherId| {
            let key = self.keys.journal(voucher);
            let noted: Vec<Option<Bytes>> =
                self.pool.hmget(&key, vec![COMPLETE]).await.map_err(|error| naming(&key, error))?;
            Ok::<_, GateError>((voucher, noted.iter().any(Option::is_some)))
        };
        let complete = try_join_all(vouchers.into_iter().map(is_complete)).await?;
        let complete: HashMap<VoucherId, bool> = complete.into_iter().collect();
        let since_ms = |(order, user, voucher): &(OrderId, UserId, VoucherId)| {
            complete.get(voucher).filter(|is_complete| **is_complete)?;
            let is_admitted = |entry: &&JournalEntry| entry.is_admission() && entry.is_by(*user);
            entries.get(&(*voucher, *order)).filter(is_admitted)?.at_ms
        };
        Ok(orders.iter().map(since_ms).collect())
    }
}
