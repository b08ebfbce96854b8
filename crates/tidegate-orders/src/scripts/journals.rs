//! Reads journals: the notes of single orders, and the sum of all movements of a voucher.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use fred::{
    interfaces::{ClientLike, HashesInterface},
    types::{ClusterHash, CustomCommand, Value},
};
use futures_util::future::try_join_all;
use tidegate_stream::Script;

use super::{ScanPages, ScriptError, access::RedisAccess};
use crate::{
    keys::naming,
    order::{OrderId, UserId, VoucherId},
    records::journal::{
        COMPLETE, JournalField, JournalNote, JournalSnapshot, JournalSum, Purged, Sum, UnderLimits,
    },
};

/// How often the clock is read, a millisecond apart. If it still does not move on, it was set back, and the sum will be
/// unsure.
const MOST_TRIES: u32 = 100;
/// How often a journal is read if the result is unsure.
const MOST_LOOKS: u32 = 3;

/// Read access to the journals of vouchers. A journal is a Redis hash in which a note for each order says how the order
/// changed the stock.
#[derive(Clone, Debug)]
pub struct Journals {
    access: RedisAccess,
    snapshot: Script,
}

/// The outcome of a check whether a voucher's stock equals the sum of its journal, the Redis hash that notes each
/// change of the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumCheck {
    /// The journal is not complete, so it says nothing about the stock.
    NotComplete,
    /// The journal holds this many fields, more than the caller allows.
    TooLarge(u64),
    /// The sum of the journal, compared with the stock at the time of the snapshot.
    Checked(JournalSnapshot, Sum),
}

impl Journals {
    pub(super) fn new(access: &RedisAccess) -> Self {
        let snapshot = Script::new("snapshot", include_str!("../../../../lua/snapshot.lua"));
        Self { access: access.clone(), snapshot }
    }

