//! The metrics of a worker in Prometheus' text format.

pub mod catalog;
pub(crate) mod families;
mod webhooks;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::Context;
use prometheus::TextEncoder;
#[cfg(target_os = "linux")]
use prometheus::{core::Collector, process_collector::ProcessCollector};
use tidegate_compare::reconciled::{DifferenceKind, Reconciled};
use tidegate_operations::{
    expirations::ExpirationsView,
    fleet_pause::FLEET,
    status::{Status, StreamView, VoucherStocks},
};
use tidegate_orders::{
    Refusal, RestoreState,
    order_counters::{KINDS_OF_CAUSES, REASONS_OF_DEATH},
};
use tidegate_stream::{Activity, breaker::State};
use tidegate_worker::{Parts, View, pause_signals::SIGNAL};

use self::families::{Families, number};
use crate::{
    gather::{Gathered, STORES, label_of},
    webhooks::WebhookState,
};

/// The content type of the text, for scrapers.
pub(crate) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Renders the metrics of each partition, with its tag in the label `partition`; a system without partitions has no
/// such label. Values of a store that did not answer are missing.
pub(crate) fn render(
    partitions: &[(&View, Arc<Gathered>)],
    webhooks: &[Arc<WebhookState>],
) -> anyhow::Result<String> {
    let mut families = Families::default();
    let version = env!("CARGO_PKG_VERSION");
    let name = partitions.first().map_or("", |(view, _)| &view.settings().worker.name);
    families.each(&catalog::BUILD_INFO, [([version, name], 1.0)]);
    for (view, gathered) in partitions {
        families.begin_partition(view.tag());
        if let Some(parts) = view.parts() {
            add_counts(&mut families, parts);
            add_times(&mut families, parts);
            add_state(&mut families, view, parts);
        }
        families.one(&catalog::RECONCILE_EVERY, view.settings().system.reconcile.every.as_secs_f64());
        add_gathering(&mut families, gathered);
        add_status(&mut families, &gathered.status);
    }
    webhooks::add(&mut families, webhooks);
    families.begin_partition(None);
    written(families)
}

/// Renders the metrics that `add` adds for a gate with this name, and the metrics of the process. It has no
/// `tidegate_build_info`: otherwise the alert for a fleet without workers would count a gate as a worker.
pub(crate) fn render_of(name: &str, add: impl FnOnce(&mut Families)) -> anyhow::Result<String> {
    let mut families = Families::default();
    families.each(&catalog::GATE_BUILD_INFO, [([env!("CARGO_PKG_VERSION"), name], 1.0)]);
    add(&mut families);
    written(families)
}

fn written(mut families: Families) -> anyhow::Result<String> {
    #[cfg(target_os = "linux")]
    families.known(ProcessCollector::for_self().collect());
    TextEncoder::new().encode_to_string(&families.into_inner()).context("Failed to write the metrics")
}

fn add_counts(families: &mut Families, parts: &Parts) {
    let (entries, orders) = (parts.counters.counts(), parts.order_counters.counts());
    families.one(&catalog::ORDERS_CREATED, number(orders.created));
    families.one(&catalog::ORDERS_ALREADY_THERE, number(orders.already_there));
    let refused =
        [(Refusal::UserHasOrder, orders.user_has_order), (Refusal::OutOfStock, orders.out_of_stock)];
    let refused = refused.map(|(refusal, count)| ([refusal.word()], number(count)));
    families.each(&catalog::ORDERS_REFUSED, refused);
    families.one(&catalog::LIMIT_USES, number(orders.limit_uses));
    let events = parts.order_counters.events();
    let events = events.map(|(kind, outcome, count)| ([kind.word(), outcome], number(count)));
    families.each(&catalog::EVENTS, events);
    let published = parts.result_counters.by_state();
    families
        .each(&catalog::RESULTS_PUBLISHED, published.map(|(state, count)| ([state.word()], number(count))));
    families.one(&catalog::RESULTS_REMEMBERED, number(parts.result_counters.all_remembered()));
    families.one(&catalog::RESULTS_UNPUBLISHED, number(parts.result_counters.unpublished()));
    families.one(&catalog::ENTRIES_ACKNOWLEDGED, number(entries.done));
    let mut buried = parts.counters.buried_by_reason();
    // Each reason starts at 0, so that Prometheus sees the first entry as a rise.
    REASONS_OF_DEATH.iter().for_each(|reason| _ = buried.entry(reason).or_default());
    let buried = buried.into_iter().map(|(reason, count)| ([reason], number(count)));
    families.each(&catalog::ENTRIES_BURIED, buried);
    families.one(&catalog::ENTRIES_RETRIED, number(entries.retried));
    let mut set_aside = parts.counters.set_aside().by_kind();
    KINDS_OF_CAUSES.iter().for_each(|kind| _ = set_aside.entry(kind).or_default());
    let set_aside = set_aside.into_iter().map(|(kind, of_kind)| ([kind], number(of_kind.entries as u64)));
    families.each(&catalog::ENTRIES_SET_ASIDE, set_aside);
    families.one(&catalog::ENTRIES_CLAIMED, number(entries.claimed));
    families.one(&catalog::ENTRIES_GONE, number(entries.gone));
    let waits = [(["user"], number(orders.lock_refused)), (["row"], number(orders.contended))];
    families.each(&catalog::LOCK_WAITS, waits);
    let contentions = parts.contentions.counts();
    let contentions = [
        ("deadlock", contentions.deadlocks),
        ("lock_wait", contentions.lock_waits),
        ("duplicate", contentions.duplicates),
    ];
    families.each(&catalog::CONTENTIONS, contentions.map(|(kind, count)| ([kind], number(count))));
    families.one(&catalog::EXPIRATIONS, number(parts.expirations.load(Relaxed)));
    families.one(&catalog::REDIS_RECONNECTS, number(parts.counters.reconnects()));
    families.one(&catalog::MYSQL_CONNECTIONS, number(parts.mysql_connections()));
}

