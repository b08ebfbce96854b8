//! Tests of a campaign with limits, while workers are killed, limits change, and orders are cancelled, paid, refunded
//! or expire. Afterwards, all counters equal the uses of live orders, and no subject is over a limit.

mod buyers;
mod totals;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

use futures_util::future::join_all;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tidegate_lab::Seeds;
use tidegate_orders::RedisStore;

use crate::fixture::{DEADLINE, Fixture, Worker, until_within};

/// The usual number of sales, which run one after the other; `just limits` has more.
const RUNS: u64 = 1;
/// The regions. A user may have several orders of the first one, and orders of the last one expire.
const REGIONS: [i64; 3] = [101, 102, 103];
const BUYERS: i64 = 20;
const KILLS: usize = 3;

/// The limits at the start; below them the changes in the middle of the sale.
const LIMITS: [&str; 5] = [
    "--campaign 5 --name phones --subject phone --window month --orders 20 --units 30",
    "--campaign 5 --name places --subject address --window 2s --orders 15",
    "--campaign 5 --name everybody --window sale --units 300",
    "--voucher 101 --name mine --subject user --window sale --orders 4",
    "--voucher 103 --name fast --rate 200/1s --burst 20",
];
const CHANGES: [&str; 3] = [
    "--campaign 5 --name phones --subject phone --window month --orders 24 --units 40",
    "--voucher 101 --name mine --subject user --window sale --orders 6",
    "--voucher 102 --name devices --subject device --window day --orders 3",
];

/// A sale and its buyers.
struct Drill<'a> {
    fixture: &'a Fixture,
    store: RedisStore,
    next: AtomicI64,
    buying: AtomicUsize,
}

impl Drill<'_> {
    /// Runs the program to its end, and checks that it succeeds.
    async fn runs(&self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let output = tokio::process::Command::from(self.fixture.command(&words)).output().await;
        let output = output.expect("the program runs");
        assert!(output.status.success(), "tidegate {line}: {output:?}");
    }

    async fn open(&self) {
        let regions = self.fixture.file("regions.csv", "north,101,150\nsouth,102,100\nwest,103,100\n");
        let load = format!("campaign load --campaign 5 --regions {}", regions.display());
        self.runs(&load).await;
        let pay_within = "UPDATE tb_seckill_voucher SET pay_within = 1 WHERE voucher_id = 103";
        sqlx::query(pay_within).execute(&self.fixture.pool).await.expect("MySQL answers");
        for limit in LIMITS {
            self.runs(&format!("limit set {limit} --yes")).await;
        }
    }

    /// Starts a worker that quickly takes over from killed ones.
    fn worker(&self, at: usize) -> Worker {
        let plan = self.fixture.worker(&format!("w{at}")).set("WORKER_LANES", 3).set("WORKER_BATCH", 20);
        plan.set("WORKER_CLAIM_IDLE_MS", 600)
            .set("WORKER_CLAIM_EVERY_MS", 100)
            .set("WORKER_LOCK_LEASE_MS", 500)
            .start()
    }

    async fn done(&self) -> i64 {
        let sql = "SELECT (SELECT COUNT(*) FROM tb_voucher_order) + (SELECT COUNT(*) FROM tidegate_event)";
        sqlx::query_scalar(sql).fetch_one(&self.fixture.pool).await.expect("MySQL answers")
    }

    /// Kills workers at random moments, and changes limits meanwhile.
    async fn happen(&self, workers: &mut Vec<Worker>, random: &mut StdRng) {
        let mut changes = CHANGES.iter();
        for kill in 0..KILLS {
            let (before, more) = (self.done().await, random.random_range(10..80));
            until_within(4 * DEADLINE, "there is more to do, or nothing any more", || async {
                self.done().await > before + more || self.buying.load(Relaxed) == 0
            })
            .await;
            workers.swap_remove(0).kill9();
            workers.push(self.worker(kill + 2));
            if let Some(change) = changes.next() {
                self.runs(&format!("limit set {change} --yes")).await;
            }
        }
    }

    async fn is_done(&self) -> bool {
        let due = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM tidegate_unpaid_order");
        due.fetch_one(&self.fixture.pool).await.expect("MySQL answers") == 0
            && self.fixture.open_entries().await == Some(0)
    }
}

async fn drill(seed: u64) {
    let fixture = Fixture::open().await;
    let (store, next) = (fixture.store().await, AtomicI64::new(1));
    let drill = Drill { fixture: &fixture, store, next, buying: AtomicUsize::new(BUYERS as usize) };
    drill.open().await;
    let mut workers = vec![drill.worker(0), drill.worker(1)];
    for worker in &workers {
        worker.says("worker started").await;
    }
    let all = (1..=BUYERS).map(async |user| {
        let random = StdRng::seed_from_u64(seed.wrapping_add(user.unsigned_abs()));
        buyers::buys(&drill, user, random).await;
        drill.buying.fetch_sub(1, Relaxed);
    });
    let mut random = StdRng::seed_from_u64(seed);
    let (_, ()) = tokio::join!(join_all(all), drill.happen(&mut workers, &mut random));
    until_within(4 * DEADLINE, "all is done", || drill.is_done()).await;

    assert!(fixture.orders().await.len() > 50, "it was sold");
    assert_eq!(fixture.dead().await, [], "nothing is buried");
    assert_eq!(fixture.refused().await.len(), 0, "what Redis admits under limits, MySQL takes");
    totals::nobody_has_too_much(&fixture).await;
    fixture.judge().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_killed_in_a_sale_with_limits_and_what_is_counted_is_what_live_orders_hold() {
    Seeds::chosen(RUNS).run((1, 1), |seeds| drill(seeds.first())).await;
}
