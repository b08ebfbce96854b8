//! Tests of `tidegate voucher transfer`: units move from one region to another in both stores, or stay, in spite of
//! kills and outages.

use std::{
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use fred::interfaces::{HashesInterface, LuaInterface};
use serde_json::{Value as Json, json};
use tidegate_lab::{Hold, Proxy};
use tidegate_orders::{Subjects, scripts::Admission};

use crate::{
    fixture::Fixture,
    order_event::operator,
    program::{Program, Run},
};

/// The script. Tests load it first, so that a NOSCRIPT does not disturb them.
const SCRIPT: &str = include_str!("../../lua/transfer.lua");
const BEGIN: &[u8] = br#""state":"open""#;
const END: &[u8] = br#""state":"done""#;
const LOCK: &[u8] = b"FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
const UPDATE: &[u8] = b"UPDATE tb_seckill_voucher SET stock = CAST";
/// A commit as a statement of its own, not as a part of READ COMMITTED.
const COMMIT: &[u8] = b"\x03COMMIT";
const MOVE: &str = "voucher transfer --campaign 5 --from north --to south --units 400";

/// A fixture that sells 1000 units in the north (voucher 101) and 500 in the south (voucher 102), and the program.
async fn open() -> (Fixture, Program) {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let regions = fixture.file("regions.csv", "north,101,1000\nsouth,102,500\n");
    program.run(&format!("campaign load --campaign 5 --regions {}", regions.display())).expect(0);
    program
        .run("limit set --campaign 5 --name phones --subject phone --window sale --orders 3 --yes")
        .expect(0);
    let _sha: String = fixture.client.script_load(SCRIPT).await.expect("the script is loaded");
    (fixture, program)
}

/// The initial stock and the stock in MySQL, and the stock in Redis: first of the north, then of the south.
async fn stocks(fixture: &Fixture) -> [(i64, i64, i64); 2] {
    let mut stocks = [(0, 0, 0); 2];
    for (voucher, its) in [101, 102].into_iter().zip(&mut stocks) {
        let sql = "SELECT initial_stock FROM tb_seckill_voucher WHERE voucher_id = ?";
        let initial: i64 =
            sqlx::query_scalar(sql).bind(voucher).fetch_one(&fixture.pool).await.expect("MySQL answers");
        let left = fixture.redis_says(&["GET", &format!("seckill:limited:{voucher}")]).await;
        *its = (initial, fixture.mysql_stock(voucher).await, left.as_i64().expect("a stock"));
    }
    stocks
}

const fn same(north: i64, south: i64) -> [(i64, i64, i64); 2] {
    [(north, north, north), (south, south, south)]
}

#[tokio::test(flavor = "multi_thread")]
async fn units_move_from_one_region_to_another_and_the_same_typed_again_moves_none() {
    let (fixture, program) = open().await;
    let dry = program.run(&format!("{MOVE} --dry-run")).expect(0);
    assert!(dry.stdout.contains("campaign 5, north to south: 400 units would be moved"), "{dry:#?}");
    let asked = program.run(MOVE).expect(2);
    assert!(asked.stderr.contains("--yes"), "{asked:#?}");
    assert_eq!(stocks(&fixture).await, same(1_000, 500));
    let moved = program.run(&format!("{MOVE} --yes --as alice --json")).expect(0).json();
    assert_eq!((&moved["outcome"], &moved["units"]), (&json!("moved"), &json!(400)), "{moved:#}");
    assert_eq!(stocks(&fixture).await, same(600, 900));
    let id = moved["from"]["change"]["id"].as_str().expect("an id");
    for (voucher, movement) in [(101, format!("#take:{id}")), (102, format!("#add:{id}"))] {
        let note: Option<String> = fixture
            .client
            .hget(format!("seckill:journal:{voucher}"), &movement)
            .await
            .expect("Redis answers");
        assert!(note.is_some_and(|note| note.contains("operator:voucher_transfer")), "{movement}");
    }
    fixture.judge().await;

    let again = program.run(&format!("{MOVE} --yes")).expect(1);
    assert!(again.stdout.contains("to do it a second time: tidegate voucher transfer"), "{again:#?}");
    assert!(again.stdout.contains("--units 400 --initial-stock 600"), "{again:#?}");
    let done = program.run(&format!("{MOVE} --initial-stock 1000 --yes")).expect(0);
    assert!(done.stdout.contains("both stores already have this change"), "{done:#?}");
    assert_eq!(stocks(&fixture).await, same(600, 900));
    program.run(&format!("{MOVE} --initial-stock 600 --yes")).expect(0);
    assert_eq!(stocks(&fixture).await, same(200, 1_300));
    // A move in the other direction, and a change of one stock, which is no move.
    program.run("voucher transfer --campaign 5 --from south --to north --units 1300 --yes").expect(0);
    program.run("voucher take --voucher 101 --units 400 --yes").expect(0);
    assert_eq!(stocks(&fixture).await, same(1_100, 0));
    let log = program.run("log --json").expect(0).json();
    let is_noted = |line: &Json| line["command"] == "voucher transfer" && line["counts"]["units"] == 1_300;
    assert!(log.as_array().expect("lines").iter().any(is_noted), "{log:#}");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_moved_is_refused_and_leaves_no_trace() {
    let (fixture, program) = open().await;
    let before = fixture.redis_says(&["DUMP", "seckill:voucher:101"]).await;
    let by = |from: &str, to: &str, units: i64| {
        format!("voucher transfer --campaign 5 --from {from} --to {to} --units {units} --yes")
    };
    let check = async |line: String, told: &str| {
        let refused = program.run(&line).expect(1);
        assert!(refused.stdout.contains(told), "{told}: {refused:#?}");
        assert_eq!(stocks(&fixture).await, same(1_000, 500), "{line}");
        assert_eq!(fixture.redis_says(&["DUMP", "seckill:voucher:101"]).await, before, "{line}");
    };
    check(by("west", "south", 1), "the campaign has no region west: the regions are north, south").await;
    check(by("north", "east", 1), "the campaign has no region east").await;
    check(by("north", "north", 1), "north is named twice").await;
    check(by("north", "south", 1_001), "Redis has only 1000 units left of north").await;
    check(by("north", "south", 1).replace("campaign 5", "campaign 6"), "the campaign has no region north")
        .await;
    check(format!("{} --initial-stock 999", by("north", "south", 1)), "is 1000 and not 999").await;
    fixture.call("HSET seckill:voucher:102 moving running").await;
    check(by("north", "south", 1), "south is being moved to another partition").await;
    fixture.call("HDEL seckill:voucher:102 moving").await;
    fixture.call("RENAME seckill:limited:102 elsewhere").await;
    let refused = program.run(&by("north", "south", 1)).expect(1);
    assert!(refused.stdout.contains("Redis has no stock of south"), "{refused:#?}");
    fixture.call("RENAME elsewhere seckill:limited:102").await;
    program.run("voucher delist --voucher 102 --yes").expect(0);
    let refused = program.run(&by("north", "south", 1)).expect(1);
    assert!(refused.stdout.contains("south is delisted"), "{refused:#?}");
    assert_eq!(stocks(&fixture).await, same(1_000, 500));
}

/// A transfer that is held at a step.
async fn held_at(fixture: &Fixture, held: impl FnOnce(&Proxy, &Proxy) -> Hold) -> (Child, Hold, [Proxy; 2]) {
    typed_and_held(fixture, &format!("{MOVE} --yes"), held).await
}

/// A command that is held at a step.
async fn typed_and_held(
    fixture: &Fixture,
    line: &str,
    held: impl FnOnce(&Proxy, &Proxy) -> Hold,
) -> (Child, Hold, [Proxy; 2]) {
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = Program::with_variables(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql));
    let hold = held(&redis, &mysql);
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = through.command(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    hold.reached().await.expect("it comes to this step");
    (child, hold, [redis, mysql])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_killed_half_way_is_completed_by_the_same_command_and_by_no_other() {
    for step in 0..5 {
        let (fixture, program) = open().await;
        let (mut child, hold, proxies) = held_at(&fixture, |redis, mysql| match step {
            0 => redis.hold_reply_when(BEGIN),
            1 => mysql.hold_when(LOCK),
            2 => mysql.hold_when(UPDATE),
            3 => mysql.hold_reply_when(COMMIT),
            _ => redis.hold_when(END),
        })
        .await;
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        hold.cut();
        drop(proxies);
        let is_written = step >= 3;
        let [north, south] = stocks(&fixture).await;
        let (initial_north, initial_south) = if is_written { (600, 900) } else { (1_000, 500) };
        assert_eq!(north, (initial_north, initial_north, 600), "{step}");
        assert_eq!(south, (initial_south, initial_south, 500), "{step}: never more than MySQL has");

        // No other command changes one of these stocks meanwhile, even if it is half of the move.
        for other in
            ["voucher take --voucher 101 --units 400 --yes", "voucher add --voucher 102 --units 400 --yes"]
        {
            let refused = program.run(other).expect(1);
            assert!(
                refused.stdout.contains(&format!(
                    "to complete the unfinished change first: tidegate {MOVE} --initial-stock 1000"
                )),
                "{refused:#?}"
            );
        }
        let refused = program.run(&MOVE.replace("400", "1")).expect(1);
        let (_, go_on) = refused.stdout.split_once("first: tidegate ").expect("what to type");
        let go_on = go_on.lines().next().expect("a line");
        fixture.judge().await;
        let dry = program.run(&format!("{MOVE} --dry-run")).expect(0);
        assert!(dry.stdout.contains("would be completed"), "{dry:#?}");
        let typed = if step % 2 == 0 { go_on } else { MOVE };
        let done = program.run(&format!("{typed} --yes")).expect(0);
        assert!(done.stdout.contains("the unfinished move is now complete"), "{done:#?}");
        assert_eq!(stocks(&fixture).await, same(600, 900), "{step}");
        program.run(&format!("{MOVE} --yes")).expect(1);
        assert_eq!(stocks(&fixture).await, same(600, 900), "{step}");
        fixture.judge().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_is_not_delisted_while_units_are_on_their_way_and_units_do_not_go_to_one_that_is() {
    let (fixture, program) = open().await;
    let (mut child, hold, proxies) = held_at(&fixture, |_, mysql| mysql.hold_when(LOCK)).await;
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    hold.cut();
    drop(proxies);
    for voucher in [101, 102] {
        for rest in ["--dry-run", "--yes"] {
            let refused = program.run(&format!("voucher delist --voucher {voucher} {rest}")).expect(1);
            assert!(
                refused.stdout.contains("To complete the change: tidegate voucher transfer --campaign 5"),
                "{refused:#?}"
            );
        }
    }
    assert_eq!(fixture.redis_says(&["HGET", "seckill:voucher:102", "delisted"]).await.as_string(), None);
    program.run(&format!("{MOVE} --yes")).expect(0);
    assert_eq!(stocks(&fixture).await, same(600, 900));

    // Another process delists: it has found no open note a moment before, and MySQL has the delisting before the units
    // come.
    let line = format!("{MOVE} --initial-stock 600 --yes");
    let (child, hold, proxies) = typed_and_held(&fixture, &line, |_, mysql| mysql.hold_when(LOCK)).await;
    let delist = "UPDATE tb_seckill_voucher SET delisted_at = CURRENT_TIMESTAMP WHERE voucher_id = 102";
    sqlx::query(delist).execute(&fixture.pool).await.expect("MySQL takes it");
    hold.release();
    let refused = Run::from(child.wait_with_output().expect("it ends")).expect(1);
    assert!(refused.stdout.contains("one of the vouchers was delisted in the meantime"), "{refused:#?}");
    drop(proxies);
    assert_eq!(stocks(&fixture).await, same(600, 900), "Redis has its units back");
    program.run("voucher delist --voucher 102 --yes").expect(0);
    fixture.judge().await;
}

/// A transfer that is killed at a step.
async fn killed_at(fixture: &Fixture, held: impl FnOnce(&Proxy, &Proxy) -> Hold) {
    let (mut child, hold, _proxies) = held_at(fixture, held).await;
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    hold.cut();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_not_made_twice_because_the_region_that_got_has_changed_since() {
    let (fixture, program) = open().await;
    program.run(&format!("{MOVE} --yes")).expect(0);
    program.run("voucher add --voucher 102 --units 7 --yes").expect(0);
    let again = program.run(&format!("{MOVE} --yes")).expect(1);
    assert!(again.stdout.contains("--units 400 --initial-stock 600"), "{again:#?}");
    let done = program.run(&format!("{MOVE} --initial-stock 1000 --yes")).expect(0);
    assert!(done.stdout.contains("both stores already have this change"), "{done:#?}");
    assert_eq!(stocks(&fixture).await, same(600, 907));
    program.run(&format!("{MOVE} --initial-stock 600 --yes")).expect(0);
    assert_eq!(stocks(&fixture).await, same(200, 1_307));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_of_which_one_note_is_lost_is_ended_and_blocks_neither_region() {
    for (is_written, lost) in [(false, 101), (false, 102), (true, 101), (true, 102)] {
        let (fixture, program) = open().await;
        killed_at(
            &fixture,
            |redis, mysql| {
                if is_written { redis.hold_when(END) } else { mysql.hold_when(LOCK) }
            },
        )
        .await;
        fixture.call(&format!("HDEL seckill:voucher:{lost} change")).await;
        let kept = 203 - lost;
        let refused = program.run(&format!("voucher add --voucher {kept} --units 1 --yes")).expect(1);
        let (_, go_on) = refused.stdout.split_once("first: tidegate ").expect("what to type");
        let go_on = go_on.lines().next().expect("a line");
        assert_eq!(go_on, format!("{MOVE} --initial-stock 1000"));
        let region = if lost == 101 { "north" } else { "south" };
        let dry = program.run(&format!("{go_on} --dry-run")).expect(0);
        assert!(dry.stdout.contains(&format!("Redis has lost the note of {region}")), "{dry:#?}");
        let ended = program.run(&format!("{go_on} --yes"));
        let told = if is_written { "the unfinished move is now complete" } else { "it is cancelled" };
        assert!(ended.code == i32::from(!is_written) && ended.stdout.contains(told), "{ended:#?}");
        // In MySQL, both regions have the move or neither has it; Redis never has more units.
        let (north, south) = if is_written { (600, 900) } else { (1_000, 500) };
        let apart = match (is_written, lost) {
            (false, 101) => [(north, north, 600), (south, south, south)],
            (true, 102) => [(north, north, north), (south, south, 500)],
            _ => same(north, south),
        };
        assert_eq!(stocks(&fixture).await, apart, "{is_written} {lost}");
        if apart != same(north, south) {
            program.run(&format!("rebuild --voucher {lost} --yes")).expect(0);
        }
        assert_eq!(stocks(&fixture).await, same(north, south), "{is_written} {lost}");
        for voucher in [101, 102] {
            program.run(&format!("voucher add --voucher {voucher} --units 1 --yes")).expect(0);
        }
        fixture.judge().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_stock_in_redis_is_lost_is_completed_and_the_region_rebuilt() {
    for (lost, is_written) in [(101, false), (102, false), (101, true), (102, true)] {
        let (fixture, program) = open().await;
        killed_at(
            &fixture,
            |redis, mysql| {
                if is_written { redis.hold_when(END) } else { mysql.hold_when(LOCK) }
            },
        )
        .await;
        fixture.call(&format!("DEL seckill:limited:{lost}")).await;
        program.run(&format!("rebuild --voucher {lost} --yes")).expect(1);
        program.run(&format!("{MOVE} --yes")).expect(0);
        program.run(&format!("rebuild --voucher {lost} --yes")).expect(0);
        assert_eq!(stocks(&fixture).await, same(600, 900), "{lost} {is_written}");
        fixture.judge().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_mysql_refuses_is_cancelled_on_both_sides() {
    let (fixture, program) = open().await;
    let left = "UPDATE tb_seckill_voucher SET stock = ? WHERE voucher_id = 101";
    let (child, hold, proxies) = held_at(&fixture, |_, mysql| mysql.hold_when(LOCK)).await;
    sqlx::query(left).bind(300).execute(&fixture.pool).await.expect("others have bought it");
    hold.release();
    let refused = Run::from(child.wait_with_output().expect("it ends")).expect(1);
    assert!(refused.stdout.contains("MySQL now has fewer units left"), "{refused:#?}");
    drop(proxies);
    sqlx::query(left).bind(1_000).execute(&fixture.pool).await.expect("they released it");
    assert_eq!(stocks(&fixture).await, same(1_000, 500));
    for voucher in [101, 102] {
        let note = fixture.redis_says(&["HGET", &format!("seckill:voucher:{voucher}"), "change"]).await;
        assert!(note.as_string().is_some_and(|note| note.contains("cancelled")), "{voucher}");
    }
    fixture.judge().await;
    program.run(&format!("{MOVE} --yes")).expect(0);
    assert_eq!(stocks(&fixture).await, same(600, 900));
}

fn at_once(program: &Program, lines: &[String]) -> Vec<Run> {
    let start = |line: &String| {
        let mut command = program.command(&line.split(' ').collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
    };
    let children: Vec<Child> = lines.iter().map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().expect("it ends").into()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn movers_at_once_make_the_same_move_once_and_two_that_cross_one_after_the_other() {
    let (fixture, program) = open().await;
    let runs = at_once(&program, &vec![format!("{MOVE} --yes --json"); 4]);
    assert!(runs.iter().all(|run| run.code < 2) && runs.iter().any(|run| run.code == 0), "{runs:#?}");
    assert_eq!(stocks(&fixture).await, same(600, 900));

    let line = |from: &str, to: &str, units: i64, initial: i64| {
        format!(
            "voucher transfer --campaign 5 --from {from} --to {to} --units {units} --initial-stock {initial} --yes"
        )
    };
    let runs = at_once(&program, &[line("north", "south", 50, 600), line("south", "north", 20, 900)]);
    // The second command finds other initial stocks than it expects, or the note of the first one.
    assert!(runs.iter().all(|run| run.code < 2), "{runs:#?}");
    let made = runs.iter().map(|run| i64::from(run.code == 0)).collect::<Vec<_>>();
    assert!(made.iter().sum::<i64>() > 0, "{runs:#?}");
    let north = 600 - 50 * made[0] + 20 * made[1];
    assert_eq!(stocks(&fixture).await, same(north, 1_500 - north), "{runs:#?}");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_move_a_sale_is_paused_and_resumed_and_its_stock_changes_only_afterwards() {
    let (fixture, program) = open().await;
    let (child, hold, proxies) = held_at(&fixture, |_, mysql| mysql.hold_when(LOCK)).await;
    program.run("pause --voucher 102 --yes").expect(0);
    let add = "voucher add --voucher 102 --units 7 --yes";
    program.run(add).expect(1);
    program.run("voucher delist --voucher 102 --yes").expect(1);
    hold.release();
    Run::from(child.wait_with_output().expect("it ends")).expect(0);
    drop(proxies);
    program.run("resume --voucher 102 --yes").expect(0);
    program.run(add).expect(0);
    assert_eq!(stocks(&fixture).await, same(600, 907));
    program.run("voucher delist --voucher 102 --yes").expect(0);
    let refused = program.run(&format!("{MOVE} --initial-stock 600 --yes")).expect(1);
    assert!(refused.stdout.contains("south is delisted"), "{refused:#?}");
    assert_eq!(stocks(&fixture).await, same(600, 907));
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_move_while_both_regions_sell_are_sold_once_and_the_books_agree() {
    let (fixture, program) = open().await;
    let worker = fixture.worker("w").start();
    let (stop, next, store) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(1)), fixture.store().await);
    let (has_moved, moved) = tokio::sync::watch::channel(false);
    let buyer = |voucher: i64| {
        let (stop, next, store, mut moved) =
            (Arc::clone(&stop), Arc::clone(&next), store.clone(), moved.clone());
        async move {
            let mut sold = 0;
            while !stop.load(Ordering::Relaxed) {
                // The remaining buyers wait until units have moved, so that some units are left to move.
                if sold == 200 {
                    moved.wait_for(|moved| *moved).await.expect("the mover lives");
                }
                let id = next.fetch_add(1, Ordering::Relaxed);
                let admission = Admission {
                    order: id.try_into().expect("an id"),
                    user: id.try_into().expect("a user"),
                    voucher: voucher.try_into().expect("a voucher"),
                    quantity: 1.try_into().expect("a quantity"),
                    subjects: Subjects::none().with("phone", &format!("p{id}")).expect("a phone"),
                    traceparent: None,
                };
                sold += i64::from(
                    store.admissions().admit(&admission).await.expect("the store answers").is_admitted(),
                );
            }
            sold
        }
    };
    let buyers = [tokio::spawn(buyer(101)), tokio::spawn(buyer(102))];
    for (from, to) in [("north", "south"), ("south", "north"), ("north", "south")] {
        let command = format!("voucher transfer --campaign 5 --from {from} --to {to} --units 100 --yes");
        let moved = program.run(&command);
        // All units may be sold by then, but not before the first move.
        let is_sold = *has_moved.borrow() && moved.stdout.contains("left");
        assert!(moved.code == 0 || moved.code == 1 && is_sold, "{moved:#?}");
        has_moved.send_replace(true);
    }
    crate::fixture::until("all is sold", || async {
        let mut left = 0;
        for voucher in [101, 102] {
            let stock = fixture.redis_says(&["GET", &format!("seckill:limited:{voucher}")]).await;
            left += stock.as_i64().expect("a stock");
        }
        left == 0
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let mut sold = 0;
    for buyer in buyers {
        sold += buyer.await.expect("it ends well");
    }
    assert_eq!(sold, 1_500);
    fixture.settled().await;
    assert_eq!(fixture.live_orders().await.len(), 1_500);
    fixture.judge().await;
    assert!(worker.stop().await.success());
}
