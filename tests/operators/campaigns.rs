//! Tests of campaigns: regions with stocks of their own, under common limits.

use fred::interfaces::{ClientLike, HashesInterface, KeysInterface};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

#[tokio::test(flavor = "multi_thread")]
async fn regions_sell_their_own_stock_under_common_limits() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("regions.csv");
    let load = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        format!("campaign load --campaign 5 --regions {}", file.display())
    };
    let wrong = program.run(&load("north,0,5\nnorth,1\n")).expect(2);
    assert!(wrong.all().contains("line 1: \"0\" is not a voucher id"), "{wrong:#?}");
    assert!(wrong.all().contains("line 2: a line must have"), "{wrong:#?}");
    let command = load("region,voucher,stock\nnorth,101,2\nsouth,102,5\n");
    let dry = program.run(&format!("{command} --dry-run")).expect(0);
    assert!(dry.stdout.contains("north: voucher 101 would be loaded with 2 units"), "{dry:#?}");
    let loaded = program.run(&command).expect(0);
    assert!(loaded.stdout.contains("campaign 5: 2 regions, 7 units"), "{loaded:#?}");
    // The same command again changes nothing. Another voucher for a region, or one voucher for two regions, is refused.
    program.run(&command).expect(0);
    let refused = program.run(&load("north,103,2\n")).expect(1);
    assert!(
        refused.stdout.contains("the campaign already has this region, with voucher 101"),
        "{refused:#?}"
    );
    let refused = program.run(&load("west,102,2\n")).expect(1);
    assert!(refused.stdout.contains("the voucher of the region is in campaign 5"), "{refused:#?}");
    program.run(&load("west,104,3\n")).expect(0);

    let limit =
        "limit set --campaign 5 --name phones --subject phone --window day --orders 2 --units 3 --yes";
    program.run(limit).expect(0);
    let worker = fixture.worker("w").start();
    let admit = |voucher: i64, user: i64, rest: &str| {
        program.run(&format!("admit --voucher {voucher} --user {user} --json {rest}"))
    };
    let first = admit(101, 1, "--subject phone=a").expect(0).json();
    admit(102, 1, "--subject phone=a --quantity 3").expect(1);
    admit(102, 1, "--subject phone=a --quantity 2").expect(0);
    let refused = admit(104, 2, "--subject phone=a").expect(1).json();
    assert_eq!(refused["outcome"], "over_limit", "{refused}");
    assert_eq!(
        admit(101, 1, "--subject phone=b").expect(1).json()["outcome"],
        "user_has_order",
        "one for each user"
    );
    admit(101, 2, "--subject phone=b").expect(0);
    assert_eq!(
        admit(101, 3, "--subject phone=c").expect(1).json()["outcome"],
        "sold_out",
        "of the north only"
    );
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    program
        .run(&format!("order event cancelled {} --yes", first["order"].as_str().expect("an id")))
        .expect(0);
    until("what it used is released", || async {
        let uses: Option<String> =
            fixture.client.hget("seckill:uses:campaign:5", "1:a").await.expect("Redis answers");
        uses.is_some_and(|uses| uses.ends_with(":1:2"))
    })
    .await;
    let view = program.run("campaign show --campaign 5 --json").expect(0).json();
    assert_eq!((&view["redis_stock"], &view["mysql_stock"]), (&7.into(), &7.into()), "{view:#}");
    assert_eq!(view["regions"][0]["region"], "north", "{view:#}");
    let text = program.run("campaign show --campaign 5").expect(0);
    assert!(text.stdout.contains("  phones: at most 2 orders and 3 units a day"), "{text:#?}");
    fixture.judge().await;
    assert!(worker.stop().await.success());

    // Redis loses all its data. After a rebuild, the regions count together again.
    fixture.client.flushall::<()>(false).await.expect("Redis answers");
    program.run("rebuild --all --yes").expect(0);
    program.run("campaign show --campaign 5").expect(0);
    admit(104, 2, "--subject phone=a --quantity 2").expect(1);
    admit(104, 2, "--subject phone=a").expect(0);
    admit(104, 4, "--subject phone=a").expect(1);
    // The last limit is removed, and the campaign stays: a gate that knows the campaign sells its vouchers.
    program.run("limit remove --campaign 5 --name phones --yes").expect(0);
    program.run("admit --voucher 104 --user 4").expect(0);
    let none = program.run("campaign show --campaign 6").expect(1);
    assert!(none.stdout.contains("no voucher is in campaign 6"), "{none:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_that_redis_lost_counts_the_orders_of_all_its_regions_before_one_of_them_opens() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let regions = fixture.file("regions.csv", "north,101,10\nsouth,102,10\nwest,103,10\n");
    program.run(&format!("campaign load --campaign 5 --regions {}", regions.display())).expect(0);
    let limit = "limit set --campaign 5 --name phones --subject phone --window sale --yes --orders";
    program.run(&format!("{limit} 3")).expect(0);
    let admit = |voucher: i64, user: i64| {
        program.run(&format!("admit --voucher {voucher} --user {user} --subject phone=a"))
    };
    let counted = async || {
        let counted: Option<String> =
            fixture.client.hget("seckill:uses:campaign:5", "1:a").await.expect("Redis answers");
        counted.unwrap_or_default()
    };
    let worker = fixture.worker("w").start();
    for voucher in [101, 102, 103] {
        admit(voucher, 1).expect(0);
    }
    until("all are written", || async { fixture.live_orders().await.len() == 3 }).await;
    fixture.settled().await;
    assert!(worker.stop().await.success());

    fixture.client.flushall::<()>(false).await.expect("Redis answers");
    program.run("rebuild --voucher 102 --yes").expect(0);
    assert_eq!(counted().await, "0:3:3", "the first region opens under what all of them hold");
    admit(102, 2).expect(1);
    program.run("rebuild --all --yes").expect(0);
    for voucher in [101, 102, 103] {
        admit(voucher, 2).expect(1);
    }
    assert_eq!(counted().await, "0:3:3");
    fixture.judge().await;

    // An order of another region that only the stream knows: MySQL does not have it, and its journal is lost.
    program.run(&format!("{limit} 4")).expect(0);
    admit(103, 2).expect(0);
    for key in ["seckill:uses:campaign:5", "seckill:journal:103", "seckill:journal:101"] {
        fixture.client.del::<(), _>(key).await.expect("Redis answers");
    }
    program.run("rebuild --voucher 101 --yes").expect(0);
    assert_eq!(counted().await, "0:4:4");
    admit(101, 3).expect(1);
    // A key of another type is in the place of the journal.
    fixture
        .client
        .set::<(), _, _>("seckill:journal:103", "x", None, None, false)
        .await
        .expect("Redis answers");
    fixture.client.del::<(), _>("seckill:uses:campaign:5").await.expect("Redis answers");
    program.run("rebuild --voucher 101 --yes").expect(0);
    assert_eq!(counted().await, "0:4:4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_of_which_a_part_sells_already_is_completed_by_a_file_of_all() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("regions.csv");
    let load = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        format!("campaign load --campaign 5 --regions {}", file.display())
    };
    // A load was killed: the campaign is written, one of its regions is on sale, and a user has bought.
    program.run(&load("north,101,3\n")).expect(0);
    program.run("admit --voucher 101 --user 9").expect(0);
    let all = load("north,101,3\nsouth,102,1\n");
    let completed = program.run(&all).expect(0);
    assert!(completed.stdout.contains("2 regions"), "{completed:#?}");
    let left = async |voucher: i64| -> Option<i64> {
        let left: Option<String> =
            fixture.client.get(format!("seckill:limited:{voucher}")).await.expect("Redis");
        left.map(|left| left.parse().expect("a number"))
    };
    assert_eq!((left(101).await, left(102).await), (Some(2), Some(1)), "what sells goes on as it was");
    program.run(&all).expect(0);
    // A voucher that is on sale and in no campaign is not added by mistake.
    program.run("voucher load --voucher 7 --stock 5").expect(0);
    program.run("admit --voucher 7 --user 9").expect(0);
    program.run(&load("west,7,5\n")).expect(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_counted_by_day_beside_the_ids_that_were_given_out() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    assert!(program.run("order count").expect(0).stdout.contains("no order was placed"));
    program.run("voucher load --voucher 7 --stock 2").expect(0);
    program.run("voucher load --voucher 8 --stock 9").expect(0);
    let worker = fixture.worker("w").start();
    for user in 1..=2 {
        program.run(&format!("admit --voucher 7 --user {user}")).expect(0);
        program.run(&format!("admit --voucher 8 --user {user} --quantity 3")).expect(0);
    }
    program.run("admit --voucher 7 --user 3").expect(1);
    until("all are written", || async { fixture.live_orders().await.len() == 4 }).await;
    let counts = program.run("order count --by day --json").expect(0).json();
    // If the test runs at midnight, there are two days.
    let sum = |field: &str| -> i64 {
        let counts = counts["counts"].as_array().expect("a list");
        counts.iter().map(|of| of[field].as_i64().unwrap_or_else(|| panic!("{field}: {counts:#?}"))).sum()
    };
    assert_eq!((sum("orders"), sum("units"), sum("live"), sum("refused")), (4, 8, 4, 0));
    assert_eq!((sum("ids"), sum("without_order")), (5, 1), "one caller was refused");
    let hours = program.run("order count --by hour --voucher 8 --json").expect(0).json();
    assert_eq!(
        hours["counts"].as_array().map(|counts| counts.iter().map(|of| of["units"].as_i64()).sum()),
        Some(Some(6))
    );
    assert!(hours["counts"][0]["ids"].is_null(), "{hours}");
    assert!(program.run("order count").expect(0).stdout.contains("without an order"));
    program.run("order count --days 0").expect(2);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn days_and_hours_of_counted_orders_begin_at_an_offset_from_utc() {
    let fixture = Fixture::open().await;
    let program = operator(&fixture);
    program.run("voucher load --voucher 7 --stock 9").expect(0);
    let worker = fixture.worker("w").start();
    let now_s = Timestamp::now().as_second();
    // Midnight is half an hour away or more, so the day does not end during the test.
    let (offset, offset_s) = if now_s / 3600 % 2 == 0 { ("+06:30", 23_400) } else { ("+05:30", 19_800) };
    let midnight_s = (now_s + offset_s) / 86_400 * 86_400 - offset_s;
    let id = |second: i64| ((second - 1_640_995_200) << 32) + 1;
    fixture.add_order(id(midnight_s - 1), 1, 7).await;
    fixture.add_order(id(midnight_s), 2, 7).await;
    fixture.settled().await;
    fixture.add_order(id(midnight_s + 1), 2, 7).await;
    fixture.settled().await;

    let counts = |args: &str| {
        let report = program.run(&format!("order count --json --utc-offset {args}")).expect(0).json();
        let rows = report["counts"].as_array().expect("a list").clone();
        rows.iter().for_each(|row| assert!(row["ids"].is_null() && row["without_order"].is_null(), "{row}"));
        let numbers =
            |row: &Value| ["from_ms", "orders", "refused"].map(|name| row[name].as_i64().expect(name));
        (report["offset_s"].as_i64(), rows.iter().map(numbers).collect::<Vec<_>>())
    };
    let [yesterday, today] = [midnight_s - 86_400, midnight_s].map(|second| second * 1000);
    let two_days = vec![[yesterday, 1, 0], [today, 1, 1]];
    assert_eq!(counts(&format!("{offset} --days 2")), (Some(offset_s), two_days));
    assert_eq!(counts(&format!("{offset} --days 1")), (Some(offset_s), vec![[today, 1, 1]]));
    let hours = vec![[today - 3_600_000, 1, 0], [today, 1, 1]];
    assert_eq!(counts(&format!("{offset} --by hour --voucher 7")), (Some(offset_s), hours));
    // In UTC and here, the three orders are of one day. No id can be from the first of so many days.
    for (other, other_s) in [("+00:00", 0), ("-03:30", -12_600)] {
        let day = (midnight_s + other_s) / 86_400 * 86_400 - other_s;
        assert_eq!(counts(&format!("{other} --days 3660")), (Some(other_s), vec![[day * 1000, 2, 1]]));
    }

    let text = program.run(&format!("order count --utc-offset {offset}")).expect(0).stdout;
    assert!(text.contains(&format!("from (UTC{offset})")), "{text}");
    assert!(text.contains(&format!("T00:00:00{offset}")), "{text}");
    assert!(program.run("order count").expect(0).stdout.contains("from (UTC) "));
    for wrong in ["8", "+14:30", "-15:00"] {
        let refused = program.run(&format!("order count --utc-offset {wrong}")).expect(2);
        assert!(refused.stderr.contains("the offset must look like +08:00, -03:30 or 00:00"), "{refused:?}");
    }
    assert!(worker.stop().await.success());
}
