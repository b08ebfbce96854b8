//! Tests of the scripts that end a dead letter: each ends it once, in one step, and a refusal leaves no trace.

use std::collections::BTreeMap;

use crate::fixture::{Fixture, STREAM, release, voucher};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use fred::interfaces::StreamsInterface;
use proptest::{prelude::*, test_runner::TestRunner};
use tidegate_orders::{
    DeadLetters, Quantity,
    dead_letters::{CancelReply, DropReply, MOST_FIELDS, RequeueReply},
    scripts::{Release, ReleaseReply, ScriptError, UserAfter},
};
use tidegate_stream::{DeliveryHistory, Letter, StreamInspector};

const DEAD: &str = "stream.orders.dead";

struct Morgue {
    fixture: Fixture,
    letters: DeadLetters,
    inspector: StreamInspector,
}

impl Morgue {
    async fn new() -> Result<Self> {
        let fixture = Fixture::new().await?;
        let letters = DeadLetters::new(fixture.store.clone());
        Ok(Self { inspector: fixture.store.inspector().clone(), fixture, letters })
    }

    /// An entry and its letter, as `lua/bury.lua` leaves them.
    async fn buried(&self, fields: &[(Bytes, Bytes)]) -> Result<Letter> {
        let fields = fields.to_vec();
        let entry: String = self.fixture.pool.xadd(STREAM, false, None, "*", fields.clone()).await?;
        self.letter_of(&entry, fields).await
    }

    async fn letter_of(&self, entry: &str, mut fields: Vec<(Bytes, Bytes)>) -> Result<Letter> {
        let about = [
            ("dead:entry", entry),
            ("dead:reason", "unknown_voucher"),
            ("dead:error", "voucher 7 is unknown"),
            ("dead:consumer", "w-0"),
            ("dead:deliveries", "1"),
            ("dead:at_ms", "1718000000000"),
        ];
        fields.extend(about.map(|(name, value)| (Bytes::from(name), Bytes::from(value.to_owned()))));
        let id: String = self.fixture.pool.xadd(DEAD, false, None, "*", fields).await?;
        self.letters.find(id.parse()?).await?.context("the letter")
    }

    async fn buried_order(&self, order: i64, user: i64, quantity: i64) -> Result<Letter> {
        self.buried(&order_fields(order, user, quantity)).await
    }

    async fn cancel(&self, letter: &Letter, user_after: UserAfter) -> Result<CancelReply, ScriptError> {
        self.letters.cancel(letter, &self.letters.order_of(letter).expect("an order"), user_after).await
    }

    async fn lengths(&self) -> Result<(u64, u64)> {
        Ok((self.inspector.length(STREAM).await?, self.inspector.length(DEAD).await?))
    }
}

fn order_fields(order: i64, user: i64, quantity: i64) -> Vec<(Bytes, Bytes)> {
    let numbers = [("userId", user), ("voucherId", voucher().get()), ("id", order), ("quantity", quantity)];
    numbers.map(|(name, number)| (name.into(), number.to_string().into())).into()
}

