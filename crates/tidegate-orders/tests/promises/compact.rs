//! Tests of compaction, on a real Redis: final orders leave the journal, the sum stays, and all scripts answer as
//! before.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use fred::interfaces::HashesInterface;
use tidegate_orders::{
    records::journal::{PURGED, Purged, Sum},
    scripts::{AdmitReply, CompactReply, OrderCompaction, ReleaseReply, SaleWindow, ScriptError, SumCheck},
};

use crate::fixture::{Fixture, admission, release, voucher};

async fn note(fixture: &Fixture, field: &str) -> Result<Option<String>> {
    Ok(fixture.pool.hget(fixture.store.keys().journal(voucher()), field).await?)
}

/// The journal, by field.
async fn journal(fixture: &Fixture) -> Result<BTreeMap<String, String>> {
    Ok(fixture.pool.hgetall(fixture.store.keys().journal(voucher())).await?)
}

async fn compact(fixture: &Fixture, orders: &[OrderCompaction]) -> Result<(u64, u64, u64)> {
    match fixture.store.repairs().compact(voucher(), 1_000, orders).await? {
        CompactReply::Compacted { released, used, shortened } => Ok((released, used, shortened)),
        CompactReply::NotComplete => anyhow::bail!("the journal is not complete"),
    }
}

async fn expect_sum(fixture: &Fixture) -> Result<i64> {
    match fixture.store.journals().check_sum(voucher(), u64::MAX).await? {
        SumCheck::Checked(snapshot, Sum::Holds) => snapshot.stock.context("a stock"),
        other => anyhow::bail!("{other:?}"),
    }
}

async fn sale() -> Result<Fixture> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 100, SaleWindow::default()).await?;
    for order in 1..=6 {
        assert_eq!(fixture.store.admissions().admit(&admission(order, order)).await?, AdmitReply::Admitted);
    }
    for order in [1, 2] {
        assert_eq!(fixture.store.releases().release(&release(order, order)).await?, ReleaseReply::Released);
    }
    Ok(fixture)
}

async fn read(
    fixture: &Fixture,
    orders: std::ops::RangeInclusive<i64>,
    how: fn(tidegate_orders::OrderId, &str) -> Option<OrderCompaction>,
) -> Result<Vec<OrderCompaction>> {
    let mut compacts = Vec::new();
    for order in orders {
        let found = note(fixture, &order.to_string()).await?.context("a note")?;
        compacts.extend(how(order.try_into()?, &found));
    }
    Ok(compacts)
}

#[tokio::test]
async fn what_is_compacted_is_counted_once_and_the_sum_stays() -> Result<()> {
    let fixture = sale().await?;
    let removed = read(&fixture, 1..=3, OrderCompaction::remove).await?;
    assert_eq!(compact(&fixture, &removed[..2]).await?, (2, 0, 0));
    assert_eq!(compact(&fixture, &removed).await?, (0, 1, 0), "two of them were compacted before");
    assert_eq!(compact(&fixture, &removed).await?, (0, 0, 0));
    let purged = note(&fixture, PURGED).await?.and_then(|note| Purged::parse(note.as_bytes()));
    let expected = Purged {
        change: -1,
        released_orders: 2,
        released_units: 2,
        used_orders: 1,
        used_units: 1,
        before_ms: 1_000,
    };
    assert_eq!(purged, Some(expected));
    assert_eq!(fixture.store.journals().snapshot(voucher()).await?.purged, Some(expected));
    assert_eq!((note(&fixture, "1").await?, expect_sum(&fixture).await?), (None, 96));
    Ok(())
}

#[tokio::test]
async fn an_order_that_moved_since_it_was_read_is_left() -> Result<()> {
    let fixture = sale().await?;
    let read = read(&fixture, 3..=4, OrderCompaction::remove).await?;
    fixture.store.releases().release(&release(3, 3)).await?;
    assert_eq!(compact(&fixture, &read).await?, (0, 1, 0));
    assert!(note(&fixture, "3").await?.is_some() && note(&fixture, "4").await?.is_none());
    assert_eq!(expect_sum(&fixture).await?, 97);
    Ok(())
}

