//! Tests of repair: it changes each difference of a comparison once, by its amount, and leaves orders alone that moved
//! meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fred::{
    clients::Pool,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};
use jiff::Timestamp;
use tidegate_compare::{Comparison, ComparisonRequest, Job, Pace, RepairMethod};
use tidegate_lab::{Proxy, RedisServer};
use tidegate_operations::{
    End, Ending, EntrySource, Next, Plan, Report, Stores,
    operator_log::{LogRequest, OperatorLog},
    redacted::RedactedUrl,
    replay::ChosenEntries,
};
use tidegate_orders::{
    order_id::{EPOCH_SECONDS, compose, day_of, day_text},
    scripts::{StockChange, WholeChange},
};
use tidegate_reconcile::{
    RedisRepairs, Repair, RepairCounts, RepairPlan, RepairReport, ReturnedReason, UnrepairedReason,
    plan_repair,
};
use tidegate_stream::{EntryId, StreamInspector, connect_pool};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, StopsAfter, UNITS, job, voucher};

/// The note of a release, with the admission that it replaced.
fn released(order: i64) -> String {
    format!(
        r#"{{"action":"release","from":1,"to":2,"change":1,"by":"x","timestamp":9,"admitted":{{"user":"{order}","change":-1,"timestamp":7}}}}"#
    )
}

/// Writes to Redis what `release.lua` writes.
async fn release(fixture: &Fixture, order: i64) -> Result<()> {
    fixture.note(&order.to_string(), &released(order)).await?;
    fixture.typed("INCRBY seckill:stock:10 1").await?;
    fixture.typed(&format!("SREM seckill:order:10 {order}")).await?;
    Ok(())
}

/// Cancels orders in MySQL only, as a faulty service does.
async fn cancel_row(fixture: &Fixture, orders: &str) -> Result<()> {
    fixture
        .sql(&format!(
            "UPDATE tb_seckill_voucher SET stock = stock + (SELECT COUNT(*) FROM tb_voucher_order WHERE id {orders}) \
             WHERE voucher_id = 10; UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id {orders}"
        ))
        .await
}

#[tokio::test]
async fn whatever_one_side_of_redis_lacks_is_repaired_and_a_second_repair_finds_nothing() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=8).await?;
    fixture.work().await?;
    // 1: cancelled, and not released. 2: lost in Redis. 3: released, and live. 4: its user is no buyer. 99: a buyer
    // without an order.
    cancel_row(&fixture, "= 1").await?;
    fixture.typed("HDEL seckill:journal:10 2").await?;
    fixture.typed("SREM seckill:order:10 2 4").await?;
    fixture.typed("INCRBY seckill:stock:10 1").await?;
    release(&fixture, 3).await?;
    fixture.typed("SADD seckill:order:10 99").await?;
    let found = fixture.look().await?;
    let mut repairs: Vec<RepairMethod> = found.differences.iter().map(|it| it.repair).collect();
    repairs.sort_by_key(|repair| format!("{repair:?}"));
    assert_eq!(
        repairs,
        [
            RepairMethod::Admit,
            RepairMethod::Admit,
            RepairMethod::Bar,
            RepairMethod::Release,
            RepairMethod::Unbar
        ]
    );
    let report = fixture.repair(found.clone()).await?;
    let redis = RedisRepairs {
        steps: 1,
        admitted: 2,
        released: 1,
        barred: 1,
        unbarred: 1,
        stock_moved: -1,
        ..RedisRepairs::default()
    };
    assert_eq!(report.done, RepairCounts { redis, ..RepairCounts::default() });
    assert_eq!(report.ending(), Ending::Done);
    let held = fixture.expect_agreement().await?;
    assert_eq!((held.stock, held.buyers.len()), (UNITS - 7, 7));
    ensure!(held.journal["1"].contains("repair:") && held.journal["2"].contains(r#""by":"2""#), "{held:?}");
    // The same findings again: another repair has been made since, so this one changes nothing.
    let again = fixture.repair(found).await?;
    ensure!(again.done.returned == 5 && again.returned.iter().all(|it| it.why == ReturnedReason::Overtaken));
    assert_eq!(fixture.held().await?, held);
    // The operator log shows the step.
    let log = OperatorLog::new(fixture.store.clone(), &fixture.settings);
    let lines = log.commands(&LogRequest::default()).await?;
    ensure!(
        lines.len() == 1 && lines[0].command == "reconcile --repair" && lines[0].who == "tester",
        "{lines:?}"
    );
    let counts = lines[0].counts.clone().unwrap_or_default();
    assert_eq!((&counts["admitted"], &counts["stock_moved"]), (&2.into(), &(-1).into()));
    Ok(())
}

#[tokio::test]
async fn what_a_service_gave_back_by_its_own_hand_becomes_a_release_and_the_stock_stays() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=9).await?;
    fixture.work().await?;
    cancel_row(&fixture, "IN (3, 4)").await?;
    fixture.typed("SREM seckill:order:10 3 4").await?;
    fixture.typed("INCRBY seckill:stock:10 2").await?;
    let before = fixture.held().await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!(
        (report.done.redis.released, report.done.redis.stock_moved, report.done.redis.loaded),
        (2, 0, 0)
    );
    let held = fixture.expect_agreement().await?;
    assert_eq!((held.stock, held.mysql_stock), (before.stock, UNITS - 7));
    // Another program adds units to the stock of Redis.
    fixture.typed("INCRBY seckill:stock:10 30").await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!(report.done.redis.stock_moved, -30);
    fixture.expect_agreement().await?;
    Ok(())
}

