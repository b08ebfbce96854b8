//! Tests of `tidegate voucher add` and `tidegate voucher take`: both stores change by the same number, once, in spite
//! of kills and outages.

use std::process::{Child, Stdio};

use fred::interfaces::LuaInterface;
use serde_json::{Value as Json, json};
use tidegate_lab::{Endpoint, Hold, Proxy};

use crate::{
    fixture::Fixture,
    program::{Program, Run},
};

/// The script. Tests load it first, so that a NOSCRIPT does not disturb them.
const SCRIPT: &str = include_str!("../../lua/adjust_stock.lua");
const BEGIN: &[u8] = br#""state":"open""#;
const END: &[u8] = br#""state":"done""#;
const CANCELLED: &[u8] = br#""state":"cancelled""#;
const LOCK: &[u8] = b"FROM tb_seckill_voucher WHERE voucher_id = ? FOR UPDATE";
const UPDATE: &[u8] = b"UPDATE tb_seckill_voucher SET stock = CAST";
/// A commit as a statement of its own, not as a part of READ COMMITTED.
const COMMIT: &[u8] = b"\x03COMMIT";

fn program(redis_url: &str, mysql_url: &str) -> Program {
    Program::with_flags(&["--redis-url", redis_url, "--mysql-url", mysql_url])
}

/// A fixture that sells 1000 units of voucher 7, and the program.
async fn open() -> (Fixture, Program) {
    let fixture = Fixture::open().await;
    fixture.load(7, 1_000).await;
    // MySQL has the units that were loaded, and those that were added or taken since.
    fixture.caller_log.write(|pages| _ = pages.loaded.remove(&7));
    let _sha: String = fixture.client.script_load(SCRIPT).await.expect("the script is loaded");
    let program = program(&fixture.redis.url(), &fixture.mysql.url());
    (fixture, program)
}

/// The initial stock and the stock in MySQL, and the stock in Redis.
async fn stocks<M: Endpoint>(fixture: &Fixture<M>) -> (i64, i64, i64) {
    let sql = "SELECT initial_stock FROM tb_seckill_voucher WHERE voucher_id = 7";
    let initial: i64 = sqlx::query_scalar(sql).fetch_one(&fixture.pool).await.expect("MySQL answers");
    (initial, fixture.mysql_stock(7).await, fixture.redis_stock(7).await.expect("a stock"))
}

/// The bytes of a change of stock by this many units: both numbers of the prepared statement.
fn executed(units: i64) -> Vec<u8> {
    [units.to_le_bytes(), units.to_le_bytes()].concat()
}

