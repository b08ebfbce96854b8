//! Tests of the units of a voucher during the lives of its orders: `tidegate voucher show`, the view
//! `tidegate_voucher_units` and the audit show the same numbers.

use serde_json::{Value as Json, json};
use sqlx::Row;

use crate::{fixture::Fixture, order_event::operator, sale::sql};

const COLUMNS: [&str; 10] = [
    "loaded",
    "unsold",
    "unpaid",
    "paid",
    "used",
    "refunding",
    "released",
    "on_hand",
    "contradictory",
    "unaccounted",
];

/// The row of the view for a voucher.
async fn view(fixture: &Fixture, voucher: i64) -> Json {
    let sql = "SELECT * FROM tidegate_voucher_units WHERE voucher_id = ?";
    let row = sqlx::query(sql).bind(voucher).fetch_one(&fixture.pool).await.expect("a row");
    // The column keeps its first name: services read it.
    let column = |name: &'static str| if name == "released" { "given_back" } else { name };
    let number = |name: &'static str| (name.to_owned(), json!(row.get::<Option<i64>, _>(column(name))));
    Json::Object(COLUMNS.into_iter().map(number).collect())
}

/// Checks that command and view agree, and returns their numbers with the units in flight.
async fn units(fixture: &Fixture, voucher: i64) -> Json {
    let shown = operator(fixture).run(&format!("voucher show --voucher {voucher} --json")).expect(0).json();
    let mut units = shown["mysql"]["units"].clone();
    assert_eq!(units, view(fixture, voucher).await);
    units["in_flight"] = shown["in_flight"].clone();
    units
}

