//! The command `tidegate audit`: checks every order in both stores.

use std::{cell::RefCell, collections::BTreeMap, time::Instant};

use clap::Args;
use serde::Serialize;
use tidegate_compare::{
    ComparisonRequest, Job, Pace, Silent,
    audit::{AuditReport, LostSpan, StateCounts, Violations, VoucherAudit, audit},
    text::counted,
};
use tidegate_orders::VoucherId;
use tokio_util::sync::CancellationToken;

use crate::{
    exit::Exit,
    output::{OutputArgs, print_note, table},
    partitions::{names, over_all},
    scope::SystemCommand,
    times,
};
use tidegate_operations::{Stores, System};

const EXAMPLES: &str = "\
Examples:
  tidegate audit
  tidegate audit --voucher 10
  tidegate audit --json | jq .failures

Finds every order that a Redis key, the stream or a dead letter names. Each order is written in MySQL, released (its
units are on sale again), a dead letter, in flight (workers will write it), or lost. The audit changes nothing and may
run at any time. It checks each suspected failure again a second later. It exits with 1 if
  - an order is lost, written twice or oversold
  - an order differs from the one that was admitted under its id
  - Redis still holds an order that MySQL refused
  - an event of an order was acknowledged and not recorded
  - the status of an order in MySQL contradicts its slot (set for live orders, NULL for ended)
  - an entry that is no order was acknowledged, but is no dead letter
  - Redis offers units that MySQL does not have
  - the stock in Redis differs from the sum of the journal (the Redis hash that notes each
    admission and release of a voucher)
  - the counter of a limit differs from the orders that it counts, or these orders exceed the limit,
    or the slots of a user in Redis (the numbers of live orders) differ from the user's live orders
  - a key has a value of the wrong kind
  - Redis holds no stock and no order of a sale that is on, although MySQL has units left and
    orders that came through Redis

Redis may lack orders that other programs made, or orders of a sale that is over. In a failover, Redis may have lost
orders of a sale that is on. The audit counts such orders and does not fail. tidegate reconcile repairs lost orders.

To find vouchers that MySQL does not know, the audit searches all keys of Redis. With --voucher, it does not search.

The oversell risk is the number of units that Redis offers beyond the stock in MySQL. Orders in flight and dead letters
count as written. The number in the table is exact only while nothing changes. A sentence below the table names an
oversell risk only if neither stock has changed between two readings. The risk is negative after the release of orders
that MySQL refused for lack of stock. The audit fails only for the units of vouchers that lua/admit.lua sells. It does
not count the units of orders that are in no journal.";

/// The arguments of `tidegate audit`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// Audit only the orders of this voucher
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of an audit, as it is printed as JSON.
#[derive(Serialize)]
struct Audit {
    holds: bool,
    failures: Vec<String>,
    /// For each voucher with lost orders: when these orders were admitted, and the commands that restore them.
    repairs: Vec<String>,
    took_ms: u128,
    #[serde(flatten)]
    report: AuditReport,
}

/// The result for all partitions together.
#[derive(Default, Serialize)]
struct Whole {
    all_partitions: Vec<String>,
    /// The partitions that gave no answer.
    unknown: Vec<String>,
    /// Whether the audit passed. None: some partitions gave no answer, and the audit of all other partitions passed.
    holds: Option<bool>,
    /// The number of admitted orders in the partitions that gave an answer.
    admitted: u64,
    /// The failures, each with the tag of its partition.
    failures: Vec<String>,
}

impl SystemCommand for AuditArgs {
    /// Audits each partition, prints the findings, and returns whether the audit passed in all of them.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let system = &system.chosen(self.voucher)?;
        let audited = RefCell::new(BTreeMap::new());
        let exit = over_all(system, async |stores| {
            let (exit, audit) = audit_one(stores, self).await?;
            audited.borrow_mut().insert(stores.settings().partition().to_string(), audit);
            Ok(exit)
        });
        let exit = exit.await?;
        if system.partitions().len() > 1 && exit != Exit::Stopped {
            let whole = Whole::of(system, &audited.into_inner());
            self.output.print_line(&whole, Whole::verdict)?;
        }
        Ok(exit)
    }
}

