//! Follows an order through both stores: every record that names its voucher or its entry leads to the next one.

use std::{collections::BTreeSet, time::Duration};

use tidegate_orders::{
    OrderId, Records, RecordsError, VoucherId,
    order_id::{self, EPOCH_SECONDS},
    records::{BuriedEvent, DeadLetterRecord, EntryContent, vouchers},
    sale,
};
use tidegate_stream::{Entry, EntryId, Letter};

use super::{OrderQuery, OrderRecords, RedisOrders, StreamCoverage, VOUCHER_LIMIT, carries};

/// The milliseconds before and after the time in the journal in which the entry is searched: the script that wrote the
/// note also added the entry.
const BESIDE_JOURNAL_MS: (u64, u64) = (1_000, 10_000);
/// The milliseconds before and after the time in the order id in which the entry is searched. The clock of the id may
/// differ, and the id may have been allocated long before its order.
const BESIDE_ID_MS: (u64, u64) = (60_000, 600_000);

/// The reader of all records of an order in the stores that are available.
#[derive(Clone, Copy, Debug)]
pub struct OrderReader<'a> {
    /// The Redis store; None: Redis is unavailable.
    pub redis: Option<&'a RedisOrders<'a>>,
    /// The reader of records in MySQL; None: MySQL is unavailable.
    pub mysql: Option<Records<'a>>,
    /// The timeout of one MySQL statement.
    pub patience: Duration,
}

impl OrderReader<'_> {
    /// Reads all records of an order from both stores. `search.errors` of the result contains the errors of failed
    /// reads. Calls `seen` with the number of entries in each page of the stream.
    pub async fn read(&self, query: &OrderQuery, seen: impl Fn(u64) + Copy) -> OrderRecords {
        let mut records = OrderRecords::default();
        self.read_mysql(query.order, &mut records).await;
        if let Some(redis) = self.redis {
            self.follow(redis, query, &mut records, seen).await;
            if !records.is_explained() {
                // During the search, the order may have moved from Redis to MySQL or to the dead letters.
                self.read_mysql(query.order, &mut records).await;
                read_letters(redis, query, &mut records, seen).await;
            }
        }
        records.made_ms = records.made_ms.filter(|made_ms| is_likely(*made_ms, records.earliest_ms()));
        records
    }

    async fn read_mysql(&self, order: OrderId, records: &mut OrderRecords) {
        let (Some(mysql), of_order) = (self.mysql, &[order]) else { return };
        let both = async { tokio::try_join!(mysql.orders().find(order), mysql.refusals().by_ids(of_order)) };
        match self.in_time(both).await {
            Ok((row, mut refusals)) => {
                (records.row, records.refusal, records.search.coverage.mysql) = (row, refusals.pop(), true);
            }
            Err(error) => return records.fail("MySQL", error),
        }
        // The events are read separately: if MySQL is not migrated yet, only they are missing.
        match self.in_time(mysql.events().by_orders(of_order)).await {
            Ok(events) => records.events = events,
            Err(error) => records.fail("the events", error),
        }
    }

    async fn in_time<T>(&self, read: impl Future<Output = Result<T, RecordsError>>) -> Result<T, String> {
        match tokio::time::timeout(self.patience, read).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", self.patience.as_millis())),
        }
    }

    async fn follow(
        &self,
        redis: &RedisOrders<'_>,
        query: &OrderQuery,
        records: &mut OrderRecords,
        seen: impl Fn(u64) + Copy,
    ) {
        match tidegate_stream::server_time_ms(redis.store).await {
            Ok(now_ms) => records.now_ms = now_ms,
            Err(error) => return records.fail("Redis", error),
        }
        records.made_ms = made_ms(query.order, records.now_ms);
        read_letters(redis, query, records, seen).await;
        self.read_journals(redis, query, records).await;
        read_named_entries(redis, query, records).await;
        search_stream(redis, query, records, seen).await;
        read_user(redis, query, records).await;
    }

    async fn read_journals(&self, redis: &RedisOrders<'_>, query: &OrderQuery, records: &mut OrderRecords) {
        let mut known = records.vouchers(query);
        if !known.is_empty() {
            records.search.coverage.all_journals = true;
            return look_into(redis, &known, query, records).await;
        }
        // These vouchers come first: the order most often is for one of them, and reading all keys of Redis takes
        // longer.
        if let Some(mysql) = self.mysql {
            match self
                .in_time(vouchers::latest(mysql.mysql(), redis.store.keys().partition(), VOUCHER_LIMIT))
                .await
            {
                Ok(rows) => known = rows.iter().map(|row| row.voucher).collect(),
                Err(error) => records.fail("MySQL", error),
            }
        }
        look_into(redis, &known, query, records).await;
        records.search.coverage.all_journals =
            !records.journal.is_empty() && known.len() < VOUCHER_LIMIT as usize;
        if records.search.coverage.all_journals {
            return;
        }
        match sale::find_journaled(redis.store, |_| {}).await {
            Ok(journaled) => {
                let others = journaled.into_iter().filter(|voucher| !known.contains(voucher)).collect();
                look_into(redis, &others, query, records).await;
                records.search.coverage.all_journals = true;
            }
            Err(error) => records.fail("the keys", error),
        }
    }
}