fn add_times(families: &mut Families, parts: &Parts) {
    families.histograms(&catalog::BATCH_ENTRIES, 1.0, [([], parts.counters.sizes().spread())]);
    let stages = [
        ("read", parts.counters.reads()),
        ("lock", parts.order_counters.lockings()),
        ("write", parts.order_counters.writings()),
        ("settle", parts.counters.settlings()),
    ];
    let micros_per_second = 1e6;
    let stages = stages.map(|(stage, times)| ([stage], times.spread()));
    families.histograms(&catalog::STAGE_SECONDS, micros_per_second, stages);
}

fn add_state(families: &mut Families, view: &View, parts: &Parts) {
    let lanes = parts.lanes();
    let doing = |activity| lanes.iter().filter(|lane| lane.activity == activity).count() as u64;
    let activities = Activity::ALL.map(|activity| ([activity.word()], number(doing(activity))));
    families.each(&catalog::LANES, activities);
    let stuck = lanes.iter().filter(|lane| view.is_stuck(lane)).count();
    families.one(&catalog::LANES_STUCK, number(stuck as u64));
    let away = match parts.breaker.state() {
        State::Open { outage, .. } => Some(outage.store),
        State::Closed => None,
    };
    let open = STORES.map(|store| ([label_of(store)], flag(away == Some(store))));
    families.each(&catalog::BREAKER_OPEN, open);
    let held = view.pause_switch().active();
    let is_held = |reason| held.iter().any(|held| held.reason == reason);
    families.each(&catalog::PAUSED, [FLEET, SIGNAL].map(|reason| ([reason], flag(is_held(reason)))));
    families.one(&catalog::BUSY, flag(parts.busy.load(Relaxed)));
    families.one(&catalog::SALES_NOT_LOADED, number(parts.not_loaded.load(Relaxed)));
    let outages = parts.breaker.outages();
    let outages = STORES.map(|store| ([label_of(store)], number(*outages.get(store).unwrap_or(&0))));
    families.each(&catalog::OUTAGES, outages);
}

fn add_gathering(families: &mut Families, gathered: &Gathered) {
    let told = gathered.told().map(|(store, is_told)| ([label_of(store)], flag(is_told)));
    families.each(&catalog::GATHER_SUCCESS, told);
    let failures = gathered.failures.map(|(store, count)| ([label_of(store)], number(count)));
    families.each(&catalog::GATHER_FAILURES, failures);
}

fn add_status(families: &mut Families, status: &Status) {
    if let Some(stream) = &status.stream {
        add_stream(families, stream);
    }
    if let Some(vouchers) = &status.vouchers {
        add_stocks(families, vouchers);
        let counters = status.limit_counters.iter();
        let counters = counters.map(|counters| ([counters.owner.as_str()], number(counters.counters)));
        families.each(&catalog::LIMIT_COUNTERS, counters);
        families.one(&catalog::VOUCHERS_CUT, flag(status.more_vouchers));
    }
    if let Some(expirations) = &status.expirations {
        add_expirations(families, expirations);
    }
    // If Redis does not answer, these values are unknown.
    if status.stream.is_some() {
        add_reconciled(families, &status.reconciled.clone().unwrap_or_default());
    }
}

