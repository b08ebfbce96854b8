//! Tests of compaction on real servers: both sides agree afterwards, and repeated events or orders move no unit.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use fred::interfaces::StreamsInterface;
use tidegate_compare::{Comparison, ComparisonReport, ComparisonRequest, Pace, reconciled::DifferenceKind};
use tidegate_orders::{
    Sum,
    records::journal::Purged,
    scripts::{AdmitReply, SumCheck},
};
use tidegate_reconcile::compact::{CompactReport, Compactor};
use tidegate_stream::server_time_ms;

use crate::fixture::{Fixture, UNITS, job, voucher};

impl Fixture {
    fn compactor(&self, pace: Pace) -> Compactor {
        let stores = (self.store.clone(), self.mysql.clone());
        Compactor::new(stores, (Duration::ZERO, pace))
    }

    async fn compact(&self) -> Result<CompactReport> {
        self.compact_at(Pace::Full).await
    }

    async fn compact_at(&self, pace: Pace) -> Result<CompactReport> {
        let compactor = self.compactor(pace);
        Ok(compactor.compact(&[voucher()], compactor.cut_off_ms().await?, &job()).await?)
    }

    /// Empties the stream, as the retention does.
    async fn trim(&self) -> Result<()> {
        self.typed("XTRIM stream.orders MAXLEN 0").await?;
        Ok(())
    }

    async fn compare(&self) -> Result<ComparisonReport> {
        let stores = (self.store.clone(), self.mysql.clone());
        let request = ComparisonRequest { vouchers: vec![voucher()], since_ms: None, pace: Pace::Full };
        Ok(Comparison::new(stores, request).run(&job(), |_| {}).await?)
    }

    async fn expect_clean(&self) -> Result<()> {
        let report = self.compare().await?;
        ensure!(report.is_clean(), "{:#?}", report.vouchers);
        Ok(())
    }

    async fn kinds(&self) -> Result<BTreeMap<DifferenceKind, u64>> {
        Ok(self.compare().await?.counts())
    }

    async fn purged(&self) -> Result<Purged> {
        self.store.journals().snapshot(voucher()).await?.purged.context("something is compacted")
    }

    /// Orders 1 to 12, each with the number of its user. Orders 1 to 3 are cancelled, 4 to 6 used, 7 and 8 refunded, 9
    /// and 10 paid, 11 and 12 unpaid. Order 13 is a second order of user 12, and refused.
    async fn live_through_all(&self) -> Result<()> {
        self.admit(1..=12).await?;
        self.typed("SREM seckill:order:10 12").await?;
        let mut second = self.admission(13)?;
        second.user = 12.try_into()?;
        ensure!(self.store.admissions().admit(&second).await? == AdmitReply::Admitted);
        for order in 4..=10 {
            self.event(order, "paid", &format!(" ref p{order}")).await?;
        }
        for (orders, event) in [(1..=3, "cancelled"), (4..=6, "used"), (7..=8, "refunded")] {
            for order in orders {
                self.event(order, event, "").await?;
            }
        }
        self.work().await
    }

    /// All entries of the stream, each with its fields.
    async fn entries(&self) -> Result<Vec<Vec<(String, String)>>> {
        type Fields = std::collections::HashMap<String, String>;
        let entries: Vec<(String, Fields)> =
            self.redis.xrange_values("stream.orders", "-", "+", None).await?;
        Ok(entries.into_iter().map(|(_, fields)| fields.into_iter().collect()).collect())
    }

