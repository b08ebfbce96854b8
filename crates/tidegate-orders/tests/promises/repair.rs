//! Tests of repairs in Redis: afterwards, the stock is the sum of a complete journal again. Orders may move meanwhile,
//! and the same repair may be sent several times.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixture::{Fixture, admission, release, voucher};
use anyhow::{Context, Result, ensure};
use fred::interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface};
use proptest::{prelude::*, test_runner::TestRunner};
use tidegate_orders::{
    JournalNote, Quantity,
    scripts::{
        OrderRepair, RepairAction, RepairAnswer, RepairGuard, RepairReply, StockChange, UserAfter,
        VoucherRepair, WholeChange,
    },
};

/// A step that moves a sale, or a manual change that damages it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Admit {
        order: i64,
        user: i64,
        quantity: i64,
    },
    Release {
        order: i64,
        user: i64,
    },
    /// An operator changes the stock.
    Drift(i64),
    /// The note of an order is lost.
    LoseNote(i64),
    /// The user of an order is no longer a buyer.
    Unbar(i64),
}

#[derive(Clone, Debug)]
struct Case {
    before: Vec<Step>,
    between: Vec<Step>,
    /// The steps between a repair and its second sending.
    after: Vec<Step>,
    loaded: i64,
    wanted: Vec<(i64, i64, RepairAction)>,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..7_i64, 1..5_i64, 1..3_i64).prop_map(|(order, user, quantity)| Step::Admit { order, user, quantity }),
        4 => (1..7_i64, 1..5_i64).prop_map(|(order, user)| Step::Release { order, user }),
        2 => (-4..5_i64).prop_map(Step::Drift),
        1 => (1..7_i64).prop_map(Step::LoseNote),
        1 => (1..5_i64).prop_map(Step::Unbar),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let action = prop_oneof![
        3 => (1..4_i64).prop_map(|units| RepairAction::Admit(units.try_into().expect("a quantity"))),
        3 => Just(RepairAction::Release(UserAfter::Freed)),
        1 => Just(RepairAction::Release(UserAfter::StaysBuyer)),
        1 => Just(RepairAction::Bar),
        1 => Just(RepairAction::Unbar),
    ];
    let steps = |most| prop::collection::vec(step(), 0..most);
    let wanted = prop::collection::vec((1..7_i64, 1..5_i64, action), 0..6);
    (steps(14), steps(5), steps(5), -5..6_i64, wanted)
        .prop_map(|(before, between, after, loaded, wanted)| Case { before, between, after, loaded, wanted })
}

/// The sale as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    stock: i64,
    journal: BTreeMap<String, String>,
    buyers: BTreeSet<i64>,
}

impl Held {
    async fn read(fixture: &Fixture) -> Result<Self> {
        let (pool, keys) = (&fixture.pool, fixture.store.keys());
        let buyers: Vec<i64> = pool.smembers(keys.buyers(voucher())).await?;
        Ok(Self {
            stock: pool.get(keys.stock(voucher())).await?,
            journal: pool.hgetall(keys.journal(voucher())).await?,
            buyers: buyers.into_iter().collect(),
        })
    }

    fn sum(&self) -> i64 {
        let entries = self.journal.values().filter_map(|note| JournalNote::parse(note.as_bytes()));
        entries.map(|entry| entry.total_change()).sum()
    }

    /// The difference between the stock and the sum of the journal.
    fn drift(&self) -> i64 {
        self.stock - self.sum()
    }

    fn note(&self, order: i64) -> Option<String> {
        self.journal.get(&order.to_string()).cloned()
    }
}

/// A sale of ten units whose journal is complete.
async fn open_sale(fixture: &Fixture) -> Result<()> {
    fixture.typed("FLUSHALL").await?;
    fixture.pool.set::<(), _, _>(fixture.store.keys().stock(voucher()), 10, None, None, false).await?;
    let load = r##"{"action":"load","from":null,"to":10,"change":10,"by":"x","timestamp":1}"##;
    let complete = r##"{"action":"complete","by":"load","timestamp":1}"##;
    let fields = [("#load", load), ("#complete", complete)];
    fixture.pool.hset::<(), _, _>(fixture.store.keys().journal(voucher()), fields.to_vec()).await?;
    Ok(())
}