fn add_reconciled(families: &mut Families, found: &Reconciled) {
    let of = |counts: &std::collections::BTreeMap<String, u64>, kind: DifferenceKind| {
        ([kind.word()], number(counts.get(kind.word()).copied().unwrap_or(0)))
    };
    let all = DifferenceKind::ALL;
    families.each(&catalog::RECONCILE_DIFFERENCES, all.map(|kind| of(&found.counts, kind)));
    let failing = all.into_iter().filter(|kind| kind.is_failure());
    families.each(&catalog::RECONCILE_STANDING, failing.map(|kind| of(&found.standing, kind)));
    let seconds = |ms: i64| Duration::from_millis(ms.try_into().unwrap_or(0)).as_secs_f64();
    families.one(&catalog::RECONCILE_LAST, seconds(found.at_ms));
    families.one(&catalog::RECONCILE_LAST_CLEAN, seconds(found.clean_at_ms.unwrap_or(0)));
    families.one(&catalog::RECONCILE_UNREAD, number(found.unread));
    let bytes = found.voucher_bytes.iter().map(|(voucher, bytes)| ([voucher.as_str()], number(*bytes)));
    families.each(&catalog::VOUCHER_MEMORY, bytes);
    families.one(&catalog::UNITS_TO_DEDUCT, number(found.units_to_deduct.try_into().unwrap_or(0)));
}

fn add_stream(families: &mut Families, stream: &StreamView) {
    if let Some(added) = stream.entries_added {
        families.one(&catalog::STREAM_ADDED, number(added));
    }
    families.one(&catalog::STREAM_ENTRIES, number(stream.length));
    families.one(&catalog::STREAM_GROUP, flag(stream.group_exists));
    families.one(&catalog::STREAM_UNDELIVERED, number(stream.backlog.undelivered));
    families.one(&catalog::STREAM_UNDELIVERED_AGE, stream.backlog.oldest_undelivered_s.unwrap_or_default());
    families.one(&catalog::STREAM_PENDING, number(stream.backlog.pending));
    families.one(&catalog::STREAM_PENDING_AGE, stream.backlog.oldest_pending_s.unwrap_or_default());
    let of = |alive| stream.consumers.iter().filter(|consumer| consumer.alive == alive).count() as u64;
    let consumers = [(["alive"], number(of(true))), (["gone"], number(of(false)))];
    families.each(&catalog::STREAM_CONSUMERS, consumers);
    families.one(&catalog::DEAD_LETTERS, number(stream.dead_letters));
}

fn add_stocks(families: &mut Families, vouchers: &[VoucherStocks]) {
    #[expect(clippy::cast_precision_loss, reason = "stocks have at most 13 digits")]
    let units = |stock: i64| stock as f64;
    // A voucher that was delisted and removed needs no metrics.
    let is_there = |stocks: &&VoucherStocks| !stocks.delisted || stocks.redis.is_some();
    let there = vouchers.iter().filter(is_there);
    let named: Vec<(String, &VoucherStocks)> =
        there.map(|stocks| (stocks.voucher.to_string(), stocks)).collect();
    let both = named.iter().flat_map(|(voucher, stocks)| {
        let mysql = Some((label_of("MySQL"), stocks.mysql));
        let redis = stocks.redis.map(|stock| (label_of("Redis"), stock));
        let sides = [redis, mysql].into_iter().flatten();
        sides.map(move |(store, stock)| ([voucher.as_str(), store], units(stock)))
    });
    families.each(&catalog::VOUCHER_STOCK, both);
    let to_deduct = named.iter().filter_map(|(voucher, stocks)| Some((voucher, stocks.to_deduct?)));
    let to_deduct = to_deduct.map(|(voucher, to_deduct)| ([voucher.as_str()], units(to_deduct)));
    families.each(&catalog::VOUCHER_TO_DEDUCT, to_deduct);
}

fn add_expirations(families: &mut Families, expirations: &ExpirationsView) {
    families.one(&catalog::UNPAID, number(expirations.unpaid.orders));
    families.one(&catalog::UNPAID_OVERDUE, number(expirations.unpaid.overdue));
    families.one(&catalog::UNPAID_OVERDUE_AGE, expirations.unpaid.overdue_s);
    let back = [("redis", RestoreState::RedisWentBack), ("mysql", RestoreState::MySqlWentBack)];
    families.each(
        &catalog::STORE_WENT_BACK,
        back.map(|(store, state)| ([store], flag(expirations.state == state))),
    );
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