/// Orders 3 and 4 are cancelled by a service that released their units in both stores without Tidegate.
async fn release_by_hand(fixture: &Fixture) -> Result<()> {
    cancel_row(fixture, "IN (3, 4)").await?;
    fixture.typed("SREM seckill:order:10 3 4").await?;
    fixture.typed("INCRBY seckill:stock:10 2").await?;
    Ok(())
}

#[tokio::test]
async fn where_the_stock_is_not_corrected_no_order_is_released_either() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=9).await?;
    fixture.work().await?;
    release_by_hand(&fixture).await?;
    let before = fixture.held().await?;
    for why in
        [UnrepairedReason::NotAllCompared, UnrepairedReason::NotAddedUp, UnrepairedReason::ChangeIsOpen]
    {
        let mut found = fixture.look().await?;
        ensure!(found.differences.iter().all(|it| it.repair == RepairMethod::Release), "{found:?}");
        match (why, &mut found.totals) {
            (UnrepairedReason::NotAllCompared, _) => found.is_partial = true,
            (UnrepairedReason::NotAddedUp, totals) => *totals = None,
            (_, totals) => totals.as_mut().context("totals")?.is_change_open = true,
        }
        let plan = RepairPlan::new(vec![found.clone()], 0);
        let left: Vec<(UnrepairedReason, u64)> =
            plan.vouchers[0].left.iter().map(|left| (left.why, left.total)).collect();
        assert_eq!((left, plan.vouchers[0].stock_moves), (vec![(why, 2)], 0), "{why:?}");
        let report = fixture.repair(found).await?;
        assert_eq!((report.done.redis.released, report.done.redis.stock_moved), (0, 0), "{why:?}");
        assert_eq!(fixture.held().await?, before, "{why:?}");
    }
    fixture.repair(fixture.look().await?).await?;
    assert_eq!(fixture.expect_agreement().await?.stock, before.stock);
    Ok(())
}