async fn apply(fixture: &Fixture, step: Step) -> Result<()> {
    let (pool, keys) = (&fixture.pool, fixture.store.keys());
    match step {
        Step::Admit { order, user, quantity } => {
            let mut wanted = admission(order, user);
            wanted.quantity = quantity.try_into()?;
            // The order may be refused, or its id may belong to another user: then nothing moves.
            _ = fixture.store.admissions().admit(&wanted).await;
        }
        Step::Release { order, user } => {
            let note = Held::read(fixture).await?.note(order);
            let entry = note.and_then(|note| JournalNote::parse(note.as_bytes()));
            // A caller that releases an order knows its quantity.
            let units = entry.and_then(|entry| Quantity::try_from(-entry.change?).ok());
            if units.is_some() {
                let _of_another_user = fixture
                    .store
                    .releases()
                    .release(&tidegate_orders::scripts::Release { units, ..release(order, user) })
                    .await;
            }
        }
        Step::Drift(units) => _ = pool.incr_by::<i64, _>(keys.stock(voucher()), units).await?,
        Step::LoseNote(order) => {
            _ = pool.hdel::<i64, _, _>(keys.journal(voucher()), order.to_string()).await?
        }
        Step::Unbar(user) => _ = pool.srem::<i64, _, _>(keys.buyers(voucher()), user).await?,
    }
    Ok(())
}

fn repair(id: &str, guard: &RepairGuard, held: &Held, case: &Case) -> Result<VoucherRepair> {
    let orders = case.wanted.iter().map(|(order, user, action)| {
        let (order, user, action) = ((*order).try_into()?, (*user).try_into()?, *action);
        Ok(OrderRepair { order: Some(order), found: held.note(order.get()), user, action, limited: None })
    });
    Ok(VoucherRepair {
        id: id.to_owned(),
        voucher: voucher(),
        guard: guard.clone(),
        loaded: case.loaded,
        drift: held.drift(),
        orders: orders.collect::<Result<_>>()?,
    })
}