impl Whole {
    fn of(system: &System, audited: &BTreeMap<String, Option<Audit>>) -> Self {
        let mut whole = Self::default();
        for settings in system.partitions() {
            let tag = settings.partition().tag().unwrap_or_default();
            whole.all_partitions.push(tag.to_owned());
            match audited.get(&settings.partition().to_string()) {
                None => whole.unknown.push(tag.to_owned()),
                Some(None) => {}
                Some(Some(audit)) => {
                    whole.admitted +=
                        audit.report.vouchers.iter().map(|voucher| voucher.orders.admitted).sum::<u64>();
                    whole
                        .failures
                        .extend(audit.failures.iter().map(|failure| format!("{{{tag}}}: {failure}")));
                }
            }
        }
        whole.holds = match (whole.failures.is_empty(), whole.unknown.is_empty()) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        };
        whole
    }

    fn verdict(&self) -> String {
        let all = self.all_partitions.len();
        let orders = counted(self.admitted, "admitted order");
        let away = names(&self.unknown);
        let unknown = match self.unknown.len() {
            0 => String::new(),
            _ => format!("\nUNKNOWN: the orders in {away}, because Redis gave no answer."),
        };
        match self.holds {
            Some(true) => {
                format!(
                    "All {all} partitions hold: {orders} that Redis knows, no order lost or doubled, no unit oversold."
                )
            }
            None => format!(
                "All {all} partitions: UNKNOWN. {away} gave no answer. The other partitions hold, with {orders}."
            ),
            Some(false) => {
                let lines: Vec<String> =
                    self.failures.iter().map(|failure| format!("  - {failure}")).collect();
                format!("All {all} partitions: it does NOT hold:\n{}{unknown}", lines.join("\n"))
            }
        }
    }
}

async fn audit_one(stores: &Stores, args: &AuditArgs) -> anyhow::Result<(Exit, Option<Audit>)> {
    let began = Instant::now();
    let request =
        ComparisonRequest { vouchers: args.voucher.into_iter().collect(), since_ms: None, pace: Pace::Full };
    let comparison = stores.comparison(request).await?;
    let job = Job { stop: CancellationToken::new(), progress: Box::new(Silent) };
    let report = audit(&comparison, &job).await?;
    if let Some(voucher) = args.voucher.filter(|_| report.vouchers.iter().all(VoucherAudit::is_unknown)) {
        print_note(&format!(
            "voucher {voucher} is unknown: MySQL has no row of this voucher, and Redis has admitted no order for it"
        ));
        return Ok((Exit::No, None));
    }
    let failures = report.failures();
    let repairs = report.vouchers.iter().filter_map(repair).collect();
    let (holds, took_ms) = (failures.is_empty(), began.elapsed().as_millis());
    let audit = Audit { holds, failures, repairs, took_ms, report };
    args.output.print(&audit, render)?;
    Ok((if audit.holds { Exit::Ok } else { Exit::No }, Some(audit)))
}

fn render(audit: &Audit) -> String {
    format!("{}\n\n{}\n({:.1} s)", text(&audit.report), verdict(audit), audit.took_ms as f64 / 1000.0)
}

/// The tables of an audit, with one row for each voucher: counts of its orders, its units, and its orders by status.
fn text(report: &AuditReport) -> String {
    let mut orders =
        table(&["voucher", "admitted", "written", "released", "dead", "in flight", "lost", "wrong"]);
    let mut units =
        table(&["voucher", "live orders", "units", "loaded", "MySQL stock", "Redis stock", "oversell risk"]);
    for voucher in &report.vouchers {
        orders.add_row(order_counts(voucher));
        units.add_row(stocks(voucher));
    }
    let mut parts = vec![orders.to_string(), units.to_string(), states(report)];
    parts.extend(no_orders(report));
    let unknown: u64 = report.vouchers.iter().map(|voucher| voucher.rows.unknown_orders).sum();
    if unknown > 0 {
        parts.push(format!(
            "MySQL holds {} that Redis does not know: written by another program, or deleted or lost by Redis. \
             After a failover or a restart of Redis, run `tidegate reconcile` to find lost orders.",
            counted(unknown, "order")
        ));
    }
    let others: u64 = report.vouchers.iter().map(|voucher| voucher.offences.other_differences).sum();
    if others > 0 {
        parts.push(format!(
            "Redis and MySQL have {}. No order is lost or doubled. To see the differences: `tidegate reconcile`.",
            counted(others, "other difference")
        ));
    }
    parts.extend(report.counters_not_compared.iter().map(|not| format!("Not known: {}.", not.sentence())));
    parts.extend(report.vouchers.iter().filter_map(|voucher| {
        let risk = voucher.settled_oversell_risk()?;
        let page = "docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong";
        Some(format!("Voucher {} has an oversell risk of {risk}: see {page}", voucher.voucher))
    }));
    parts.extend(report.vouchers.iter().flat_map(cancelled));
    parts.join("\n\n")
}

/// The lines about stream entries that are no orders.
fn no_orders(report: &AuditReport) -> Vec<String> {
    let mut parts = Vec::new();
    let unreadable = &report.unreadable;
    if unreadable.total > 0 {
        let (total, dead, lost) = (unreadable.total, unreadable.dead, unreadable.lost.total);
        let (in_flight, no_orders) = (unreadable.in_flight, unreadable.no_orders);
        let no_orders = (no_orders > 0).then(|| format!(", {no_orders} with too few fields for an order"));
        let no_orders = no_orders.unwrap_or_default();
        parts.push(format!(
            "Entries that are no orders: {total} ({dead} dead, {in_flight} in flight{no_orders}, {lost} lost)"
        ));
    }
    if let Some(error) = &report.misnamed.error {
        let entries = report.misnamed.entries;
        let are = if entries == 1 { "is" } else { "are" };
        parts.push(format!(
            "{} {are} no order according to the field names in [fields]: {error}. Correct these names for workers and commands, \
             restart the workers, and audit again. If entries became dead letters: tidegate dead requeue --reason missing_field",
            counted(entries, "entry")
        ));
    }
    parts
}