#[tokio::test]
async fn where_a_refusal_moved_the_stock_no_order_is_released_before_the_next_look() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=9).await?;
    fixture.work().await?;
    release_by_hand(&fixture).await?;
    // MySQL lost order 9, and its user has another order by now. So it is refused when it is written again.
    fixture.lose_in_mysql(9..=9).await?;
    fixture
        .sql(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (99, 9, 10); \
             UPDATE tb_seckill_voucher SET stock = stock - 1 WHERE voucher_id = 10",
        )
        .await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!((report.done.refused, report.done.redis.released), (1, 0), "{report:?}");
    assert_eq!(report.ending(), Ending::Left);
    let held = fixture.held().await?;
    ensure!(held.stock <= held.mysql_stock, "Redis offers {}, MySQL has {}", held.stock, held.mysql_stock);
    fixture.repair(fixture.look().await?).await?;
    let held = fixture.held().await?;
    assert_eq!((held.stock, held.mysql_stock), (UNITS - 7, UNITS - 7));
    Ok(())
}

#[tokio::test]
async fn what_one_repair_does_not_take_is_counted_and_taken_by_the_next() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=5).await?;
    fixture.work().await?;
    fixture.lose_in_mysql(1..=5).await?;
    let request = ComparisonRequest { vouchers: Vec::new(), since_ms: None, pace: Pace::Full };
    let stores = (fixture.store.clone(), fixture.mysql.clone());
    let comparison = Comparison::new(stores, request);
    let stores = Stores::new(&fixture.settings);
    let repair = Repair::connect(&stores, "tester".to_owned()).await?;
    for (beyond, created, ending) in [(2, 3, Ending::Left), (0, 2, Ending::Done)] {
        let (_, plan) = plan_repair(&comparison, 3, &job()).await?;
        let mut report = RepairReport::new(&plan);
        ensure!(repair.run(&plan, &mut report, &job()).await? == End::Whole);
        assert_eq!((report.beyond, report.done.created, report.ending()), (beyond, created, ending));
        assert_eq!(report.counts()["beyond"], beyond);
    }
    fixture.expect_agreement().await?;
    Ok(())
}

#[tokio::test]
async fn units_that_were_sold_twice_leave_a_stock_below_0_and_nobody_is_admitted() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=3).await?;
    fixture.work().await?;
    fixture.sql("UPDATE tb_seckill_voucher SET stock = -2, initial_stock = 1 WHERE voucher_id = 10").await?;
    fixture.repair(fixture.look().await?).await?;
    let held = fixture.expect_agreement().await?;
    assert_eq!(held.stock, -2);
    ensure!(fixture.admit(4..=4).await.is_err());
    Ok(())
}

#[tokio::test]
async fn what_moved_between_look_and_repair_is_left_for_the_next_look() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=6).await?;
    fixture.work().await?;
    cancel_row(&fixture, "IN (1, 2)").await?;
    fixture.typed("HDEL seckill:journal:10 3 4").await?;
    let found = fixture.look().await?;
    // Meanwhile, 1 is released, 4 is cancelled, and other users buy.
    release(&fixture, 1).await?;
    cancel_row(&fixture, "= 4").await?;
    fixture.admit(11..=13).await?;
    fixture.work().await?;
    let report = fixture.repair(found).await?;
    assert_eq!((report.done.redis.released, report.done.redis.admitted, report.done.returned), (1, 1, 2));
    ensure!(report.returned.iter().all(|it| it.why == ReturnedReason::Moved), "{report:?}");
    assert_eq!(report.ending(), Ending::Left);
    fixture.repair(fixture.look().await?).await?;
    let held = fixture.expect_agreement().await?;
    assert_eq!(held.stock, UNITS - 6);
    Ok(())
}

