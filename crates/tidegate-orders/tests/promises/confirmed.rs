//! Tests of confirmation by replicas: the gate reports an order as admitted only when replicas have it. A real replica
//! stalls, returns or takes over.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::future::{join, join_all};
use tidegate_lab::{Proxy, RedisServer};
use tidegate_orders::{
    KeyTemplates, RedisStore,
    scripts::{Admission, AdmitReply, Confirmation, ConfirmedIn, IdempotencyKey, ScriptError},
};

use crate::fixture::{Fixture, connect, connect_with_patience};

const WITHIN: Duration = Duration::from_millis(100);

/// A fixture with a replica, and a gate that waits for it over this many connections.
struct Replicated {
    fixture: Fixture,
    replica: RedisServer,
    store: RedisStore,
}

impl Replicated {
    async fn new(connections: usize) -> Result<Self> {
        let fixture = Fixture::new().await?;
        let url = fixture.redis.url();
        Self::over(fixture, &url, connections).await
    }

    /// Starts a replica, and a gate whose waiting calls go to this URL.
    async fn over(fixture: Fixture, url: &str, connections: usize) -> Result<Self> {
        let port = fixture.redis.port().to_string();
        let replica = RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start()?;
        fixture.typed("SET seckill:stock:7 1000").await?;
        ensure!(fixture.typed("WAIT 1 30000").await?.as_i64() == Some(1), "the replica is there");
        Ok(Self { store: store(&fixture, url, connections).await?, fixture, replica })
    }

    async fn replica_has(&self, order: i64) -> Result<bool> {
        let pool = connect(&self.replica.url(), 1).await?;
        let command = fred::types::CustomCommand::new_static("HEXISTS", None, false);
        let args = vec!["seckill:journal:7".to_owned(), order.to_string()];
        Ok(fred::interfaces::ClientLike::custom::<i64, _>(&pool, command, args).await? == 1)
    }
}

/// A store that waits for one replica, over connections of its own.
async fn store(fixture: &Fixture, url: &str, connections: usize) -> Result<RedisStore> {
    let mut pools = Vec::new();
    for _ in 0..connections {
        pools.push(connect_with_patience(url, 1, Duration::from_secs(1)).await?);
    }
    let replicas = NonZeroU32::MIN;
    let confirmation = Confirmation { replicas, within: WITHIN, place: ConfirmedIn::Memory };
    let store = RedisStore::with_default_names(fixture.pool.clone(), KeyTemplates::default());
    Ok(store.confirmed(confirmation, pools))
}

