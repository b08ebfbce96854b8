//! Tests of losses at random moments of random sales. Redis and MySQL lose the last part of their data, or Redis loses
//! all, while workers are killed. Then the test types the commands of the runbook: every invariant holds, and every
//! order and payment that a store still knew is accounted for.

mod accounts;
mod losses;
mod operator;

use std::{collections::BTreeMap, ops::Range, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tidegate_lab::Seeds;
use tokio::time::sleep;

use crate::{
    fixture::{DEADLINE, Fixture, Worker, invariants::none_is, until_within},
    life_model::{
        fleet::Fleet,
        sale::{Attempt, PAY_WITHIN_S, Sale},
    },
};
use accounts::Known;
use losses::{Loss, Stores};

/// The usual number of runs; `just chaos` has more.
const RUNS: u64 = 3;
/// The number of parallel runs. They wait for their servers more than they compute.
const AT_ONCE: usize = 6;
/// The orders of a voucher have ids from a multiple of this number.
const IDS: i64 = 1_000;
/// A voucher that is not on sale.
const UNKNOWN: i64 = 99;
/// The highest number of losses in a run.
const MOST_LOSSES: usize = 3;

/// The actors of a run: sales, workers and losses, and the orders that are known to be admitted.
struct People {
    stores: Stores,
    sales: Vec<Sale>,
    workers: Vec<Worker>,
    rng: StdRng,
    started: usize,
    /// The number of orders of [`UNKNOWN`].
    unknown: i64,
    known: Known,
}

impl People {
    async fn begin(fleet: &Fleet<'_>, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut sales = Vec::new();
        for voucher in 1..=rng.random_range(1..=4) {
            let pay_within = (rng.random_range(0..3) == 0).then_some(PAY_WITHIN_S);
            fleet.load(voucher, rng.random_range(15..=80), pay_within).await;
            sales.push(Sale::new((voucher, IDS), seed));
        }
        let stores = Stores::open(fleet).await;
        let (workers, known) = (Vec::new(), Known::default());
        let mut people = Self { stores, sales, workers, rng, started: 0, unknown: 0, known };
        people.start_worker(fleet);
        people.start_worker(fleet);
        for worker in &people.workers {
            worker.says("worker started").await;
        }
        people
    }

    fn start_worker(&mut self, fleet: &Fleet<'_>) {
        self.workers.push(fleet.worker(self.started));
        self.started += 1;
    }

    fn steps(&mut self, between: Range<usize>) -> usize {
        self.rng.random_range(between)
    }

    /// Continues the sale for some steps, while workers are killed and the stores are copied.
    async fn sell(&mut self, fleet: &Fleet<'_>, steps: usize) {
        for _ in 0..steps {
            match self.rng.random_range(0..100) {
                0..2 => {
                    self.workers.swap_remove(0).kill9();
                    self.start_worker(fleet);
                }
                2..5 => self.stores.copy_redis(fleet).await,
                5..8 => self.stores.copy_mysql(fleet).await,
                8..10 => {
                    self.unknown += 1;
                    let order = UNKNOWN * IDS + self.unknown;
                    fleet.fixture.add_order(order, order, UNKNOWN).await;
                    self.known.orders.insert(order);
                }
                10..14 => sleep(Duration::from_millis(self.rng.random_range(1..100))).await,
                _ => {
                    let sale = self.rng.random_range(0..self.sales.len());
                    match self.sales[sale].step(fleet, &mut self.rng).await {
                        Some(Attempt { order, reply, .. }) if reply.is_admitted() => {
                            self.known.orders.insert(order);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Makes one store, or both, lose data. Afterwards, no store may know orders that were known before.
    async fn lose(&mut self, fleet: &Fleet<'_>) -> Loss {
        let loss = Loss::any(&mut self.rng);
        self.stores.suffer(loss, fleet).await;
        self.known = Known::read(fleet).await;
        loss
    }
}

async fn run(seed: u64) {
    let fixture = Fixture::bare().await;
    let fleet = Fleet::open(&fixture, "").await;
    let mut people = People::begin(&fleet, seed).await;
    let mut lost = Vec::new();
    for _ in 0..people.steps(1..MOST_LOSSES + 1) {
        let steps = people.steps(40..150);
        people.sell(&fleet, steps).await;
        lost.push(people.lose(&fleet).await);
        let steps = people.steps(0..60);
        people.sell(&fleet, steps).await;
        // Often the next loss comes before an operator has repaired the last one.
        if people.steps(0..3) == 0 {
            let way = people.rng.random();
            let steps = people.steps(0..100);
            tokio::join!(operator::repair(&fleet, &lost, way), people.sell(&fleet, steps));
            lost.clear();
        }
    }
    people.known.add(Known::read(&fleet).await);
    operator::repair(&fleet, &lost, people.rng.random()).await;
    operator::repair_what_is_left(&fleet).await;
    all_is_done(&fleet).await;
    let vouchers: Vec<i64> = people.sales.iter().map(|sale| sale.voucher).collect();
    none_is(&fleet.stores().mismatches(&vouchers, &BTreeMap::new()).await);
    accounts::check(&fleet, &vouchers, &people.known).await;
    for worker in people.workers {
        assert!(worker.stop().await.success());
    }
}

async fn all_is_done(fleet: &Fleet<'_>) {
    let is_done = async || fleet.none_is_due().await && fleet.is_settled().await;
    until_within(2 * DEADLINE, "all is done", is_done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_both_stores_lose_all_that_any_side_still_knows_is_accounted_for_afterwards() {
    Seeds::chosen(RUNS).run((1, AT_ONCE), |seeds| run(seeds.first())).await;
}
