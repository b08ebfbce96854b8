//! Moves pending entries that shall not be written to the dead letters.

use std::collections::HashMap;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_orders::{
    Publisher, OrderId, OrderStatus, Records, RedisStore, keys::process_of, wire::Message,
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
/// Entries whose orders are looked up in MySQL at once, before they are buried.
const CHUNK: usize = 100;

/// Which pending entries are to be buried, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuryRequest {
    /// Which.
    pub entries: PendingChoice,
    /// Why, for whoever reads the letter.
    pub why: String,
}

impl BuryRequest {
    /// Whether it leaves anything out: nobody means all pending entries. Needs no store.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self) -> Result<(), InvalidInput> {
        if !matches!(&self.entries, PendingChoice::Filter(filter) if filter.takes_all()) {
            return Ok(());
        }
        let message = "this would bury every pending entry: say which, by ids, consumer, dead consumers, age, set aside, \
                       crashes or deliveries";
        Err(InvalidInput(message.to_owned()))
    }
}

/// Which pending entries an operation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingChoice {
    /// Those of these ids.
    Ids(Vec<EntryId>),
    /// Those that the filter chooses; it has to leave something out.
    Filter(PendingFilter),
}

/// What would be buried.
#[derive(Clone, Debug, Serialize)]
pub struct BuryPlan {
    /// These.
    pub bury: Vec<PendingView>,
    /// These were chosen, and would be left.
    pub left: Vec<LeftEntry>,
    /// The filter chooses more than its limit.
    pub more: bool,
    /// The server that all this was read from.
    #[serde(skip)]
    source: EntrySource,
}

/// An entry that is left as it is.
#[derive(Clone, Debug, Serialize)]
pub struct LeftEntry {
    /// Its id.
    pub entry: String,
    /// Why.
    pub why: LeftReason,
}

/// Why an entry is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftReason {
    /// Its consumer lives, or another one has it by now.
    InProgress,
    /// MySQL has its order.
    Written,
    /// MySQL has refused its order.
    Refused,
    /// It has no payload.
    Gone,
    /// It is not pending.
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

/// What was buried.
#[derive(Clone, Debug, Serialize)]
pub struct BuryReport {
    /// Ids of the entries.
    pub buried: Vec<String>,
    /// Entries that were chosen and are left, also those of which the plan said so.
    pub left: Vec<LeftEntry>,
    /// The filter chooses more than its limit.
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
    /// Nothing is buried yet.
    fn from(plan: &BuryPlan) -> Self {
        Self { buried: Vec::new(), left: plan.left.clone(), more: plan.more }
    }
}

/// Buries pending entries. To continue a burial that was stopped, run the same request again.
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
    /// For the group of these settings.
    ///
    /// # Errors
    /// When the request's filter leaves nothing out: nobody means all pending entries.
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

    /// Reads what is meant, and what MySQL says of it.
    ///
    /// # Errors
    /// When a store does not answer, or the key holds no stream.
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
                            plan.left.push(LeftEntry { entry: id.to_string(), why: LeftReason::NotPending });
                        }
                    }
                }
            }
        }
        let decided = self.decided(&chosen).await?;
        for pending in chosen {
            match left_reason(&pending, &decided) {
                None => plan.bury.push(pending),
                Some(why) => plan.left.push(LeftEntry { entry: pending.entry, why }),
            }
        }
        Ok(plan)
    }

    /// Buries what is planned, one entry after the other.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn run(&self, plan: &BuryPlan, report: &mut BuryReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.bury.len() as u64, "entries");
        for chunk in plan.bury.chunks(CHUNK) {
            // A last look into MySQL: the answer to the question may have taken its time.
            let decided = self.decided(chunk).await?;
            for pending in chunk {
                if job.is_stopped() {
                    return Ok(End::Stopped);
                }
                match self.bury(&plan.source, pending, &decided).await? {
                    None => report.buried.push(pending.entry.clone()),
                    Some(why) => report.left.push(LeftEntry { entry: pending.entry.clone(), why }),
                }
                job.progress.add(1);
            }
        }
        Ok(End::Whole)
    }

    /// Buries one. Some: why not.
    async fn bury(
        &self,
        source: &EntrySource,
        pending: &PendingView,
        decided: &HashMap<OrderId, OrderStatus>,
    ) -> anyhow::Result<Option<LeftReason>> {
        if let Some(why) = left_reason(pending, decided) {
            return Ok(Some(why));
        }
        let Ok(id) = pending.entry.parse() else { return Ok(Some(LeftReason::Gone)) };
        let Some(entry) =
            self.read(source, id, pending).await.with_context(|| format!("Failed to read {id}"))?
        else {
            return Ok(Some(LeftReason::Gone));
        };
        let why = DeadLetterReason { reason: BY_OPERATOR, error: self.request.why.clone() };
        // Told before: after it, nobody has the entry in progress. If its consumer lives after all, what it says counts more.
        self.publisher.publish_burial(self.redis.keys().fields(), &entry, BY_OPERATOR).await?;
        let heartbeat = self.redis.keys().fleet().heartbeat(process_of(&pending.consumer));
        let reply = self.stream.bury_of_dead(&source.run, &entry, &why, &pending.consumer, heartbeat).await;
        Ok(match reply.with_context(|| format!("Failed to bury {}", pending.entry))? {
            BuryReply::Buried => None,
            BuryReply::Settled => Some(LeftReason::NotPending),
            BuryReply::InProgress => Some(LeftReason::InProgress),
        })
    }

    /// Reads an entry again. A server that was promoted since the plan may have given its id to the order of another buyer.
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
        // Over the same connection, and after the entry: this run is the one that it came from.
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
        read.context("MySQL did not answer in time")?.context("Failed to look for the orders in MySQL")
    }
}

/// Why an entry must stay; None: it may be buried.
fn left_reason(pending: &PendingView, decided: &HashMap<OrderId, OrderStatus>) -> Option<LeftReason> {
    if pending.content.payload == Payload::Gone {
        return Some(LeftReason::Gone);
    }
    if pending.alive {
        return Some(LeftReason::InProgress);
    }
    Some(match decided.get(&pending.content.order.as_ref()?.id)? {
        OrderStatus::Refused => LeftReason::Refused,
        OrderStatus::Written | OrderStatus::Cancelled | OrderStatus::Contradictory => LeftReason::Written,
        // MySQL alone says none of these. If it did, its word would not be clear enough to bury the entry.
        OrderStatus::Released
        | OrderStatus::Dead
        | OrderStatus::Pending
        | OrderStatus::Undelivered
        | OrderStatus::Mismatched
        | OrderStatus::Lost
        | OrderStatus::Unsure
        | OrderStatus::Unknown => LeftReason::Written,
    })
}