/// The lines about orders that are cancelled in MySQL, while Redis keeps their units.
fn cancelled(audit: &VoucherAudit) -> Vec<String> {
    let VoucherAudit { voucher, offences: Violations { half_cancelled, kept, .. }, .. } = audit;
    let mut parts = Vec::new();
    if half_cancelled.total > 0 {
        let orders = counted(half_cancelled.total, "order");
        let (are, ids) = if half_cancelled.total == 1 { ("is", "id") } else { ("are", "ids") };
        parts.push(format!(
            "Of voucher {voucher}, {orders} {are} cancelled in MySQL and not released in Redis ({ids} {half_cancelled}). \
             `tidegate order show ORDER` prints the dead letter; `tidegate dead cancel LETTER` releases the order."
        ));
    }
    if kept.total > 0 {
        parts.push(format!(
            "Orders of voucher {voucher} that are cancelled in MySQL and not released in Redis: {kept}. Either a service \
             cancelled them without lua/release.lua, or a command was killed. Redis still counts their units as sold. \
             To release an order, type the command that `tidegate order show ORDER` prints."
        ));
    }
    parts
}

/// The verdict in plain sentences: that the audit passed, or everything that is wrong.
fn verdict(audit: &Audit) -> String {
    if audit.holds {
        let admitted: u64 = audit.report.vouchers.iter().map(|voucher| voucher.orders.admitted).sum();
        let orders = counted(admitted, "admitted order");
        return format!("It holds: {orders} that Redis knows, no order lost or doubled, no unit oversold.");
    }
    let lines: Vec<String> = audit.failures.iter().map(|failure| format!("  - {failure}")).collect();
    let repairs: String = audit.repairs.iter().map(|repair| format!("{repair}\n")).collect();
    format!("{repairs}It does NOT hold:\n{}", lines.join("\n"))
}

/// The text about the lost orders of a voucher: when they were admitted, and the commands that restore them.
fn repair(audit: &VoucherAudit) -> Option<String> {
    let (voucher, lost) = (audit.voucher, &audit.offences.lost);
    let LostSpan { from_ms, to_ms, in_stream, entries } = lost.span?;
    let utc = |ms: u64| i64::try_from(ms).map_or_else(|_| ms.to_string(), times::utc);
    let when =
        format!("Lost orders of voucher {voucher} were admitted from {} to {}.", utc(from_ms), utc(to_ms));
    let gone = lost.orders.total.saturating_sub(in_stream);
    let gone = (gone > 0).then(|| {
        let gone = counted(gone, "lost order");
        format!("The stream has no entry of {gone}. To append it again, type what tidegate order show ORDER prints")
    });
    let again = entries.map(|(first, last)| {
        format!(
            "The stream still holds the entries of {}. To see what writing them again would do: \
             tidegate replay --voucher {voucher} --from {first} --to {last} --dry-run",
            counted(in_stream, "lost order")
        )
    });
    Some([Some(when), again, gone].into_iter().flatten().collect::<Vec<_>>().join("\n  "))
}

fn order_counts(audit: &VoucherAudit) -> Vec<String> {
    let VoucherAudit { voucher, orders, offences, .. } = audit;
    let wrong = [&offences.mismatched, &offences.not_released, &offences.doubled_back];
    let wrong = wrong.into_iter().chain([&offences.shared_slots, &offences.contradictory.orders]);
    let wrong: u64 = wrong.map(|them| them.total).sum();
    let places = [orders.admitted, orders.written, orders.released, orders.dead, orders.in_flight];
    let counts = places.into_iter().chain([offences.lost.orders.total, wrong]);
    [voucher.to_string()].into_iter().chain(counts.map(|count| count.to_string())).collect()
}

/// The table of orders by their status in MySQL, with a total if there are several vouchers.
fn states(report: &AuditReport) -> String {
    let mut states =
        table(&["voucher", "unpaid", "paid", "used", "refunding", "cancelled", "refunded", "contradictory"]);
    let mut add = |name: String, counts: &StateCounts| {
        states.add_row([name].into_iter().chain(counts.all().map(|orders| orders.to_string())));
    };
    for voucher in &report.vouchers {
        add(voucher.voucher.to_string(), &voucher.rows.states);
    }
    if report.vouchers.len() > 1 {
        add("all".to_owned(), &report.states);
    }
    states.to_string()
}

fn stocks(voucher: &VoucherAudit) -> [String; 7] {
    let known = |units: Option<i64>| units.map_or_else(|| "-".to_owned(), |units| units.to_string());
    [
        voucher.voucher.to_string(),
        voucher.rows.live_orders.to_string(),
        voucher.rows.live_units.to_string(),
        known(voucher.stocks.initial_stock),
        known(voucher.stocks.stock),
        known(voucher.stocks.redis_stock),
        known(voucher.oversell_risk()),
    ]
}
