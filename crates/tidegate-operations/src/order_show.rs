//! Where one order is: what both stores hold of it, with times, what follows from that, and what can be done. Reads only.
//!
//! An order id tells neither voucher nor entry. So whatever names them is followed: the row or refusal in MySQL, dead
//! letters, the journals of vouchers, the time within the id. Only where all that leads nowhere, the stream is searched,
//! from its end on and within a limit.

mod decided;
mod next_step;
mod records;
mod redis_reader;
mod report;
mod search;

use tidegate_compare::{Progress, text::error_chain};
use tidegate_orders::{OrderId, Records, UserId, VoucherId};
use tidegate_stream::EntryId;

pub use decided::decided;
pub use next_step::NextStep;
pub use records::{Coverage, OrderRecords, SearchNotes};
pub use redis_reader::{
    EntryLocation, EntryRecord, JournalRecord, LockRecord, RedisOrders, StreamCoverage, carries,
};
pub use report::OrderReport;
pub use search::OrderReader;

use crate::{Stores, consumers::Consumers};

/// Vouchers of MySQL that are looked through, those with the highest ids, where nothing tells which one is meant.
pub const VOUCHER_LIMIT: u32 = 1_000;

/// Which order, and what is known of it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderQuery {
    /// The order.
    pub order: OrderId,
    /// Its voucher.
    pub voucher: Option<VoucherId>,
    /// Its user.
    pub user: Option<UserId>,
    /// Its entry.
    pub entry: Option<EntryId>,
    /// Entries of each stream that are looked at, at most.
    pub budget: u64,
}

/// Looks for an order in both stores. A store that cannot be reached is left out, and stands in the errors of the report.
pub async fn show_order(stores: &Stores, query: OrderQuery, progress: &dyn Progress) -> OrderReport {
    let settings = stores.settings();
    let (redis, mysql) = tokio::join!(stores.redis(), stores.mysql());
    let mut errors = Vec::new();
    let mut keep = |error: anyhow::Error| errors.push(error_chain(&error));
    let (redis, mysql) = (redis.map_err(&mut keep).ok(), mysql.map_err(&mut keep).ok());

    let orders = redis.map(|store| RedisOrders { store });
    let mysql = mysql.map(|mysql| Records::new(mysql, settings.partition()));
    let patience = settings.mysql.statement_timeout;
    let reader = OrderReader { redis: orders.as_ref(), mysql, patience };
    progress.expect(query.budget.saturating_mul(2), "entries looked at");
    let mut records = reader.read(&query, |entries| progress.add(entries)).await;

    let mut workers_live = false;
    if let Some(redis) = redis {
        let consumers = Consumers::read(redis).await;
        workers_live = consumers.map_err(&mut keep).is_ok_and(|consumers| consumers.has_life());
    }
    errors.extend(std::mem::take(&mut records.search.errors));
    records.search.errors = errors;
    OrderReport::of(query, records, workers_live)
}
