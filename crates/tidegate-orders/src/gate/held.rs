//! What complete journals say of orders: which of them they hold as admitted, and which they have given back.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use fred::interfaces::HashesInterface;
use futures_util::future::try_join_all;

use super::{Gate, GateError};
use crate::{
    keys::naming,
    order::{OrderId, UserId, VoucherId},
    records::journal::{COMPLETE, JournalNote},
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
        let complete = self.complete(ids.iter().map(|(voucher, _)| *voucher)).await?;
        let since_ms = |(order, user, voucher): &(OrderId, UserId, VoucherId)| {
            complete.get(voucher)?;
            let is_admitted = |entry: &&JournalNote| entry.is_admission() && entry.is_by(*user);
            entries.get(&(*voucher, *order)).filter(is_admitted)?.at_ms
        };
        Ok(orders.iter().map(since_ms).collect())
    }

    /// Which of these orders a complete journal knows as given back: if one of them is live in MySQL, a comparison tells that. Reads
    /// only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub(crate) async fn surely_given_back(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, GateError> {
        let mut given_back = self.given_back(orders).await?;
        let complete = self.complete(given_back.iter().map(|(voucher, _)| *voucher)).await?;
        given_back.retain(|(voucher, _)| complete.contains(voucher));
        Ok(given_back)
    }

    /// Those of these vouchers whose journals are complete.
    async fn complete(
        &self,
        vouchers: impl Iterator<Item = VoucherId>,
    ) -> Result<BTreeSet<VoucherId>, GateError> {
        let vouchers: BTreeSet<VoucherId> = vouchers.collect();
        let is_complete = async |voucher: VoucherId| {
            let key = self.keys.journal(voucher);
            let noted: Vec<Option<Bytes>> =
                self.pool.hmget(&key, vec![COMPLETE]).await.map_err(|error| naming(&key, error))?;
            Ok::<_, GateError>(noted.iter().any(Option::is_some).then_some(voucher))
        };
        Ok(try_join_all(vouchers.into_iter().map(is_complete)).await?.into_iter().flatten().collect())
    }
}