/// Checks the notes of orders that were repaired, and of those that had moved.
fn check_orders(repair: &VoucherRepair, answers: &[RepairAnswer], before: &Held, after: &Held) -> Result<()> {
    let mut repaired = BTreeSet::new();
    for (order, answer) in repair.orders.iter().zip(answers) {
        let id = order.order.context("an order")?.get();
        let moves = !matches!(order.action, RepairAction::Bar | RepairAction::Unbar);
        if *answer == RepairAnswer::Repaired && moves {
            ensure!(repaired.insert(id), "order {id} was repaired twice");
            let note = after.note(id).context("a note")?;
            ensure!(note.contains(&format!(r#""repair:{}""#, repair.id)), "{note}");
            ensure!(before.note(id) == order.found, "order {id} had moved");
        }
        if before.note(id) != order.found {
            ensure!(*answer == RepairAnswer::Moved, "order {id} had moved, and: {answer:?}");
        }
    }
    for (field, note) in &before.journal {
        let is_repaired = field.parse().is_ok_and(|order| repaired.contains(&order));
        ensure!(is_repaired || after.journal.get(field) == Some(note), "{field} was {note}");
    }
    Ok(())
}

async fn run(fixture: &Fixture, case: &Case) -> Result<()> {
    open_sale(fixture).await?;
    for step in &case.before {
        apply(fixture, *step).await?;
    }
    let guard = fixture.store.repairs().repair_guard(voucher()).await?;
    let look = Held::read(fixture).await?;
    for step in &case.between {
        apply(fixture, *step).await?;
    }
    let before = Held::read(fixture).await?;
    let first = repair("a.1", &guard, &look, case)?;
    let reply = fixture.store.repairs().repair(&first).await?;
    let after = Held::read(fixture).await?;
    let RepairReply::Made(answers) = reply else { anyhow::bail!("{reply:?}") };
    check_orders(&first, &answers, &before, &after)?;
    // The repair leaves the drift that came after the look, and no other.
    ensure!(after.drift() == before.drift() - look.drift(), "{before:?}\n{after:?}");
    for step in &case.after {
        apply(fixture, *step).await?;
    }
    let later = Held::read(fixture).await?;
    let again = fixture.store.repairs().repair(&first).await?;
    let RepairReply::Made(again) = again else { anyhow::bail!("{again:?}") };
    ensure!(Held::read(fixture).await? == later, "the second sending changed something");
    if case.after.is_empty() {
        let repaired =
            |answers: &[RepairAnswer]| answers.iter().filter(|it| **it != RepairAnswer::Moved).count();
        ensure!(repaired(&again) >= repaired(&answers), "{answers:?}, then {again:?}");
    }
    // Another repair that looked at the same time.
    let second = repair("b.1", &guard, &look, case)?;
    ensure!(fixture.store.repairs().repair(&second).await? == RepairReply::Overtaken);
    ensure!(Held::read(fixture).await? == later, "a repair that was overtaken changed something");
    Ok(())
}

#[test]
fn after_a_repair_a_complete_journal_adds_up_to_the_stock_whatever_moved_and_however_often_it_is_sent()
-> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let fixture = runtime.block_on(Fixture::new())?;
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&case(), |case| {
        runtime.block_on(run(&fixture, &case)).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    runtime.block_on(fixture.pool.quit())?;
    Ok(())
}

#[tokio::test]
async fn a_repair_is_refused_where_something_else_than_orders_came_between() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (pool, keys) = (&fixture.pool, fixture.store.keys());
    open_sale(&fixture).await?;
    let guard = fixture.store.repairs().repair_guard(voucher()).await?;
    let moving = VoucherRepair {
        id: "a".to_owned(),
        voucher: voucher(),
        guard: guard.clone(),
        loaded: 1,
        drift: 0,
        orders: Vec::new(),
    };
    // An open change of stock, and later its end, stop repairs that move the stock, and no other repairs.
    let change = StockChange::new(-5, 10, "somebody".to_owned());
    fixture.store.sales().note_change(&[None], &WholeChange { sides: vec![(voucher(), change)] }).await?;
    assert_eq!(fixture.store.repairs().repair(&moving).await?, RepairReply::StockChanged);
    let open = fixture.store.repairs().repair_guard(voucher()).await?;
    assert!(open.is_change_open() && open.is_complete());
    let knowing = VoucherRepair { guard: open, ..moving.clone() };
    assert_eq!(fixture.store.repairs().repair(&knowing).await?, RepairReply::StockChanged);
    let orders = vec![OrderRepair {
        order: Some(9.try_into()?),
        found: None,
        user: 9.try_into()?,
        action: RepairAction::Admit(Quantity::ONE),
        limited: None,
    }];
    let of_orders = VoucherRepair { loaded: 0, orders: orders.clone(), ..moving.clone() };
    assert_eq!(
        fixture.store.repairs().repair(&of_orders).await?,
        RepairReply::Made(vec![RepairAnswer::Repaired])
    );
    // The next part of the same repair accepts the part before it.
    let next = VoucherRepair { id: "b".to_owned(), guard: guard.after("a"), ..of_orders.clone() };
    assert_eq!(fixture.store.repairs().repair(&next).await?, RepairReply::Made(vec![RepairAnswer::Moved]));
    let late = VoucherRepair { id: "c".to_owned(), ..of_orders.clone() };
    assert_eq!(fixture.store.repairs().repair(&late).await?, RepairReply::Overtaken);
    let guard = fixture.store.repairs().repair_guard(voucher()).await?;
    pool.del::<(), _>(keys.stock(voucher())).await?;
    let late = VoucherRepair { guard, ..late };
    assert_eq!(fixture.store.repairs().repair(&late).await?, RepairReply::NoStock);
    pool.hdel::<(), _, _>(keys.journal(voucher()), "#complete").await?;
    assert_eq!(fixture.store.repairs().repair(&late).await?, RepairReply::NotComplete);
    Ok(())
}

#[tokio::test]
async fn a_repair_that_redis_refuses_leaves_no_trace() -> Result<()> {
    let fixture = Fixture::new().await?;
    open_sale(&fixture).await?;
    fixture.store.admissions().admit(&admission(1, 1)).await?;
    let guard = fixture.store.repairs().repair_guard(voucher()).await?;
    let found = Held::read(&fixture).await?.note(1);
    let orders = vec![OrderRepair {
        order: Some(1.try_into()?),
        found,
        user: 1.try_into()?,
        action: RepairAction::Release(UserAfter::Freed),
        limited: None,
    }];
    let repair = VoucherRepair { id: "a".to_owned(), voucher: voucher(), guard, loaded: 0, drift: 3, orders };
    let before = fixture.everything().await?;
    fixture.typed("CONFIG SET maxmemory 1").await?;
    ensure!(fixture.store.repairs().repair(&repair).await.is_err());
    fixture.typed("CONFIG SET maxmemory 0").await?;
    assert_eq!(fixture.everything().await?, before);
    for (what, change) in [
        ("an id", VoucherRepair { id: "a b".to_owned(), ..repair.clone() }),
        ("too many units", VoucherRepair { loaded: 99_999_999_999_999, ..repair.clone() }),
        ("far too many", VoucherRepair { loaded: i64::MAX, ..repair.clone() }),
    ] {
        ensure!(fixture.store.repairs().repair(&change).await.is_err(), "{what}");
        assert_eq!(fixture.everything().await?, before, "{what}");
    }
    assert_eq!(
        fixture.store.repairs().repair(&repair).await?,
        RepairReply::Made(vec![RepairAnswer::Repaired])
    );
    let held = Held::read(&fixture).await?;
    assert_eq!((held.stock, held.buyers.len()), (10 - 3, 0));
    Ok(())
}

#[tokio::test]
async fn an_order_that_was_repaired_is_admitted_or_released_for_its_caller() -> Result<()> {
    use tidegate_orders::scripts::AdmitReply;
    let fixture = Fixture::new().await?;
    open_sale(&fixture).await?;
    fixture.store.admissions().admit(&admission(1, 1)).await?;
    let guard = fixture.store.repairs().repair_guard(voucher()).await?;
    let found = Held::read(&fixture).await?.note(1);
    let one = |order: i64, found, action| -> Result<OrderRepair> {
        Ok(OrderRepair {
            order: Some(order.try_into()?),
            found,
            user: order.try_into()?,
            action,
            limited: None,
        })
    };
    let orders = vec![
        one(1, found, RepairAction::Release(UserAfter::Freed))?,
        one(2, None, RepairAction::Admit(Quantity::ONE))?,
    ];
    let repair = VoucherRepair { id: "a".to_owned(), voucher: voucher(), guard, loaded: 0, drift: 0, orders };
    assert_eq!(
        fixture.store.repairs().repair(&repair).await?,
        RepairReply::Made(vec![RepairAnswer::Repaired; 2])
    );
    assert_eq!(fixture.store.admissions().admit(&admission(1, 1)).await?, AdmitReply::Released);
    assert_eq!(fixture.store.admissions().admit(&admission(2, 2)).await?, AdmitReply::AdmittedBefore);
    assert_eq!(fixture.store.admissions().admit(&admission(3, 2)).await?, AdmitReply::UserHasOrder);
    assert_eq!(fixture.store.admissions().admit(&admission(4, 1)).await?, AdmitReply::Admitted);
    let held = Held::read(&fixture).await?;
    assert_eq!((held.stock, held.drift()), (8, 0));
    Ok(())
}
