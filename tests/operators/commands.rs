//! Tests of commands, as an operator types them: the real binary on real servers.

use std::{
    net::TcpListener,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tidegate_lab::{MysqlServer, Proxy, RedisServer};
use tidegate_orders::{
    VoucherId,
    records::vouchers::{self, Inserted, NewVoucher},
};

use crate::{
    database::{migrated_mysql, mysql},
    program::{Program, call, closed_port, redis},
};

const NOWHERE: &str = "mysql://nobody@127.0.0.1:1/hmdp";

fn with_stores(redis_url: &str, mysql_url: &str) -> Program {
    Program::with_flags(&["--redis-url", redis_url, "--mysql-url", mysql_url])
}

#[tokio::test(flavor = "multi_thread")]
async fn admit_prints_the_order_id_and_what_became_of_it_and_exits_by_that() {
    let server = RedisServer::start().unwrap();
    let program = with_stores(&server.url(), migrated_mysql().await);
    program.run("voucher load --voucher 100 --stock 3").expect(0);

    let first = program.run("admit --voucher 100 --user 9007199254740993 --json").expect(0).json();
    let order = first["order"].as_str().expect("ids are strings").to_owned();
    assert_eq!(first["outcome"], "admitted");
    assert_eq!(first["user"], "9007199254740993", "digits beyond 2^53 are kept");

    let again =
        program.run(&format!("admit --voucher 100 --user 9007199254740993 --order {order}")).expect(0);
    assert!(again.stdout.contains(&order) && again.stdout.contains("admitted before"), "{again:?}");

    let second = program.run("admit --voucher 100 --user 9007199254740993").expect(1);
    assert!(
        second.stdout.starts_with("order ") && second.stdout.contains("already has an order"),
        "{second:?}"
    );

    let outcome = |line: &str| {
        let run = program.run(line).expect(1);
        run.json()["outcome"].as_str().expect("a word").to_owned()
    };
    assert_eq!(outcome(&format!("admit --voucher 100 --user 5 --order {order} --json")), "id_taken");
    assert_eq!(outcome("admit --voucher 100 --user 5 --quantity 3 --json"), "sold_out");
    assert_eq!(outcome("admit --voucher 101 --user 5 --json"), "no_stock");

    program.run("admit --voucher 0 --user 5").expect(2);
    program.run("admit --voucher 100 --user 5 --quantity 10001").expect(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_reply_was_lost_is_named_and_can_be_asked_for_again() {
    let server = RedisServer::start().unwrap();
    let program = with_stores(&server.url(), migrated_mysql().await);
    program.run("voucher load --voucher 110 --stock 3").expect(0);
    // Loads the script, so that the reply held below is the one of the admission.
    program.run("admit --voucher 110 --user 2").expect(0);

    let proxy = Proxy::start(server.port()).await.unwrap();
    let held = proxy.hold_reply_when("seckill:journal:110");
    let through = with_stores(&proxy.url_for(&server), NOWHERE);
    let line = "admit --voucher 110 --user 1 --json --set redis.command_timeout_ms=300";
    let lost = tokio::task::spawn_blocking(move || through.run(line));
    held.reached().await.unwrap();
    proxy.black_hole();

    let lost = lost.await.unwrap().expect(3);
    assert_eq!(lost.json()["outcome"], "unknown");
    let order = lost.json()["order"].as_str().unwrap().to_owned();
    assert!(lost.stderr.contains(&format!("--order {order}")), "{lost:?}");

    let again = program.run(&format!("admit --voucher 110 --user 1 --order {order} --json")).expect(0);
    assert_eq!(again.json()["outcome"], "admitted_before");
    let entries: u64 = call(&redis(&server.url()).await, "XLEN stream.orders").await;
    assert_eq!(entries, 2, "one for each user");
}

#[tokio::test(flavor = "multi_thread")]
async fn voucher_load_writes_both_sides_and_refuses_a_voucher_that_is_on_sale() {
    let server = RedisServer::start().unwrap();
    let url = migrated_mysql().await;
    let program = with_stores(&server.url(), url);
    let window = ["--begin", "2026-01-01 10:00", "--end", "2037-06-01T10:00:00Z"];
    let load = ["voucher", "load", "--voucher", "120", "--stock", "7"];
    program.run_with(&[&load[..], &window[..]].concat(), &[("TZ", "Asia/Shanghai")]).expect(0);

    let shown = program.run("voucher show --voucher 120 --json").expect(0).json();
    for side in ["redis", "mysql"] {
        assert_eq!(shown[side]["stock"], 7, "{shown}");
        assert_eq!(shown[side]["begin"], "2026-01-01T02:00:00Z", "{shown}");
        assert_eq!(shown[side]["end"], "2037-06-01T10:00:00Z", "{shown}");
    }
    assert_eq!(shown["mysql"]["initial_stock"], 7);
    assert_eq!(shown["hints"].as_array().unwrap().len(), 0, "{shown}");

    let refused = program.run("voucher load --voucher 120 --stock 9").expect(1);
    assert!(refused.stdout.contains("on sale in Redis with 7 units left"), "{refused:?}");
    assert!(refused.stdout.contains("tidegate voucher add"), "{refused:?}");
    assert_eq!(program.run("voucher show --voucher 120 --json").json(), shown, "nothing was changed");

    // Redis lost its data, and MySQL still has another stock on sale.
    call::<String>(&redis(&server.url()).await, "FLUSHDB").await;
    let refused = program.run("voucher load --voucher 120 --stock 9 --json").expect(1).json();
    assert_eq!(refused["outcome"], "refused");
    assert!(refused["reason"].as_str().unwrap().contains("stock of 7"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_whose_reply_was_lost_has_loaded_and_says_so_when_it_is_typed_again() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let url = migrated_mysql().await;
    let program = with_stores(&proxy.url_for(&server), url);
    program.run("voucher load --voucher 1251 --stock 1").expect(0); // The server knows the script from here on.
    // The call of the script, recognized by its first key, because reads also contain the name of the stock.
    let lost = proxy.drop_next_reply("4\r\n$18\r\nseckill:stock:1250");
    let load = "voucher load --voucher 1250 --stock 7 --end 2037-06-01T10:00:00Z";
    let loaded = tokio::task::spawn_blocking(move || (program.run(load).expect(0), program)).await;
    let (loaded, program) = loaded.unwrap();
    lost.reached().await.unwrap();
    assert!(loaded.stdout.contains("voucher 1250: loaded with 7 units"), "{loaded:?}");

    let again = program.run(load).expect(0);
    assert!(
        again.stdout.contains("is already loaded with 7 units and these times; nothing was changed"),
        "{again:?}"
    );
    assert_eq!(program.run(&format!("{load} --json")).expect(0).json()["outcome"], "loaded_before");
    // A load with other values is refused, because the sale is on.
    program.run("voucher load --voucher 1250 --stock 7").expect(1);
    program.run("voucher load --voucher 1250 --stock 8 --end 2037-06-01T10:00:00Z").expect(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_died_half_way_is_completed_by_the_same_command() {
    let server = RedisServer::start().unwrap();
    let url = migrated_mysql().await;
    let voucher = VoucherId::try_from(130).unwrap();
    let new = NewVoucher {
        voucher,
        stock: 5,
        begin_ms: None,
        end_ms: None,
        pay_within_s: None,
        keeps_journal: true,
    };
    assert_eq!(vouchers::insert(&mysql(url).await, &new).await.unwrap(), Inserted::New);

    let program = with_stores(&server.url(), url);
    let shown = program.run("voucher show --voucher 130").expect(0);
    assert!(shown.stdout.contains("voucher load --voucher 130 --stock 5"), "{shown:?}");
    program.run("voucher load --voucher 130 --stock 5").expect(0);
    program.run("admit --voucher 130 --user 1").expect(0);

    let shown = program.run("voucher show --voucher 130 --json").expect(0).json();
    assert_eq!((&shown["redis"]["stock"], &shown["mysql"]["stock"]), (&4.into(), &5.into()), "{shown}");
    assert!(shown["hints"][0].as_str().unwrap().contains("1 unit less"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn voucher_load_checks_its_times_and_its_stock_before_it_connects() {
    let program = with_stores("redis://127.0.0.1:1", NOWHERE);
    for (line, complaint) in [
        (
            "--stock 5 --begin 2030-01-02T00:00:00Z --end 2030-01-01T00:00:00Z",
            "the sale must begin before it ends",
        ),
        ("--stock 5 --end 2024-01-01T00:00:00Z", "is in the past"),
        ("--stock 5 --begin 1795168800", "milliseconds"),
        ("--stock 5 --end 2050-01-01T00:00:00Z", "2038"),
        ("--stock 5 --begin tomorrow", "local time"),
        ("--stock 0", "1.."),
    ] {
        let run = program.run(&format!("voucher load --voucher 140 {line}")).expect(2);
        assert!(run.stderr.contains(complaint), "{line}: {run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn voucher_commands_name_the_migration_that_is_missing() {
    let (redis, mysql) = (RedisServer::start().unwrap(), MysqlServer::shared().unwrap());
    let program = with_stores(&redis.url(), &mysql.url());
    let run = program.run("voucher load --voucher 1 --stock 5").expect(3);
    assert!(run.stderr.contains("tidegate migrate"), "{run:?}");
    let run = program.run("doctor").expect(1);
    assert!(run.stdout.contains("migrations are missing"), "{run:?}");
    assert!(run.stdout.contains("do: tidegate migrate"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_voucher_is_a_no() {
    let server = RedisServer::start().unwrap();
    let run = with_stores(&server.url(), migrated_mysql().await).run("voucher show --voucher 999").expect(1);
    assert!(run.stdout.contains("no store knows this voucher"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_redis_lost_is_told_from_one_that_was_never_on_sale() {
    let server = RedisServer::start().unwrap();
    // The test has servers of its own: the doctor of another test would find the losses that this test causes.
    let server_of_rows = MysqlServer::shared().unwrap();
    let url = server_of_rows.url();
    let (program, pool) = (with_stores(&server.url(), &url), mysql(&url).await);
    program.run("migrate --yes").expect(0);
    program.run("voucher load --voucher 160 --stock 50").expect(0);
    sqlx::query("INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (160001, 1, 160)")
        .execute(&pool)
        .await
        .unwrap();
    let client = redis(&server.url()).await;
    call::<String>(&client, "FLUSHALL").await;
    let shown = program.run("voucher show --voucher 160").expect(0).stdout;
    assert!(shown.contains("MySQL has 1 order: Redis lost this sale"), "{shown}");
    assert!(shown.contains("docs/runbook/redis-lost-data.md") && !shown.contains("--stock"), "{shown}");
    let refused = program.run("voucher load --voucher 160 --stock 50").expect(1).stdout;
    assert!(refused.contains("Redis has lost its stock: see docs/runbook/redis-lost-data.md"), "{refused}");
    // Once its sale is over, its loss is no problem.
    sqlx::query(
        "UPDATE tb_seckill_voucher SET begin_time = NOW() - INTERVAL 2 HOUR, end_time = NOW() - INTERVAL 1 HOUR \
         WHERE voucher_id = 160",
    )
    .execute(&pool)
    .await
    .unwrap();
    let shown = program.run("voucher show --voucher 160").expect(0).stdout;
    assert!(shown.contains("its sale is over"), "{shown}");
    let refused = program.run("voucher load --voucher 160 --stock 50").expect(1).stdout;
    assert!(refused.contains("use another voucher id"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_no_error_on_sound_ground() {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    call::<String>(&client, "XGROUP CREATE stream.orders g1 0 MKSTREAM").await;
    call::<u64>(&client, "XGROUP CREATECONSUMER stream.orders g1 w-0").await;
    call::<String>(&client, "SET tidegate:worker:w somebody").await;
    let run = with_stores(&server.url(), migrated_mysql().await).run("doctor --json").expect(0).json();
    assert_eq!((&run["errors"], &run["warnings"]), (&0.into(), &0.into()), "{run:#}");
    let said = run.to_string();
    for word in
        ["noeviction", "append-only", "master", "innodb_flush", "strict", "unique key", "migrated", "clock"]
    {
        assert!(said.contains(word), "{word} is missing in {run:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_danger_and_what_to_do_about_it() {
    let dangerous = ["--appendonly", "no", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"];
    let redis_server = RedisServer::options().args(dangerous).start().unwrap();
    let mysql_server = MysqlServer::options()
        .args(["--innodb-flush-log-at-trx-commit=2", "--sql-mode=", "--read-only=ON"])
        .start()
        .unwrap();
    let client = redis(&redis_server.url()).await;
    call::<String>(&client, "SET stream.orders text").await;
    call::<String>(&client, "SET stream.orders.dead text").await;

    let run = with_stores(&redis_server.url(), &mysql_server.url()).run("doctor").expect(1);
    for finding in [
        "error    redis  maxmemory-policy is allkeys-lru",
        "error    redis  the append-only file is off",
        "error    redis  stream.orders is a string, not a stream",
        "error    redis  stream.orders.dead is a string, not a stream",
        "error    mysql  innodb_flush_log_at_trx_commit is 2",
        "error    mysql  read_only is ON",
        "warning  mysql  sql_mode is not strict",
        "error    mysql  the table of orders has no unique key",
    ] {
        assert!(run.stdout.contains(finding), "{finding} is missing in\n{}", run.stdout);
    }
    let findings = run.stdout.lines().filter(|line| line.starts_with("error") || line.starts_with("warning"));
    assert_eq!(findings.count(), run.stdout.matches("do: ").count(), "each says what to do:\n{}", run.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_one_store_while_the_other_is_away_and_never_hangs() {
    let server = RedisServer::start().unwrap();
    let away = format!("mysql://root:hunter2@127.0.0.1:{}/hmdp", closed_port());
    let run = with_stores(&server.url(), &away).run("doctor").expect(1);
    assert!(run.stdout.contains("Failed to reach MySQL at mysql://root:***@127.0.0.1"), "{run:?}");
    assert!(run.stdout.contains("maxmemory-policy is noeviction"), "{run:?}");

    // This listener accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let began = Instant::now();
    let program = with_stores(&format!("redis://127.0.0.1:{port}"), &format!("mysql://a@127.0.0.1:{port}/b"));
    let timeouts = ["redis.command_timeout_ms=300", "mysql.acquire_timeout_ms=300"];
    let args: Vec<&str> = timeouts.iter().flat_map(|timeout| ["--set", timeout]).chain(["doctor"]).collect();
    let run = program.run_with(&args, &[]).expect(1);
    assert!(
        run.stdout.contains("Failed to reach Redis") && run.stdout.contains("Failed to reach MySQL"),
        "{run:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(10), "took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_works_for_a_user_who_may_not_ask_for_settings() {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    call::<String>(&client, "ACL SETUSER app on >hunter2 ~* +@all -config -info").await;
    let url = server.url().replace("redis://", "redis://app:hunter2@");
    let run = with_stores(&url, migrated_mysql().await).run("doctor").expect(0);
    assert!(run.stdout.contains("warning  redis  Failed to read the Redis setting appendfsync"), "{run:?}");
    assert!(run.stdout.contains("app:***@"), "{run:?}");
    assert!(!run.all().contains("hunter2"), "{run:?}");

    let wrong = url.replace("hunter2", "hunter3");
    let run = with_stores(&wrong, migrated_mysql().await).run("doctor").expect(1);
    assert!(run.stdout.contains("WRONGPASS") && !run.all().contains("hunter3"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_numbers_and_ages_of_what_waits() {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    call::<String>(&client, "XGROUP CREATE stream.orders g1 0 MKSTREAM").await;
    for age_ms in [90_000, 80_000, 60_000, 50_000, 40_000] {
        call::<String>(&client, &format!("XADD stream.orders {}-0 id 1", now_ms - age_ms)).await;
    }
    call::<fred::types::Value>(&client, "XREADGROUP GROUP g1 shop-7-0 COUNT 2 STREAMS stream.orders >").await;
    call::<String>(&client, "SET tidegate:worker:shop-7 token").await;
    call::<u64>(&client, "XGROUP CREATECONSUMER stream.orders g1 gone-0").await;
    // After XDEL, the server cannot count the lag any more.
    call::<u64>(&client, &format!("XDEL stream.orders {}-0", now_ms - 50_000)).await;
    call::<String>(&client, "XADD stream.orders.dead * reason malformed").await;

    let program = with_stores(&server.url(), migrated_mysql().await);
    program.run("voucher load --voucher 151 --stock 4").expect(0);
    program.run("voucher load --voucher 150 --stock 4").expect(0);
    let status = program.run("status --json").expect(0).json();
    let stream = &status["stream"];
    for (field, expected) in [("length", 4), ("undelivered", 2), ("pending", 2), ("dead_letters", 1)] {
        assert_eq!(stream[field], expected, "{field} of {stream:#}");
    }
    for (field, expected) in [("oldest_undelivered_s", 60.0), ("oldest_pending_s", 90.0)] {
        let age = stream[field].as_f64().unwrap();
        assert!((expected - 5.0..expected + 30.0).contains(&age), "{field} = {age}");
    }
    let alive: Vec<_> =
        stream["consumers"].as_array().unwrap().iter().map(|one| (&one["name"], &one["alive"])).collect();
    assert_eq!(alive, [(&"gone-0".into(), &false.into()), (&"shop-7-0".into(), &true.into())]);
    let vouchers = status["vouchers"].as_array().unwrap().iter();
    let vouchers: Vec<u64> = vouchers.map(|one| one["voucher"].as_str().unwrap().parse().unwrap()).collect();
    assert!(vouchers.is_sorted() && vouchers.len() > 1, "{vouchers:?}");
    let stocks = status["vouchers"].as_array().unwrap().iter().find(|one| one["voucher"] == "150").unwrap();
    assert_eq!((&stocks["mysql"], &stocks["redis"]), (&4.into(), &4.into()));

    let text = program.run("status").expect(0).stdout;
    assert!(text.contains("shop-7-0") && text.contains("alive") && text.contains("gone"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_what_it_can_while_a_store_is_away() {
    let server = RedisServer::start().unwrap();
    let away = format!("mysql://root@127.0.0.1:{}/hmdp", closed_port());
    let status = with_stores(&server.url(), &away).run("status --json").expect(3).json();
    assert_eq!(status["stream"]["length"], 0, "{status:#}");
    assert!(status["errors"][0].as_str().unwrap().contains("TIDEGATE_MYSQL_URL"), "{status:#}");

    let away = format!("redis://127.0.0.1:{}", closed_port());
    let program = with_stores(&away, migrated_mysql().await);
    let status = program.run("status --json").expect(3).json();
    assert!(status["vouchers"].is_array() && status["stream"].is_null(), "{status:#}");
    assert!(status["errors"][0].as_str().unwrap().contains("TIDEGATE_REDIS_URL"), "{status:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_named_with_the_setting_to_look_at() {
    let redis_url = format!("redis://:hunter2@127.0.0.1:{}", closed_port());
    let run = with_stores(&redis_url, NOWHERE).run("admit --voucher 1 --user 1").expect(3);
    assert!(run.stderr.contains("Failed to reach Redis at redis://:***@127.0.0.1"), "{run:?}");
    assert!(run.stderr.contains("TIDEGATE_REDIS_URL") && run.stdout.is_empty(), "{run:?}");
    assert!(run.stderr.contains("Connection refused") && !run.stderr.contains("Os {"), "{run:?}");

    let server = RedisServer::start().unwrap();
    let away = format!("mysql://root@127.0.0.1:{}/hmdp", closed_port());
    for line in ["audit", "doctor", "status"] {
        let run = with_stores(&server.url(), &away).run(line);
        let told = run.all();
        assert_eq!(told.matches("Connection refused").count(), 1, "said once by {line}: {told}");
    }
}

#[test]
fn where_nobody_hears_what_went_wrong_the_exit_code_says_it() {
    let redis_url = format!("redis://127.0.0.1:{}", closed_port());
    let mut command = with_stores(&redis_url, NOWHERE).command(&["admit", "--voucher", "1", "--user", "1"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(command.stderr(full).status().unwrap().code(), Some(3));
}

/// Commands that an operator needs while MySQL is down. They use Redis only, and never connect to MySQL.
#[tokio::test(flavor = "multi_thread")]
async fn commands_about_redis_alone_work_while_mysql_is_stopped() {
    let server = RedisServer::start().unwrap();
    with_stores(&server.url(), migrated_mysql().await).run("voucher load --voucher 100 --stock 3").expect(0);
    let program = with_stores(&server.url(), &format!("mysql://root@127.0.0.1:{}/hmdp", closed_port()));
    let command = redis(&server.url()).await;
    let _: fred::types::Value = call(&command, "XGROUP CREATE stream.orders g1 0 MKSTREAM").await;
    program.run("admit --voucher 100 --user 5").expect(0);
    let _: fred::types::Value =
        call(&command, "XREADGROUP GROUP g1 w-0 COUNT 1 STREAMS stream.orders >").await;
    let entry = program.run("pending list --json").expect(0).json()["entries"][0]["entry"].clone();
    for line in [
        &format!("pending show {}", entry.as_str().expect("an id")),
        "consumers list",
        "consumers drain w-0 --force --yes",
        "pause --yes --voucher 100",
        "resume --yes --voucher 100",
        "pause --yes",
        "resume --yes",
        "pause --yes --workers",
        "resume --yes --workers",
        "prune stream --yes",
        "dead list",
        "log",
        "voucher check --voucher 100 --user 6",
    ] {
        program.run(line).expect(0);
    }
}