/// Returns whether the time within an id can be right. It cannot if the order first appears at a very different time,
/// because many numbers look like Tidegate's ids.
fn is_likely(made_ms: u64, earliest_ms: Option<u64>) -> bool {
    let (before, after) = BESIDE_ID_MS;
    earliest_ms.is_none_or(|ms| (made_ms.saturating_sub(before)..=made_ms + after).contains(&ms))
}

/// Returns the time at which an order's id was made, if Tidegate made it.
fn made_ms(order: OrderId, now_ms: u64) -> Option<u64> {
    let (seconds, sequence) = order_id::decompose(order);
    let ms = u64::try_from((EPOCH_SECONDS + seconds) * 1_000).ok()?;
    (seconds > 0 && sequence > 0 && ms <= now_ms + BESIDE_ID_MS.0).then_some(ms)
}

async fn read_letters(
    redis: &RedisOrders<'_>,
    query: &OrderQuery,
    records: &mut OrderRecords,
    seen: impl Fn(u64) + Copy,
) {
    let names = redis.store.inspector().names();
    // The second call reads only the letters that were added since the first one.
    let known = records.letters.first().map(|letter| letter.id);
    let known = known.max(records.buried_events.last().map(|event| event.letter));
    let after = known.map_or(EntryId::MIN, EntryId::next);
    let (mut budget, fields) = (query.budget, redis.store.keys().fields());
    let is_meant = |entry: &Entry| {
        let letter = Letter::parse(entry.clone());
        carries(fields, &letter.entry(), query.order)
            || BuriedEvent::of(fields, &letter, query.order).is_some()
    };
    let all = (after, EntryId::MAX);
    match redis.search(&names.dead, all, &mut budget, is_meant, seen).await {
        Ok((found, searched)) => {
            let (mut letters, mut events) = (Vec::new(), Vec::new());
            for found in found.into_iter().map(Letter::parse) {
                match BuriedEvent::of(fields, &found, query.order) {
                    Some(event) => events.push(event),
                    None => letters.push(DeadLetterRecord::of(fields, &found)),
                }
            }
            records.letters.splice(..0, letters);
            records.buried_events.extend(events.into_iter().rev());
            let before = &mut records.search.coverage.dead;
            *before = StreamCoverage { entries: before.entries + searched.entries, ..searched };
        }
        Err(error) => records.fail("the dead letters", error),
    }
}

async fn look_into(
    redis: &RedisOrders<'_>,
    vouchers: &BTreeSet<VoucherId>,
    query: &OrderQuery,
    records: &mut OrderRecords,
) {
    records.search.coverage.journals += vouchers.len() as u64;
    let vouchers: Vec<VoucherId> = vouchers.iter().copied().collect();
    match redis.journals(&vouchers, query.order).await {
        Ok(journal) => records.journal.extend(journal),
        Err(error) => records.fail("the journals", error),
    }
}

