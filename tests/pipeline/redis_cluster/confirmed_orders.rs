//! Tests of the gate's answers before, during and after a failover, compared with the orders in MySQL. The judge uses
//! the answers and the rows only, and no part of the program.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use sqlx::MySqlPool;
use tidegate_lab::{RedisCluster, RedisNode, Seeds};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{WHOLE_WITHIN, fixture::ClusterFixture};
use crate::{
    browser::{Unanswered, post_json},
    fixture::{Worker, invariants::none_is, until, until_within},
};

/// The voucher of the drill. It is in the partition `{10}`.
const VOUCHER: i64 = 24;
const TAG: &str = "10";
const CALLERS_AT_ONCE: usize = 24;
/// The time for which the replica is cut off before its master dies.
const DEAF_FOR: Duration = Duration::from_millis(500);
/// The number of orders that producers without confirmation admit in that time.
const UNCONFIRMED: usize = 40;
/// The time after which a caller without an answer repeats its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The deadline for an answer to any caller.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// The last answer that a caller got.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// 202, with the id of the order.
    Order(i64),
    /// A refusal, with the type of its problem.
    Refused(String),
    /// The answer that the order is unsure. The caller did not repeat its request.
    LeftUnsure,
}

impl Told {
    fn name(&self) -> &str {
        match self {
            Self::Order(_) => "202",
            Self::Refused(problem) => problem,
            Self::LeftUnsure => "unsure",
        }
    }
}

/// A drill of one seed.
#[derive(Clone, Copy, Debug)]
struct Drill {
    seed: u64,
    stock: i64,
    callers: i64,
    /// The number of replicas that the workers wait for.
    workers_wait_for: u32,
    /// Whether the gate dies with the master, and another one starts after the failover.
    gate_restarts: bool,
}

/// The callers of a drill.
struct Callers {
    /// The address of the gate.
    gate: Mutex<SocketAddr>,
    told: Mutex<BTreeMap<i64, Told>>,
    next: AtomicI64,
    last: i64,
    /// The number of answers that were unsure or did not come.
    repeats: AtomicU64,
}

impl Callers {
    fn told(&self) -> BTreeMap<i64, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn go_to(&self, gate: SocketAddr) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = gate;
    }

    /// Places an order for one user after the other, until all users have one request.
    async fn buy(self: Arc<Self>, mut chance: StdRng) {
        loop {
            let user = self.next.fetch_add(1, Relaxed);
            if user > self.last {
                return;
            }
            let told = self.buy_for(user, chance.random_ratio(1, 4), &mut chance).await;
            self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(user, told);
            sleep(Duration::from_millis(chance.random_range(0..10))).await;
        }
    }

    /// Repeats a request with one idempotency key, until its answer is certain.
    async fn buy_for(&self, user: i64, leaves_unsure: bool, chance: &mut impl Rng) -> Told {
        let began = Instant::now();
        loop {
            let gate = *self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = timeout(PATIENCE, post(gate, user)).await;
            if let Ok(Ok((status, body))) = &answer {
                match status {
                    202 => {
                        let order = body["orderId"].as_str().and_then(|id| id.parse().ok());
                        return Told::Order(order.unwrap_or_else(|| panic!("no id: {body:#}")));
                    }
                    504 if leaves_unsure => return Told::LeftUnsure,
                    503 | 504 => {}
                    _ => return Told::Refused(body["type"].as_str().unwrap_or("no type").to_owned()),
                }
            }
            self.repeats.fetch_add(1, Relaxed);
            assert!(began.elapsed() < ANSWERED_WITHIN, "user {user} asks in vain: {answer:?}");
            sleep(Duration::from_millis(chance.random_range(20..200))).await;
        }
    }
}

async fn post(gate: SocketAddr, user: i64) -> Result<(u16, Value), Unanswered> {
    let body = json!({ "voucherId": VOUCHER.to_string(), "userId": user.to_string() });
    post_json(gate, "/orders", &[("Idempotency-Key", &format!("order-{user}"))], &body).await
}