    async fn append(&self, entries: &[Vec<(String, String)>]) -> Result<()> {
        for fields in entries {
            let words: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            self.typed(&format!("XADD stream.orders * {}", words.join(" "))).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn what_is_final_is_compacted_live_orders_stay_and_both_sides_agree() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.live_through_all().await?;
    fixture.expect_clean().await?;
    assert_eq!(fixture.compact().await?, CompactReport::default(), "the stream still holds their entries");
    fixture.trim().await?;
    assert_eq!(fixture.compact().await?, CompactReport { released: 6, used: 3, shortened: 4 });
    let held = fixture.held().await?;
    let mut left: Vec<&str> = held.journal.keys().map(String::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["#complete", "#load", "#purged", "10", "11", "12", "9"]);
    assert_eq!((held.stock, held.mysql_stock, held.buyers.len()), (UNITS - 7, UNITS - 7, 7));
    let purged = fixture.purged().await?;
    assert_eq!((purged.change, purged.released_orders, purged.released_units), (-3, 6, 6));
    assert_eq!((purged.used_orders, purged.used_units), (3, 3));
    fixture.expect_clean().await?;
    assert_eq!(fixture.compact().await?, CompactReport::default());

    // A month later: the live order with the short note is released once, and compacted, too.
    for _ in 0..2 {
        fixture.event(9, "refunded", " ref r9").await?;
        fixture.work().await?;
    }
    fixture.event(10, "used", "").await?;
    fixture.work().await?;
    assert_eq!(fixture.held().await?.stock, UNITS - 6);
    fixture.expect_clean().await?;
    fixture.trim().await?;
    assert_eq!(fixture.compact().await?, CompactReport { released: 1, used: 1, shortened: 0 });
    let purged = fixture.purged().await?;
    assert_eq!((purged.change, purged.released_orders, purged.used_orders), (-4, 7, 4));
    fixture.expect_clean().await
}

#[tokio::test]
async fn units_that_a_refusal_did_not_bring_back_stay_out_of_what_was_loaded() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.sql("UPDATE tb_seckill_voucher SET stock = 1, initial_stock = 1 WHERE voucher_id = 10").await?;
    fixture.admit(1..=4).await?;
    fixture.work().await?;
    let before = fixture.compare().await?.vouchers[0].totals.clone();
    fixture.trim().await?;
    assert_eq!(fixture.compact().await?, CompactReport { released: 3, used: 0, shortened: 1 });
    let after = fixture.compare().await?.vouchers[0].totals.clone();
    assert_eq!(
        (after.redis.loaded, after.redis.drift, after.redis.stock),
        (before.redis.loaded, Some(0), before.redis.stock)
    );
    Ok(())
}

#[tokio::test]
async fn what_the_group_has_still_to_handle_or_has_buried_is_not_compacted() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.live_through_all().await?;
    fixture.trim().await?;
    // An unread entry and a pending one, each of a cancelled order, and a dead letter of a used order.
    let after_all = server_time_ms(&fixture.redis).await? + 10_000;
    let events = ["event paid orderId 1 userId 1 voucherId 10 ref late", "userId 2 voucherId 10 id 2"];
    for (n, event) in events.into_iter().enumerate() {
        fixture.typed(&format!("XADD stream.orders {after_all}-{n} {event}")).await?;
    }
    fixture.typed("XREADGROUP GROUP g1 c1 COUNT 1 STREAMS stream.orders >").await?;
    fixture
        .typed("XADD stream.orders.dead * userId 4 voucherId 10 id 4 dead_reason x dead_entry 1-1")
        .await?;
    let report = fixture.compact().await?;
    let held = fixture.held().await?;
    for order in ["1", "2"] {
        assert!(held.journal.contains_key(order), "{order} of {:?}", held.journal.keys());
    }
    assert_eq!(report.released, 4);
    Ok(())
}

#[tokio::test]
async fn entries_of_compacted_orders_that_come_again_give_nothing_back_and_sell_nothing() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.live_through_all().await?;
    let entries = fixture.entries().await?;
    fixture.trim().await?;
    fixture.compact().await?;
    let before = fixture.held().await?;
    for _ in 0..2 {
        fixture.append(&entries).await?;
        fixture.work().await?;
        let after = fixture.held().await?;
        assert_eq!(
            (after.stock, &after.journal, &after.buyers),
            (before.stock, &before.journal, &before.buyers)
        );
        assert_eq!((after.mysql_stock, &after.rows), (before.mysql_stock, &before.rows));
    }
    fixture.expect_clean().await
}

