//! Events that callers report to the gate, beside orders that they place.

use anyhow::{Result, ensure};

use super::row;
use crate::bench::{
    admission::{Sale, open_sale, through_gate},
    drain::until_settled,
    fixture::{Fixture, GROUP, STREAM, Tables},
    gate::{
        self, Asked,
        callers::{CALLERS, Load, post, request},
        server::Server,
    },
    headlines::show,
    orders::{NewOrder, Orders},
    workers::{Shape, Workers},
    writers::tell,
};

/// The events of one request of many.
const TOGETHER: usize = 1_000;
/// The callers that send many events together. The gate takes a few of such requests at a time.
const BATCH_CALLERS: usize = 8;

/// Measures orders, events one by one, and requests with many events, in turn. Returns the section of the page.
pub async fn measure(fixture: &mut Fixture, count: usize, rounds: usize) -> Result<String> {
    let mut found = [const { Vec::new() }; 3];
    for round in 0..rounds {
        tell(&format!("events, round {} of {rounds}", round + 1));
        found[0].push(gate::once(fixture, Asked::Gate, count).await?);
        found[1].push(once(fixture, count, Batch::Single).await?);
        found[2].push(once(fixture, count, Batch::Many).await?);
    }
    let [orders, together] = [count, TOGETHER].map(|number| show(number as f64));
    let mut text = format!(
        "\n## Events\n\n{CALLERS} callers place {orders} orders, or report a payment for each of as many orders. Then {BATCH_CALLERS} callers \
         report as many payments, {together} in a request. A worker then writes the orders and their payments; if an order is not paid, the run \
         fails.\n\n| | a second | gate µs | Redis µs |\n|---|--:|--:|--:|\n"
    );
    let names = ["orders", "events, one in a request", "events, many in a request"];
    for (name, runs) in names.into_iter().zip(found) {
        let calls = gate::conclude(runs);
        let values = [&calls.per_s, &calls.server_cpu_us, &calls.redis_cpu_us].map(|rate| show(rate.median));
        row(&mut text, name, &values);
    }
    Ok(text)
}

/// The number of events in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    Single,
    Many,
}

async fn once(fixture: &mut Fixture, count: usize, batch: Batch) -> Result<gate::Run> {
    fixture.clear_tables(Tables::Fresh, 1).await?;
    let sale = open_sale(fixture).await?;
    let orders = fixture.numbers.take(count, 1);
    through_gate(&sale, Sale::Open, &orders).await?;
    fixture.redis.call(&["XGROUP", "CREATE", STREAM, GROUP, "0"]).await?;
    let server = Server::gate(&fixture.program, &fixture.redis_server.url(), &[]).await?;
    let (requests, callers, wanted_status) = match batch {
        Batch::Single => (orders.iter().map(single).collect(), CALLERS, 202),
        Batch::Many => (orders.chunks(TOGETHER).iter().map(many).collect(), BATCH_CALLERS, 200),
    };
    let load = Load { address: server.address(), wanted_status };
    // As before the orders: connections are open, and the scripts are known.
    let warm_up = fixture.numbers.take(count.min(gate::WARM_UP), 1);
    Load { wanted_status: 202, ..load }.closed_loop(warm_up.iter().map(request).collect(), CALLERS).await?;
    let run = gate::measured(fixture, &server, count, load.closed_loop(requests, callers)).await?;
    server.stop()?;
    are_paid(fixture, &orders).await?;
    Ok(run)
}

fn single(order: NewOrder) -> Vec<u8> {
    let NewOrder { id, user, voucher } = order;
    let body = format!(r#"{{"event":"paid","ref":"pay-{id}","voucherId":"{voucher}","userId":"{user}"}}"#);
    post(&format!("/orders/{id}/events"), "application/json", &body)
}

fn many(orders: &Orders) -> Vec<u8> {
    let line = |NewOrder { id, user, voucher }| {
        format!(
            "{{\"event\":\"paid\",\"ref\":\"pay-{id}\",\"orderId\":\"{id}\",\"voucherId\":\"{voucher}\",\"userId\":\"{user}\"}}\n"
        )
    };
    post("/events", "application/x-ndjson", &orders.iter().map(line).collect::<String>())
}

/// Lets a worker write all, and checks that each order is paid.
async fn are_paid(fixture: &mut Fixture, orders: &Orders) -> Result<()> {
    let newest = super::newest(fixture).await?;
    let (redis, mysql) = (fixture.redis_server.url(), [fixture.url(Tables::Fresh)]);
    let workers = Workers::start(&fixture.program, Shape::DEFAULT, &redis, &mysql).await?;
    until_settled(&mut fixture.redis, &newest, 0).await?;
    let (first, last) = orders.ids();
    let sql = "SELECT COUNT(*) FROM tb_voucher_order WHERE status = 2 AND id BETWEEN ? AND ?";
    let mut session = fixture.connect(Tables::Fresh).await?;
    let paid: i64 = sqlx::query_scalar(sql).bind(first).bind(last).fetch_one(&mut session).await?;
    ensure!(paid == orders.len() as i64, "{paid} of {} are paid: {}", orders.len(), workers.logs());
    workers.stop().await
}
