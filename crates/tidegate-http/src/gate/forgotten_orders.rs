//! Orders that have a row in MySQL although Redis knows nothing of them any more: a failover took them along, and the keys under which
//! they were asked for. Whoever asks again under such a key is told of the order that has the row, and not of a refusal.
//!
//! Callers who come together are looked up together: one statement for all of them, however many are refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_orders::{
    OrderId, Partition, Records, RedisStore, UserId, VoucherId,
    gate::{Admission, AdmitReply, GateError, KEY_KEPT},
    records::OrderRow,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

/// Buyers who are looked up together.
const TOGETHER: usize = 500;
/// Buyers who may wait.
const WAITING: usize = 4 * TOGETHER;
/// How long a caller is kept waiting for MySQL before it hears what Redis has said.
const PATIENCE: Duration = Duration::from_secs(1);
/// After MySQL has not answered, it is asked again so much later.
const AWAY_FOR: Duration = Duration::from_secs(5);

type Buyer = (VoucherId, UserId);

struct Question {
    buyer: Buyer,
    answer: oneshot::Sender<Vec<OrderRow>>,
}

/// Looks for them in one MySQL, until all of its copies are dropped.
#[derive(Clone, Debug)]
pub struct ForgottenOrders {
    questions: mpsc::Sender<Question>,
    away_until: Arc<Mutex<Option<Instant>>>,
}

impl ForgottenOrders {
    /// Of any partition whose rows this MySQL has: a look-up by users finds the rows of all of them.
    pub fn begin(mysql: MySqlPool, partition: Partition) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        let away_until = Arc::default();
        tokio::spawn(answer((mysql, partition), asked, Arc::clone(&away_until)));
        Self { questions, away_until }
    }

    /// The order that this one repeats, if Redis has lost that one. None also where MySQL does not tell: then Redis has the word.
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
        // An order that Redis never lost was asked for under another key, or under none.
        let known = redis.journals().never_lost(&orders).await.ok()?;
        orders.into_iter().filter(|order| !known.contains(order)).map(|(_, order)| order).max()
    }

    fn is_away(&self) -> bool {
        let away_until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        away_until.is_some_and(|until| Instant::now() < until)
    }
}

/// When a reply to a request under a key may mean that Redis has lost the order of that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// Redis knows of an order by this user, or of a second one that a worker released.
    Always,
    /// It is what everybody hears in a rush, so MySQL is asked only while a failover may have been the cause.
    AfterFailover,
    /// Who hears this is admitted, or is told to come again.
    Never,
}

impl Suspicion {
    pub const fn of(reply: &Result<AdmitReply, GateError>) -> Self {
        use AdmitReply as Reply;
        match reply {
            Ok(Reply::UserHasOrder | Reply::Released) => Self::Always,
            Ok(Reply::SoldOut | Reply::NoStock | Reply::Over | Reply::OverLimit(_)) => Self::AfterFailover,
            _ => Self::Never,
        }
    }
}

/// Rows that may be of the same request: with as many units, written while its key would be remembered.
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
                tracing::debug!(?failed, "could not look for orders that Redis has lost");
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