#[tokio::test]
async fn a_user_who_was_freed_between_look_and_repair_is_not_barred() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=3).await?;
    fixture.work().await?;
    fixture.typed("SREM seckill:order:10 1 2 3").await?;
    let mut found = fixture.look().await?;
    ensure!(
        found.differences.iter().all(|it| it.repair == RepairMethod::Bar) && found.differences.len() == 3
    );
    // A comparison also names the order for which the user counts as a buyer.
    let held = fixture.held().await?;
    for difference in found.differences.iter_mut().filter(|it| it.user != 1.try_into().ok()) {
        let order = difference.user.context("a user")?.get();
        (difference.order, difference.note) =
            (order.try_into().ok(), held.journal.get(&order.to_string()).cloned());
    }
    // 1 is cancelled on both sides. 2 is released in Redis only, as if the release came right after the last query to
    // MySQL.
    fixture.event(1, "cancelled", "").await?;
    fixture.work().await?;
    release(&fixture, 2).await?;
    let report = fixture.repair(found).await?;
    assert_eq!((report.done.redis.barred, report.done.returned), (1, 2), "{report:?}");
    assert_eq!(fixture.held().await?.buyers, [3].into());
    Ok(())
}

#[tokio::test]
async fn orders_that_mysql_lost_come_back_with_their_payments_and_once() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=700).await?;
    for order in 1..=40 {
        fixture.event(order, "paid", &format!(" ref pay-{order}")).await?;
    }
    fixture.event(41, "cancelled", "").await?;
    fixture.work().await?;
    fixture.note("41", &released(41)).await?;
    let before = fixture.held().await?;
    fixture.lose_in_mysql(1..=650).await?;
    let found = fixture.look().await?;
    assert_eq!(found.differences.len(), 650);
    // Two repairs at the same time, and a third that was killed.
    let plan = RepairPlan::new(vec![found.clone()], 0);
    let stores = Stores::new(&fixture.settings);
    let repair = Repair::connect(&stores, "killed".to_owned()).await?;
    let mut report = RepairReport::new(&plan);
    _ = tokio::time::timeout(Duration::from_millis(40), repair.run(&plan, &mut report, &killed_job())).await;
    let (first, second) = tokio::join!(fixture.repair(found.clone()), fixture.repair(found));
    let (first, second) = (first?, second?);
    ensure!(first.done.created + second.done.created <= 650, "{first:?} {second:?}");
    // The entries of the killed repair are pending, and workers take them.
    fixture.work().await?;
    let pending = fixture.typed("XPENDING stream.orders g1").await?.into_array();
    assert_eq!(pending.first().and_then(fred::types::Value::as_i64), Some(0));
    let after = fixture.held().await?;
    let differs = |order: &&i64| after.rows.get(order) != before.rows.get(order);
    assert_eq!(before.rows.keys().filter(differs).collect::<Vec<_>>(), Vec::<&i64>::new());
    assert_eq!(
        (after.stock, after.mysql_stock, &after.journal),
        (before.stock, before.mysql_stock, &before.journal)
    );
    let paid = after.rows.values().filter(|row| row.3 == 2).count();
    assert_eq!((paid, after.rows[&41].3, after.rows[&41].2), (40, 4, false));
    fixture.expect_agreement().await?;
    Ok(())
}

#[tokio::test]
async fn killed_at_any_moment_a_repair_loses_no_payment_of_a_lost_order() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=30).await?;
    for order in 1..=30 {
        fixture.event(order, "paid", &format!(" ref pay-{order}")).await?;
    }
    fixture.work().await?;
    let before = fixture.held().await?;
    let stores = Stores::new(&fixture.settings);
    let repair = Repair::connect(&stores, "killed".to_owned()).await?;
    let mut ended = false;
    for ms in (1..).step_by(6).take_while(|ms| *ms < 1_000) {
        fixture.lose_in_mysql(1..=30).await?;
        let plan = RepairPlan::new(vec![fixture.look().await?], 0);
        let (mut report, job) = (RepairReport::new(&plan), killed_job());
        let run = repair.run(&plan, &mut report, &job);
        ended = tokio::time::timeout(Duration::from_millis(ms), run).await.is_ok();
        fixture.work().await?;
        fixture.repair(fixture.look().await?).await?;
        assert_eq!(fixture.held().await?, before, "killed after {ms} ms: {:?}", report.done);
        if ended {
            break;
        }
    }
    ensure!(ended);
    Ok(())
}

