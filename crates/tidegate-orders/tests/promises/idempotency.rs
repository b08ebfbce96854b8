//! Tests of idempotency keys on a real Redis: each key means one order, as long as its caller may repeat the request.

use anyhow::{Context, Result};
use fred::interfaces::KeysInterface;
use tidegate_lab::Proxy;
use tidegate_orders::{
    KeyTemplates, OrderId, RedisStore,
    scripts::{Admission, AdmitReply, IdempotencyKey, SaleWindow, ScriptError},
};

use crate::{
    fixture::{Fixture, admission, connect, release, voucher},
    limits::two_orders_for_a_user,
};

const MOST_OF_A_DAY_MS: i64 = 23 * 60 * 60_000;

fn key(name: &str) -> Result<IdempotencyKey> {
    Ok(IdempotencyKey::parse(name.as_bytes())?)
}

async fn names_of_keys(fixture: &Fixture) -> Result<Vec<String>> {
    Ok(fixture.typed("KEYS seckill:idempotency:*").await?.convert()?)
}

/// The milliseconds for which Redis keeps the only key.
async fn kept_ms(fixture: &Fixture) -> Result<i64> {
    let names = names_of_keys(fixture).await?;
    Ok(fixture.pool.pttl(names.first().context("a key")?.as_str()).await?)
}

fn id(order: i64) -> OrderId {
    order.try_into().expect("an order id")
}

#[tokio::test]
async fn whoever_asks_again_asks_for_the_same_order_and_it_is_remembered_for_a_day_from_then_on() -> Result<()>
{
    let fixture = Fixture::new().await?;
    let (store, mine) = (&fixture.store, key("mine")?);
    store.sales().load(voucher(), 0, SaleWindow::default()).await?;
    let before = fixture.everything().await?;
    assert_eq!(store.admissions().admit_by_key(&mine, &admission(1, 9)).await?, (id(1), AdmitReply::SoldOut));
    assert_eq!(fixture.everything().await?, before, "a refusal leaves no trace");

    fixture.typed("SET seckill:stock:7 5").await?;
    assert_eq!(
        store.admissions().admit_by_key(&mine, &admission(2, 9)).await?,
        (id(2), AdmitReply::Admitted)
    );
    assert!(kept_ms(&fixture).await? > MOST_OF_A_DAY_MS);
    let name = names_of_keys(&fixture).await?.concat();
    fixture.pool.pexpire::<(), _>(&name, 60_000, None).await?;
    assert_eq!(
        store.admissions().admit_by_key(&mine, &admission(3, 9)).await?,
        (id(2), AdmitReply::AdmittedBefore)
    );
    assert!(kept_ms(&fixture).await? > MOST_OF_A_DAY_MS);
    // Any other request of the user is another request.
    let two = Admission { quantity: 2.try_into()?, ..admission(4, 9) };
    assert!(matches!(store.admissions().admit_by_key(&mine, &two).await, Err(ScriptError::OtherRequest)));
    let second = store.admissions().admit_by_key(&key("second")?, &admission(5, 9)).await?;
    assert_eq!(second, (id(5), AdmitReply::UserHasOrder));
    assert_eq!(names_of_keys(&fixture).await?, [name]);
    // Another user's key of the same name is another key.
    assert_eq!(
        store.admissions().admit_by_key(&mine, &admission(6, 10)).await?,
        (id(6), AdmitReply::Admitted)
    );
    assert_eq!(fixture.orders().await?.len(), 2);

    store.releases().release(&release(2, 9)).await?;
    assert_eq!(
        store.admissions().admit_by_key(&mine, &admission(7, 9)).await?,
        (id(2), AdmitReply::Released)
    );
    assert_eq!(
        store.admissions().admit_by_key(&key("new")?, &admission(8, 9)).await?,
        (id(8), AdmitReply::Admitted)
    );
    Ok(())
}

