//! Moves pending entries to the dead letters, so that no worker writes them to MySQL.

use std::collections::HashMap;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{
    OrderId, OrderStatus, Publisher, Records, RedisStore, keys::process_of, wire::Message,
};
use tidegate_stream::{BuryReply, DeadLetterReason, Entry, EntryId, ServerRun, Stream, StreamError};
use tokio::time::timeout;

use super::{Payload, PendingFilter, PendingReader, PendingView};
use crate::{
    change::{End, Ending, InvalidInput, Next, Plan, Report},
    connect,
    entry_source::EntrySource,
    order_show::decided,
    settings::SystemSettings,
};

/// The reason of a dead letter that an operator made.
const BY_OPERATOR: &str = "by_operator";
/// The entries whose orders are read in MySQL at once, before they are buried.
const CHUNK: usize = 100;

/// The request to bury pending entries: to move them to the dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuryRequest {
    /// The pending entries to move to the dead letters.
    pub entries: PendingChoice,
    /// The operator's explanation, which is stored in each dead letter.
    pub why: String,
}

impl BuryRequest {
    /// Checks that the request does not select all pending entries, which is always a mistake. Uses no store.
    ///
    /// # Errors
    /// If the request chooses all pending entries.
    pub fn check(&self) -> Result<(), InvalidInput> {
        if !matches!(&self.entries, PendingChoice::Filter(filter) if filter.takes_all()) {
            return Ok(());
        }
        let message = "this command would bury every pending entry: name entries, or add --consumer, --dead, \
                       --older-than, --set-aside, --crashes or --deliveries";
        Err(InvalidInput(message.to_owned()))
    }
}

/// The pending entries that an operator has chosen: by their ids or by a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingChoice {
    /// The entries with these ids.
    Ids(Vec<EntryId>),
    /// The entries that match this filter, which must not accept all entries.
    Filter(PendingFilter),
}

/// The plan to bury pending entries: to move them to the dead letters.
#[derive(Clone, Debug, Serialize)]
pub struct BuryPlan {
    /// The entries that would move to the dead letters.
    pub bury: Vec<PendingView>,
    /// The requested entries that would stay pending.
    pub left: Vec<RetainedEntry>,
    /// Whether more entries match the requested filter than the filter's limit allows.
    pub more: bool,
    /// The server from which all this was read.
    #[serde(skip)]
    source: EntrySource,
}

/// A requested pending entry that is not buried (moved to the dead letters), with the reason.
#[derive(Clone, Debug, Serialize)]
pub struct RetainedEntry {
    /// The id of the entry.
    pub entry: String,
    /// The reason why the entry stays pending.
    pub why: RetainedReason,
}

/// The reason why a pending entry is not buried (moved to the dead letters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetainedReason {
    /// The entry's consumer lives, or another consumer has claimed the entry.
    InProgress,
    /// MySQL has the order of the entry.
    Written,
    /// MySQL has refused the order of the entry.
    Refused,
    /// The entry has no content any more.
    Gone,
    /// The entry is not pending.
    NotPending,
}

impl Plan for BuryPlan {
    fn next(&self) -> Next {
        match self.bury.len() as u64 {
            0 => Next::Refused,
            count => Next::Ask(format!("Bury {}?", counted(count, "entry"))),
        }
    }
}

/// The result of burying pending entries, which moves them to the dead letters.
#[derive(Clone, Debug, Serialize)]
pub struct BuryReport {
    /// The ids of the entries that are dead letters now.
    pub buried: Vec<String>,
    /// All requested entries that were not buried, so that they stay pending.
    pub left: Vec<RetainedEntry>,
    /// Whether more entries match the requested filter than the filter's limit allows.
    pub more: bool,
}

impl Report for BuryReport {
    fn counts(&self) -> Json {
        json!({ "buried": self.buried.len(), "left": self.left.len(), "over_limit": u8::from(self.more) })
    }

    fn ending(&self) -> Ending {
        match (self.more, self.left.is_empty()) {
            (true, _) => Ending::Left,
            (false, false) => Ending::Refused,
            (false, true) => Ending::Done,
        }
    }
}

impl From<&BuryPlan> for BuryReport {
    /// Creates the report before anything is buried.
    fn from(plan: &BuryPlan) -> Self {
        Self { buried: Vec::new(), left: plan.left.clone(), more: plan.more }
    }
}

/// The operation that moves pending entries to the dead letters. If the operation was stopped, run the same request
/// again to continue.
#[derive(Clone, Debug)]
pub struct PendingBurial<'a> {
    redis: &'a RedisStore,
    mysql: &'a MySqlPool,
    settings: &'a SystemSettings,
    request: BuryRequest,
    stream: Stream,
    publisher: Publisher,
}

impl<'a> PendingBurial<'a> {
    /// Creates the operation that buries pending entries in the group of these settings.
    ///
    /// # Errors
    /// If the request chooses all pending entries, because that is always a mistake.
    pub fn new(
        (redis, mysql): (&'a RedisStore, &'a MySqlPool),
        settings: &'a SystemSettings,
        request: BuryRequest,
    ) -> Result<Self, InvalidInput> {
        request.check()?;
        let stream = Stream::new(redis.pool().clone(), redis.inspector().names().clone());
        let publisher = connect::publisher(settings, redis, mysql);
        Ok(Self { redis, mysql, settings, request, stream, publisher })
    }