fn log_of(program: &Program) -> Vec<(Json, Json)> {
    let log = program.run("log --json").expect(0).json();
    log.as_array().unwrap().iter().map(|line| (line["outcome"].clone(), line["counts"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_added_and_taken_beside_workers_and_the_audit_holds() {
    let (fixture, program) = open().await;
    let worker = fixture.worker("w").start();
    let buying = async {
        for id in 1_000..1_400 {
            fixture.admit(id, id, 7, 1).await;
        }
    };
    let changing = async {
        let dry = program.run("voucher add --voucher 7 --units 500 --dry-run").expect(0);
        assert!(
            dry.stdout.contains("500 units would be added, the initial stock from 1000 to 1500"),
            "{dry:?}"
        );
        let refused = program.run("voucher add --voucher 7 --units 500").expect(2);
        assert!(refused.stderr.contains("--yes"), "{refused:?}");
        let done =
            program.run("voucher add --voucher 7 --units 500 --yes --as alice --json").expect(0).json();
        assert_eq!((&done["outcome"], &done["units"]), (&json!("changed"), &json!(500)), "{done}");
        program.run("audit").expect(0);
        let done = program.run("voucher take --voucher 7 --units 300 --yes").expect(0);
        assert!(done.stdout.contains("300 units taken in both stores"), "{done:?}");
        program.run("audit").expect(0);
    };
    tokio::join!(buying, changing);
    fixture.caller_log.write(|pages| _ = pages.loaded.insert(7, 1_200));
    fixture.settled().await;
    assert_eq!(stocks(&fixture).await, (1_200, 800, 800));
    fixture.invariants().await;
    assert_eq!(
        log_of(&program),
        [(json!("done"), json!({ "units": 500 })), (json!("done"), json!({ "units": -300 }))]
    );
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_made_is_said_to_be_where_its_report_cannot_be_printed() {
    let (fixture, program) = open().await;
    let mut command = program.command(&["voucher", "add", "--voucher", "7", "--units", "1", "--yes"]);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full disk");
    let run = command.stdout(full).stderr(Stdio::piped()).spawn().expect("the program runs");
    let run = Run::from(run.wait_with_output().expect("it ends")).expect(3);
    assert!(
        run.stderr.contains("error: All work was done, but the report could not be printed: "),
        "{run:?}"
    );
    assert_eq!(stocks(&fixture).await, (1_001, 1_001, 1_001));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_typed_again_changes_nothing_unless_it_is_meant() {
    let (fixture, program) = open().await;
    program.run("voucher add --voucher 7 --units 500 --yes").expect(0);
    for line in ["voucher add --voucher 7 --units 500 --yes", "voucher add --voucher 7 --units 500 --dry-run"]
    {
        let refused = program.run(line).expect(1);
        assert!(refused.stdout.contains("--units 500 --initial-stock 1500"), "{refused:?}");
    }
    let before = "voucher add --voucher 7 --units 500 --initial-stock 1000 --yes";
    let done = program.run(before).expect(0);
    assert!(done.stdout.contains("both stores already have this change"), "{done:?}");
    assert_eq!(stocks(&fixture).await, (1_500, 1_500, 1_500));
    program.run("voucher add --voucher 7 --units 500 --initial-stock 1500 --yes").expect(0);
    let refused = program.run(before).expect(1);
    assert!(refused.stdout.contains("is 2000 and not 1000"), "{refused:?}");
    assert_eq!(stocks(&fixture).await, (2_000, 2_000, 2_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_on_sale_or_not_there_is_refused_and_leaves_no_trace() {
    let (fixture, program) = open().await;
    let before = fixture.redis_says(&["DUMP", "seckill:voucher:7"]).await;
    for (line, told) in [
        ("voucher take --voucher 7 --units 1001 --yes", "Redis has only 1000 units left"),
        ("voucher add --voucher 8 --units 1 --yes", "MySQL has no row of the voucher"),
        ("voucher add --voucher 7 --units 1 --initial-stock 999 --yes", "is 1000 and not 999"),
        ("voucher add --voucher 7 --units 9999999999999 --yes", "more than"),
        // MySQL itself refuses a number that its column cannot hold: then the note is cancelled.
        ("voucher add --voucher 7 --units 9999999990000 --yes", "cannot hold so many"),
        ("voucher load --voucher 8 --stock 2147483648 --yes", "cannot hold so many"),
    ] {
        let refused = program.run(line).expect(1);
        assert!(refused.stdout.contains(told), "{refused:?}");
        assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000), "{line}");
        if !told.contains("cannot hold") {
            assert_eq!(fixture.redis_says(&["DUMP", "seckill:voucher:7"]).await, before, "{line}");
        }
    }
    let sql = "UPDATE tb_seckill_voucher SET initial_stock = NULL";
    sqlx::query(sql).execute(&fixture.pool).await.unwrap();
    let refused = program.run("voucher take --voucher 7 --units 1 --yes").expect(1);
    let repair = refused.stdout.split("first run: ").nth(1).unwrap().lines().next().unwrap();
    sqlx::query(sqlx::AssertSqlSafe(repair.to_owned()))
        .execute(&fixture.pool)
        .await
        .expect("it can be typed");
    program.run("voucher take --voucher 7 --units 1 --yes").expect(0);
    assert_eq!(stocks(&fixture).await, (999, 999, 999));
    fixture.call("DEL seckill:stock:7").await;
    let refused = program.run("voucher add --voucher 7 --units 1 --yes").expect(1);
    assert!(refused.stdout.contains("Redis has no stock of the voucher"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_refuses_for_certain_leaves_nothing_half_done() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(7, 1_000).await;
    // The lab's own user has every right, which includes writing to a read-only server.
    let own = |sql: &'static str| sqlx::raw_sql(sql).execute(&fixture.pool);
    own("CREATE USER clerk@'%'; GRANT ALL ON tidegate.* TO clerk@'%'").await.expect("a user");
    let clerk = fixture.mysql.url().replace("tidegate@", "clerk@");
    let program = program(&fixture.redis.url(), &clerk);
    let changes = [("add", 1_001), ("take", 1_000)];

    own("SET GLOBAL read_only = 1").await.expect("it is read-only");
    for (verb, _) in changes {
        let refused = program.run(&format!("voucher {verb} --voucher 7 --units 1 --yes")).expect(1);
        assert!(refused.stdout.contains("refused, MySQL refused the change: "), "{refused:?}");
        assert!(refused.stdout.contains("(the server is read-only"), "{refused:?}");
        assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000), "{verb}");
    }
    // A change that was begun earlier stays open: MySQL may have it, and only this server does not show it.
    own("SET GLOBAL read_only = 0").await.expect("it is not any more");
    let (mut child, hold, proxies) = held_at(&fixture, "take", |_, mysql| mysql.hold_when(LOCK)).await;
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    hold.cut();
    drop(proxies);
    own("SET GLOBAL read_only = 1").await.expect("it is read-only");
    let same = "voucher take --voucher 7 --units 400 --yes";
    let refused = program.run(same).expect(3);
    assert!(refused.stderr.contains("Redis has the change, but MySQL refused it: "), "{refused:?}");
    own("SET GLOBAL read_only = 0").await.expect("it is not any more");
    program.run(same).expect(0);
    program.run("voucher add --voucher 7 --units 400 --yes").expect(0);
    assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000));

    fixture.call("CONFIG SET maxmemory 1").await;
    for (verb, _) in changes {
        let refused = program.run(&format!("voucher {verb} --voucher 7 --units 1 --yes")).expect(1);
        assert!(refused.stdout.contains("refused, Redis refused: "), "{refused:?}");
        assert!(refused.stdout.contains("OOM command not allowed"), "{refused:?}");
        assert!(refused.stdout.contains("neither Redis nor MySQL was changed"), "{refused:?}");
    }
    fixture.call("CONFIG SET maxmemory 0").await;
    for (verb, left) in changes {
        let done = program.run(&format!("voucher {verb} --voucher 7 --units 1 --yes")).expect(0);
        assert!(done.stdout.contains("in both stores"), "nothing is left to complete: {done:?}");
        assert_eq!(stocks(&fixture).await, (left, left, left), "{verb}");
    }
}

/// A change that is held at a step.
async fn held_at<M: Endpoint>(
    fixture: &Fixture<M>,
    verb: &str,
    held: impl FnOnce(&Proxy, &Proxy) -> Hold,
) -> (Child, Hold, [Proxy; 2]) {
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let through = program(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql));
    let hold = held(&redis, &mysql);
    let mut command = through.command(&["voucher", verb, "--voucher", "7", "--units", "400", "--yes"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    hold.reached().await.expect("it comes to this step");
    (child, hold, [redis, mysql])
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_killed_half_way_is_completed_by_the_same_command_and_by_no_other() {
    for (verb, units) in [("add", 400), ("take", -400)] {
        for step in 0..6 {
            let (fixture, program) = open().await;
            let (mut child, hold, proxies) = held_at(&fixture, verb, |redis, mysql| match step {
                0 => redis.hold_reply_when(BEGIN),
                1 => mysql.hold_when(LOCK),
                2 => mysql.hold_when(UPDATE),
                3 => mysql.hold_reply_when(executed(units)),
                4 => mysql.hold_reply_when(COMMIT),
                _ => redis.hold_when(END),
            })
            .await;
            child.kill().unwrap();
            child.wait().unwrap();
            hold.cut();
            drop(proxies);
            let (initial, left, offered) = stocks(&fixture).await;
            assert_eq!(initial, left, "in one step");
            assert_eq!(left, if step < 4 { 1_000 } else { 1_000 + units }, "{verb} {step}");
            assert_eq!(offered, 1_000 + units.min(0), "{verb} {step}: never more than MySQL has");

            let other = program.run("voucher add --voucher 7 --units 1 --yes").expect(1);
            let (_, go_on) = other.stdout.split_once("first: tidegate ").expect("what to type");
            let go_on = go_on.lines().next().unwrap();
            fixture.judge().await;

            let same = format!("voucher {verb} --voucher 7 --units 400");
            let dry = program.run(&format!("{same} --dry-run")).expect(0);
            assert!(dry.stdout.contains("would be completed"), "{dry:?}");
            let typed = if step % 2 == 0 { go_on } else { &same };
            let done = program.run(&format!("{typed} --yes")).expect(0);
            assert!(done.stdout.contains("the unfinished change is now complete"), "{done:?}");
            assert_eq!(
                stocks(&fixture).await,
                (1_000 + units, 1_000 + units, 1_000 + units),
                "{verb} {step}"
            );
            program.run(&format!("{same} --yes")).expect(1);
            assert_eq!(
                stocks(&fixture).await,
                (1_000 + units, 1_000 + units, 1_000 + units),
                "{verb} {step}"
            );
            fixture.judge().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_changes_nothing_twice() {
    for (verb, units) in [("add", 400), ("take", -400)] {
        for step in 0..4 {
            let (fixture, direct) = open().await;
            let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
            let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
            let through = program(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql));
            let lost = match step {
                0 => redis.drop_next_reply(BEGIN),
                1 => mysql.drop_next_reply(executed(units)),
                2 => mysql.drop_next_reply(COMMIT),
                _ => redis.drop_next_reply(END),
            };
            let run = through.run(&format!("voucher {verb} --voucher 7 --units 400 --yes"));
            lost.reached().await.expect("a reply was lost");
            if (1..3).contains(&step) {
                let run = run.expect(3);
                assert!(run.stdout.contains("unfinished"), "{run:?}");
                let go_on = format!("voucher {verb} --voucher 7 --units 400 --initial-stock 1000");
                assert!(run.stderr.contains(&go_on), "{run:?}");
                direct.run(&format!("{go_on} --yes")).expect(0);
            } else {
                // The client repeats the request by itself.
                run.expect(0);
            }
            assert_eq!(
                stocks(&fixture).await,
                (1_000 + units, 1_000 + units, 1_000 + units),
                "{verb} {step}"
            );
        }
    }
}

/// Another operator completes the change, and then undoes it.
async fn completed_and_undone(fixture: &Fixture, program: &Program, verb: &str) {
    let done = program.run(&format!("voucher {verb} --voucher 7 --units 400 --yes")).expect(0);
    assert!(done.stdout.contains("the unfinished change is now complete"), "{done:?}");
    let back = if verb == "add" { "take" } else { "add" };
    program.run(&format!("voucher {back} --voucher 7 --units 400 --yes")).expect(0);
    assert_eq!(stocks(fixture).await, (1_000, 1_000, 1_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_to_mysql_is_not_done_again_after_others_completed_and_undid_it() {
    for verb in ["add", "take"] {
        let (fixture, program) = open().await;
        let (child, hold, _proxies) = held_at(&fixture, verb, |_, mysql| mysql.hold_when(LOCK)).await;
        completed_and_undone(&fixture, &program, verb).await;
        hold.release();
        let late = Run::from(child.wait_with_output().expect("it ends")).expect(0);
        assert!(late.stdout.contains("since then: 400 units"), "{late:?}");
        assert!(!late.stderr.contains("--initial-stock"), "nothing is left to type: {late:?}");
        assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000), "{verb}");
        fixture.judge().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_passes_an_update_that_is_on_its_way_and_it_dies_with_its_session() {
    for verb in ["add", "take"] {
        let (fixture, program) = open().await;
        let (child, hold, _proxies) = held_at(&fixture, verb, |_, mysql| mysql.hold_when(UPDATE)).await;
        let same = ["voucher", verb, "--voucher", "7", "--units", "400", "--yes"];
        let waited = program.run_with(&same, &[]).expect(3);
        assert!(waited.stderr.contains("Lock wait timeout"), "{waited:?}");
        // The server does the same by itself after worker.claim_idle_ms.
        let holder = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                      JOIN information_schema.innodb_trx ON trx_mysql_thread_id = id \
                      WHERE db = DATABASE() AND trx_rows_locked > 0 ORDER BY trx_started LIMIT 1";
        let holder: i64 =
            sqlx::query_scalar(holder).fetch_one(&fixture.pool).await.expect("it holds the row");
        let kill = sqlx::AssertSqlSafe(format!("KILL {holder}"));
        sqlx::raw_sql(kill).execute(&fixture.pool).await.expect("its session is ended");
        let ended = Run::from(child.wait_with_output().expect("it ends")).expect(3);
        assert!(ended.stderr.contains("--units 400 --initial-stock 1000"), "it is still open: {ended:?}");
        completed_and_undone(&fixture, &program, verb).await;
        hold.release();
        assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000), "{verb}");
        fixture.judge().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mysql_refuses_is_cancelled_before_anybody_else_can_make_it() {
    let (fixture, program) = open().await;
    let (child, hold, [redis, _mysql]) = held_at(&fixture, "take", |_, mysql| mysql.hold_when(LOCK)).await;
    let cancellation = redis.hold_when(CANCELLED);
    let left = "UPDATE tb_seckill_voucher SET stock = ? WHERE voucher_id = 7";
    sqlx::query(left).bind(300).execute(&fixture.pool).await.expect("others have bought it");
    hold.release();
    cancellation.reached().await.expect("it is refused");
    let same = ["voucher", "take", "--voucher", "7", "--units", "400", "--yes"];
    let waited = program.run_with(&same, &[]).expect(3);
    assert!(waited.stderr.contains("Lock wait timeout"), "{waited:?}");
    cancellation.release();
    let refused = Run::from(child.wait_with_output().expect("it ends")).expect(1);
    assert!(refused.stdout.contains("MySQL now has fewer units left"), "{refused:?}");
    sqlx::query(left).bind(1_000).execute(&fixture.pool).await.expect("they released it");
    assert_eq!(stocks(&fixture).await, (1_000, 1_000, 1_000));
    program.run_with(&same, &[]).expect(0);
    assert_eq!(stocks(&fixture).await, (600, 600, 600));
}

/// Redis comes back without its last second, so the note of the change is lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_redis_forgot_half_way_is_not_added_twice() {
    let (fixture, program) = open().await;
    let (mut child, hold, _proxies) = held_at(&fixture, "add", |redis, _| redis.hold_when(END)).await;
    fixture.call("HDEL seckill:voucher:7 change").await;
    hold.release();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let refused = program.run("voucher add --voucher 7 --units 400 --initial-stock 1000 --yes").expect(1);
    assert!(refused.stdout.contains("is 1400 and not 1000"), "{refused:?}");
    assert_eq!(stocks(&fixture).await, (1_400, 1_400, 1_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_at_once_make_the_same_change_once_and_others_one_after_the_other() {
    let (fixture, program) = open().await;
    let at_once = |lines: Vec<String>| -> Vec<Run> {
        let start = |line: &String| {
            let mut command = program.command(&line.split(' ').collect::<Vec<_>>());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
        };
        let children: Vec<Child> = lines.iter().map(start).collect();
        children.into_iter().map(|child| child.wait_with_output().expect("it ends").into()).collect()
    };
    let same = vec!["voucher add --voucher 7 --units 400 --yes --json".to_owned(); 6];
    let runs = at_once(same);
    assert!(runs.iter().all(|run| run.code < 2) && runs.iter().any(|run| run.code == 0), "{runs:?}");
    assert_eq!(stocks(&fixture).await, (1_400, 1_400, 1_400));

    let different = (1..=6).map(|units| format!("voucher take --voucher 7 --units {units} --yes --json"));
    let runs = at_once(different.collect());
    let changed = runs.iter().filter(|run| run.code == 0).map(|run| run.json()["units"].as_i64().unwrap());
    let left = 1_400 + changed.sum::<i64>();
    assert!(left < 1_400 && runs.iter().all(|run| run.code < 2), "{runs:?}");
    assert_eq!(stocks(&fixture).await, (left, left, left));
}