fn killed_job() -> Job {
    crate::fixture::job()
}

#[tokio::test]
async fn a_lost_order_whose_entry_is_gone_gets_a_new_one_before_its_events() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=3).await?;
    fixture.event(2, "paid", " ref pay-2").await?;
    fixture.work().await?;
    fixture.lose_in_mysql(1..=3).await?;
    let gone = fixture.typed("XRANGE stream.orders - + COUNT 3").await?;
    for entry in gone.into_array() {
        let id = entry.into_array().remove(0).as_string().expect("an id");
        fixture.typed(&format!("XDEL stream.orders {id}")).await?;
    }
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!((report.done.appended, report.done.created, report.done.events), (3, 3, 1));
    let held = fixture.expect_agreement().await?;
    assert_eq!((held.rows[&2].3, held.rows.len()), (2, 3));
    // A worker reads the new entries, and finds their orders written.
    fixture.work().await?;
    assert_eq!(fixture.expect_agreement().await?, held);
    Ok(())
}

#[tokio::test]
async fn what_is_in_flight_is_left_to_the_workers() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=2).await?;
    fixture.work().await?;
    fixture.lose_in_mysql(1..=2).await?;
    let found = fixture.look().await?;
    // The group begins again, so workers write both orders again.
    fixture.typed("XGROUP SETID stream.orders g1 0").await?;
    let report = fixture.repair(found).await?;
    assert_eq!((report.done.created, report.done.returned), (0, 2));
    assert!(report.returned.iter().all(|returned| returned.why == ReturnedReason::InFlight));
    Ok(())
}

#[tokio::test]
async fn a_lost_order_is_written_while_its_payment_is_unread_and_is_paid_afterwards() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=2).await?;
    fixture.work().await?;
    fixture.lose_in_mysql(1..=2).await?;
    fixture.event(1, "paid", " ref pay-1").await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!((report.done.created, report.done.returned), (2, 0));
    fixture.work().await?;
    let held = fixture.expect_agreement().await?;
    assert_eq!((held.rows[&1].3, held.rows[&2].3), (2, 1));
    Ok(())
}

/// After Redis was emptied, it released an order without knowing its units.
#[tokio::test]
async fn an_order_that_was_released_without_its_units_becomes_a_cancelled_row_as_well() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=2).await?;
    fixture.work().await?;
    let note = r#"{"action":"release","change":0,"by":"worker:out_of_stock","timestamp":9,"admitted":{"user":"3","change":0,"timestamp":5,"from":null}}"#;
    fixture.note("3", note).await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!((report.done.cancelled_rows, report.done.returned), (1, 0));
    let held = fixture.expect_agreement().await?;
    assert!(!held.rows[&3].2, "it holds no slot");
    Ok(())
}

#[tokio::test]
async fn an_order_that_only_redis_gave_back_becomes_a_cancelled_row_where_payments_find_a_home() -> Result<()>
{
    let fixture = Fixture::start().await?;
    fixture.admit(1..=2).await?;
    fixture.event(1, "cancelled", "").await?;
    fixture.event(1, "paid", " ref late").await?;
    fixture.work().await?;
    fixture.lose_in_mysql(1..=1).await?;
    // The release by the worker, as the journal keeps it.
    release(&fixture, 1).await?;
    fixture.typed("INCRBY seckill:stock:10 -1").await?;
    let found = fixture.look().await?;
    assert_eq!(found.differences[0].repair, RepairMethod::WriteCancelledRow);
    for _ in 0..2 {
        let report = fixture.repair(found.clone()).await?;
        assert_eq!(
            (report.done.cancelled_rows, report.done.created, report.done.redis.stock_moved),
            (1, 0, 0)
        );
    }
    let held = fixture.expect_agreement().await?;
    assert_eq!((held.rows[&1].2, held.rows[&1].3, held.stock), (false, 5, UNITS - 1));
    let sql = "SELECT outcome FROM tidegate_event WHERE order_id = 1 AND ref = 'late'";
    let outcomes: Vec<String> = sqlx::query_scalar(sql).fetch_all(&fixture.mysql).await?;
    assert_eq!(outcomes, ["refund_due"]);
    Ok(())
}