/// Reads the entries that other records name.
async fn read_named_entries(redis: &RedisOrders<'_>, query: &OrderQuery, records: &mut OrderRecords) {
    let letters = records.letters.iter().filter_map(|letter| letter.entry);
    let row = records.row.as_ref().and_then(|it| it.row.entry);
    let refusal = records.refusal.as_ref().and_then(|refusal| refusal.entry);
    let named = letters.chain(row).chain(refusal);
    let named: BTreeSet<EntryId> = named.chain(query.entry).collect();
    for id in named.into_iter().rev() {
        match redis.entry(id).await {
            Ok(Some(record)) => records.entries.push(record),
            Ok(None) => records.search.trimmed.push(id.to_string()),
            Err(error) => records.fail("the stream", error),
        }
    }
}

/// Searches the stream where the entry should be, then everywhere, as long as no record explains what happened to the
/// order.
async fn search_stream(
    redis: &RedisOrders<'_>,
    query: &OrderQuery,
    records: &mut OrderRecords,
    seen: impl Fn(u64) + Copy,
) {
    let around = |ms: u64, (before, after): (u64, u64)| {
        (EntryId { ms: ms.saturating_sub(before), seq: 0 }, EntryId { ms: ms.saturating_add(after), seq: 0 })
    };
    let admitted = records.journal.iter().filter(|journal| journal.is_admission());
    let admitted = admitted.filter_map(|journal| u64::try_from(journal.at_ms?).ok());
    let mut places: Vec<_> = admitted.map(|ms| around(ms, BESIDE_JOURNAL_MS)).collect();
    places.extend(records.made_ms.map(|ms| around(ms, BESIDE_ID_MS)));
    places.push((EntryId::MIN, EntryId::MAX));

    let stream = redis.store.inspector().names().stream.clone();
    // At most half of the limit is used where the entry should be, because the reported coverage is that of the search
    // from the end.
    let mut budget = query.budget / 2;
    let is_meant = |entry: &Entry| carries(redis.store.keys().fields(), entry, query.order);
    records.search.coverage.stream.complete = true;
    for place in places {
        if records.is_explained() {
            return;
        }
        if place.0 == EntryId::MIN {
            budget = query.budget - records.search.coverage.stream.entries;
        }
        let (found, searched) = match redis.search(&stream, place, &mut budget, is_meant, seen).await {
            Ok(found) => found,
            Err(error) => return records.fail("the stream", error),
        };
        let entries = records.search.coverage.stream.entries + searched.entries;
        records.search.coverage.stream = StreamCoverage { entries, ..searched };
        for entry in found {
            if records.entries.iter().any(|known| known.id == entry.id) {
                continue;
            }
            match redis.record(entry.id, Some(EntryContent::of(redis.store.keys().fields(), &entry))).await {
                Ok(record) => records.entries.push(record),
                Err(error) => return records.fail("the stream", error),
            }
        }
    }
}

/// Reads whether the user is among the buyers, and the lock that keeps an order from being written.
async fn read_user(redis: &RedisOrders<'_>, query: &OrderQuery, records: &mut OrderRecords) {
    let Some(user) = records.user(query) else { return };
    let vouchers: Vec<VoucherId> = records.vouchers(query).into_iter().collect();
    match redis.bought(&vouchers, user).await {
        Ok(bought) => records.buyer_of = bought,
        Err(error) => records.fail("the buyers", error),
    }
    if records.entries.iter().any(|entry| entry.state.is_open()) {
        match redis.lock(user).await {
            Ok(lock) => records.lock = lock,
            Err(error) => records.fail("the lock", error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_ours_tells_when_it_was_made_and_others_do_not() {
        let now_ms = 1_800_000_000_000;
        let seconds = 1_790_000_000 - EPOCH_SECONDS;
        let ours = order_id::compose(seconds, 7).unwrap();
        assert_eq!(made_ms(ours, now_ms), Some(1_790_000_000_000));
        for other in [1, 1_001, i64::MAX] {
            assert_eq!(made_ms(other.try_into().unwrap(), now_ms), None, "{other}");
        }
    }
}
