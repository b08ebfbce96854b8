//! Pending entries: which are meant, who holds them, and what is in them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate_orders::{Order, keys::process_of, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, NamedCause, Notice, PendingEntry, Survey, age_ms, is_offered};

use crate::{
    moment,
    operator::Progress,
    output::table,
    roster::{Roster, seconds},
};

/// Entries that are read at once.
const PAGE: u16 = 1_000;
/// Payloads that are fetched at once.
const PAYLOADS: usize = 100;

/// The flags that choose pending entries.
#[derive(Args, Clone, Debug)]
pub struct SelectionArgs {
    /// Those that this consumer holds
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Those of consumers whose process has no heartbeat
    #[arg(long, conflicts_with = "consumer")]
    dead: bool,
    /// Those that came into the stream longer ago than this, such as 90m or 2h
    #[arg(long, value_name = "SPAN", value_parser = moment::parse_span)]
    older_than: Option<Duration>,
    /// Those that their consumer has not in hand but tries again later
    #[arg(long)]
    set_aside: bool,
    /// Those that at least so many worker processes died with in hand
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    deaths: Option<u64>,
    /// Those that were delivered at least so often since they were last set aside; 1: those that are in hand
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    deliveries: Option<u64>,
    /// At most so many, the oldest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
}

impl SelectionArgs {
    /// Whether none of the flags leaves anything out.
    pub fn takes_all(&self) -> bool {
        self.consumer.is_none()
            && !self.dead
            && self.older_than.is_none()
            && !self.set_aside
            && self.deaths.is_none()
            && self.deliveries.is_none()
    }
}

/// A pending entry.
#[derive(Clone, Debug, Serialize)]
pub struct Pending {
    /// Its id.
    pub entry: String,
    /// Who holds it.
    pub consumer: String,
    /// The process of that consumer has a heartbeat.
    pub alive: bool,
    /// Since it was delivered; None: it is on offer.
    pub idle_s: Option<f64>,
    /// `tidegate pending claim` has offered it to all workers, and none has taken it yet.
    pub offered: bool,
    /// How often it was delivered since it was last set aside.
    pub deliveries: u64,
    /// Its consumer has it not in hand and tries it again later: it waits for its turn, for a store that is away, or for something
    /// that others hold.
    pub set_aside: bool,
    /// What others hold of what it needs, where its process says so of its user, its voucher or its id, or has set everything aside
    /// for the same.
    pub waits_for: Option<NamedCause>,
    /// Worker processes that died with it in hand; None: this user of Redis may not know.
    pub deaths: Option<u64>,
    /// Since it came into the stream.
    pub age_s: f64,
    /// `order`, `no_order`, or `gone`: deleted or trimmed.
    pub payload: &'static str,
    /// What is wanted, where it is an order.
    pub order: Option<Order>,
    /// Why it is none.
    pub error: Option<String>,
    /// The entry itself.
    #[serde(skip)]
    pub content: Option<Entry>,
}

/// What was selected.
#[derive(Clone, Debug)]
pub struct Selected {
    /// The entries, oldest first.
    pub entries: Vec<Pending>,
    /// There are more of them than the limit.
    pub more: bool,
}

/// Reads pending entries.
#[derive(Clone, Debug)]
pub struct PendingReader<'a> {
    /// Looks at the stream.
    pub survey: &'a Survey,
    /// Who lives.
    pub roster: &'a Roster,
    /// How to read entries.
    pub fields: &'a FieldNames,
    /// The clock of Redis.
    pub now_ms: u64,
}

