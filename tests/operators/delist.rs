//! Tests of `tidegate voucher delist` and its effects: the sale is over for good, its keys are removed, and MySQL keeps
//! its orders.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use tidegate_lab::Proxy;
use tidegate_orders::{
    RedisStore,
    scripts::{Admission, AdmitReply, Pause, PauseScope, SaleWindow},
};

use crate::{
    fixture::{DEADLINE, Fixture, WorkerPlan, until},
    program::Program,
    sale::{admission, ask, open},
};

/// A worker that compares both stores every second, and removes the keys of a voucher this long after it was delisted.
fn comparing(fixture: &Fixture, after_s: u64) -> WorkerPlan {
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1);
    worker.set("RECONCILE_REMOVE_DELISTED_AFTER_S", after_s)
}

async fn keys_of_7(fixture: &Fixture) -> Vec<String> {
    let keys = fixture.redis_says(&["KEYS", "seckill:*:7"]).await.into_array();
    let mut keys: Vec<String> = keys.iter().filter_map(|key| key.as_string()).collect();
    keys.sort();
    keys
}

async fn delisted_at(fixture: &Fixture) -> Option<i64> {
    let sql =
        "SELECT CAST(UNIX_TIMESTAMP(delisted_at) AS SIGNED) FROM tb_seckill_voucher WHERE voucher_id = 7";
    sqlx::query_scalar(sql).fetch_one(&fixture.pool).await.expect("MySQL answers")
}

