//! Tests of `tidegate doctor` when the servers are healthy and the orders are not. Each of these states once passed the
//! checks.

use std::time::Duration;

use sqlx::Connection;

use crate::fixture::{Fixture, GROUP, STREAM, until};

const WELL: &str = "No problem was found, and no entry waits for too long.";

/// The exit code of `tidegate doctor`, and its output.
fn doctor(fixture: &Fixture) -> (Option<i32>, String) {
    let output = fixture.tidegate(&["doctor"]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The key of the heartbeat of a live worker, which a test can keep.
const HEARTBEAT: &str = "tidegate:worker:w";

/// A fixture that has sold 5 of a voucher's 100 units. Its worker has ended, and its heartbeat remains.
async fn after_a_sale() -> Fixture {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(7, 100).await;
    for order in 11..=15 {
        fixture.admit(order, 1_000 + order, 7, 1).await;
    }
    let worker = fixture.worker("w").start();
    until("all is written", || async { fixture.orders().await.len() == 5 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
    fixture.call(&format!("XGROUP CREATECONSUMER {STREAM} {GROUP} w-0")).await;
    fixture.call(&format!("SET {HEARTBEAT} somebody")).await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_that_has_forgotten_a_sale_is_an_error() {
    let fixture = after_a_sale().await;
    let (code, text) = doctor(&fixture);
    assert!(code == Some(0) && text.contains(WELL) && text.contains("tidegate audit"), "{text}");
    // Two vouchers are not on sale: the sale of one is over, the other one is sold out.
    fixture.load(8, 10).await;
    fixture.load(9, 1).await;
    for sql in [
        "UPDATE tb_seckill_voucher SET end_time = NOW() - INTERVAL 1 HOUR, begin_time = NOW() - INTERVAL 2 HOUR \
         WHERE voucher_id = 8",
        "UPDATE tb_seckill_voucher SET stock = 0 WHERE voucher_id = 9",
        "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (101, 1, 8), (102, 1, 9)",
    ] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("the row is changed");
    }
    fixture.call("FLUSHALL").await;
    let (code, text) = doctor(&fixture);
    let lost = "error    redis  voucher 7 is on sale by its row in MySQL, with 95 units and 5 orders, but Redis has \
                none of its keys: neither";
    assert!(
        code == Some(1) && text.contains(lost) && text.contains("docs/runbook/redis-lost-data.md"),
        "{text}"
    );
    assert!(!text.contains("voucher 8") && !text.contains("voucher 9"), "{text}");
    fixture.call("SET seckill:stock:7 95").await;
    fixture.call(&format!("SET {HEARTBEAT} somebody")).await;
    assert_eq!(doctor(&fixture).0, Some(0), "it is on sale again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_is_full_is_an_error_and_a_warning_before_that() {
    let fixture = after_a_sale().await;
    // The value is so large that the memory of the connections does not matter.
    fixture.call("SETRANGE filling 50000000 x").await;
    let info = fixture.call("INFO memory").await.as_string().expect("a text");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok());
    let used = used.expect("a number");
    for (most, level, code) in [(used * 100 / 95, "warning", 0), (used / 2, "error  ", 1)] {
        fixture.call(&format!("CONFIG SET maxmemory {most}")).await;
        let (found, text) = doctor(&fixture);
        assert!(text.contains(&format!("{level}  redis  the memory of Redis is ")), "{text}");
        assert!(found == Some(code) && text.contains("docs/runbook/redis-is-out-of-memory.md"), "{text}");
    }
    fixture.call("CONFIG SET maxmemory 0").await;
    fixture.call("DEL filling").await;
    assert!(doctor(&fixture).1.contains(WELL));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_that_keeps_people_from_buying_is_named() {
    let fixture = after_a_sale().await;
    // The voucher has no buyer yet.
    fixture.load(8, 10).await;
    for voucher in [7, 8] {
        for (wrong, told) in [
            (format!("SET seckill:order:{voucher} x"), format!("seckill:order:{voucher}: WRONGTYPE")),
            (format!("SET seckill:voucher:{voucher} x"), format!("seckill:voucher:{voucher}: WRONGTYPE")),
            (format!("SET seckill:journal:{voucher} x"), format!("seckill:journal:{voucher}: WRONGTYPE")),
            (format!("SET seckill:stock:{voucher} abc"), format!("seckill:stock:{voucher} holds")),
            (
                format!("HSET seckill:voucher:{voucher} begin_ms abc"),
                format!("begin_ms of seckill:voucher:{voucher} holds"),
            ),
        ] {
            let key = wrong.split(' ').nth(1).expect("a key").to_owned();
            fixture.call(&format!("COPY {key} kept REPLACE")).await;
            if wrong.starts_with("SET") {
                fixture.call(&format!("DEL {key}")).await;
            }
            fixture.call(&wrong).await;
            let (code, text) = doctor(&fixture);
            assert!(
                code == Some(1) && text.contains(&format!("voucher {voucher} cannot be bought: ")),
                "{text}"
            );
            assert!(
                text.contains(&told) && text.contains("docs/runbook/audit-fails.md#a-key-has-a-wrong-type"),
                "{told}: {text}"
            );
            fixture.call(&format!("DEL {key}")).await;
            if fixture.call("EXISTS kept").await.as_i64() == Some(1) {
                fixture.call(&format!("RENAME kept {key}")).await;
            }
        }
    }
    assert!(doctor(&fixture).1.contains(WELL));
    fixture.call("SET seckill:stock:7 abc").await;
    let audited = fixture.tidegate(&["audit"]);
    let text = String::from_utf8_lossy(&audited.stdout);
    let told = "voucher 7: seckill:stock:7 holds \"abc\", which is not a number; see \
                docs/runbook/audit-fails.md#a-key-has-a-wrong-type";
    assert!(audited.status.code() == Some(1) && text.contains(told), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_none_is_named_by_every_command_that_reads_it() {
    let fixture = after_a_sale().await;
    let says = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let output = fixture.tidegate(&words);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(output.status.code(), Some(3), "{line}: {text}");
        text
    };
    fixture.call(&format!("RENAME {STREAM} kept")).await;
    fixture.call(&format!("SET {STREAM} x")).await;
    for line in [
        "audit",
        "replay --from -1h --to now --dry-run",
        "export --from -1h --to now",
        "order find --user 1011",
        "pending list",
        "consumers list",
    ] {
        let text = says(line);
        let told = format!("{STREAM}: WRONGTYPE");
        assert!(
            text.contains(&told) && text.contains("docs/runbook/audit-fails.md#a-key-has-a-wrong-type"),
            "{line}: {text}"
        );
    }
    let status = says("status");
    let told = format!(
        "error: {STREAM} is a string, not a stream; see docs/runbook/audit-fails.md#a-key-has-a-wrong-type"
    );
    assert!(status.contains(&told) && !status.contains("There is no consumer group"), "{status}");
    fixture.call(&format!("RENAME kept {STREAM}")).await;
    fixture.call(&format!("SET {STREAM}.dead x")).await;
    assert!(says("dead list").contains(&format!("{STREAM}.dead: WRONGTYPE")));
    assert!(says("status").contains(&format!("error: {STREAM}.dead is a string, not a stream")));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_nobody_writes_are_warnings() {
    let fixture = after_a_sale().await;
    fixture.add_order(6, 1_006, 7).await;
    fixture.call(&format!("XREADGROUP GROUP {GROUP} gone-3 STREAMS {STREAM} >")).await;
    let (code, text) = doctor(&fixture);
    assert!(code == Some(0) && !text.contains(WELL), "{text}");
    assert!(
        text.contains("1 consumer without a living process, with 1 entry still pending: gone-3"),
        "{text}"
    );
    assert!(!text.contains("died") && !text.contains("s old"), "{text}");

    let pending = fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 1")).await.into_array();
    let entry = pending[0].clone().into_array()[0].as_string().expect("an id");
    fixture.call(&format!("HSET {STREAM}.deaths {entry} 3")).await;
    let (_, text) = doctor(&fixture);
    let died = "warning  redis  1 pending entry in progress when a worker process died; the highest count of one entry: 3 crashes";
    assert!(text.contains(died), "{text}");

    // The note of a live worker about its set-aside entries.
    fixture.call(&format!("XGROUP CREATECONSUMER {STREAM} {GROUP} w-0")).await;
    fixture.call("SET tidegate:worker:w somebody").await;
    let notice = |lasting_s: u32| {
        format!(
            r#"{{"entries":3,"kinds":{{"voucher_row":3}},"causes":[{{"kind":"voucher_row","key":7,"entries":3,"lasting_s":{lasting_s}}}]}}"#
        )
    };
    for (lasting_s, is_told) in [(5, false), (300, true)] {
        fixture.redis_says(&["HSET", &format!("{STREAM}.set_aside"), "w", &notice(lasting_s)]).await;
        let (_, text) = doctor(&fixture);
        let told = "the longest: 3 wait for voucher_row 7 since 300 s";
        assert_eq!(text.contains(told), is_told, "{text}");
    }

    // The ages are computed from the ids of entries.
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("a time").as_millis() - 20_000;
    fixture.call("DEL stream.orders").await;
    fixture.call(&format!("XGROUP CREATE {STREAM} {GROUP} 0 MKSTREAM")).await;
    fixture.call(&format!("XADD {STREAM} {now_ms}-0 userId 1 voucherId 7 id 7")).await;
    let (_, text) = doctor(&fixture);
    assert!(text.contains("warning  redis  the oldest undelivered entry of the stream is 2"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_that_somebody_else_has_overwritten_stop_no_worker_and_are_named() {
    let fixture = after_a_sale().await;
    fixture.add_order(6, 1_006, 7).await;
    fixture.call(&format!("XREADGROUP GROUP {GROUP} gone-3 STREAMS {STREAM} >")).await;
    for notes in ["deaths", "set_aside"] {
        fixture.call(&format!("SET {STREAM}.{notes} x")).await;
    }
    // The notes about crashes and set-aside entries are read only while a worker is alive.
    fixture.call("SET tidegate:worker:w somebody").await;
    let (code, text) = doctor(&fixture);
    for notes in ["deaths", "set_aside"] {
        assert!(text.contains(&format!("check its content, then DEL {STREAM}.{notes}")), "{text}");
    }
    assert!(code == Some(0) && !text.contains("allow Tidegate's Redis user"), "{text}");

    let output = fixture.tidegate(&["status"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let error =
        format!("error: Failed to read entries that are set aside from {STREAM}.set_aside: WRONGTYPE");
    assert!(text.contains(&error) && text.contains("pending") && text.contains("gone-3"), "{text}");

    fixture.call("DEL tidegate:worker:w").await;
    let worker = fixture.worker("gone").start();
    fixture.settled().await;
    assert!(!worker.log().contains("outage"), "{}", worker.log());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_told_by_their_reasons() {
    let fixture = after_a_sale().await;
    fixture.add_poison().await;
    let worker = fixture.worker("v").start();
    until("both are buried", || async { fixture.dead().await.len() == 2 }).await;
    assert!(worker.stop().await.success());
    let (_, text) = doctor(&fixture);
    assert!(
        text.contains("2 dead letters in the stream stream.orders.dead: 1 bad_value, 1 unknown_voucher"),
        "{text}"
    );
    assert!(text.contains("do: run tidegate dead list") && !text.contains("XRANGE"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_rows_that_others_wait_for_is_named() {
    let fixture = after_a_sale().await;
    let url = fixture.mysql.url();
    let connect = || sqlx::MySqlConnection::connect(&url);
    let (mut holder, mut waiter) = (connect().await.expect("a session"), connect().await.expect("a session"));
    let id: u64 = sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut holder).await.expect("an id");
    let lock = "UPDATE tb_seckill_voucher SET stock = stock WHERE voucher_id = 7";
    sqlx::raw_sql("BEGIN").execute(&mut holder).await.expect("it begins");
    sqlx::raw_sql(lock).execute(&mut holder).await.expect("it holds the row");
    let waiting = tokio::spawn(async move { sqlx::raw_sql(lock).execute(&mut waiter).await });
    let named = format!(
        "1 transaction waits for row locks of other transactions; the oldest transaction that holds locks and does not wait belongs \
                         to connection {id}, and is "
    );
    // The server shows its transactions as of the last query, until there was no query for 0.1 s.
    let look = || async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        doctor(&fixture).1
    };
    until("the holder is named", || async { look().await.contains(&named) }).await;
    assert!(look().await.contains(&format!("KILL {id}")));
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.expect("it lets go");
    waiting.await.expect("it ends").expect("it has the row");
    until("nothing waits", || async { look().await.contains(WELL) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_with_other_names_are_not_taken_for_lost_data() {
    let fixture = after_a_sale().await;
    fixture.call("RENAME seckill:stock:7 shop:stock:7").await;
    fixture.call("RENAME seckill:order:7 shop:order:7").await;
    fixture.call("RENAME seckill:journal:7 shop:journal:7").await;
    fixture.call("SET shop:stock:17 1").await;
    let (code, text) = doctor(&fixture);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("neither seckill:stock:7 nor another configured key"), "{text}");
    assert!(
        text.contains("Redis has other keys that end with the id of the voucher: shop:journal:7, shop:order:7, shop:stock:7."),
        "{text}"
    );
    assert!(text.contains("do not rebuild Redis") && !text.contains("lost data"), "{text}");
}

/// The exit code of `tidegate status`, and its output.
fn status(fixture: &Fixture) -> (Option<i32>, String) {
    let output = fixture.tidegate(&["status"]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_fleet_is_an_error_while_anything_needs_a_worker_and_a_warning_otherwise() {
    let fixture = after_a_sale().await;
    assert!(!status(&fixture).1.contains("no worker is alive"));
    fixture.call(&format!("DEL {HEARTBEAT}")).await;
    let says = |code: i32, level: &str, what: &str| {
        for (found, text) in [doctor(&fixture), status(&fixture)] {
            assert_eq!(found, Some(code), "{text}");
            assert!(
                text.contains("tidegate worker") && text.contains("docs/runbook/nothing-is-written.md"),
                "{text}"
            );
            assert!(text.contains(level) && text.contains(&format!("no worker is alive{what}")), "{text}");
        }
    };
    says(1, "error", ", and voucher 7 is on sale");
    // A paused sale needs no worker, for example before a takeover.
    assert!(fixture.tidegate(&["pause", "--voucher", "7", "--yes"]).status.success());
    says(0, "warning", "; no sale is open");
    fixture.add_order(6, 1_006, 7).await;
    says(1, "error", ", and 1 entry is undelivered");
    fixture.hand_over("gone-3", 1).await;
    says(1, "error", ", and 1 entry is pending");
    let json = fixture.tidegate(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["no_worker"]["level"], "error", "{json:#}");

    // A worker that is paused from its start on has read nothing yet, and is alive.
    fixture.call("SET tidegate:pause maintenance").await;
    let worker = fixture.worker("idle").start();
    worker.says("paused: no entries are read").await;
    for (_, text) in [doctor(&fixture), status(&fixture)] {
        assert!(!text.contains("no worker is alive"), "{text}");
    }
    fixture.call("DEL tidegate:pause").await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_different_versions_are_a_warning_that_names_them() {
    let fixture = Fixture::open().await;
    let worker = fixture.worker("new").start();
    worker.says("worker started").await;
    until("its lanes read", || async { doctor(&fixture).1.contains("consumers") }).await;
    let (code, text) = doctor(&fixture);
    assert!(code == Some(0) && !text.contains("versions share"), "{text}");
    let version = String::from_utf8(fixture.tidegate(&["--version"]).stdout).expect("text");
    let version = version.trim().trim_start_matches("tidegate ");
    let (new, none) = (format!("new ({version})"), "old (older, without a version in its heartbeat)");
    for (rest, workers) in
        [("", format!("{new}; {none}")), (", version 0.0.9 abc", format!("old (0.0.9 abc); {new}"))]
    {
        fixture.call(&format!("XGROUP CREATECONSUMER {STREAM} {GROUP} old-0")).await;
        let heartbeat = format!("pid 7 on shop, knows events{rest}, heartbeat 9000 ms (0)");
        fixture.redis_says(&["SET", "tidegate:worker:old", &heartbeat]).await;
        let (code, text) = doctor(&fixture);
        let warning = format!("workers of 2 versions share this stream: {workers}\n");
        assert!(
            code == Some(0) && text.contains(&warning) && text.contains("docs/runbook/upgrade.md"),
            "{text}"
        );
    }
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_two_layouts_of_user_locks_is_a_warning_that_names_the_workers() {
    let fixture = Fixture::open().await;
    let java = fixture.worker("java").set("LOCK_LAYOUT", "redisson").start();
    java.says("worker started").await;
    until("its lanes read", || async { doctor(&fixture).1.contains("consumers") }).await;
    let own = "the user locks of this program have another layout (lock.layout = \"tidegate\") than those of the \
               workers: java (redisson)\n";
    let (code, text) = doctor(&fixture);
    assert!(code == Some(0) && text.contains(own) && text.contains("docs/takeover.md"), "{text}");
    let same = fixture.tidegate(&["--set", "lock.layout=redisson", "doctor"]).stdout;
    assert!(!String::from_utf8_lossy(&same).contains("lock.layout"));

    // A worker of an earlier version has no word for it.
    fixture.call(&format!("XGROUP CREATECONSUMER {STREAM} {GROUP} old-0")).await;
    let heartbeat = "pid 7 on shop, knows events, version 0.0.9, heartbeat 9000 ms (0)";
    fixture.redis_says(&["SET", "tidegate:worker:old", heartbeat]).await;
    let (code, text) = doctor(&fixture);
    let both = "user locks have 2 layouts (lock.layout): java (redisson); old (tidegate)\n";
    assert!(code == Some(0) && text.contains(both), "{text}");
    assert!(java.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_on_only_if_somebody_can_buy() {
    let fixture = Fixture::open().await;
    for voucher in [1, 2, 3, 4, 5, 6, 7] {
        fixture.load(voucher, 10).await;
    }
    for sql in [
        "UPDATE tb_seckill_voucher SET end_time = NOW() - INTERVAL 1 HOUR, begin_time = NOW() - INTERVAL 2 HOUR \
         WHERE voucher_id = 2",
        "UPDATE tb_seckill_voucher SET begin_time = NOW() + INTERVAL 1 HOUR WHERE voucher_id = 3",
    ] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("the row is changed");
    }
    assert!(fixture.tidegate(&["pause", "--voucher", "4", "--yes"]).status.success());
    fixture.call("SET seckill:stock:5 0").await;
    fixture.call("SET seckill:voucher:6 x").await;
    fixture.call("DEL seckill:stock:7").await;
    let states = || {
        let output = fixture.tidegate(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let vouchers = json["vouchers"].as_array().expect("vouchers").clone();
        vouchers
            .iter()
            .map(|voucher| voucher["sale"].as_str().expect("a word").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(states(), ["on", "over", "not_begun", "paused", "sold_out", "unknown", "no_stock"]);
    assert!(status(&fixture).1.contains("no stock"));
    fixture.call("FLUSHALL").await;
    assert_eq!(states(), ["no_stock", "over", "no_stock", "no_stock", "no_stock", "no_stock", "no_stock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_is_too_large_to_be_read_is_not_called_well() {
    let fixture = after_a_sale().await;
    fixture.call("HSET seckill:journal:7 #complete 1").await;
    let fill = "for order = 1, 100001 do redis.call('HSET', KEYS[1], 'f' .. order, '{}') end";
    fixture.redis_says(&["EVAL", fill, "1", "seckill:journal:7"]).await;
    let (code, text) = doctor(&fixture);
    assert!(code == Some(0) && !text.contains(WELL), "{text}");
    assert!(text.contains("not read redis  the journal of voucher 7 has 10000"), "{text}");
    assert!(
        text.contains("do: run tidegate reconcile --voucher 7") && text.contains("1 not read."),
        "{text}"
    );
}
