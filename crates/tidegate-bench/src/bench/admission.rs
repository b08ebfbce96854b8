//! Admission: the gate with many concurrent callers, compared with its bare script and that of the tutorial, over plain
//! pipelined connections. All of them have the same number of calls in flight, over the same number of connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use tidegate_orders::{
    KeyTemplates, OrderId, Quantity, RedisStore, UserId, VoucherId,
    scripts::{Admission as Wanted, AdmitReply, SaleWindow},
};
use tidegate_stream::{RedisConnectionSettings, connect_pool};
use tokio::task::JoinSet;

use super::{
    fixture::{Fixture, STREAM},
    meter::RedisReading,
    orders::{NewOrder, Orders},
    resp::{Reply, Resp},
    results::{Admission, AdmissionResults, Calls, Rate},
};

const CONNECTIONS: usize = 4;
/// The calls in flight on each connection.
const DEPTH: usize = 64;
pub(super) const ADMIT: &str = include_str!("../../../../lua/admit.lua");
const TUTORIAL: &str = include_str!("tutorial_admit.lua");
pub(super) const KEYS: [&str; 5] =
    ["seckill:stock:1", "seckill:order:1", "seckill:voucher:1", "seckill:journal:1", STREAM];

#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    Gate,
    /// The text of `admit.lua`, possibly of another commit.
    BareScript(&'a str),
    TutorialScript,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sale {
    Open,
    SoldOut,
}

/// Measures each way `rounds` times in turn, with stock and without.
pub async fn measure(fixture: &mut Fixture, calls: usize, rounds: usize) -> Result<AdmissionResults> {
    let mut found = [const { Vec::new() }; 6];
    let ways = [Way::Gate, Way::BareScript(ADMIT), Way::TutorialScript];
    for _ in 0..rounds {
        for (at, (sale, way)) in [Sale::Open, Sale::SoldOut]
            .into_iter()
            .flat_map(|sale| ways.into_iter().map(move |way| (sale, way)))
            .enumerate()
        {
            found[at].push(once(fixture, way, sale, calls).await?);
        }
    }
    let [gate, bare, tutorial, gate_refuses, bare_refuses, tutorial_refuses] =
        found.map(|runs| conclude(&runs));
    Ok(AdmissionResults {
        admitted: Admission { gate, bare_script: bare, tutorial_script: tutorial },
        sold_out: Admission {
            gate: gate_refuses,
            bare_script: bare_refuses,
            tutorial_script: tutorial_refuses,
        },
    })
}

pub fn conclude(found: &[(f64, f64)]) -> Calls {
    let (per_s, redis_cpu_us) = found.iter().copied().unzip();
    Calls { per_s: Rate::of(per_s), redis_cpu_us: Rate::of(redis_cpu_us) }
}

/// Returns the calls per second, and Redis' CPU time of a call in microseconds.
pub async fn once(fixture: &mut Fixture, way: Way<'_>, sale: Sale, calls: usize) -> Result<(f64, f64)> {
    let gate = open_sale(fixture).await?;
    if sale == Sale::SoldOut {
        fixture.redis.call(&["SET", KEYS[0], "0"]).await?;
    }
    let warm_up = fixture.numbers.take(calls.min(1_000), 1);
    call_all(fixture, &gate, way, sale, &warm_up).await?;
    let orders = fixture.numbers.take(calls, 1);
    let before = RedisReading::take(&mut fixture.redis).await?;
    let took = call_all(fixture, &gate, way, sale, &orders).await?;
    let after = RedisReading::take(&mut fixture.redis).await?;
    Ok((calls as f64 / took.as_secs_f64(), (after.cpu_s - before.cpu_s) * 1e6 / calls as f64))
}

/// Prepares an empty Redis with one voucher on sale, in the middle of its window.
pub(super) async fn open_sale(fixture: &mut Fixture) -> Result<RedisStore> {
    fixture.clear_redis().await?;
    let limit = Duration::from_secs(10);
    let pool = connect_pool(&RedisConnectionSettings {
        master: None,
        sentinels: None,
        url: fixture.redis_server.url(),
        connections: CONNECTIONS,
        command_timeout: limit,
        connect_timeout: limit,
    })
    .await?;
    let gate = RedisStore::with_default_names(pool.into(), KeyTemplates::default());
    let hour = SignedDuration::from_hours(1);
    let window = SaleWindow { begin: Some(Timestamp::now() - hour), end: Some(Timestamp::now() + hour) };
    gate.sales().load(VoucherId::try_from(1)?, 1_000_000_000, window).await?;
    Ok(gate)
}

async fn call_all(
    fixture: &Fixture,
    gate: &RedisStore,
    way: Way<'_>,
    sale: Sale,
    orders: &Orders,
) -> Result<Duration> {
    match way {
        Way::Gate => through_gate(gate, sale, orders).await,
        Way::BareScript(lua) => pipelined(fixture, lua, is_wanted(sale), orders, queue_admit).await,
        Way::TutorialScript => pipelined(fixture, TUTORIAL, is_wanted(sale), orders, queue_tutorial).await,
    }
}

/// Asks for all orders at once, and returns how long that took. Fails if an answer is not what the sale expects.
pub async fn through_gate(gate: &RedisStore, sale: Sale, orders: &Orders) -> Result<Duration> {
    let is_wanted = match sale {
        Sale::Open => |reply: &AdmitReply| *reply == AdmitReply::Admitted,
        Sale::SoldOut => |reply: &AdmitReply| *reply == AdmitReply::SoldOut,
    };
    let (orders, next) = (Arc::new(orders.iter().collect::<Vec<_>>()), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    let began = Instant::now();
    for _ in 0..CONNECTIONS * DEPTH {
        let (gate, orders, next) = (gate.clone(), Arc::clone(&orders), Arc::clone(&next));
        callers.spawn(async move {
            while let Some(order) = orders.get(next.fetch_add(1, Relaxed)) {
                let reply = gate.admissions().admit(&wish(order)?).await?;
                ensure!(is_wanted(&reply), "The gate answers {reply:?}");
            }
            Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(began.elapsed())
}

fn wish(order: &NewOrder) -> Result<Wanted> {
    Ok(Wanted {
        order: OrderId::try_from(order.id)?,
        user: UserId::try_from(order.user)?,
        voucher: VoucherId::try_from(order.voucher)?,
        quantity: Quantity::ONE,
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    })
}

fn is_wanted(sale: Sale) -> impl Fn(&Reply) -> bool + Copy + Send + 'static {
    move |reply| *reply == Reply::Int(if sale == Sale::Open { 0 } else { 1 })
}

/// Calls a script for each of `orders`, over all connections at once; `queue` appends the command.
pub(super) async fn pipelined(
    fixture: &Fixture,
    lua: &str,
    is_wanted: impl Fn(&Reply) -> bool + Copy + Send + 'static,
    orders: &Orders,
    queue: fn(&mut Resp, &str, NewOrder),
) -> Result<Duration> {
    let mut connections = Vec::new();
    for part in orders.chunks(orders.len().div_ceil(CONNECTIONS)) {
        connections.push((Resp::connect(fixture.redis_server.port()).await?, part));
    }
    let sha = match connections.first_mut() {
        Some((redis, _)) => redis.call(&["SCRIPT", "LOAD", lua]).await?.text().to_owned(),
        None => return Ok(Duration::ZERO),
    };
    let mut senders = JoinSet::new();
    let began = Instant::now();
    for (mut redis, part) in connections {
        let sha = sha.clone();
        senders.spawn(async move {
            for window in part.chunks(DEPTH) {
                for order in window.iter() {
                    queue(&mut redis, &sha, order);
                }
                redis.flush().await?;
                for _ in 0..window.len() {
                    let reply = redis.receive().await?;
                    ensure!(is_wanted(&reply), "The script answers {reply:?}");
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    Ok(began.elapsed())
}

fn queue_tutorial(redis: &mut Resp, sha: &str, order: NewOrder) {
    let [id, user, voucher] = [order.id, order.user, order.voucher].map(|number| number.to_string());
    redis.queue(&["EVALSHA", sha, "0", &voucher, &user, &id]);
}

/// Appends the command with the arguments of `lua/admit.lua`.
pub(super) fn queue_admit(redis: &mut Resp, sha: &str, order: NewOrder) {
    let [id, user, voucher] = [order.id, order.user, order.voucher].map(|number| number.to_string());
    let [stock, buyers, sale, journal, stream] = KEYS;
    redis.queue(&["EVALSHA", sha, "5", stock, buyers, sale, journal, stream, &id, &user, &voucher, "1", ""]);
}