#[tokio::test]
async fn a_repair_that_is_stopped_or_killed_between_two_steps_is_gone_on_with_by_the_next_look() -> Result<()>
{
    let fixture = Fixture::start().await?;
    fixture.admit(1..=1_300).await?;
    fixture.work().await?;
    cancel_row(&fixture, "<= 1200").await?;
    fixture.typed("INCRBY seckill:stock:10 1200").await?;
    let before = fixture.held().await?;
    let plan = RepairPlan::new(vec![fixture.look().await?], 0);
    let mut report = RepairReport::new(&plan);
    let stop = CancellationToken::new();
    let job = Job { stop: stop.clone(), progress: Box::new(StopsAfter(stop)) };
    let stores = Stores::new(&fixture.settings);
    let repair = Repair::connect(&stores, "stopped".to_owned()).await?;
    assert_eq!(repair.run(&plan, &mut report, &job).await?, End::Stopped);
    assert_eq!((report.done.redis.steps, report.done.redis.released), (1, 500));
    // Fewer units are on sale than there should be, never more.
    let half = fixture.held().await?;
    assert_eq!(half.stock, before.stock - 700);
    let plan = RepairPlan::new(vec![fixture.look().await?], 0);
    let (mut report, killed) = (RepairReport::new(&plan), killed_job());
    _ = tokio::time::timeout(Duration::from_millis(30), repair.run(&plan, &mut report, &killed)).await;
    ensure!(fixture.held().await?.stock <= before.stock);
    fixture.repair(fixture.look().await?).await?;
    assert_eq!(fixture.expect_agreement().await?.stock, before.stock);
    Ok(())
}

#[tokio::test]
async fn of_two_repairs_at_once_one_takes_the_difference_away_and_the_other_nothing() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=20).await?;
    fixture.work().await?;
    cancel_row(&fixture, "<= 10").await?;
    fixture.typed("INCRBY seckill:stock:10 55").await?;
    let found = fixture.look().await?;
    let (first, second) = tokio::join!(fixture.repair(found.clone()), fixture.repair(found));
    let (first, second) = (first?, second?);
    assert_eq!(
        (
            first.done.redis.steps + second.done.redis.steps,
            first.done.redis.released + second.done.redis.released
        ),
        (1, 10)
    );
    assert_eq!(first.done.redis.stock_moved + second.done.redis.stock_moved, -45);
    assert_eq!(fixture.expect_agreement().await?.stock, UNITS - 10);
    Ok(())
}

#[tokio::test]
async fn without_a_complete_journal_and_during_a_change_of_stock_the_plan_says_what_to_type() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=3).await?;
    fixture.work().await?;
    fixture.typed("INCRBY seckill:stock:10 5").await?;
    let change = StockChange::new(-7, UNITS, "somebody".to_owned());
    fixture.store.sales().note_change(&[None], &WholeChange { sides: vec![(voucher(), change)] }).await?;
    fixture.note("#add:x", r#"{"action":"add","from":1,"to":8,"change":7,"by":"x","timestamp":2}"#).await?;
    let open = RepairPlan::new(vec![fixture.look().await?], 0);
    assert_eq!((open.vouchers.len(), open.next()), (0, Next::NothingToDo));
    cancel_row(&fixture, "= 1").await?;
    fixture.typed("HDEL seckill:journal:10 #complete").await?;
    let before = fixture.held().await?;
    let incomplete = RepairPlan::new(vec![fixture.look().await?], 0);
    let left = &incomplete.vouchers[0].left[0];
    assert_eq!(
        (incomplete.next(), left.why, left.total),
        (Next::Refused, UnrepairedReason::NoCompleteJournal, 1)
    );
    assert_eq!(left.why.command(voucher()).as_deref(), Some("tidegate rebuild --voucher 10"));
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!((report.done, report.left), (RepairCounts::default(), 1));
    assert_eq!(fixture.held().await?, before);
    Ok(())
}