/// Counts each reply.
fn counted<T: std::fmt::Debug>(replies: impl IntoIterator<Item = T>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for reply in replies {
        *counts.entry(format!("{reply:?}")).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_letter_goes_back_once_byte_for_byte_with_its_history() -> Result<()> {
    let morgue = Morgue::new().await?;
    let all_bytes: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let many = vec![(all_bytes.clone(), all_bytes.clone()); MOST_FIELDS];
    let strange =
        vec![("dead:requeued".into(), "x".into()), ("".into(), "".into()), (all_bytes.clone(), all_bytes)];
    for mut fields in [strange, many] {
        let mut letter = morgue.buried(&fields).await?;
        for time in 1..=3 {
            let (first, second) =
                tokio::join!(morgue.letters.requeue(&letter), morgue.letters.requeue(&letter));
            let mut replies = [first?, second?];
            replies.sort_by_key(|reply| *reply == RequeueReply::Gone);
            let [RequeueReply::Requeued(id), RequeueReply::Gone] = replies else { panic!("{replies:?}") };
            let entry = morgue.inspector.entry(STREAM, id).await?.context("the entry")?;
            ensure!(entry.fields.starts_with(&fields) && entry.fields.len() == fields.len() + 2);
            let history = DeliveryHistory::of(&entry);
            ensure!(history.requeued == time && history.burials.len() == time as usize, "{history:?}");
            ensure!(history.burials.last() == letter.burial.as_ref());
            ensure!(morgue.inspector.length(DEAD).await? == 0);
            letter = morgue.letter_of(&id.to_string(), entry.fields).await?;
            ensure!(letter.fields == fields);
        }
        fields.clear();
        morgue.fixture.typed("FLUSHALL").await?;
    }
    // One more field is more than Lua can pass on.
    let letter = morgue.buried(&vec![("a".into(), "b".into()); 8_000]).await?;
    let before = morgue.fixture.everything().await?;
    ensure!(morgue.letters.requeue(&letter).await.is_err());
    ensure!(morgue.fixture.everything().await? == before);
    Ok(())
}

#[tokio::test]
async fn however_many_ask_at_once_an_order_is_released_once() -> Result<()> {
    let morgue = Morgue::new().await?;
    morgue.fixture.typed("SET seckill:stock:7 10").await?;
    morgue.fixture.typed("SADD seckill:order:7 1").await?;
    // Two letters of one order, as after a group was created again, and ten operators.
    let twins = [morgue.buried_order(5, 1, 2).await?, morgue.buried_order(5, 1, 2).await?];
    let asked = (0..10).map(|at| morgue.cancel(&twins[at % 2], UserAfter::Freed));
    let replies = futures_util::future::try_join_all(asked).await?;
    let expected = [
        (CancelReply::Cancelled(ReleaseReply::Released), 1),
        (CancelReply::Cancelled(ReleaseReply::ReleasedBefore), 1),
        (CancelReply::Gone, 8),
    ];
    ensure!(counted(replies) == expected.map(|(reply, count)| (format!("{reply:?}"), count)).into());
    ensure!(morgue.fixture.typed("GET seckill:stock:7").await?.as_i64() == Some(12));
    ensure!(morgue.fixture.typed("SCARD seckill:order:7").await?.as_i64() == Some(0));
    ensure!(morgue.lengths().await? == (0, 0), "a group that is made again brings nothing back");
    // A caller that releases by the journal gets the right answer, too.
    ensure!(morgue.fixture.store.releases().release(&release(5, 1)).await? == ReleaseReply::ReleasedBefore);
    Ok(())
}

#[tokio::test]
async fn what_was_released_is_not_put_back() -> Result<()> {
    let morgue = Morgue::new().await?;
    // Without any key of the sale, a release would leave no note.
    morgue.fixture.typed("SET seckill:stock:7 10").await?;
    let letter = morgue.buried_order(5, 1, 1).await?;
    morgue.fixture.store.releases().release(&release(5, 1)).await?;
    let before = morgue.fixture.everything().await?;
    ensure!(morgue.letters.requeue(&letter).await? == RequeueReply::Released);
    ensure!(morgue.fixture.everything().await? == before);
    Ok(())
}

#[tokio::test]
async fn old_entries_are_deleted_unless_a_group_holds_them_or_they_are_anothers() -> Result<()> {
    let morgue = Morgue::new().await?;
    let cancelled = morgue.buried_order(5, 1, 1).await?;
    let dropped = morgue.buried(&[("userId".into(), "nobody".into())]).await?;
    // A forged letter points at another user's order.
    let other = morgue.buried_order(6, 2, 1).await?;
    let others_entry = other.entry().id;
    let forged = morgue.letter_of(&others_entry.to_string(), vec![("userId".into(), "2".into())]).await?;
    morgue.fixture.typed("XGROUP CREATE stream.orders g2 0").await?;
    morgue.fixture.typed("XREADGROUP GROUP g2 c COUNT 2 STREAMS stream.orders >").await?;

    ensure!(morgue.letters.drop(&forged).await? == DropReply::Dropped);
    ensure!(morgue.inspector.entry(STREAM, others_entry).await?.is_some());
    morgue.cancel(&cancelled, UserAfter::Freed).await?;
    ensure!(morgue.letters.drop(&dropped).await? == DropReply::Dropped);
    ensure!(morgue.lengths().await? == (3, 1), "a group has them in progress");
    morgue.cancel(&other, UserAfter::Freed).await?;
    ensure!(morgue.inspector.entry(STREAM, others_entry).await?.is_none());
    ensure!(morgue.letters.drop(&dropped).await? == DropReply::Gone);
    Ok(())
}

#[tokio::test]
async fn a_letter_whose_units_the_journal_knows_is_not_dropped() -> Result<()> {
    let morgue = Morgue::new().await?;
    let letter = morgue.buried_order(5, 1, 1).await?;
    let note = |user: &str| {
        format!(r#"{{"action":"admit","from":1,"to":0,"change":-1,"by":"{user}","timestamp":1}}"#)
    };
    morgue.fixture.words(&["HSET", "seckill:journal:7", "5", &note("1")]).await?;
    let before = morgue.fixture.everything().await?;
    ensure!(morgue.letters.drop(&letter).await? == DropReply::HoldsUnits);
    ensure!(morgue.fixture.everything().await? == before);
    morgue.fixture.words(&["HSET", "seckill:journal:7", "5", &note("11")]).await?;
    ensure!(morgue.letters.drop(&letter).await? == DropReply::Dropped);
    Ok(())
}

#[tokio::test]
async fn a_wrong_key_type_a_missing_permission_or_no_memory_leaves_no_trace() -> Result<()> {
    let morgue = Morgue::new().await?;
    for key in ["stream.orders", "seckill:stock:7", "seckill:order:7", "seckill:journal:7"] {
        morgue.fixture.typed("FLUSHALL").await?;
        let letter = morgue.buried_order(5, 1, 1).await?;
        // The test sets another key. If the key of the stream is lost, its entries are lost, too.
        morgue.fixture.typed(&format!("DEL {key}")).await?;
        let wrong = if key == "seckill:journal:7" { "SET" } else { "LPUSH" };
        morgue.fixture.typed(&format!("{wrong} {key} 1")).await?;
        let before = morgue.fixture.everything().await?;
        let error = morgue.cancel(&letter, UserAfter::Freed).await.expect_err(key);
        ensure!(matches!(error, ScriptError::Refused(_)), "{key}: {error}");
        if key == "stream.orders" || key == "seckill:journal:7" {
            ensure!(
                morgue.letters.requeue(&letter).await.is_err() && morgue.letters.drop(&letter).await.is_err()
            );
        }
        ensure!(morgue.fixture.everything().await? == before, "{key}");
    }

    // The script notices a missing right before its first write. Without a group, no entry can be pending.
    morgue.fixture.typed("FLUSHALL").await?;
    let letter = morgue.buried_order(5, 1, 1).await?;
    morgue.fixture.typed("XGROUP CREATE stream.orders g1 0").await?;
    let before = morgue.fixture.everything().await?;
    morgue.fixture.typed("ACL SETUSER default -xpending").await?;
    ensure!(morgue.cancel(&letter, UserAfter::Freed).await.is_err());
    ensure!(morgue.letters.drop(&letter).await.is_err());
    morgue.fixture.typed("ACL SETUSER default +xpending").await?;
    ensure!(morgue.fixture.everything().await? == before);

    morgue.fixture.typed("FLUSHALL").await?;
    morgue.fixture.typed("SET seckill:stock:7 10").await?;
    let letter = morgue.buried_order(5, 1, 1).await?;
    let before = morgue.fixture.everything().await?;
    morgue.fixture.typed("CONFIG SET maxmemory 500kb").await?;
    for error in
        [morgue.cancel(&letter, UserAfter::Freed).await.err(), morgue.letters.requeue(&letter).await.err()]
    {
        ensure!(error.as_ref().is_some_and(|error| error.to_string().contains("OOM")), "{error:?}");
    }
    ensure!(morgue.fixture.everything().await? == before);
    ensure!(morgue.letters.drop(&letter).await? == DropReply::Dropped, "what makes room works");
    Ok(())
}

/// The state of an order in Redis when it is cancelled.
#[derive(Clone, Debug)]
struct State {
    stock: Option<i64>,
    is_buyer: bool,
    /// The user of the admission in the journal; 0 means that the order was released.
    journal: Option<i64>,
    quantity: i64,
    is_freed: bool,
}

fn state() -> impl Strategy<Value = State> {
    let stock = prop::option::of(-2..5_i64);
    let journal = prop::option::of(0..3_i64);
    (stock, any::<bool>(), journal, 1..4_i64, any::<bool>()).prop_map(
        |(stock, is_buyer, journal, quantity, is_freed)| State {
            stock,
            is_buyer,
            journal,
            quantity,
            is_freed,
        },
    )
}

async fn set_up(morgue: &Morgue, state: &State) -> Result<()> {
    morgue.fixture.typed("FLUSHALL").await?;
    if let Some(stock) = state.stock {
        morgue.fixture.typed(&format!("SET seckill:stock:7 {stock}")).await?;
    }
    if state.is_buyer {
        morgue.fixture.typed("SADD seckill:order:7 1").await?;
    }
    if let Some(user) = state.journal {
        let (action, by) = if user == 0 { ("release", "x".to_owned()) } else { ("admit", user.to_string()) };
        let note =
            format!(r#"{{"action":"{action}","from":9,"to":8,"change":-1,"by":"{by}","timestamp":1}}"#);
        morgue.fixture.words(&["HSET", "seckill:journal:7", "5", &note]).await?;
    }
    Ok(())
}

/// The values that a release changes, without its time.
async fn outcome(morgue: &Morgue) -> Result<(String, String, String)> {
    let shown =
        async |command: &str| Ok::<_, anyhow::Error>(format!("{:?}", morgue.fixture.typed(command).await?));
    let journal = shown("HGETALL seckill:journal:7").await?;
    let journal = journal.split("timestamp").next().unwrap_or_default().to_owned();
    Ok((shown("GET seckill:stock:7").await?, shown("SMEMBERS seckill:order:7").await?, journal))
}

/// `lua/cancel.lua` releases as `lua/release.lua` does, whatever it finds.
#[test]
fn cancelling_is_a_release_and_the_end_of_the_letter() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let morgue = runtime.block_on(Morgue::new())?;
    let compare = async |state: &State| -> Result<()> {
        let user_after = if state.is_freed { UserAfter::Freed } else { UserAfter::StaysBuyer };
        set_up(&morgue, state).await?;
        let wanted = Release {
            units: Quantity::try_from(state.quantity).ok(),
            user_after,
            by: "operator:dead_cancel".into(),
            ..release(5, 1)
        };
        let released = morgue.fixture.store.releases().release(&wanted).await;
        let expected = outcome(&morgue).await?;

        set_up(&morgue, state).await?;
        let letter = morgue.buried_order(5, 1, state.quantity).await?;
        let cancelled = morgue.cancel(&letter, user_after).await;
        ensure!(outcome(&morgue).await? == expected, "{expected:?} was expected");
        match released {
            Ok(reply) => {
                ensure!(
                    matches!(cancelled, Ok(CancelReply::Cancelled(same)) if same == reply),
                    "{cancelled:?}"
                );
                ensure!(morgue.lengths().await? == (0, 0));
            }
            Err(ScriptError::IdTaken { .. }) => {
                ensure!(matches!(cancelled, Err(ScriptError::IdTaken { .. })), "{cancelled:?}");
                ensure!(morgue.lengths().await? == (1, 1));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    };
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&state(), |state| {
        runtime.block_on(compare(&state)).map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    Ok(())
}