    /// Finds those given orders that the vouchers' journals (notes about orders in Redis) note as released: the orders
    /// returned their units. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn released(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, ScriptError> {
        let entries = self.journal_entries(orders).await?;
        Ok(entries.into_iter().filter(|(_, entry)| entry.is_release()).map(|(order, _)| order).collect())
    }

    /// Finds those given orders whose notes in Redis have not changed since the orders took their units. The notes were
    /// neither lost nor restored, and the orders were not released. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn never_lost(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, ScriptError> {
        let entries = self.journal_entries(orders).await?;
        let is_whole = |entry: &JournalNote| !entry.is_release() && entry.repaired.is_none();
        Ok(entries.into_iter().filter(|(_, entry)| is_whole(entry)).map(|(order, _)| order).collect())
    }

    /// Finds those given orders that have a note in a voucher's journal (Redis hash), whatever the note says. Changes
    /// nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn journaled(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, ScriptError> {
        Ok(self.journal_entries(orders).await?.into_keys().collect())
    }

    /// Reads from Redis which limits the given orders count against. The result lacks orders that have returned their
    /// units, and orders of vouchers without limits.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn under_limits(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashMap<(VoucherId, OrderId), UnderLimits>, ScriptError> {
        let entries = self.journal_entries(orders).await?;
        Ok(entries.into_iter().filter_map(|(order, entry)| Some((order, entry.limited?))).collect())
    }

    /// Returns for each given order id whether Redis notes an order of another user under the id. If it does, no order
    /// may be released under the id, and no other user's event may end the order. A note that cannot be read counts as
    /// another user's. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn are_of_others(
        &self,
        orders: &[(OrderId, UserId, VoucherId)],
    ) -> Result<Vec<bool>, ScriptError> {
        let ids: Vec<_> = orders.iter().map(|(order, _, voucher)| (*voucher, *order)).collect();
        let entries = self.journal_entries(&ids).await?;
        let is_of_another = |(order, user, voucher): &(OrderId, UserId, VoucherId)| {
            let entry = entries.get(&(*voucher, *order));
            entry.is_some_and(|entry| !entry.is_release() && !entry.is_by(*user))
        };
        Ok(orders.iter().map(is_of_another).collect())
    }

    /// The notes of these orders in the journals. A note that cannot be read becomes an entry without a user.
    pub(crate) async fn journal_entries(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashMap<(VoucherId, OrderId), JournalNote>, ScriptError> {
        let mut by_voucher: BTreeMap<VoucherId, Vec<OrderId>> = BTreeMap::new();
        for (voucher, order) in orders {
            by_voucher.entry(*voucher).or_default().push(*order);
        }
        let of_voucher = async |(voucher, orders): (VoucherId, Vec<OrderId>)| {
            let names: Vec<String> = orders.iter().map(OrderId::to_string).collect();
            let key = self.access.keys.journal(voucher);
            let notes = self.access.pool.hmget(&key, names).await;
            let notes: Vec<Option<Bytes>> = notes.map_err(|error| naming(&key, error))?;
            let entry = |note: Bytes| JournalNote::parse(&note).unwrap_or_default();
            let noted = orders.into_iter().zip(notes);
            Ok::<_, ScriptError>(
                noted.filter_map(move |(order, note)| Some(((voucher, order), entry(note?)))),
            )
        };
        Ok(try_join_all(by_voucher.into_iter().map(of_voucher)).await?.into_iter().flatten().collect())
    }

    /// Finds those given orders that still take units in Redis, according to a journal that notes every change of the
    /// stock. Returns for each order the time at which it took the units, in Unix milliseconds. If no other program can
    /// have returned the units, they must be returned now. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn held_since(
        &self,
        orders: &[(OrderId, UserId, VoucherId)],
    ) -> Result<Vec<Option<i64>>, ScriptError> {
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

    /// Finds the orders among these that a complete journal holds as released. If such an order is live in MySQL, a
    /// comparison reports it. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub(crate) async fn surely_released(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, ScriptError> {
        let mut released = self.released(orders).await?;
        let complete = self.complete(released.iter().map(|(voucher, _)| *voucher)).await?;
        released.retain(|(voucher, _)| complete.contains(voucher));
        Ok(released)
    }

    /// Finds the vouchers among these whose journals are complete.
    async fn complete(
        &self,
        vouchers: impl Iterator<Item = VoucherId>,
    ) -> Result<BTreeSet<VoucherId>, ScriptError> {
        let vouchers: BTreeSet<VoucherId> = vouchers.collect();
        let is_complete = async |voucher: VoucherId| {
            let key = self.access.keys.journal(voucher);
            let noted: Vec<Option<Bytes>> =
                self.access.pool.hmget(&key, vec![COMPLETE]).await.map_err(|error| naming(&key, error))?;
            Ok::<_, ScriptError>(noted.iter().any(Option::is_some).then_some(voucher))
        };
        Ok(try_join_all(vouchers.into_iter().map(is_complete)).await?.into_iter().flatten().collect())
    }

    /// Compares the stock of a voucher with the sum of its journal, the Redis hash that notes each change of the stock.
    /// If the result is unsure, the call reads both again, at most three times in total. If the journal has more than
    /// `most` fields, the call does not read it. The call reads the journal in pages, and does not keep it in memory.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn check_sum(&self, voucher: VoucherId, most: u64) -> Result<SumCheck, ScriptError> {
        let mut check = SumCheck::NotComplete;
        for _ in 0..MOST_LOOKS {
            let snapshot = self.snapshot(voucher).await?;
            if !snapshot.is_complete {
                return Ok(SumCheck::NotComplete);
            }
            if snapshot.journaled > most {
                return Ok(SumCheck::TooLarge(snapshot.journaled));
            }
            let sum = self.sum_since(voucher, snapshot).await?;
            check = SumCheck::Checked(snapshot, sum);
            if sum != Sum::Unsure {
                break;
            }
        }
        Ok(check)
    }

    async fn sum_since(&self, voucher: VoucherId, snapshot: JournalSnapshot) -> Result<Sum, ScriptError> {
        let mut sum = JournalSum::new(snapshot);
        let mut pages = ScanPages::of_journal_by(&self.access, voucher);
        while let Some(fields) = pages.next().await? {
            for (name, note) in &fields {
                let note = JournalNote::parse(note).unwrap_or_default();
                sum.add(JournalField::parse(&String::from_utf8_lossy(name)), &note);
            }
        }
        Ok(sum.finish(&self.snapshot(voucher).await?))
    }

    /// Reads the stock of a voucher and facts about its journal in one step, by `lua/snapshot.lua`. Then waits until
    /// the millisecond of that step is over, so that later changes have later times. Changes nothing. The cost to Redis
    /// does not depend on the size of the journal.
    ///
    /// # Errors
    /// See [`ScriptError`]. A key of another type is [`ScriptError::Refused`]; a stock that is not a number is
    /// [`ScriptError::Unexpected`].
    pub async fn snapshot(&self, voucher: VoucherId) -> Result<JournalSnapshot, ScriptError> {
        let keys = vec![
            self.access.keys.stock(voucher),
            self.access.keys.journal(voucher),
            self.access.stream.clone(),
            self.access.keys.limited(voucher),
        ];
        let reply = self.snapshot.call(&self.access.pool, keys, Vec::new()).await?;
        let snapshot = read(&reply).ok_or_else(|| ScriptError::Unexpected {
            place: format!("the stock or the stream of voucher {voucher}"),
            got: format!("{reply:?}"),
        })?;
        for _ in 0..MOST_TRIES {
            if self.clock_ms().await? > snapshot.at_ms {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(snapshot)
    }

    /// Reads the clock of Redis, in Unix milliseconds.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn clock_ms(&self) -> Result<i64, ScriptError> {
        let time = CustomCommand::new_static("TIME", ClusterHash::Random, false);
        let (seconds, micros): (i64, i64) = self.access.pool.next().custom(time, Vec::<Value>::new()).await?;
        Ok(seconds * 1000 + micros / 1000)
    }
}

fn read(reply: &Value) -> Option<JournalSnapshot> {
    let Value::Array(parts) = reply else { return None };
    let [stock, at_ms, stream_end, is_complete, journaled, purged] = parts.as_slice() else { return None };
    let stock = if stock.is_null() { None } else { Some(text(stock)?.parse().ok()?) };
    Some(JournalSnapshot {
        stock,
        at_ms: at_ms.as_i64()?,
        stream_end: text(stream_end)?.parse().ok()?,
        is_complete: is_complete.as_i64()? == 1,
        journaled: journaled.as_u64()?,
        purged: purged.as_bytes().and_then(Purged::parse),
    })
}

fn text(value: &Value) -> Option<&str> {
    str::from_utf8(value.as_bytes()?).ok()
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;

    #[test]
    fn a_reply_is_read_and_a_stock_that_is_no_number_is_not() {
        let reply = |stock: Value| {
            Value::Array(vec![
                stock,
                1_718_000_000_000_i64.into(),
                "5-1".into(),
                1.into(),
                3.into(),
                Value::Null,
            ])
        };
        let snapshot = read(&reply("-2".into())).unwrap();
        assert_eq!((snapshot.stock, snapshot.at_ms, snapshot.journaled), (Some(-2), 1_718_000_000_000, 3));
        assert_eq!((snapshot.stream_end, snapshot.is_complete), (EntryId { ms: 5, seq: 1 }, true));
        assert_eq!(read(&reply(Value::Null)).unwrap().stock, None);
        assert_eq!(read(&reply("ten".into())), None);
        assert_eq!(read(&1.into()), None);
    }
}
