//! Tests of a rolling update from an old program to this one, and back, under load. Old and new workers, old and new
//! gates, and producers with the old script share one Redis and one MySQL. Workers of both versions are killed
//! meanwhile. Then each order must have the state of the life model, and callers must find what they were told.
//!
//! `just rolling` builds the old program from the commit that `tests/rolling-from` names.

mod callers;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    process::Output,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use futures_util::future::join_all;
use hyper::Method;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tidegate_lab::Seeds;
use tidegate_orders::{scripts::AdmitReply, wire::FieldNames};
use tokio::time::sleep;

pub use self::callers::Callers;
use crate::{
    browser::ask,
    fixture::{DEADLINE, Fixture, Worker, invariants::none_is, program_at, until, until_within},
    life_model::{IDS, Played, check, fleet::Fleet, play, sale::Sale},
    results::results,
};

/// The number of vouchers on sale.
const SALES: i64 = 8;
/// The number of orders and events that must be written between two steps of the update.
const BETWEEN_STEPS: i64 = 150;
/// The most requests of a sale. A sale with more runs out of ids.
const MOST_REQUESTS: usize = 2_500;

/// A version of the program.
struct Version {
    program: PathBuf,
    name: &'static str,
}

impl Version {
    fn new() -> Self {
        Self { program: env!("CARGO_BIN_EXE_tidegate").into(), name: "new" }
    }

    fn old() -> Self {
        Self { program: old_source().join("target/debug/tidegate"), name: "old" }
    }

    fn worker(&self, fleet: &Fleet<'_>, name: &str) -> Worker {
        let plan = fleet.plan(name).log_as(&format!("{name}-{}", self.name));
        plan.of(&self.program).set("RESULTS_PUBLISH", "all").start()
    }

    async fn gate(&self, fleet: &Fleet<'_>, name: &str) -> (Worker, SocketAddr) {
        let plan = fleet.plan(name).log_as(&format!("{name}-{}", self.name));
        let gate = plan.of(&self.program).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
        let address = gate.gate_address().await;
        until("the gate is ready", || async {
            ask(Method::GET, address, "/readyz", None).await.status == 200
        })
        .await;
        (gate, address)
    }

    /// Runs a command of this version. It must succeed.
    async fn run(&self, fleet: &Fleet<'_>, args: &[&str]) -> Output {
        let output = fleet.run_of(program_at(&self.program), args).await;
        assert!(output.status.success(), "the {} program, {}: {output:?}", self.name, args.join(" "));
        output
    }
}

/// The folder with the source and the program of the old version.
fn old_source() -> PathBuf {
    let folder = std::env::var_os("TIDEGATE_TEST_OLD_SOURCE").expect("run `just rolling`");
    PathBuf::from(folder).canonicalize().expect("a folder")
}

/// An update of a fleet in progress.
struct Update<'a> {
    fleet: &'a Fleet<'a>,
    from: Version,
    to: Version,
    workers: Vec<Worker>,
    gates: Vec<Worker>,
}

impl Update<'_> {
    /// Waits until the fleet has done some work.
    async fn progress(&self, step: &str) {
        let before = self.fleet.done().await;
        until_within(2 * DEADLINE, &format!("orders are written after: {step}"), || async {
            self.fleet.done().await > before + BETWEEN_STEPS
        })
        .await;
    }

    async fn replace_worker(&mut self, at: usize) {
        let old = self.workers.remove(at);
        if at == 2 {
            // The other version waits until the heartbeat expires.
            old.kill9();
        } else {
            assert!(old.stop().await.success());
        }
        let worker = self.to.worker(self.fleet, &format!("w{at}"));
        worker.says("worker started").await;
        self.workers.insert(at, worker);
        self.progress(&format!("worker {at} is replaced")).await;
    }

    /// Kills a worker, and starts another of the same version.
    async fn kill_worker(&mut self, at: usize, version: &'static str) {
        self.workers.remove(at).kill9();
        let by = if self.to.name == version { &self.to } else { &self.from };
        self.workers.insert(at, by.worker(self.fleet, &format!("w{at}")));
        self.progress(&format!("a worker of the {version} version is killed")).await;
    }

    /// Callers know the address of the old gate until the new one is there. They repeat requests without an answer.
    async fn replace_gate(&mut self, at: usize) {
        let old = self.gates.remove(at);
        if at == 0 {
            assert!(old.stop().await.success());
        } else {
            old.kill9();
        }
        let (gate, address) = self.to.gate(self.fleet, &format!("g{at}")).await;
        self.gates.insert(at, gate);
        self.fleet.callers.as_ref().expect("callers").told().gates[at] = address;
        self.progress(&format!("gate {at} is replaced")).await;
    }

    /// Runs the steps of `docs/runbook/upgrade.md`.
    async fn run(&mut self) {
        self.progress("the sale begins").await;
        Version::new().run(self.fleet, &["migrate", "--yes"]).await;
        self.progress("the schema is new").await;
        self.replace_worker(0).await;
        let doctor = Version::new().run(self.fleet, &["doctor"]).await;
        let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(found.contains("workers of 2 versions share this stream: "), "{found}");
        // Neither version knows this event.
        let fields = [("event", "shipped"), ("orderId", "1000"), ("userId", "1000"), ("voucherId", "1")];
        self.fleet.fixture.add(&fields).await;
        self.kill_worker(1, self.from.name).await;
        self.kill_worker(0, self.to.name).await;
        self.replace_worker(1).await;
        self.replace_worker(2).await;
        self.replace_gate(0).await;
        self.replace_gate(1).await;
    }
}

