//! Tests of the windows of sales in Redis: reading and changing them while the sale is on.

use anyhow::Result;
use fred::{
    interfaces::{HashesInterface, KeysInterface},
    types::Value,
};
use jiff::{SignedDuration, Timestamp};
use tidegate_orders::scripts::{
    AdmitReply, JournalUse, LoadReply, SaleCalendar, SaleWindow, ScheduleReply, ScriptError,
};

use crate::fixture::{Fixture, admission, voucher};

fn hours(from: i64, to: Option<i64>) -> SaleWindow {
    let at = |hours| Timestamp::now() + SignedDuration::from_hours(hours);
    SaleWindow { begin: Some(at(from)), end: to.map(at) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_of_a_sale_changes_while_it_is_on_and_nothing_else_does() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (sales, admissions) = (fixture.store.sales(), fixture.store.admissions());
    let calendar = SaleCalendar::of(&fixture.store);
    sales.load(voucher(), 10, hours(-1, Some(1))).await?;
    assert_eq!(admissions.admit(&admission(1, 1)).await?, AdmitReply::Admitted);
    let before = sales.read_voucher(voucher()).await?;
    for (window, reply) in [
        (hours(1, Some(2)), AdmitReply::NotBegun),
        (hours(-2, Some(-1)), AdmitReply::Over),
        (SaleWindow::default(), AdmitReply::Admitted),
    ] {
        assert_eq!(calendar.schedule(voucher(), window, None).await?, ScheduleReply::Scheduled);
        assert_eq!(admissions.admit(&admission(2, 2)).await?, reply);
        assert!(sales.read_voucher(voucher()).await?.window.is_same(&window));
    }
    let after = sales.read_voucher(voucher()).await?;
    assert_eq!((after.stock, after.buyers), (before.stock.map(|units| units - 1), before.buyers + 1));
    let backwards = calendar.schedule(voucher(), hours(2, Some(1)), None).await;
    assert!(matches!(backwards, Err(ScriptError::Refused(_))), "{backwards:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_changed_meanwhile_a_delisted_and_a_moving_sale_keep_theirs() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (sales, calendar) = (fixture.store.sales(), SaleCalendar::of(&fixture.store));
    let (first, second) = (hours(-1, Some(1)), hours(-1, None));
    sales.load(voucher(), 10, first).await?;
    assert_eq!(calendar.schedule(voucher(), second, Some(second)).await?, ScheduleReply::OtherWindow);
    assert_eq!(calendar.schedule(voucher(), second, Some(first)).await?, ScheduleReply::Scheduled);
    assert_eq!(calendar.schedule(voucher(), first, Some(first)).await?, ScheduleReply::OtherWindow);
    let _set: Value = fixture.pool.hset("seckill:voucher:7", ("moving", "open")).await?;
    assert_eq!(calendar.schedule(voucher(), first, None).await?, ScheduleReply::Moving);
    let _set: Value = fixture.pool.hdel("seckill:voucher:7", "moving").await?;
    sales.delist(voucher()).await?;
    assert_eq!(calendar.schedule(voucher(), first, None).await?, ScheduleReply::Delisted);
    assert_eq!(calendar.read_windows(&[voucher()]).await?.remove(&voucher()), None, "it is sold no more");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_without_bounds_has_a_window_only_if_tidegate_loaded_it_with_its_journal() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (sales, calendar) = (fixture.store.sales(), SaleCalendar::of(&fixture.store));
    let read = async || {
        let windows = calendar.read_windows(&[voucher()]).await;
        windows.map(|mut windows| windows.remove(&voucher()))
    };
    assert_eq!(read().await?, None, "not loaded");
    let _set: Value = fixture.pool.set("seckill:stock:7", "10", None, None, false).await?;
    assert_eq!(read().await?, None, "the tutorial's own SET");
    let _deleted: Value = fixture.pool.del("seckill:stock:7").await?;
    sales.load_with(voucher(), 10, SaleWindow::default(), JournalUse::None).await?;
    assert_eq!(read().await?, None, "a script of another program sells it");
    let bounds = hours(-1, Some(1));
    calendar.schedule(voucher(), bounds, None).await?;
    assert!(read().await?.is_some_and(|window| window.is_same(&bounds)));
    let _deleted: Value = fixture.pool.del(vec!["seckill:stock:7", "seckill:voucher:7"]).await?;
    sales.load(voucher(), 10, SaleWindow::default()).await?;
    assert_eq!(read().await?, Some(SaleWindow::default()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_sale_without_stock_and_orders_that_has_not_begun_is_loaded_by_a_worker() -> Result<()> {
    let fixture = Fixture::new().await?;
    let calendar = SaleCalendar::of(&fixture.store);
    let load = async |window| calendar.load(voucher(), 10, window, JournalUse::Complete).await;
    for begun in [hours(-1, Some(1)), SaleWindow::default(), SaleWindow { begin: None, ..hours(0, Some(1)) }]
    {
        assert_eq!(load(begun).await?, LoadReply::Begun);
    }
    let later = hours(1, Some(2));
    assert_eq!(load(later).await?, LoadReply::Loaded);
    assert_eq!(load(later).await?, LoadReply::OnSale, "once");
    let _gone: Value = fixture.pool.del("seckill:stock:7").await?;
    assert_eq!(load(later).await?, LoadReply::OnSale, "its journal may have orders");
    let _gone: Value = fixture.pool.del("seckill:journal:7").await?;
    assert_eq!(load(later).await?, LoadReply::Loaded);
    let ended = hours(-2, Some(-1));
    calendar.schedule(voucher(), ended, None).await?;
    assert_eq!(load(later).await?, LoadReply::OnSale, "the rest of an ended sale");
    Ok(())
}