#[track_caller]
fn are(units: &Json, expected: &[(&str, i64)]) {
    for (name, units_there) in expected {
        assert_eq!(units[name], json!(units_there), "{name} of {units:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_and_view_say_the_same_through_the_lives_of_orders() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    fixture.load(2, 50).await;
    let program = operator(&fixture);
    are(&units(&fixture, 1).await, &[("loaded", 100), ("unsold", 100), ("on_hand", 100), ("in_flight", 0)]);
    for order in 1..=8 {
        fixture.admit(order, order, 1, 2).await;
    }
    fixture.admit(9, 9, 2, 1).await;
    are(&units(&fixture, 1).await, &[("unsold", 100), ("unpaid", 0), ("in_flight", 16), ("unaccounted", 0)]);
    // No worker is alive, although a sale is on.
    let status = program.run("status --json").expect(1).json();
    let to_deduct = |voucher: i64| {
        let vouchers = status["vouchers"].as_array().expect("both stores answer");
        let stocks = vouchers.iter().find(|stocks| stocks["voucher"] == json!(voucher.to_string()));
        stocks.expect("it is there")["to_deduct"].clone()
    };
    assert_eq!((to_deduct(1), to_deduct(2)), (json!(16), json!(1)), "{status:#}");
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    are(&units(&fixture, 1).await, &[("unsold", 84), ("unpaid", 16), ("in_flight", 0), ("unaccounted", 0)]);

    // Order 10 is cancelled before it is written: it never held units here.
    program.run("order event cancelled 10 --user 10 --voucher 1 --yes").expect(0);
    for line in ["paid 1", "paid 2", "paid 3", "paid 4", "used 2", "refunding 3", "refunded 4", "cancelled 5"]
    {
        program.run(&format!("order event {line} --yes")).expect(0);
    }
    // A payment that comes too late holds no units.
    program.run("order event paid 5 --ref late --yes").expect(1);
    let now = units(&fixture, 1).await;
    are(&now, &[("loaded", 100), ("unsold", 88), ("unpaid", 6), ("paid", 2), ("used", 2), ("refunding", 2)]);
    are(
        &now,
        &[("released", 4), ("on_hand", 98), ("in_flight", 0), ("unaccounted", 0), ("contradictory", 0)],
    );
    are(&units(&fixture, 2).await, &[("loaded", 50), ("unpaid", 1), ("released", 0), ("on_hand", 50)]);
    let shown = program.run("voucher show --voucher 1").expect(0).stdout;
    let cells: Vec<&str> = shown.lines().last().into_iter().flat_map(str::split_whitespace).collect();
    assert_eq!(cells, ["100", "88", "0", "6", "2", "2", "2", "4", "98"], "{shown}");

    fixture.judge().await;
    let audit = program.run("audit --json").expect(0).json();
    let of_1 = json!({
        "unpaid": 3, "paid": 1, "used": 1, "refunding": 2, "cancelled": 1, "refunded": 1, "contradictory": 0,
    });
    assert_eq!(audit["vouchers"][0]["states"], of_1, "{audit:#}");
    assert_eq!(audit["states"]["unpaid"], 4, "{audit:#}");
    let audit = program.run("audit").expect(0).stdout;
    let header = audit.lines().position(|line| line.contains("unpaid")).expect("a table of states");
    let rows: Vec<Vec<&str>> =
        audit.lines().skip(header + 1).take(3).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["1", "3", "1", "1", "2", "1", "1", "0"], "{audit}");
    assert_eq!(rows[2], ["all", "4", "1", "1", "2", "1", "1", "0"], "{audit}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_changed_by_hand_is_shown_and_not_hidden() {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    for order in 1..=4 {
        fixture.admit(order, order, 1, order).await;
    }
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // One order is cancelled without losing its slot, one has an unknown status, and one is deleted.
    sql(&fixture, "UPDATE tb_voucher_order SET status = 4 WHERE id = 1").await;
    sql(&fixture, "UPDATE tb_voucher_order SET status = 9 WHERE id = 2").await;
    sql(&fixture, "DELETE FROM tb_voucher_order WHERE id = 3").await;
    are(
        &units(&fixture, 1).await,
        &[("unsold", 90), ("unpaid", 4), ("contradictory", 3), ("unaccounted", 6)],
    );
    let shown = operator(&fixture).run("voucher show --voucher 1").expect(0).stdout;
    assert!(shown.contains("3 units are in orders whose status and slot contradict each other"), "{shown}");
    assert!(shown.contains("minus unsold units and units of orders give 6 units"), "{shown}");
    // Then the service also raises the stock: all units add up again, and the row still contradicts itself.
    sql(&fixture, "UPDATE tb_seckill_voucher SET stock = stock + 6").await;
    are(&units(&fixture, 1).await, &[("contradictory", 3), ("unaccounted", 0)]);
    // The voucher was taken over, so its loaded units are unknown.
    sql(&fixture, "UPDATE tb_seckill_voucher SET initial_stock = NULL").await;
    let units = units(&fixture, 1).await;
    assert_eq!(
        (&units["loaded"], &units["on_hand"], &units["unaccounted"]),
        (&Json::Null, &Json::Null, &Json::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_costs_the_rows_that_it_has_and_others_cost_nothing() {
    let fixture = Fixture::open().await;
    sql(
        &fixture,
        "INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock) VALUES (1, 10, 20), (2, 0, 20000)",
    )
    .await;
    // Voucher 1 has 10 orders, two of which ended; voucher 2 has 20,000 orders, which all ended.
    for (voucher, orders) in [(1, 10), (2, 20_000)] {
        let numbers = (1..=orders).map(|number| {
            let order = voucher * 100_000 + number;
            let ended = voucher == 2 || number <= 2;
            let (status, slot) = if ended { (4, "NULL") } else { (1, "1") };
            format!("({order}, {order}, {voucher}, 1, {slot}, {status})")
        });
        let sql = "INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity, slot, status) VALUES ";
        let sql = sql.to_owned() + &numbers.collect::<Vec<_>>().join(",");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&fixture.pool).await.expect("rows");
    }
    sql(
        &fixture,
        "INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, released, entry_id) \
         SELECT id, 1, 'cancelled', 'applied', user_id, voucher_id, 1, '1-1' FROM tb_voucher_order WHERE status = 4",
    )
    .await;
    sql(&fixture, "ANALYZE TABLE tb_voucher_order, tidegate_event").await;
    are(&units(&fixture, 1).await, &[("unpaid", 8), ("released", 2)]);
    let mut connection = fixture.pool.acquire().await.expect("a connection");
    sqlx::raw_sql("FLUSH STATUS").execute(&mut *connection).await.expect("counters from 0");
    let sql = "SELECT * FROM tidegate_voucher_units WHERE voucher_id = 1";
    sqlx::raw_sql(sql).fetch_all(&mut *connection).await.expect("a row");
    let reads = "SHOW SESSION STATUS LIKE 'Handler_read%'";
    let reads = sqlx::raw_sql(reads).fetch_all(&mut *connection).await.expect("counters");
    let reads: i64 = reads.iter().map(|row| row.get::<String, _>(1).parse::<i64>().expect("a number")).sum();
    assert!(reads < 100, "{reads} rows or places in keys read");
}