impl Drill {
    async fn run(self) -> Vec<String> {
        let mut chance = StdRng::seed_from_u64(self.seed);
        let fixture = ClusterFixture::open(RedisCluster::start().expect("a cluster")).await;
        fixture.program().run(&format!("voucher load --voucher {VOUCHER} --stock {}", self.stock)).expect(0);
        let workers = ["a", "b"].map(|name| {
            let plan = fixture.worker(name).set("GATE_WAIT_REPLICAS", self.workers_wait_for);
            plan.set("GATE_WAIT_MS", 100).set("WORKER_BACKOFF_MAX_MS", 500).start()
        });
        let mut gate = gate(&fixture, "first-gate").await;
        // The caller log of the fixture does not know these users.
        let (first, last) = (1_000_001, 1_000_000 + self.callers);
        let callers = Arc::new(Callers {
            gate: Mutex::new(gate.1),
            told: Mutex::default(),
            next: AtomicI64::new(first),
            last,
            repeats: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS_AT_ONCE {
            tasks.spawn(Arc::clone(&callers).buy(StdRng::seed_from_u64(chance.next_u64())));
        }
        let share = chance.random_range(20..60);
        let told = usize::try_from(self.callers.min(self.stock) * share / 100).expect("small");
        until_within(Duration::from_secs(60), "the sale is in full swing", || async {
            callers.told().len() >= told
        })
        .await;

        let master = fixture.cluster.master_of(TAG).expect("a master");
        let freezes = chance.random_bool(0.5);
        deafen_replica(&fixture, master).await;
        if freezes {
            master.server().stop().expect("frozen");
        } else {
            master.server().kill9().expect("killed");
        }
        if self.gate_restarts {
            gate.0.signal(nix::sys::signal::Signal::SIGKILL);
        }
        until_within(WHOLE_WITHIN, "another one is the master", || async {
            fixture.cluster.master_of(TAG).is_ok_and(|new| new.id() != master.id())
        })
        .await;
        if freezes {
            master.server().cont().expect("awake");
            master.says(&["ACL", "SETUSER", "default", "+psync", "+sync"]).expect("set");
        } else {
            master.server().restart().expect("back");
        }
        if self.gate_restarts {
            gate = self::gate(&fixture, "second-gate").await;
            callers.go_to(gate.1);
        }
        fixture.cluster.wait_whole(WHOLE_WITHIN).expect("the old master is a replica");
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a caller does not break");
        }
        fixture.is_quiet("every entry is handled").await;

        let wrong = self.judge(&fixture.pool, &callers, freezes).await;
        for mut worker in workers {
            worker.signal(nix::sys::signal::Signal::SIGTERM);
            let ended = worker.ended().await;
            assert!(ended.success(), "{ended}: {}", worker.log());
        }
        assert!(gate.0.stop().await.success());
        wrong
    }

    /// The contradictions between the answers of the gate and the rows of MySQL.
    async fn judge(self, pool: &MySqlPool, callers: &Callers, freezes: bool) -> Vec<String> {
        let sql = "SELECT CAST(user_id AS SIGNED), CAST(id AS SIGNED), CAST(quantity AS SIGNED) FROM tb_voucher_order \
                   WHERE voucher_id = ? AND slot IS NOT NULL";
        let rows: Vec<(i64, i64, i64)> =
            sqlx::query_as(sql).bind(VOUCHER).fetch_all(pool).await.expect("MySQL answers");
        let units: i64 = rows.iter().map(|(_, _, quantity)| quantity).sum();
        let by_user: BTreeMap<i64, i64> = rows.iter().map(|(user, id, _)| (*user, *id)).collect();
        let told = callers.told();
        let mut wrong = Vec::new();
        for (user, told) in &told {
            match (told, by_user.get(user)) {
                (Told::Order(order), row) if row != Some(order) => {
                    wrong.push(format!("user {user} was told of order {order}, and has the row {row:?}"));
                }
                (Told::Refused(problem), Some(row)) => {
                    wrong.push(format!("user {user} was told {problem}, and has the row {row}"));
                }
                _ => {}
            }
        }
        let wrong_callers = wrong.len();
        if by_user.len() != rows.len() {
            wrong.push("a user has two live orders".to_owned());
        }
        if units > self.stock {
            wrong.push(format!("{units} units are sold of {}", self.stock));
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for told in told.values() {
            *counts.entry(told.name()).or_default() += 1;
        }
        let repeats = callers.repeats.load(Relaxed);
        println!(
            "seed {}, {}: callers were told {counts:?} after {repeats} repeats; {units} of {} units sold; {wrong_callers} \
             callers were told what is not so",
            self.seed,
            if freezes { "frozen" } else { "killed" },
            self.stock
        );
        // Without repeats and both kinds of answers, the drill would show nothing.
        assert!(repeats > 0 && ["202", "unsure"].iter().all(|told| counts.contains_key(told)), "{counts:?}");
        assert_eq!(told.len(), usize::try_from(self.callers).expect("small"));
        wrong
    }
}

/// A gate that waits for a replica, and its address.
async fn gate(fixture: &ClusterFixture, name: &str) -> (Worker, SocketAddr) {
    let plan = fixture.worker(name).set("GATE_LISTEN", "127.0.0.1:0").set("GATE_WAIT_REPLICAS", 1);
    let gate = plan.set("GATE_WAIT_MS", 100).set("REDIS_COMMAND_TIMEOUT_MS", 1_000).start_as("gate");
    let address = gate.gate_address().await;
    (gate, address)
}

/// Cuts the replica of this master off: the master does not let it connect again. The sale continues meanwhile.
async fn deafen_replica(fixture: &ClusterFixture, master: &RedisNode) {
    let [replica] = fixture.cluster.replicas_of(master)[..] else { panic!("one replica") };
    let began = Instant::now();
    master.says(&["ACL", "SETUSER", "default", "-psync", "-sync"]).expect("set");
    replica.says(&["CLIENT", "KILL", "TYPE", "master"]).expect("cut");
    until("the master has no replica", || async {
        master.says(&["INFO", "replication"]).is_ok_and(|info| info.contains("connected_slaves:0"))
    })
    .await;
    for _ in 0..UNCONFIRMED {
        fixture.admit(VOUCHER).await.expect("the master admits");
    }
    sleep(DEAF_FOR.saturating_sub(began.elapsed())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute a seed; run `just clusters`"]
async fn no_confirmed_order_is_refused_after_a_failover_of_a_sale_that_sells_out() {
    for seed in Seeds::chosen(2).all() {
        let stock = 400;
        let drill = Drill { seed, stock, callers: stock * 5 / 4, workers_wait_for: 1, gate_restarts: false };
        none_is(&drill.run().await);
    }
}

/// The workers do not wait for replicas here. If they did, Redis could not lose an order with a row together with its
/// idempotency key.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute a seed; run `just clusters`"]
async fn a_caller_who_repeats_a_key_at_a_gate_that_began_after_the_failover_is_told_of_the_row() {
    for seed in Seeds::chosen(2).all() {
        let drill = Drill { seed, stock: 100_000, callers: 500, workers_wait_for: 0, gate_restarts: true };
        none_is(&drill.run().await);
    }
}