/// Sells and writes three orders: order 1 of user 1, and so on.
async fn sell_three(fixture: &Fixture, store: &RedisStore) {
    for id in 1..=3 {
        assert_eq!(ask(store, id, id, 1).await, AdmitReply::Admitted);
    }
    until("three orders are written", || async { fixture.orders().await.len() == 3 }).await;
    fixture.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delisted_sale_is_over_for_whoever_asks_also_where_it_was_paused_or_had_not_begun() {
    let (_site, program, store) = open().await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    store.sales().pause(7.try_into().unwrap(), PauseScope::Own).await.unwrap();
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Paused);

    let plan = program.run("voucher delist --voucher 7 --dry-run").expect(0);
    assert!(plan.stdout.contains("99 units in Redis would not be sold any more"), "{plan:?}");
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Paused, "a dry run changes nothing");
    let done = program.run("voucher delist --voucher 7 --yes").expect(0);
    assert!(done.stdout.contains("delisted"), "{done:?}");
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Over);
    assert_eq!(
        ask(&store, 1, 1, 1).await,
        AdmitReply::AdmittedBefore,
        "whoever lost a reply hears what was decided"
    );
    let again = program.run("voucher delist --voucher 7 --yes").expect(0);
    assert!(again.stdout.contains("is already delisted"), "{again:?}");
    program.run("voucher delist --voucher 8 --yes").expect(1);

    let later = jiff::Timestamp::now() + Duration::from_secs(3_600);
    program.run(&format!("voucher load --voucher 9 --stock 5 --begin {later:.0} --yes")).expect(0);
    program.run("voucher delist --voucher 9 --yes").expect(0);
    let nine = Admission { voucher: 9.try_into().unwrap(), ..admission(90, 1, 1) };
    assert_eq!(store.admissions().admit(&nine).await.unwrap(), AdmitReply::Over);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delisted_voucher_is_not_loaded_restocked_or_rebuilt_and_every_command_knows_it() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").start();
    sell_three(&fixture, &store).await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    for line in [
        "voucher load --voucher 7 --stock 100 --yes",
        "voucher add --voucher 7 --units 5 --yes",
        "voucher take --voucher 7 --units 5 --yes",
        "rebuild --voucher 7 --yes",
    ] {
        let refused = program.run(line).expect(1);
        assert!(refused.all().contains("delisted"), "{line}: {refused:?}");
    }
    let all = program.run("rebuild --all --dry-run").expect(0);
    assert!(all.stdout.contains("1 voucher delisted"), "{all:?}");
    let shown = program.run("voucher show --voucher 7").expect(0);
    assert!(
        shown.stdout.contains("delisted") && shown.stdout.contains("Workers remove its keys"),
        "{shown:?}"
    );
    assert!(program.run("status").expect(0).stdout.contains("delisted"));
    let doctor = program.run("doctor").all();
    assert!(doctor.contains("voucher 7 was delisted"), "{doctor}");
    // The gate of an older program would load the voucher again: Redis itself refuses that.
    let state = store.sales().read_voucher(7.try_into().unwrap()).await.unwrap();
    assert_eq!((state.stock, state.pause), (Some(97), Pause::Running));
    let loaded = store.sales().load(7.try_into().unwrap(), 50, SaleWindow::default()).await.unwrap();
    assert_eq!(format!("{loaded:?}"), "Delisted");
    assert!(program.run("reconcile").expect(0).stdout.contains("It agrees"));
    fixture.judge().await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_removes_the_keys_after_a_clean_look_and_doctor_tells_what_that_freed() {
    let (fixture, program, store) = open().await;
    let worker = comparing(&fixture, 1).start();
    sell_three(&fixture, &store).await;
    // A user counts as a buyer without an order. Both sides differ, so no key is removed.
    fixture.redis_says(&["SADD", "seckill:order:7", "99"]).await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    worker.says("both stores differ").await;
    assert_eq!(keys_of_7(&fixture).await.len(), 4);
    let remove_keys = || program.run("voucher delist --voucher 7 --remove-keys --yes");
    let began = Instant::now();
    let kept = loop {
        let kept = remove_keys();
        // Only one comparison runs at a time, and the one of the worker may be running.
        if !kept.all().contains("is running; try again later") || began.elapsed() > DEADLINE {
            break kept;
        }
    };
    assert_eq!(kept.code, 1, "{kept:?}");
    assert!(kept.all().contains("differ"), "{kept:?}");

    fixture.redis_says(&["SREM", "seckill:order:7", "99"]).await;
    until("its keys are gone", || async { keys_of_7(&fixture).await.is_empty() }).await;
    worker.says("removed the keys of a delisted voucher").await;
    assert_eq!(ask(&store, 4, 4, 1).await, AdmitReply::NoStock);
    until("doctor tells of it", || async {
        let doctor = program.run("doctor").all();
        doctor.contains("keys of the delisted voucher 7 were removed") && doctor.contains("this freed about")
    })
    .await;
    let log = program.run("log").expect(0).stdout;
    assert!(
        log.contains("voucher delist --voucher 7 --remove-keys")
            && log.contains("worker w")
            && log.contains("bytes"),
        "{log}"
    );

    let shown = program.run("voucher show --voucher 7").expect(0).stdout;
    assert!(shown.contains("its keys are removed. Events") && !shown.contains("Redis lost"), "{shown}");
    until("a look finds that all agrees", || async { program.run("reconcile").stdout.contains("It agrees") })
        .await;
    fixture.judge().await;
    program.run("order show 1").expect(0);
    program.run("rebuild --all --yes").expect(0);
    assert!(keys_of_7(&fixture).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_before_their_time_and_while_something_of_the_sale_is_on_its_way_or_dead() {
    let (fixture, program, store) = open().await;
    let worker = comparing(&fixture, 3_600).start();
    sell_three(&fixture, &store).await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    let looked = || async { fixture.redis_says(&["GET", "tidegate:reconciled"]).await.as_string() };
    let before = looked().await;
    until("a look has ended", || async { looked().await != before }).await;
    let between = looked().await;
    until("a second look has ended", || async { looked().await != between }).await;
    assert_eq!(keys_of_7(&fixture).await.len(), 4, "not before its time");
    worker.stop().await;

    fixture
        .add(&[("event", "paid"), ("orderId", "1"), ("userId", "1"), ("voucherId", "7"), ("ref", "p1")])
        .await;
    let kept = program.run("voucher delist --voucher 7 --remove-keys --yes").expect(1);
    assert!(kept.stdout.contains("workers must still handle 0 orders and 1 event"), "{kept:?}");
    let entry = fixture.add(&[("userId", "5"), ("voucherId", "7"), ("id", "5")]).await;
    fixture
        .redis_says(&[
            "HSET",
            "seckill:journal:7",
            "5",
            r#"{"action":"admit","from":97,"to":96,"change":-1,"by":"5","timestamp":1}"#,
        ])
        .await;
    fixture.redis_says(&["DECRBY", "seckill:stock:7", "1"]).await;
    fixture.redis_says(&["SADD", "seckill:order:7", "5"]).await;
    fixture.hand_over("gone-0", 10).await;
    program.run(&format!("pending bury {entry} --why test --yes")).expect(0);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    fixture.settled().await;
    worker.stop().await;
    let kept = program.run("voucher delist --voucher 7 --remove-keys --yes").expect(1);
    assert!(kept.stdout.contains("the dead letters contain 1 order of the voucher"), "{kept:?}");
    program.run("dead cancel --all --yes").expect(0);
    let done = program.run("voucher delist --voucher 7 --remove-keys --yes").expect(0);
    assert!(done.stdout.contains("were removed from Redis"), "{done:?}");
    assert!(keys_of_7(&fixture).await.is_empty());
    let again = program.run("voucher delist --voucher 7 --remove-keys --yes").expect(0);
    assert!(again.stdout.contains("Redis has no key of this voucher"), "{again:?}");
    program.run("voucher load --voucher 8 --stock 1").expect(0);
    let on_sale = program.run("voucher delist --voucher 8 --remove-keys --yes").expect(1);
    assert!(on_sale.stdout.contains("the voucher is not delisted"), "{on_sale:?}");
}

/// After the keys are removed, changes of an order affect MySQL only. They create no key, and wait for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn releases_replays_and_dead_letters_of_a_removed_sale_change_mysql_only() {
    let (fixture, program, store) = open().await;
    let worker = fixture.worker("w").start();
    sell_three(&fixture, &store).await;
    // A second order of user 1, which the tutorial's script admitted, is refused.
    fixture.add_order(11, 1, 7).await;
    fixture.settled().await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    program.run("voucher delist --voucher 7 --remove-keys --yes").expect(0);
    let stock = fixture.mysql_stock(7).await;

    program.run("order event cancelled 1 --yes").expect(0);
    program.run("order event paid 2 --ref p2 --yes").expect(0);
    program.run("order event refunded 2 --yes").expect(0);
    assert_eq!(fixture.mysql_stock(7).await, stock + 2);
    // Old entries are processed again: their orders exist, or are refused once more.
    program.run("replay --from -1h --to 0s --yes").expect(0);
    fixture.add_order(11, 1, 7).await;
    fixture.settled().await;
    assert_eq!(fixture.mysql_stock(7).await, stock + 2, "nothing is released twice");
    // Two entries were buried late: one is requeued and written, the other one is cancelled for good.
    worker.stop().await;
    let mut letters = Vec::new();
    for id in [21, 22] {
        letters.push(fixture.add_order(id, id, 7).await);
    }
    fixture.hand_over("gone-0", 10).await;
    program.run(&format!("pending bury {} {} --why test --yes", letters[0], letters[1])).expect(0);
    let ids: Vec<String> = {
        let listed = program.run("dead list --json").expect(0).json();
        listed["newest"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["letter"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids.len(), 2);
    program.run(&format!("dead cancel {} --yes", ids[0])).expect(0);
    program.run(&format!("dead requeue {} --yes", ids[1])).expect(0);
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    until("the letter that was put back is written", || async {
        fixture.live_orders().await.iter().any(|row| [21, 22].contains(&row.id))
    })
    .await;
    assert!(keys_of_7(&fixture).await.is_empty(), "no key is made");
    assert!(fixture.dead().await.is_empty());
    let warnings =
        worker.log().lines().filter(|line| line.contains("has no key of the voucher's sale")).count();
    assert_eq!(warnings, 0, "an order of a delisted sale is no outage");
    for id in [1, 2, 3] {
        program.run(&format!("order show {id}")).expect(0);
    }
    assert!(program.run("reconcile").expect(0).stdout.contains("It agrees"));
    fixture.judge().await;
}

/// Kills a command at its first request to Redis that contains these bytes.
async fn killed_at(fixture: &Fixture, line: &str, bytes: &[u8]) {
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let urls = [redis.url_for(&fixture.redis), fixture.mysql.url()];
    let through = Program::with_flags(&["--redis-url", &urls[0], "--mysql-url", &urls[1]]);
    let hold = redis.hold_when(bytes);
    let mut command = through.command(&line.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
    hold.reached().await.expect("it comes to this step");
    child.kill().expect("it is there");
    child.wait().expect("it is gone");
    hold.cut();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_killed_between_any_two_steps_is_completed_by_the_same_command() {
    let (fixture, program, store) = open().await;
    let (delist, remove) = (
        fixture.sha(include_str!("../../lua/delist.lua")).await,
        fixture.sha(include_str!("../../lua/remove_delisted.lua")).await,
    );
    killed_at(&fixture, "voucher delist --voucher 7 --yes", delist.as_bytes()).await;
    assert!(delisted_at(&fixture).await.is_some(), "MySQL comes first");
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted, "Redis does not know yet");
    assert!(program.run("doctor").all().contains("Redis may still sell it"));
    let shown = program.run("voucher show --voucher 7").expect(0).stdout;
    assert!(shown.contains("To complete this: tidegate voucher delist --voucher 7"), "{shown}");
    let done = program.run("voucher delist --voucher 7 --yes").expect(0);
    assert!(done.stdout.contains("is now delisted in both stores"), "{done:?}");
    assert_eq!(ask(&store, 2, 2, 1).await, AdmitReply::Over);
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 0).start();
    until("the order is written", || async { fixture.orders().await.len() == 1 }).await;
    fixture.settled().await;

    let line = "voucher delist --voucher 7 --remove-keys --yes";
    killed_at(&fixture, line, remove.as_bytes()).await;
    assert_eq!(keys_of_7(&fixture).await.len(), 4, "killed before its keys went");
    // The command is killed after it removed the keys, and before it noted that.
    killed_at(&fixture, line, b"$3\r\nSET\r\n$19\r\ntidegate:reconciled").await;
    assert!(keys_of_7(&fixture).await.is_empty());
    let again = program.run(line).expect(0);
    assert!(again.stdout.contains("Redis has no key of this voucher"), "{again:?}");
    let again = program.run("voucher delist --voucher 7 --yes").expect(0);
    assert!(again.stdout.contains("is already delisted"), "{again:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_went_back_to_before_a_voucher_was_delisted_sells_it_until_the_fleet_looks() {
    let (fixture, program, store) = open().await;
    program.run("voucher delist --voucher 7 --yes").expect(0);
    let since = delisted_at(&fixture).await;
    fixture.redis_says(&["HDEL", "seckill:voucher:7", "delisted", "end_ms"]).await;
    assert_eq!(ask(&store, 1, 1, 1).await, AdmitReply::Admitted);
    let worker = comparing(&fixture, 1).start();
    until("its keys are gone", || async { keys_of_7(&fixture).await.is_empty() }).await;
    assert_eq!(delisted_at(&fixture).await, since);
    assert_eq!(fixture.orders().await.len(), 1, "who was told of an order has it");
    worker.stop().await;
}
