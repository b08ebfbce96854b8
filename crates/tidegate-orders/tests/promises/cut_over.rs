//! Tests of the cut-over: new keys of a sale replace the old ones in one step, with the entries that came last.

use anyhow::Result;
use tidegate_orders::{
    records::journal::{COMPLETE, write},
    scripts::{AdmitReply, CutOverReply, NewSale, SaleWindow, StagedSale, rebuild_id},
};
use tidegate_stream::EntryId;

use crate::fixture::{Fixture, admission, voucher};

fn new_sale(stock: i64, last: EntryId) -> NewSale {
    NewSale { stock, last, window: SaleWindow::default(), has_limits: false, change: None }
}

/// A staged sale with 10 units left: an order of user 50, and the movements of the whole sale.
async fn staged(fixture: &Fixture) -> Result<StagedSale> {
    let id = rebuild_id();
    let mut staged = StagedSale::new(fixture.store.keys(), voucher(), &id);
    let (user, quantity) = (50.try_into()?, 1.try_into()?);
    let notes = [(900.try_into()?, write::admission(user, quantity, 1))];
    fixture.store.staged_sales().stage(&mut staged, &notes, &[user]).await?;
    let sale = [(write::LOAD, write::load(11, "test", 1)), (COMPLETE, write::complete("test", &id, 1))];
    fixture.store.staged_sales().stage_sale(&mut staged, &sale).await?;
    Ok(staged)
}

#[tokio::test]
async fn what_came_since_is_added_and_what_concerns_others_is_not() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 100, SaleWindow::default()).await?;
    fixture.store.admissions().admit(&admission(1, 1)).await?;
    let last = fixture.store.journals().snapshot(voucher()).await?.stream_end;
    let staged = staged(&fixture).await?;
    fixture.store.admissions().admit(&admission(2, 2)).await?;
    for others in [
        "XADD stream.orders * userId 3 voucherId 8 id 3",
        "XADD stream.orders * event paid orderId 4 userId 4 voucherId 7 id 4",
        "XADD stream.orders * userId 5 voucherId 7 id 05",
        "XADD stream.orders * userId 6 voucherId 7 id 6 quantity 10001",
        "XADD stream.orders * userId 50 voucherId 7 id 900",
    ] {
        fixture.typed(others).await?;
    }
    fixture.typed("XADD stream.orders * voucherId 7 quantity 3 id 8 userId 9").await?;
    assert_eq!(
        fixture.store.staged_sales().cut_over(&staged, &new_sale(10, last)).await?,
        CutOverReply::Done
    );
    let sum = fixture.store.journals().snapshot(voucher()).await?;
    assert_eq!((sum.stock, sum.journaled, sum.is_complete), (Some(10 - 1 - 3), 5, true));
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::AdmittedBefore);
    assert_eq!(fixture.store.admissions().admit(&admission(77, 9)).await?, AdmitReply::UserHasOrder);
    assert_eq!(
        fixture.store.admissions().admit(&admission(1, 1)).await?,
        AdmitReply::Admitted,
        "it was not filled in"
    );
    // The client sends the call again if it did not get the reply.
    assert_eq!(
        fixture.store.staged_sales().cut_over(&staged, &new_sale(10, last)).await?,
        CutOverReply::Done
    );
    assert_eq!(fixture.store.journals().snapshot(voucher()).await?.stock, Some(5));
    Ok(())
}

#[tokio::test]
async fn a_switch_that_is_refused_changes_nothing() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 100, SaleWindow::default()).await?;
    let staged_sale = staged(&fixture).await?;
    let new = new_sale(10, EntryId::MIN);
    fixture.typed("HSET seckill:voucher:7 change somebody").await?;
    assert_eq!(fixture.store.staged_sales().cut_over(&staged_sale, &new).await?, CutOverReply::OtherNote);
    let known = NewSale { change: Some("somebody".to_owned()), ..new.clone() };
    for order in 0..501 {
        fixture.typed(&format!("XADD stream.orders * userId 1 voucherId 8 id {}", order + 1)).await?;
    }
    assert_eq!(fixture.store.staged_sales().cut_over(&staged_sale, &known).await?, CutOverReply::EntriesCame);
    assert_eq!(fixture.store.journals().snapshot(voucher()).await?.stock, Some(100));
    assert_eq!(fixture.store.staged_sales().remove_staged().await?, 2);
    assert_eq!(fixture.store.staged_sales().cut_over(&staged_sale, &known).await?, CutOverReply::Incomplete);
    assert_eq!(fixture.store.journals().snapshot(voucher()).await?.stock, Some(100));
    Ok(())
}