#[tokio::test]
async fn a_shortened_order_is_admitted_before_belongs_to_its_user_and_is_released_once() -> Result<()> {
    let fixture = sale().await?;
    let short = read(&fixture, 3..=6, OrderCompaction::shorten).await?;
    assert_eq!(compact(&fixture, &short).await?, (0, 0, 4));
    assert_eq!(note(&fixture, PURGED).await?, None);
    let short = note(&fixture, "3").await?.context("a note")?;
    assert!(short.starts_with(r#"{"action":"admit","change":-1,"by":"3","timestamp":"#), "{short}");
    assert_eq!(expect_sum(&fixture).await?, 96);

    assert_eq!(fixture.store.admissions().admit(&admission(3, 3)).await?, AdmitReply::AdmittedBefore);
    assert!(matches!(
        fixture.store.admissions().admit(&admission(3, 99)).await,
        Err(ScriptError::IdTaken { .. })
    ));
    let many = fixture.store.admissions().admit_all(&[admission(4, 4), admission(4, 98)]).await;
    assert!(
        matches!(many[..], [Ok(AdmitReply::AdmittedBefore), Err(ScriptError::IdTaken { .. })]),
        "{many:?}"
    );
    assert!(matches!(
        fixture.store.releases().release(&release(3, 99)).await,
        Err(ScriptError::IdTaken { .. })
    ));

    assert_eq!(fixture.store.releases().release(&release(3, 3)).await?, ReleaseReply::Released);
    assert_eq!(fixture.store.releases().release(&release(3, 3)).await?, ReleaseReply::ReleasedBefore);
    for reply in fixture.store.releases().release_all(&[release(4, 4), release(5, 5)]).await {
        assert_eq!(reply?, ReleaseReply::Released);
    }
    assert_eq!(fixture.store.admissions().admit(&admission(4, 4)).await?, AdmitReply::Released);
    assert_eq!(expect_sum(&fixture).await?, 99);
    // Notes that are short, released and final by now leave the journal with a change of 0.
    let removed = read(&fixture, 3..=5, OrderCompaction::remove).await?;
    assert_eq!(compact(&fixture, &removed).await?, (3, 0, 0));
    let purged = fixture.store.journals().snapshot(voucher()).await?.purged.context("it is compacted")?;
    assert_eq!((purged.change, purged.released_units, expect_sum(&fixture).await?), (0, 3, 99));
    Ok(())
}

#[tokio::test]
async fn a_release_of_a_compacted_order_gives_nothing_back() -> Result<()> {
    let fixture = sale().await?;
    let removed = read(&fixture, 1..=3, OrderCompaction::remove).await?;
    compact(&fixture, &removed).await?;
    for order in 1..=3 {
        assert_eq!(
            fixture.store.releases().release(&release(order, order)).await?,
            ReleaseReply::NotAdmitted
        );
    }
    for reply in fixture.store.releases().release_all(&[release(1, 1), release(3, 3)]).await {
        assert_eq!(reply?, ReleaseReply::NotAdmitted);
    }
    assert_eq!(expect_sum(&fixture).await?, 96);
    Ok(())
}

#[tokio::test]
async fn nothing_is_compacted_of_a_journal_that_is_not_complete_or_whose_counts_nobody_can_read() -> Result<()>
{
    let fixture = sale().await?;
    let removed = read(&fixture, 1..=3, OrderCompaction::remove).await?;
    fixture.words(&["HSET", "seckill:journal:7", PURGED, r#"{"change":0}"#]).await?;
    let before = journal(&fixture).await?;
    let error = fixture.store.repairs().compact(voucher(), 1_000, &removed).await.unwrap_err();
    assert!(error.to_string().contains("BADARG"), "{error}");
    assert_eq!(journal(&fixture).await?, before);
    fixture.words(&["HDEL", "seckill:journal:7", PURGED, "#complete"]).await?;
    let before = journal(&fixture).await?;
    assert_eq!(fixture.store.repairs().compact(voucher(), 1_000, &removed).await?, CompactReply::NotComplete);
    assert_eq!(journal(&fixture).await?, before);
    Ok(())
}