impl PendingReader<'_> {
    /// The entries that are meant.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn select(&self, selection: &SelectionArgs) -> anyhow::Result<Selected> {
        let total = self.roster.members.iter().map(|member| member.pending).sum();
        let progress = Progress::new();
        progress.expect(total, "pending entries looked at");
        let (limit, mut found) = (usize::from(selection.limit), Vec::new());
        let mut after = EntryId::MIN;
        while found.len() <= limit {
            let page = self.page(selection, after).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            progress.add(page.len() as u64);
            let page: Vec<_> = page.into_iter().filter(|pending| self.is_meant(selection, pending)).collect();
            found.extend(self.that_died(selection, page).await?);
        }
        let more = found.len() > limit;
        found.truncate(limit);
        Ok(Selected { entries: self.with_payloads(found).await?, more })
    }

    /// One entry; None: it is not pending.
    ///
    /// # Errors
    /// As [`PendingReader::select`].
    pub async fn one(&self, id: EntryId) -> anyhow::Result<Option<Pending>> {
        let pending = self.survey.pending_entry(id).await.context("Failed to read the pending list")?;
        Ok(self.with_payloads(pending.into_iter().collect()).await?.pop())
    }

    async fn page(&self, selection: &SelectionArgs, after: EntryId) -> anyhow::Result<Vec<PendingEntry>> {
        let last = match selection.older_than {
            None => EntryId::MAX,
            Some(span) => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                EntryId { ms: self.now_ms.saturating_sub(span_ms), seq: 0 }
            }
        };
        let consumer = selection.consumer.as_deref();
        let page = self.survey.pending_entries((after, last), PAGE, consumer).await;
        page.context("Failed to read the pending list")
    }

    fn is_meant(&self, selection: &SelectionArgs, pending: &PendingEntry) -> bool {
        pending.deliveries >= selection.deliveries.unwrap_or(0)
            && !(selection.set_aside && pending.deliveries > 0)
            && !(selection.dead && self.roster.is_alive(&pending.consumer))
    }

    async fn that_died(
        &self,
        selection: &SelectionArgs,
        page: Vec<PendingEntry>,
    ) -> anyhow::Result<Vec<PendingEntry>> {
        let Some(least) = selection.deaths else { return Ok(page) };
        let ids: Vec<EntryId> = page.iter().map(|pending| pending.id).collect();
        let deaths = self.survey.deaths(&ids).await.context("Failed to read the deaths of entries")?;
        let died = page.into_iter().zip(deaths).filter(|(_, deaths)| *deaths >= least);
        Ok(died.map(|(pending, _)| pending).collect())
    }

    async fn with_payloads(&self, found: Vec<PendingEntry>) -> anyhow::Result<Vec<Pending>> {
        let mut entries = Vec::with_capacity(found.len());
        // Whoever may not read this is told the rest.
        let notices = self.survey.board().read_each(self.roster.processes()).await.unwrap_or_default();
        for some in found.chunks(PAYLOADS) {
            let ids: Vec<EntryId> = some.iter().map(|pending| pending.id).collect();
            let deaths = self.survey.deaths(&ids).await.ok();
            let payloads = self.survey.entries(&self.survey.names().stream, &ids).await;
            let payloads = payloads.context("Failed to read the stream")?;
            let seen = some.iter().zip(payloads).enumerate().map(|(at, (pending, payload))| {
                let deaths = deaths.as_ref().and_then(|deaths| deaths.get(at)).copied();
                Pending { deaths, ..self.view(pending, payload) }.with_cause(&notices)
            });
            entries.extend(seen);
        }
        Ok(entries)
    }

    fn view(&self, pending: &PendingEntry, content: Option<Entry>) -> Pending {
        let decoded = content.as_ref().map(|entry| self.fields.decode(entry));
        let payload = match &decoded {
            None => "gone",
            Some(Ok(_)) => "order",
            Some(Err(_)) => "no_order",
        };
        let (order, error) = match decoded {
            None => (None, None),
            Some(Ok(order)) => (Some(order), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let offered = is_offered(pending.idle_ms);
        Pending {
            entry: pending.id.to_string(),
            consumer: pending.consumer.clone(),
            alive: self.roster.is_alive(&pending.consumer),
            idle_s: (!offered).then(|| seconds(pending.idle_ms)),
            offered,
            deliveries: pending.deliveries,
            set_aside: pending.deliveries == 0,
            waits_for: None,
            deaths: None,
            age_s: seconds(age_ms(self.now_ms, pending.id)),
            payload,
            order,
            error,
            content,
        }
    }
}

impl Pending {
    fn with_cause(self, notices: &BTreeMap<String, Notice>) -> Self {
        let notice = notices.get(process_of(&self.consumer)).filter(|_| self.set_aside);
        let order = self.order.as_ref();
        let waits_for = notice.and_then(|notice| cause(notice, order));
        Self { waits_for, ..self }
    }

    /// In whose hands it is, or what it waits for.
    pub fn standing(&self) -> String {
        match &self.waits_for {
            _ if !self.set_aside && self.alive => "in hand".to_owned(),
            _ if !self.set_aside => "was in hand".to_owned(),
            Some(NamedCause { kind, key: 0, .. }) => format!("set aside: {}", printable(kind)),
            Some(NamedCause { kind, key, .. }) => format!("set aside: {} {key}", printable(kind)),
            None => "set aside".to_owned(),
        }
    }

    /// Worker processes that died with it in hand, for people.
    pub fn deaths(&self) -> String {
        self.deaths.map_or_else(|| "?".to_owned(), |deaths| deaths.to_string())
    }

    /// Since it was delivered, for people.
    pub fn idle(&self) -> String {
        self.idle_s.map_or_else(|| "on offer".to_owned(), |idle| format!("{idle:.1} s"))
    }

    /// Order, user and voucher; or why there are none.
    pub fn content(&self) -> String {
        match (&self.order, &self.error) {
            (Some(order), _) => {
                let quantity =
                    if order.quantity.get() == 1 { String::new() } else { format!(" x {}", order.quantity) };
                format!("order {} of user {} for voucher {}{quantity}", order.id, order.user, order.voucher)
            }
            (None, Some(error)) => format!("no order: {error}"),
            (None, None) => "payload gone (deleted or trimmed)".to_owned(),
        }
    }
}

/// What one of the entries waits for that a process has set aside. The process names the causes of most of them, and
/// not which entry waits for which.
fn cause(notice: &Notice, order: Option<&Order>) -> Option<NamedCause> {
    // Where both are named, it stopped at its user's lock, which comes first.
    let its_keys = order.into_iter().flat_map(|order| {
        let voucher = order.voucher.get();
        [
            ("user_lock", order.user.get()),
            ("voucher_row", voucher),
            ("order_row", order.id.get()),
            ("release", voucher),
        ]
    });
    let named = its_keys.into_iter().find_map(|(kind, key)| {
        let is_its = |cause: &&NamedCause| cause.kind == kind && cause.key == key.unsigned_abs();
        notice.causes.iter().find(is_its)
    });
    let is_of_all = |cause: &&NamedCause| cause.key == 0 && cause.entries == notice.entries;
    named.or_else(|| notice.causes.iter().find(is_of_all)).cloned()
}

/// `alive` or `gone`, of a process.
pub fn life(alive: bool) -> &'static str {
    if alive { "alive" } else { "gone" }
}

/// A table of pending entries.
pub fn render(entries: &[Pending]) -> String {
    let mut table = table(&["entry", "consumer", "process", "idle", "state", "deaths", "content"]);
    for pending in entries {
        table.add_row([
            pending.entry.clone(),
            printable(&pending.consumer),
            life(pending.alive).to_owned(),
            pending.idle(),
            pending.standing(),
            pending.deaths(),
            pending.content(),
        ]);
    }
    table.to_string()
}

/// What others wrote to Redis, without what could steer the terminal.
pub fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A word of a command that can be typed.
pub fn shell_word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), std::borrow::Cow::into_owned)
}