#[tokio::test]
async fn where_a_user_may_hold_several_orders_each_key_stands_for_one_of_them() -> Result<()> {
    let fixture = two_orders_for_a_user().await?;
    let (store, [first, second]) = (&fixture.store, [key("first")?, key("second")?]);
    assert_eq!(
        store.admissions().admit_by_key(&first, &admission(1, 9)).await?,
        (id(1), AdmitReply::Admitted)
    );
    assert_eq!(
        store.admissions().admit_by_key(&second, &admission(2, 9)).await?,
        (id(2), AdmitReply::Admitted)
    );
    assert_eq!(
        store.admissions().admit_by_key(&first, &admission(3, 9)).await?,
        (id(1), AdmitReply::AdmittedBefore)
    );
    assert_eq!(
        store.admissions().admit_by_key(&second, &admission(4, 9)).await?,
        (id(2), AdmitReply::AdmittedBefore)
    );
    let third = store.admissions().admit_by_key(&key("third")?, &admission(5, 9)).await?;
    assert!(matches!(third, (_, AdmitReply::OverLimit(_))), "{third:?}");
    assert_eq!((fixture.orders().await?.len(), names_of_keys(&fixture).await?.len()), (2, 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_late_leads_to_the_order_that_its_key_stands_for() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let pool = connect(&proxy.url_for(&fixture.redis), 1).await?;
    let slow = RedisStore::with_default_names(pool, KeyTemplates::default());
    // The script is loaded, so the call itself is late.
    assert_eq!(
        slow.admissions().admit_by_key(&key("k")?, &admission(1, 8)).await?,
        (id(1), AdmitReply::Admitted)
    );
    let held = proxy.hold_when("EVALSHA");
    let mine = key("k")?;
    let late = tokio::spawn(async move { slow.admissions().admit_by_key(&mine, &admission(2, 9)).await });
    held.reached().await?;
    let again = fixture.store.admissions().admit_by_key(&key("k")?, &admission(3, 9)).await?;
    assert_eq!(again, (id(3), AdmitReply::Admitted));
    held.release();
    assert_eq!(late.await??, (id(3), AdmitReply::AdmittedBefore));
    assert_eq!(fixture.orders().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_key_of_an_id_that_another_user_has_stands_for_a_new_order() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await?;
    let mine = key("mine")?;
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(1, 9)).await?,
        (id(1), AdmitReply::Admitted)
    );
    // As an earlier version left it, which wrote the key before the order: another user has the id.
    for lost in ["HDEL seckill:journal:7 1", "SREM seckill:order:7 9"] {
        fixture.typed(lost).await?;
    }
    assert_eq!(fixture.store.admissions().admit(&admission(1, 8)).await?, AdmitReply::Admitted);
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(2, 9)).await?,
        (id(2), AdmitReply::Admitted)
    );
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(3, 9)).await?,
        (id(2), AdmitReply::AdmittedBefore)
    );
    // If a new id is taken, the error names it.
    let another = fixture.store.admissions().admit_by_key(&key("another")?, &admission(2, 10)).await;
    assert!(matches!(another, Err(ScriptError::IdTaken { order }) if order == id(2)), "{another:?}");
    assert_eq!(names_of_keys(&fixture).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_was_admitted_is_told_also_where_its_key_cannot_be_written() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 5, SaleWindow::default()).await?;
    let mine = key("mine")?;
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(1, 9)).await?,
        (id(1), AdmitReply::Admitted)
    );
    fixture.typed("CONFIG SET maxmemory 1").await?;
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(2, 9)).await?,
        (id(1), AdmitReply::AdmittedBefore)
    );
    fixture.pool.del::<(), _>(names_of_keys(&fixture).await?).await?;
    let before = fixture.everything().await?;
    let refused = fixture.store.admissions().admit_by_key(&mine, &admission(3, 10)).await;
    assert!(matches!(refused, Err(ScriptError::Refused(_))), "{refused:?}");
    assert_eq!(fixture.everything().await?, before, "an error leaves no trace");
    fixture.typed("CONFIG SET maxmemory 0").await?;

    // Without the right to SET, the script admits the order, and its caller learns that.
    fixture.typed("ACL SETUSER default -set").await?;
    assert_eq!(
        fixture.store.admissions().admit_by_key(&mine, &admission(4, 11)).await?,
        (id(4), AdmitReply::Admitted)
    );
    assert_eq!(fixture.store.admissions().admit(&admission(4, 11)).await?, AdmitReply::AdmittedBefore);
    Ok(())
}

/// The number of script calls that Redis has executed, and of the commands in them.
async fn calls(fixture: &Fixture) -> Result<(u64, u64)> {
    let stats: String = fixture.typed("INFO commandstats").await?.convert()?;
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse::<u64>().ok()?))
    };
    let all: Vec<(String, u64)> = stats.lines().filter_map(of).collect();
    let is_script = |name: &str| matches!(name, "evalsha" | "eval" | "fcall");
    let sum = |scripts: bool| {
        all.iter().filter(|(name, _)| is_script(name) == scripts).map(|(_, calls)| calls).sum()
    };
    Ok((sum(true), sum(false)))
}

#[tokio::test]
async fn an_admission_under_a_key_is_one_call_and_two_commands_in_it_more_than_one_without() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.store.sales().load(voucher(), 9, SaleWindow::default()).await?;
    let limited = two_orders_for_a_user().await?;
    for fixture in [&fixture, &*limited] {
        // These calls load both scripts.
        fixture.store.admissions().admit(&admission(4, 7)).await?;
        fixture.store.admissions().admit_by_key(&key("first")?, &admission(1, 8)).await?;
        fixture.typed("CONFIG RESETSTAT").await?;
        assert_eq!(fixture.store.admissions().admit(&admission(5, 10)).await?, AdmitReply::Admitted);
        let (_, without_key) = calls(fixture).await?;
        for (order, name, expected) in
            [(2, "mine", (id(2), AdmitReply::Admitted)), (3, "mine", (id(2), AdmitReply::AdmittedBefore))]
        {
            fixture.typed("CONFIG RESETSTAT").await?;
            assert_eq!(
                fixture.store.admissions().admit_by_key(&key(name)?, &admission(order, 9)).await?,
                expected
            );
            let (scripts, others) = calls(fixture).await?;
            assert_eq!(scripts, 1, "{name} {order}");
            assert!(
                order == 3 || others == without_key + 2,
                "{others} commands, {without_key} without a key"
            );
        }
    }
    Ok(())
}