async fn sell(fleet: &Fleet<'_>, voucher: i64, seed: u64, is_over: &AtomicBool) -> Sale {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(voucher.unsigned_abs()));
    let mut sale = Sale::open(fleet, (voucher, IDS), seed).await;
    for _ in 0..MOST_REQUESTS {
        if is_over.load(Relaxed) {
            break;
        }
        if let Some(attempt) = sale.step(fleet, &mut rng).await {
            let is_expected = attempt.reply.is_admitted()
                || matches!(attempt.reply, AdmitReply::UserHasOrder | AdmitReply::SoldOut);
            assert!(is_expected, "{attempt:?}");
        }
        // The pace of callers, so that the sale lasts as long as the update.
        sleep(Duration::from_millis(rng.random_range(10..60))).await;
    }
    sale
}

/// Starts a fleet of one version, and updates it to the other during the sale. Returns the fleet's workers and gates.
async fn update(fleet: &mut Fleet<'_>, (from, to): (Version, Version), seed: u64) {
    from.run(fleet, &["migrate", "--yes"]).await;
    let workers: Vec<Worker> = (0..3).map(|at| from.worker(fleet, &format!("w{at}"))).collect();
    for worker in &workers {
        worker.says("worker started").await;
    }
    let script = std::fs::read_to_string(old_source().join("lua/admit.lua")).expect("the old script");
    let script = fleet.fixture.sha(&script).await;
    let (first, second) = (from.gate(fleet, "g0").await, from.gate(fleet, "g1").await);
    fleet.callers = Some(Callers::new(script, vec![first.1, second.1]));
    let fleet = &*fleet;
    let mut update = Update { fleet, from, to, workers, gates: vec![first.0, second.0] };

    let is_over = AtomicBool::new(false);
    let sales = join_all((1..=SALES).map(|voucher| sell(fleet, voucher, seed, &is_over)));
    let (sales, ()) = tokio::join!(sales, async {
        update.run().await;
        is_over.store(true, Relaxed);
    });
    let is_done = || async { fleet.none_is_due().await && fleet.is_settled().await };
    until_within(4 * DEADLINE, "all is done", is_done).await;
    judge(fleet, &sales).await;
    for version in [&update.from, &update.to] {
        for words in [&["audit"][..], &["doctor"], &["migrate", "--yes"]] {
            version.run(fleet, words).await;
        }
    }
    for process in update.workers.into_iter().chain(update.gates) {
        assert!(process.stop().await.success());
    }
}

/// Compares both stores with the life model, with what callers were told, and with the results that workers published.
async fn judge(fleet: &Fleet<'_>, sales: &[Sale]) {
    let fields = FieldNames::default();
    let (known, unknown): (Vec<_>, Vec<_>) =
        fleet.entries().await.into_iter().partition(|entry| fields.decode_message(entry).is_ok());
    let buried = fleet.fixture.dead().await;
    let reasons: Vec<&str> = buried.iter().map(|letter| letter["dead:reason"].as_str()).collect();
    assert_eq!((unknown.len(), reasons), (1, vec!["unsupported_event"]), "{buried:#?}");

    let written = fleet.written().await;
    let played = play(&known, &written);
    for sale in sales {
        check(fleet, sale, played.get(&sale.voucher).unwrap_or(&Played::default())).await;
    }
    let vouchers: Vec<i64> = sales.iter().map(|sale| sale.voucher).collect();
    none_is(&fleet.stores().mismatches(&vouchers, &BTreeMap::new()).await);

    let entries: BTreeSet<String> = known.iter().map(|entry| entry.id.to_string()).collect();
    none_is(&unpublished(fleet).await);
    let told = fleet.callers.as_ref().expect("callers").told();
    let lost: Vec<&i64> = told.orders.iter().filter(|order| !written.contains_key(order)).collect();
    assert!(lost.is_empty(), "callers were told that these orders are admitted: {lost:?}");
    let lost: Vec<&String> = told.events.difference(&entries).collect();
    assert!(lost.is_empty(), "callers were told that these events are accepted: {lost:?}");
    assert!(told.events.len() > 100 && told.orders.len() > 100, "the sale was too small to prove anything");
}

/// The orders and events without a published result. An event that repeats another one is left out, because versions
/// differ in what they publish for it.
async fn unpublished(fleet: &Fleet<'_>) -> Vec<String> {
    let published: BTreeSet<String> = results(fleet.fixture)
        .await
        .iter()
        .map(|told| format!("{} {}", told["orderId"], told["step"]))
        .collect();
    // An order that was cancelled before it came has no units to release, and was never confirmed.
    let due = "SELECT CONCAT(id, ' 0') FROM tb_voucher_order orders WHERE NOT EXISTS (SELECT 1 FROM tidegate_event \
               WHERE order_id = orders.id AND event = 'cancelled' AND outcome = 'applied' AND released = 0) UNION ALL \
               SELECT CONCAT_WS(' ', order_id, step) FROM tidegate_event WHERE outcome IN ('applied', 'refund_due')";
    let due: Vec<String> = sqlx::query_scalar(due).fetch_all(&fleet.pool).await.expect("MySQL answers");
    let missing = due.into_iter().filter(|step| !published.contains(step));
    missing.map(|step| format!("no result has this order and step: {step}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the program of an earlier commit; run `just rolling`"]
async fn an_update_of_workers_and_gates_under_load_loses_nothing() {
    let fixture = Fixture::bare().await;
    let mut fleet = Fleet::bare(&fixture, "").await;
    update(&mut fleet, (Version::old(), Version::new()), Seeds::chosen(1).first()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the program of an earlier commit; run `just rolling`"]
async fn a_return_to_the_old_program_under_load_loses_nothing() {
    let fixture = Fixture::bare().await;
    let mut fleet = Fleet::bare(&fixture, "").await;
    update(&mut fleet, (Version::new(), Version::old()), Seeds::chosen(1).first()).await;
}