fn wanted(id: i64) -> Admission {
    Admission {
        order: id.try_into().expect("an order id"),
        user: id.try_into().expect("a user id"),
        voucher: 7.try_into().expect("a voucher id"),
        quantity: 1.try_into().expect("a quantity"),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

fn is_unconfirmed(reply: &Result<AdmitReply, ScriptError>) -> bool {
    matches!(reply, Err(ScriptError::Unconfirmed { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_counts_as_admitted_once_a_replica_has_it_and_as_unsure_until_then() -> Result<()> {
    let on = Replicated::new(2).await?;
    assert_eq!(on.store.admissions().admit(&wanted(1)).await?, AdmitReply::Admitted);
    assert!(on.replica_has(1).await?);
    on.replica.stop()?;
    // The order is new, or was admitted before over another connection; it comes alone, or with others.
    let single = on.store.admissions().admit(&wanted(2)).await;
    ensure!(is_unconfirmed(&single), "{single:?}");
    for _ in 0..3 {
        // Redis 8 and Valkey count what a connection itself has written, and this one has written nothing.
        let another = store(&on.fixture, &on.fixture.redis.url(), 1).await?;
        let again = another.admissions().admit(&wanted(2)).await;
        ensure!(is_unconfirmed(&again), "{again:?}");
    }
    let together = on.store.admissions().admit_all(&[wanted(2), wanted(3), wanted(4)]).await;
    ensure!(together.iter().all(is_unconfirmed), "{together:?}");
    let before = on.store.admissions().admit_all(&[wanted(2), wanted(3)]).await;
    ensure!(before.iter().all(is_unconfirmed), "{before:?}");
    let error = single.unwrap_err().to_string();
    assert_eq!(
        error,
        "order 2 is admitted, but not confirmed by replicas: 0 of 1 replicas had the data within 100 ms"
    );
    // A refusal does not wait.
    let begun = Instant::now();
    let refused = on.store.admissions().admit(&Admission { order: 5.try_into()?, ..wanted(1) }).await;
    assert_eq!(refused?, AdmitReply::UserHasOrder);
    ensure!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());

    on.replica.cont()?;
    for id in 2..=4 {
        let deadline = Instant::now() + Duration::from_secs(30);
        while on.store.admissions().admit(&wanted(id)).await.is_err() {
            ensure!(Instant::now() < deadline, "order {id} is confirmed in time");
        }
        assert_eq!(on.store.admissions().admit(&wanted(id)).await?, AdmitReply::AdmittedBefore);
        ensure!(on.replica_has(id).await?, "what was confirmed is there: {id}");
    }
    assert_eq!(on.fixture.orders().await?.len(), 4, "each once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_keys_wait_together_and_an_unsure_answer_names_the_order_of_the_key() -> Result<()> {
    const CALLERS: i64 = 60;
    let on = Replicated::new(1).await?;
    let key = IdempotencyKey::parse(b"k")?;
    let ask = async |user: i64, order: i64| {
        let asked = Admission { order: order.try_into().expect("an order id"), ..wanted(user) };
        on.store.admissions().admit_by_key(&key, &asked).await
    };
    // Some orders have an idempotency key, the others have none.
    let keyed = join_all((1..=CALLERS).map(|user| ask(user, user)));
    let others: Vec<Admission> = (1..=CALLERS).map(|user| wanted(1000 + user)).collect();
    let others = join_all(others.iter().map(|asked| on.store.admissions().admit(asked)));
    let (keyed, others) = join(keyed, others).await;
    for (user, told) in (1..=CALLERS).zip(keyed) {
        assert_eq!(told?, (user.try_into()?, AdmitReply::Admitted));
    }
    for told in others {
        assert_eq!(told?, AdmitReply::Admitted);
    }
    let stats = on.fixture.typed("INFO commandstats").await?.as_string().unwrap_or_default();
    let waits = stats.split_once("cmdstat_wait:calls=").and_then(|(_, rest)| rest.split(',').next());
    let waits: i64 = waits.context("it waited")?.parse()?;
    ensure!(waits < CALLERS / 2, "{waits} waits");

    on.replica.stop()?;
    let unsure = join_all((1..=5).map(|user| ask(user, 2000 + user))).await;
    for (user, told) in (1..=5).zip(unsure) {
        let is_first = matches!(told, Err(ScriptError::Unconfirmed { order, .. }) if order.get() == user);
        ensure!(is_first, "{told:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_made_anew_before_the_wait_confirms_nothing() -> Result<()> {
    let fixture = Fixture::new().await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let url = proxy.url_for(&fixture.redis);
    let on = Replicated::over(fixture, &url, 1).await?;
    let began = Instant::now();
    // On a slow disk, the replica may get the first order late.
    while is_unconfirmed(&on.store.admissions().admit(&wanted(1)).await) {
        ensure!(began.elapsed() < Duration::from_secs(30), "the replica never has it");
    }
    on.replica.stop()?;
    for id in 2..=6 {
        let wait = proxy.hold_when("WAIT");
        let (store, order) = (on.store.clone(), wanted(id));
        let asking = tokio::spawn(async move { store.admissions().admit(&order).await });
        wait.reached().await?;
        wait.cut();
        let reply = asking.await?;
        ensure!(
            is_unconfirmed(&reply),
            "a new connection has written nothing, and counts for nothing: {reply:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_wait_side_by_side_and_what_was_confirmed_outlives_the_master() -> Result<()> {
    let on = Replicated::new(8).await?;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..32 {
        let store = on.store.clone();
        callers.spawn(async move {
            let mut confirmed = Vec::new();
            for at in 1..=20 {
                let id = caller * 100 + at;
                match store.admissions().admit(&wanted(id)).await {
                    Ok(reply) if reply.is_admitted() => confirmed.push(id),
                    _ => return confirmed,
                }
            }
            confirmed
        });
    }
    // The master dies while callers are waiting.
    while on.fixture.orders().await?.len() < 100 {}
    on.fixture.redis.kill9()?;
    let confirmed = callers.join_all().await.concat();
    ensure!(confirmed.len() >= 50, "{}", confirmed.len());
    for id in confirmed {
        ensure!(on.replica_has(id).await?, "order {id} was confirmed");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_goes_away_leaves_the_connection_to_others() -> Result<()> {
    let on = Replicated::new(1).await?;
    on.replica.stop()?;
    for id in 1..=20 {
        let (store, order) = (on.store.clone(), wanted(id));
        let gone = tokio::time::timeout(Duration::from_millis(5), store.admissions().admit(&order)).await;
        ensure!(gone.is_err(), "{gone:?}");
    }
    on.replica.cont()?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while on.store.admissions().admit(&wanted(99)).await.is_err() {
        ensure!(Instant::now() < deadline, "the connection is free again");
    }
    on.replica_has(99).await?.then_some(()).context("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_waited_for_where_that_is_wanted_and_a_server_that_cannot_says_so() -> Result<()> {
    let on = Replicated::new(1).await?;
    let info = on.fixture.typed("INFO server").await?.as_string().unwrap_or_default();
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).context("a version")?;
    let knows_it = !version.starts_with("6.") && !version.starts_with("7.0");
    let (replicas, within) = (NonZeroU32::MIN, Duration::from_secs(5));
    let confirmation = Confirmation { replicas, within, place: ConfirmedIn::AppendOnlyFile };
    let store = RedisStore::with_default_names(on.fixture.pool.clone(), KeyTemplates::default())
        .confirmed(confirmation, vec![connect(&on.fixture.redis.url(), 1).await?]);
    let reply = store.admissions().admit(&wanted(1)).await;
    if knows_it {
        assert_eq!(reply?, AdmitReply::Admitted);
    } else {
        let error = reply.expect_err("unknown command").to_string();
        ensure!(error.contains("WAITAOF") && error.contains("unknown command"), "{error}");
    }
    Ok(())
}

/// Admits orders for a while. Returns the ids that were reported as admitted, and how long each caller waited.
async fn admit_for(
    store: &RedisStore,
    callers: i64,
    from: i64,
    a_while: Duration,
) -> (Vec<i64>, Vec<Duration>) {
    let end = Instant::now() + a_while;
    let mut all = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        all.spawn(async move {
            let (mut told, mut waited) = (Vec::new(), Vec::new());
            for at in 0.. {
                let (id, begun) = (from + caller + at * callers, Instant::now());
                if begun >= end {
                    break;
                }
                match store.admissions().admit(&wanted(id)).await {
                    Ok(AdmitReply::Admitted) => (told.push(id), waited.push(begun.elapsed())),
                    // The caller gives up. It got no confirmation of this order.
                    _ => break,
                };
            }
            (told, waited)
        });
    }
    let (told, waited): (Vec<_>, Vec<_>) = all.join_all().await.into_iter().unzip();
    (told.concat(), waited.concat())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute, and its figures need a release build: `just failovers`"]
async fn twenty_failovers_and_what_a_wait_costs() -> Result<()> {
    // Calls to a dead master fail soon.
    let plain = async |fixture: &Fixture| {
        let pool = connect_with_patience(&fixture.redis.url(), 2, Duration::from_secs(1)).await?;
        anyhow::Ok(RedisStore::with_default_names(pool, KeyTemplates::default()))
    };
    for callers in [1, 16] {
        for round in 0..3 {
            let on = Replicated::new(callers).await?;
            on.fixture.typed("SET seckill:stock:7 9999999").await?;
            for (name, store) in [("alone", plain(&on.fixture).await?), ("confirmed", on.store.clone())] {
                let from = if name == "alone" { 1 } else { 5_000_000 };
                let (told, mut waited) =
                    admit_for(&store, callers as i64, from, Duration::from_secs(2)).await;
                waited.sort_unstable();
                let at = |share: usize| waited[(waited.len() - 1) * share / 100];
                let rate = told.len() / 2;
                println!(
                    "{callers} callers, round {round}, {name}: {rate}/s, p50 {:?}, p99 {:?}",
                    at(50),
                    at(99)
                );
            }
        }
    }
    for name in ["alone", "confirmed"] {
        let (mut all, mut lost, mut with_loss) = (0, 0, 0);
        for _ in 0..20 {
            let on = Replicated::new(16).await?;
            on.fixture.typed("SET seckill:stock:7 9999999").await?;
            let store = if name == "alone" { plain(&on.fixture).await? } else { on.store.clone() };
            let selling =
                tokio::spawn(async move { admit_for(&store, 16, 1, Duration::from_secs(20)).await });
            tokio::time::sleep(Duration::from_millis(500)).await;
            on.fixture.redis.kill9()?;
            let (told, _) = selling.await?;
            let replica = connect(&on.replica.url(), 1).await?;
            let command = fred::types::CustomCommand::new_static("HKEYS", None, false);
            let has: Vec<String> =
                fred::interfaces::ClientLike::custom(&replica, command, vec!["seckill:journal:7"]).await?;
            let has: std::collections::HashSet<i64> = has.iter().filter_map(|id| id.parse().ok()).collect();
            let gone = told.iter().filter(|id| !has.contains(id)).count();
            (all, lost, with_loss) = (all + told.len(), lost + gone, with_loss + usize::from(gone > 0));
        }
        println!(
            "20 failovers, {name}: of {all} orders that were told, {lost} lost, in {with_loss} failovers"
        );
        ensure!(name == "alone" || lost == 0, "what was confirmed is there");
    }
    Ok(())
}