#[tokio::test]
async fn a_counter_of_order_ids_that_is_behind_the_orders_is_raised_before_they_are_repaired() -> Result<()> {
    let fixture = Fixture::start().await?;
    let seconds = Timestamp::now().as_second() - EPOCH_SECONDS;
    let order = compose(seconds, 500)?;
    let counter = format!("icr:order:{}", day_text(day_of(order)));
    fixture.admit([order.get()].into_iter()).await?;
    fixture.work().await?;
    // The promoted replica lacks the note, the buyer, the change of the stock and the last order ids.
    fixture.typed(&format!("HDEL seckill:journal:10 {order}")).await?;
    fixture.typed(&format!("SREM seckill:order:10 {order}")).await?;
    fixture.typed("INCRBY seckill:stock:10 1").await?;
    fixture.typed(&format!("SET {counter} 436")).await?;
    let report = fixture.repair(fixture.look().await?).await?;
    assert_eq!(report.done.redis.admitted, 1);
    let raised: Vec<_> = report.order_ids.iter().map(|it| (it.before, it.now)).collect();
    assert_eq!(raised, [(Some(436), 500)]);
    assert_eq!(fixture.typed(&format!("GET {counter}")).await?.as_i64(), Some(500));
    fixture.expect_agreement().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_another_server_are_not_acknowledged_by_what_runs_entries_again() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=1).await?;
    let names = fixture.settings.stream_names();
    let port = fixture.redis.next().client_config().server.hosts()[0].port;
    let (proxy, promoted) = (Proxy::start(port).await?, RedisServer::start()?);
    let url = |port: u16| format!("redis://127.0.0.1:{port}");
    let mut settings = fixture.settings.clone();
    settings.redis.url = RedactedUrl::new(url(proxy.port()));
    let stores = Stores::new(&settings);
    let redis = stores.redis().await?;
    let inspector = StreamInspector::new(redis, names.clone()).over_one_connection();
    let source = EntrySource { run: inspector.server_run().await?, inspector };
    let chosen = ChosenEntries::open(&stores, &source).await?;
    let entries = source.inspector.page(&names.stream, (EntryId::MIN, EntryId::MAX), 10).await?;
    ensure!(entries.len() == 1);

    // The promoted replica has given the same id to another entry.
    let there: Pool =
        connect_pool(&tidegate_stream::RedisConnectionSettings::new(url(promoted.port()))).await?.into();
    let types = async |words: &str| {
        let mut words = words.split(' ');
        let command = CustomCommand::new(words.next().unwrap_or_default(), ClusterHash::FirstKey, false);
        there.custom::<Value, Value>(command, words.map(Value::from).collect()).await
    };
    types(&format!("XADD stream.orders {} id 2 userId 2 voucherId 10", entries[0].id)).await?;
    types("XGROUP CREATE stream.orders g1 0").await?;
    types("XREADGROUP GROUP g1 dead COUNT 1 STREAMS stream.orders >").await?;
    proxy.lead_to(promoted.port());
    proxy.cut_connections().await;
    let outcome = chosen.run(&entries, &CancellationToken::new()).await;
    let error = outcome.err().context("it must not pass for done")?;
    ensure!(format!("{error:#}").contains("another server"), "{error:#}");
    let pending = types("XPENDING stream.orders g1 - + 10").await?.into_array();
    assert_eq!(pending.len(), 1, "nobody has handled the order of the promoted server");
    Ok(())
}
