//! Tests of the snapshot of a voucher, and of the sum of its journal, on a real Redis.

use std::sync::Arc;

use crate::fixture::{Fixture, admission, release, voucher};
use anyhow::Result;
use tidegate_orders::{
    records::journal::Sum,
    scripts::{AdmitReply, JournalUse, LoadReply, ReleaseReply, SaleWindow, ScriptError, SumCheck},
};
use tidegate_stream::EntryId;

#[tokio::test]
async fn a_moment_has_stock_time_end_of_the_stream_and_length_of_the_journal() -> Result<()> {
    let fixture = Fixture::new().await?;
    let nothing = fixture.store.journals().snapshot(voucher()).await?;
    assert_eq!((nothing.stock, nothing.journaled, nothing.is_complete), (None, 0, false));
    assert_eq!(nothing.stream_end, EntryId::MIN);

    fixture.store.sales().load(voucher(), 10, SaleWindow::default()).await?;
    let before = fixture.store.journals().snapshot(voucher()).await?;
    fixture.store.admissions().admit(&admission(1, 1)).await?;
    let snapshot = fixture.store.journals().snapshot(voucher()).await?;
    assert_eq!((snapshot.stock, snapshot.journaled), (Some(9), before.journaled + 1));
    assert!(snapshot.stream_end > EntryId::MIN && snapshot.at_ms >= before.at_ms);
    assert!(fixture.store.journals().clock_ms().await? > snapshot.at_ms, "its millisecond is over");

    fixture.typed("SET seckill:stock:7 many").await?;
    let error = fixture.store.journals().snapshot(voucher()).await.unwrap_err();
    assert!(matches!(error, ScriptError::Unexpected { .. }), "{error}");
    fixture.typed("DEL seckill:stock:7").await?;
    fixture.typed("SADD seckill:stock:7 1").await?;
    assert!(matches!(
        fixture.store.journals().snapshot(voucher()).await.unwrap_err(),
        ScriptError::Refused(_)
    ));
    Ok(())
}

/// The result of a check of the journal's sum.
async fn sum(fixture: &Fixture) -> Result<Option<Sum>> {
    Ok(match fixture.store.journals().check_sum(voucher(), u64::MAX).await? {
        SumCheck::Checked(_, sum) => Some(sum),
        SumCheck::NotComplete | SumCheck::TooLarge(_) => None,
    })
}

/// Admits sixteen orders at a time and releases three of them, until the sale is over.
async fn sell(fixture: Arc<Fixture>, first: i64) -> Result<(), ScriptError> {
    for at in (first..).step_by(16) {
        let wanted: Vec<_> = (0..16).map(|n| admission(at + n, at + n)).collect();
        let replies =
            fixture.store.admissions().admit_all(&wanted).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        if replies.contains(&AdmitReply::Over) {
            break;
        }
        assert!(replies.iter().all(AdmitReply::is_admitted));
        let unwanted: Vec<_> = (0..3).map(|n| release(at + 5 * n, at + 5 * n)).collect();
        for reply in fixture.store.releases().release_all(&unwanted).await {
            assert_eq!(reply?, ReleaseReply::Released);
        }
    }
    Ok(())
}

/// Forty short sales at full rate, with five checks of each. Without an optimising compiler, the journal grows faster
/// than the test reads it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_at_the_stock_is_found_at_once_in_a_busy_sale_and_nothing_is_found_without_one() -> Result<()>
{
    let mut unsure = 0;
    let fixture = Arc::new(Fixture::new().await?);
    for sale in 0..40 {
        fixture.typed("FLUSHALL").await?;
        fixture.store.sales().load(voucher(), 1_000_000, SaleWindow::default()).await?;
        let sellers: Vec<_> =
            (1..=4).map(|task| tokio::spawn(sell(Arc::clone(&fixture), task << 40))).collect();
        for look in 0..5 {
            match sum(&fixture).await? {
                Some(Sum::Holds) => {}
                Some(Sum::Unsure) => unsure += 1,
                other => panic!("sale {sale}, look {look}: {other:?}"),
            }
        }
        fixture.typed("INCRBY seckill:stock:7 7").await?;
        // Within the millisecond of a manual change, the check finds a mismatch, but not its size.
        let hand_ms = fixture.store.journals().clock_ms().await?;
        while fixture.store.journals().clock_ms().await? <= hand_ms {}
        assert_eq!(sum(&fixture).await?, Some(Sum::Mismatch(7)));
        fixture.typed("DECRBY seckill:stock:7 7").await?;
        fixture.typed("HSET seckill:voucher:7 end_ms 1").await?;
        for seller in sellers {
            seller.await??;
        }
        assert_eq!(sum(&fixture).await?, Some(Sum::Holds));
    }
    assert!(unsure <= 10, "{unsure} of 200 looks could not tell");
    Ok(())
}

#[tokio::test]
async fn a_sale_that_another_script_sells_has_no_complete_journal() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (store, window) = (&fixture.store, SaleWindow::default());
    assert_eq!(store.sales().load_with(voucher(), 10, window, JournalUse::None).await?, LoadReply::Loaded);
    assert_eq!(sum(&fixture).await?, None);
    fixture.typed("DECRBY seckill:stock:7 1").await?;
    fixture.typed("SADD seckill:order:7 1").await?;
    assert_eq!(store.releases().release(&release(1, 1)).await?, ReleaseReply::Released);
    // The journal cannot know the orders that were sold until now, so it does not become complete.
    fixture.typed("HSET seckill:voucher:7 end_ms 1").await?;
    assert_eq!(store.sales().load(voucher(), 20, window).await?, LoadReply::Loaded);
    assert_eq!(sum(&fixture).await?, None);
    Ok(())
}

#[tokio::test]
async fn with_a_complete_journal_only_what_it_holds_as_admitted_is_released() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 10, SaleWindow::default()).await?;
    fixture.store.admissions().admit(&admission(1, 1)).await?;
    let before = fixture.everything().await?;
    let many = fixture.store.releases().release_all(&[release(2, 2), release(3, 3)]).await;
    assert!(many.iter().all(|reply| matches!(reply, Ok(ReleaseReply::NotAdmitted))), "{many:?}");
    assert_eq!(fixture.store.releases().release(&release(2, 2)).await?, ReleaseReply::NotAdmitted);
    assert_eq!(fixture.everything().await?, before);
    let both = fixture.store.releases().release_all(&[release(1, 1), release(2, 2)]).await;
    assert!(matches!(both[..], [Ok(ReleaseReply::Released), Ok(ReleaseReply::NotAdmitted)]), "{both:?}");
    assert_eq!(fixture.store.releases().release(&release(1, 1)).await?, ReleaseReply::ReleasedBefore);
    assert_eq!(sum(&fixture).await?, Some(Sum::Holds));
    Ok(())
}