#[tokio::test]
async fn the_id_of_a_compacted_order_that_is_asked_for_again_sells_nothing_and_comes_back_once() -> Result<()>
{
    let fixture = Fixture::start().await?;
    fixture.live_through_all().await?;
    fixture.trim().await?;
    fixture.compact().await?;
    let before = fixture.held().await?;
    assert_eq!(
        fixture.store.admissions().admit(&fixture.admission(4)?).await?,
        AdmitReply::UserHasOrder,
        "it was used"
    );
    // One cancelled order and one refunded order.
    for order in [1, 7] {
        assert_eq!(fixture.store.admissions().admit(&fixture.admission(order)?).await?, AdmitReply::Admitted);
    }
    fixture.work().await?;
    let after = fixture.held().await?;
    assert_eq!((after.mysql_stock, &after.rows), (before.mysql_stock, &before.rows));
    assert_eq!((after.stock, &after.buyers), (before.stock, &before.buyers));
    fixture.expect_clean().await
}

#[tokio::test]
async fn used_orders_that_mysql_lacks_are_counted_and_a_live_one_that_redis_lacks_is_named() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.live_through_all().await?;
    fixture.trim().await?;
    fixture.compact().await?;
    fixture.typed("HDEL seckill:journal:10 9").await?;
    fixture.typed("INCRBY seckill:stock:10 1").await?;
    assert_eq!(fixture.kinds().await?, BTreeMap::from([(DifferenceKind::NotAdmitted, 1)]));
    fixture.sql("DELETE FROM tb_voucher_order WHERE id = 5").await?;
    fixture.sql("UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 10").await?;
    let report = fixture.compare().await?;
    let mismatch =
        report.vouchers[0].differences.iter().find(|it| it.kind == DifferenceKind::CompactedMismatch);
    let first = mismatch.and_then(|it| it.first.first()).context("it is counted")?;
    assert_eq!((first.units, first.order, first.repair), (1, None, tidegate_compare::RepairMethod::ByHand));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_while_a_journal_is_added_up_never_makes_the_sum_wrong() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=6_000).await?;
    fixture.work().await?;
    // The orders are cancelled directly in the tables, without events.
    fixture.sql("UPDATE tb_voucher_order SET status = 4, slot = NULL").await?;
    fixture.sql(&format!("UPDATE tb_seckill_voucher SET stock = {UNITS}")).await?;
    for orders in (1..=6_000).collect::<Vec<i64>>().chunks(250) {
        let releases = orders.iter().map(|order| fixture.release(*order)).collect::<Result<Vec<_>>>()?;
        for reply in fixture.store.releases().release_all(&releases).await {
            reply?;
        }
    }
    fixture.trim().await?;
    let compaction = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.compact().await }
    });
    let mut looks = 0;
    while !compaction.is_finished() {
        match fixture.store.journals().check_sum(voucher(), u64::MAX).await? {
            SumCheck::Checked(_, Sum::Mismatch(units)) => panic!("{units} units apart"),
            SumCheck::Checked(..) => looks += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(compaction.await??, CompactReport { released: 6_000, used: 0, shortened: 0 });
    assert!(looks > 0);
    fixture.expect_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_while_journals_are_compacted_find_nothing() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.admit(1..=4_000).await?;
    fixture.work().await?;
    fixture.trim().await?;
    // The orders are used directly in the tables, without the stream.
    fixture.sql("UPDATE tb_voucher_order SET status = 3").await?;
    let events = "INSERT INTO tidegate_event \
         (order_id, step, event, outcome, user_id, voucher_id, from_status, to_status, entry_id) \
         SELECT id, 1, 'used', 'applied', user_id, voucher_id, 2, 3, entry_id FROM tb_voucher_order";
    fixture.sql(events).await?;
    let compaction = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.compact_at(Pace::Quarter).await }
    });
    let mut looks = 0;
    while looks == 0 || !compaction.is_finished() {
        let found = fixture.kinds().await?;
        assert!(found.is_empty(), "{found:?}");
        looks += 1;
    }
    assert_eq!(compaction.await??, CompactReport { released: 0, used: 4_000, shortened: 0 });
    fixture.expect_clean().await
}
