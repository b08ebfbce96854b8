//! The breaks of the stores, and the finding of the judge for each. In both texts, `{v}` is the voucher, and `{v}1` its
//! order 1.

use crate::fixture::Fixture;

/// A break of a store.
#[derive(Debug)]
pub enum Break {
    /// Statements to MySQL.
    Sql(&'static str),
    /// A command to Redis.
    Redis(&'static str),
    /// Two commands to Redis.
    Both(&'static str, &'static str),
    /// Other rules for the limits of the voucher.
    Rules(&'static str),
    /// Deletes the dead letter that names order 1.
    NoLetter,
}

use Break::{Both, NoLetter, Redis, Rules, Sql};

/// The breaks of vouchers that were sold by `super::sell`; each break has a voucher of its own.
pub const OF_SALES: [(Break, &str); 42] = [
    (
        Sql("UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = {v}"),
        "voucher {v}: Some(100) loaded, 4 sold, 97 left in MySQL",
    ),
    (Redis("INCR seckill:stock:{v}"), "voucher {v}: 98 left in Redis, and 97 by its journal"),
    (
        Both("INCR seckill:stock:{v}", r##"HSET seckill:journal:{v} #add:1 {"action":"add","change":1}"##),
        "voucher {v}: Redis offers 98, and 97 by MySQL",
    ),
    (
        Sql("DELETE FROM tb_voucher_order WHERE id = {v}1; \
             UPDATE tb_seckill_voucher SET stock = stock + 2 WHERE voucher_id = {v}"),
        "voucher {v}: order {v}1 is admitted as",
    ),
    (
        Sql("UPDATE tb_voucher_order SET user_id = 7 WHERE id = {v}1"),
        "voucher {v}: order {v}1 is admitted as",
    ),
    (
        Sql("DELETE FROM tb_voucher_order WHERE id = {v}5; \
             UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = {v}"),
        "voucher {v}: order {v}5 of entry",
    ),
    (
        Sql("UPDATE tb_voucher_order SET quantity = 2 WHERE id = {v}5; \
             UPDATE tb_seckill_voucher SET stock = stock - 1 WHERE voucher_id = {v}"),
        "voucher {v}: order {v}5 of entry",
    ),
    (Redis("SREM seckill:order:{v} 1"), "voucher {v}: users with a live order may buy again: [1]"),
    (Redis("SADD seckill:order:{v} 99"), "voucher {v}: users without an order may not buy: [99]"),
    (Redis("SADD seckill:order:{v} 3"), "voucher {v}: users without an order may not buy: [3]"),
    (Redis("HDEL seckill:journal:{v} {v}1"), "voucher {v}: 97 left in Redis, and 99 by its journal"),
    (
        Redis(r#"HSET seckill:journal:{v} {v}9 {"action":"admit","change":0,"by":"50"}"#),
        "voucher {v}: order {v}9 is admitted as",
    ),
    (
        Redis(r#"HSET seckill:journal:{v} {v}1 {"action":"release","change":-2}"#),
        "voucher {v}: order {v}1 is released, and alive",
    ),
    (
        Redis(r#"HSET seckill:journal:{v} {v}3 {"action":"admit","change":-1,"by":"3"}"#),
        "voucher {v}: order {v}3 is admitted as",
    ),
    (
        Redis(concat!(
            r#"HSET seckill:journal:{v} {v}3 {"action":"release","from":1,"change":2,"by":"worker:test","#,
            r#""admitted":{"change":-1}}"#
        )),
        "voucher {v}: order {v}3 took 1 units and released others",
    ),
    (
        Redis(concat!(
            r#"HSET seckill:journal:{v} {v}3 {"action":"release","from":1,"change":2,"#,
            r#""by":"operator:dead_cancel","admitted":{"change":-1}}"#
        )),
        "voucher {v}: order {v}3 took 1 units and released others",
    ),
    (
        Both(
            r#"HSET seckill:journal:{v} {v}8 {"action":"release","change":0,"by":"a"}"#,
            "XADD stream.orders * userId 8 voucherId {v} id {v}8",
        ),
        "voucher {v}: order {v}8 is released, and its entry may still be written",
    ),
    (
        Sql("UPDATE tb_voucher_order SET user_id = 1 WHERE id = {v}5"),
        "voucher {v}: user 1 has two orders in slot 1: [{v}1, {v}5]",
    ),
    (
        Sql("UPDATE tb_voucher_order SET status = 4 WHERE id = {v}5"),
        "order {v}5: slot Some(1) and status 4 contradict each other",
    ),
    (
        Sql("UPDATE tb_voucher_order SET slot = NULL WHERE id = {v}5"),
        "order {v}5: slot None and status 1 contradict each other",
    ),
    (
        Sql("INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
             VALUES ({v}1, 1, {v}, 2, 'out_of_stock', '1-1')"),
        "order {v}1 is refused (out_of_stock), and alive",
    ),
    (Sql("DELETE FROM tidegate_refusal WHERE order_id = {v}4"), "voucher {v}: order {v}4 of entry"),
    (NoLetter, "voucher {v}: order {v}1 of entry"),
    (
        Redis("XADD stream.orders.dead * userId 1 voucherId {v} id {v}1 quantity 2 dead:entry 1-1"),
        "order {v}1 is alive, and its entry Some(\"1-1\") is a dead letter",
    ),
    (Sql("DELETE FROM tidegate_event WHERE order_id = {v}2"), "order {v}2: paid of entry"),
    (
        Sql("UPDATE tidegate_event SET step = 2 WHERE order_id = {v}2"),
        "order {v}2: its events have the steps [2]",
    ),
    (
        Sql("UPDATE tidegate_event SET released = 0 WHERE order_id = {v}3"),
        "order {v}3: step 1, cancelled from Some(1) to Some(4), released 0 units",
    ),
    (
        Sql("UPDATE tidegate_event SET released = 2 WHERE order_id = {v}3"),
        "order {v}3: step 1 released 2 of its 1 units",
    ),
    (
        Sql("INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, from_status, \
             to_status, released, entry_id) VALUES ({v}3, 2, 'expired', 'applied', 3, {v}, 1, 4, 1, '1-1')"),
        "order {v}3: 2 events released its units",
    ),
    (
        Sql("UPDATE tidegate_event SET released = 1 WHERE order_id = {v}2"),
        "order {v}2: it is alive, and an event released its units",
    ),
    (
        Sql("UPDATE tidegate_event SET from_status = 3 WHERE order_id = {v}2"),
        "order {v}2: step 1, paid, leads from Some(3) to 2",
    ),
    (
        Sql("UPDATE tb_voucher_order SET status = 3 WHERE id = {v}2"),
        "order {v}2: its status is 3, and step 1, paid, has led to Some(2)",
    ),
    (
        Sql("DELETE FROM tb_voucher_order WHERE id = {v}3"),
        "order {v}3: step 1, cancelled, has moved it to Some(4), and it has no row",
    ),
    (
        Sql(
            "INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, ref, entry_id) \
             VALUES ({v}2, 2, 'paid', 'applied', 2, {v}, 'p', '1-1')",
        ),
        "order {v}2: step 2 did paid of Some(\"p\") again",
    ),
    (
        Sql("INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, entry_id) \
             SELECT order_id, 2, event, 'unchanged', user_id, voucher_id, entry_id \
             FROM tidegate_event WHERE order_id = {v}2"),
        "order {v}2: step 2 is the second paid of entry",
    ),
    (
        Sql("INSERT INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms) \
             VALUES ({v}2, 2, {v}, 1, 1)"),
        "order {v}2 has to be paid in time, and paid has moved it",
    ),
    (Both("DEL seckill:stock:{v}", "LPUSH seckill:stock:{v} a"), "voucher {v}: seckill:stock:{v}: "),
    (Both("DEL seckill:journal:{v}", "SET seckill:journal:{v} a"), "voucher {v}: seckill:journal:{v}: "),
    (
        Redis("DEL seckill:stock:{v} seckill:order:{v} seckill:journal:{v}"),
        "voucher {v}: it is on sale, and Redis holds neither stock nor journal",
    ),
    (Redis("DEL seckill:stock:{v}"), "voucher {v}: it is on sale, and Redis holds a journal, and no stock"),
    (
        Redis("SET seckill:limited:{v} 5"),
        "voucher {v}: it has two stocks, seckill:stock:{v} of 97 and seckill:limited:{v} of 5",
    ),
    (
        Redis("HSET seckill:journal:{v} {v}3 nothing"),
        "voucher {v}: seckill:journal:{v}: the note \"nothing\" of {v}3: ",
    ),
];

/// The breaks of vouchers with a limit of 3 orders per user, an order of user 1 and one of user 2. The last three are
/// the regions of two campaigns.
pub const OF_LIMITS: [(Break, &str); 8] = [
    (
        Redis("HSET seckill:uses:voucher:{v} 1:1 0:2:1"),
        "voucher:{v}: limit mine, counter 1:1: orders and units in window 0 of sale: (2, 1) counted, and",
    ),
    (
        Redis("HDEL seckill:uses:voucher:{v} 1:2"),
        "voucher:{v}: limit mine, counter 1:2: orders and units in window 0 of sale: (0, 0) counted",
    ),
    (
        Both("HSET seckill:uses:voucher:{v} u:1 3", "HSET seckill:uses:voucher:{v} 1:1 many"),
        "voucher {v}: slots of user 1: Some(3) counted, and orders hold 1",
    ),
    (
        Rules("1 -;1 mine user sale 0 0 -"),
        "voucher:{v}: 1:1 passes limit mine in window 0: 1 orders, 1 units",
    ),
    (Redis("HDEL seckill:limits:voucher:{v} rules"), "voucher:{v}: MySQL has limits, and Redis has no rules"),
    (Redis("DEL seckill:uses:campaign:5"), "campaign:5: limit ours, counter 1:1"),
    (
        Sql("DELETE FROM tidegate_limit_use WHERE order_id = {v}1"),
        "voucher {v}: order {v}1 has come past the limits",
    ),
    (Redis("DEL seckill:limits:campaign:6"), "campaign:6: MySQL has limits, and Redis has no rules"),
];

impl Break {
    /// Applies the break to this voucher.
    pub async fn happens(&self, fixture: &Fixture, voucher: i64) {
        match self {
            Sql(statements) => super::sql(fixture, &of(statements, voucher)).await,
            Redis(command) => _ = fixture.call(&of(command, voucher)).await,
            Both(first, second) => {
                fixture.call(&of(first, voucher)).await;
                fixture.call(&of(second, voucher)).await;
            }
            Rules(rules) => {
                let key = of("seckill:limits:voucher:{v}", voucher);
                fixture.redis_says(&["HSET", &key, "rules", rules]).await;
            }
            NoLetter => super::delete_letter(fixture, &of("{v}1", voucher)).await,
        }
    }
}

/// The text for this voucher.
pub fn of(text: &str, voucher: i64) -> String {
    text.replace("{v}", &voucher.to_string())
}
