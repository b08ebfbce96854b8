//! Tests of limits after the clock of Redis was wrong for a while: no count is lost.

use std::collections::BTreeMap;

use fred::interfaces::HashesInterface;
use tidegate_lab::{Clock, MysqlServer, RedisServer};

use crate::{
    fixture::{Fixture, until},
    order_event::operator,
};

const USES: &str = "seckill:uses:voucher:7";
const MONTH_S: i64 = 31 * 24 * 3_600;

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_looks_while_the_clock_of_redis_is_a_month_ahead_forgets_nothing_of_today() {
    let clock = Clock::start().expect("a clock");
    let redis = RedisServer::options().clock(&clock).start().expect("a Redis");
    let fixture = Fixture::on(redis, MysqlServer::shared().expect("a database")).await.migrated().await;
    let program = operator(&fixture);
    program
        .run("limit set --voucher 7 --name phones --subject phone --window day --orders 1 --yes")
        .expect(0);
    program.run("voucher load --voucher 7 --stock 10").expect(0);
    program.run("admit --voucher 7 --user 1 --subject phone=a").expect(0);
    let counted =
        async || -> BTreeMap<String, String> { fixture.client.hgetall(USES).await.expect("Redis answers") };
    let before = counted().await;
    // The window of this counter ended long ago: once the counter is gone, the fleet has compared.
    fixture.client.hset::<(), _, _>(USES, ("1:b", "19000:1:1")).await.expect("Redis answers");
    clock.set_ahead_by(MONTH_S).expect("the clock is set");
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1).start();
    until("the fleet has looked", || async { !counted().await.contains_key("1:b") }).await;
    assert_eq!(counted().await, before);
    clock.set_ahead_by(0).expect("the clock is set");
    program.run("admit --voucher 7 --user 2 --subject phone=a").expect(1);
    assert!(worker.stop().await.success());
}