    /// Reads the chosen entries, and the status of their orders in MySQL.
    ///
    /// # Errors
    /// If a store does not answer, or the key holds no stream.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<BuryPlan> {
        let reader = PendingReader::open(self.redis, self.settings).await?;
        let source = EntrySource { inspector: reader.inspector().clone(), run: reader.run().clone() };
        let mut plan = BuryPlan { bury: Vec::new(), left: Vec::new(), more: false, source };
        let mut chosen = Vec::new();
        match &self.request.entries {
            PendingChoice::Filter(filter) => {
                let selection = reader.select(filter, progress).await?;
                (chosen, plan.more) = (selection.entries, selection.more);
            }
            PendingChoice::Ids(ids) => {
                for id in ids {
                    match reader.one(*id).await? {
                        Some(pending) => chosen.push(pending),
                        None => {
                            plan.left.push(RetainedEntry {
                                entry: id.to_string(),
                                why: RetainedReason::NotPending,
                            });
                        }
                    }
                }
            }
        }
        let decided = self.decided(&chosen).await?;
        for pending in chosen {
            match left_reason(&pending, &decided) {
                None => plan.bury.push(pending),
                Some(why) => plan.left.push(RetainedEntry { entry: pending.entry, why }),
            }
        }
        Ok(plan)
    }

    /// Moves the entries of the plan to the dead letters, one by one.
    ///
    /// # Errors
    /// If a store does not answer.
    pub async fn run(&self, plan: &BuryPlan, report: &mut BuryReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.bury.len() as u64, "entries");
        for chunk in plan.bury.chunks(CHUNK) {
            // MySQL is read again, because the operator may have answered the question late.
            let decided = self.decided(chunk).await?;
            for pending in chunk {
                if job.is_stopped() {
                    return Ok(End::Stopped);
                }
                match self.bury(&plan.source, pending, &decided).await? {
                    None => report.buried.push(pending.entry.clone()),
                    Some(why) => report.left.push(RetainedEntry { entry: pending.entry.clone(), why }),
                }
                job.progress.add(1);
            }
        }
        Ok(End::Whole)
    }

    /// Buries a single pending entry. Some: the reason why it stays.
    async fn bury(
        &self,
        source: &EntrySource,
        pending: &PendingView,
        decided: &HashMap<OrderId, OrderStatus>,
    ) -> anyhow::Result<Option<RetainedReason>> {
        if let Some(why) = left_reason(pending, decided) {
            return Ok(Some(why));
        }
        let Ok(id) = pending.entry.parse() else { return Ok(Some(RetainedReason::Gone)) };
        let Some(entry) =
            self.read(source, id, pending).await.with_context(|| format!("Failed to read {id}"))?
        else {
            return Ok(Some(RetainedReason::Gone));
        };
        let why = DeadLetterReason { reason: BY_OPERATOR, error: self.request.why.clone() };
        // The result is published before the burial, because afterwards no process has the entry in progress. If its
        // consumer lives after all, the result that the consumer publishes replaces this one.
        self.publisher.publish_burial(self.redis.keys().fields(), &entry, BY_OPERATOR).await?;
        let heartbeat = self.redis.keys().fleet().heartbeat(process_of(&pending.consumer));
        let reply = self.stream.bury_of_dead(&source.run, &entry, &why, &pending.consumer, heartbeat).await;
        Ok(match reply.with_context(|| format!("Failed to bury {}", pending.entry))? {
            BuryReply::Buried => None,
            BuryReply::Settled => Some(RetainedReason::NotPending),
            BuryReply::InProgress => Some(RetainedReason::InProgress),
        })
    }

    /// Reads a planned entry again. A server that was promoted since the plan may have given the id to another buyer's
    /// order.
    async fn read(
        &self,
        source: &EntrySource,
        id: EntryId,
        planned: &PendingView,
    ) -> Result<Option<Entry>, StreamError> {
        let inspector = &source.inspector;
        let Some(entry) = inspector.entry(&inspector.names().stream, id).await? else { return Ok(None) };
        let order = match self.redis.keys().fields().decode_message(&entry) {
            Ok(Message::Order(order)) => Some(order.id),
            _ => None,
        };
        // This check uses the same connection and comes after the entry, so the entry comes from the checked run.
        let is_same = source.run == ServerRun::Any || inspector.server_run().await? == source.run;
        if is_same && order == planned.content.order.as_ref().map(|order| order.id) {
            return Ok(Some(entry));
        }
        Err(StreamError::OtherServer("plan the burial again".to_owned()))
    }

    async fn decided(&self, entries: &[PendingView]) -> anyhow::Result<HashMap<OrderId, OrderStatus>> {
        let orders = entries.iter().filter_map(|pending| pending.content.order.as_ref());
        let orders: Vec<_> = orders.map(|order| (order.id, order.user, order.voucher)).collect();
        let records = Records::new(self.mysql, self.settings.partition());
        let read = timeout(self.settings.mysql.statement_timeout, decided(records, &orders)).await;
        read.context("MySQL did not answer in time")?.context("Failed to read the orders in MySQL")
    }
}

/// Returns why an entry must stay; None: it may be buried.
fn left_reason(pending: &PendingView, decided: &HashMap<OrderId, OrderStatus>) -> Option<RetainedReason> {
    if pending.content.payload == Payload::Gone {
        return Some(RetainedReason::Gone);
    }
    if pending.alive {
        return Some(RetainedReason::InProgress);
    }
    Some(match decided.get(&pending.content.order.as_ref()?.id)? {
        OrderStatus::Refused => RetainedReason::Refused,
        OrderStatus::Written | OrderStatus::Cancelled | OrderStatus::Contradictory => RetainedReason::Written,
        // MySQL alone gives none of these. If it did, that would not be clear enough to bury the entry.
        OrderStatus::Released
        | OrderStatus::Dead
        | OrderStatus::Pending
        | OrderStatus::Undelivered
        | OrderStatus::Mismatched
        | OrderStatus::Lost
        | OrderStatus::Unsure
        | OrderStatus::Unknown => RetainedReason::Written,
    })
}
