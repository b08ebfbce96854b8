//! Orders that have a row in MySQL and are unknown to Redis: a failover lost them together with their idempotency
//! keys. If a client repeats its request with such a key, the gate answers with the order that has the row instead of
//! a refusal.
//!
//! Requests that arrive at the same time share one statement, however many of them are refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_orders::{
    OrderId, Partition, Records, RedisStore, UserId, VoucherId,
    records::OrderRow,
    scripts::{Admission, AdmitReply, KEY_KEPT, ScriptError},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

/// The largest number of buyers in one query.
const TOGETHER: usize = 500;
/// The largest number of buyers that may wait.
const WAITING: usize = 4 * TOGETHER;
/// The time that a client waits for MySQL before it gets the reply of Redis.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for which the gate does not query MySQL after MySQL has failed to answer.
const AWAY_FOR: Duration = Duration::from_secs(5);

type Buyer = (VoucherId, UserId);

struct Question {
    buyer: Buyer,
    answer: oneshot::Sender<Vec<OrderRow>>,
}

/// The search in one MySQL database for orders that Redis has lost. The search runs until all clones of this value are
/// dropped.
#[derive(Clone, Debug)]
pub struct ForgottenOrders {
    questions: mpsc::Sender<Question>,
    away_until: Arc<Mutex<Option<Instant>>>,
}

impl ForgottenOrders {
    /// Starts the search for lost orders in the MySQL database of `partition`. The search serves all partitions that
    /// use this database.
    pub fn begin(mysql: MySqlPool, partition: Partition) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        let away_until = Arc::default();
        tokio::spawn(answer((mysql, partition), asked, Arc::clone(&away_until)));
        Self { questions, away_until }
    }

    /// Returns the earlier order that this request repeats, if Redis has lost that order. If MySQL does not answer,
    /// this returns None, and the gate uses the reply of Redis.
    pub async fn find(&self, redis: &RedisStore, admission: &Admission) -> Option<OrderId> {
        if self.is_away() {
            return None;
        }
        let Admission { voucher, user, .. } = *admission;
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { buyer: (voucher, user), answer }).ok()?;
        let rows = timeout(PATIENCE, answered).await.ok()?.ok()?;
        let orders: Vec<_> = candidates(admission, &rows).map(|order| (voucher, order)).collect();
        if orders.is_empty() {
            return None;
        }
        // If Redis never lost an order, that order was requested under another key, or under none.
        let known = redis.journals().never_lost(&orders).await.ok()?;
        orders.into_iter().filter(|order| !known.contains(order)).map(|(_, order)| order).max()
    }

    fn is_away(&self) -> bool {
        let away_until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        away_until.is_some_and(|until| Instant::now() < until)
    }
}

/// Whether a reply to a request with an idempotency key may mean that Redis has lost the order of that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostOrderCheck {
    /// Redis knows an order of this user, or a second one that a worker released. MySQL is always asked.
    Always,
    /// Many clients get this reply in a rush, so MySQL is asked only if a recent failover may be the cause.
    AfterFailover,
    /// The reply admits the order or asks the client to come again, so MySQL is never asked.
    Never,
}

impl LostOrderCheck {
    pub const fn of(reply: &Result<AdmitReply, ScriptError>) -> Self {
        use AdmitReply as Reply;
        match reply {
            Ok(Reply::UserHasOrder | Reply::Released) => Self::Always,
            Ok(Reply::SoldOut | Reply::NoStock | Reply::Over | Reply::OverLimit(_)) => Self::AfterFailover,
            _ => Self::Never,
        }
    }
}

/// Finds the rows that may belong to the same request: they have as many units, and an entry so recent that Redis
/// would still keep the key.
fn candidates(admission: &Admission, rows: &[OrderRow]) -> impl Iterator<Item = OrderId> {
    let since_ms = Timestamp::now().as_millisecond().saturating_sub(KEY_KEPT.as_millis() as i64);
    let is_recent = move |row: &&OrderRow| {
        row.entry.is_some_and(|entry| i64::try_from(entry.ms).is_ok_and(|ms| ms >= since_ms))
    };
    let quantity = admission.quantity.get();
    let is_same = move |row: &&OrderRow| row.quantity == quantity;
    rows.iter().filter(is_same).filter(is_recent).map(|row| row.order)
}

async fn answer(
    (mysql, partition): (MySqlPool, Partition),
    mut asked: mpsc::Receiver<Question>,
    away_until: Arc<Mutex<Option<Instant>>>,
) {
    let mut questions = Vec::new();
    while asked.recv_many(&mut questions, TOGETHER).await > 0 {
        let mut buyers: Vec<Buyer> = questions.iter().map(|question| question.buyer).collect();
        buyers.sort_unstable();
        buyers.dedup();
        let records = Records::new(&mysql, &partition);
        let rows = match timeout(PATIENCE, records.orders().live_of_buyers(&buyers)).await {
            Ok(Ok(rows)) => rows,
            failed => {
                tracing::debug!(?failed, "could not search MySQL for orders that Redis has lost");
                *away_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + AWAY_FOR);
                questions.clear();
                continue;
            }
        };
        let mut by_buyer: HashMap<(i64, i64), Vec<OrderRow>> = HashMap::new();
        for row in rows {
            by_buyer.entry((row.voucher, row.user)).or_default().push(row);
        }
        for Question { buyer: (voucher, user), answer } in questions.drain(..) {
            let rows = by_buyer.get(&(voucher.get(), user.get())).cloned().unwrap_or_default();
            let _gone = answer.send(rows);
        }
    }
}
