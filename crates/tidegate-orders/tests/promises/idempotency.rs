//! Keys of callers, on a real Redis: each stands for one order, for as long as anybody may ask for it again.

use anyhow::{Context, Result};
use fred::interfaces::KeysInterface;
use tidegate_orders::gate::{Admission, AdmitReply, GateError, IdempotencyKey, KeyReply, SaleWindow};

use crate::ground::{Ground, admission, voucher};

const MINUTE_MS: i64 = 60_000;
const MOST_OF_A_DAY_MS: i64 = 23 * 60 * MINUTE_MS;

fn key() -> Result<IdempotencyKey> {
    Ok(IdempotencyKey::parse(b"k")?)
}

/// Milliseconds for which the only key is remembered.
async fn kept_ms(ground: &Ground) -> Result<i64> {
    let keys: Vec<String> = ground.typed("KEYS seckill:idempotency:*").await?.convert()?;
    Ok(ground.pool.pttl(keys.first().context("a key")?.as_str()).await?)
}

/// A user's first order, and another that the same request would be if its key were forgotten.
fn both() -> (Admission, Admission) {
    (admission(1, 9), admission(2, 9))
}

#[tokio::test]
async fn whoever_asks_again_asks_for_the_same_order_and_it_is_remembered_for_a_day_from_then_on() -> Result<()>
{
    let ground = Ground::new().await?;
    ground.gate.load(voucher(), 0, SaleWindow::default()).await?;
    let (first, second) = both();
    assert_eq!(ground.gate.remember_key(&key()?, &first).await?, KeyReply::New);
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    assert_eq!(ground.gate.admit(&first).await?, AdmitReply::SoldOut);
    ground.gate.keep_key(&key()?, &first, true).await?;
    assert!(kept_ms(&ground).await? <= MINUTE_MS, "a refusal takes no memory");
    // Its answer may be lost, or its caller may go away: then nobody keeps the key.
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::Known(first.order));
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    Ok(())
}

#[tokio::test]
async fn who_is_refused_late_does_not_make_the_key_of_an_admitted_order_be_forgotten() -> Result<()> {
    let ground = Ground::new().await?;
    ground.gate.load(voucher(), 1, SaleWindow::default()).await?;
    let (first, second) = both();
    assert_eq!(ground.gate.remember_key(&key()?, &first).await?, KeyReply::New);
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::Known(first.order));
    // One of both was refused before the other was admitted, and says so at last.
    assert_eq!(ground.gate.admit(&first).await?, AdmitReply::Admitted);
    ground.gate.keep_key(&key()?, &first, true).await?;
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    // Or said so first.
    ground.typed("PEXPIRE seckill:idempotency:7:9:8254c329a92850f6d539dd376f4816ee 60000").await?;
    ground.gate.keep_key(&key()?, &first, true).await?;
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS, "whoever was admitted keeps it");
    // Of another order, nothing is kept.
    ground.gate.keep_key(&key()?, &second, true).await?;
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    Ok(())
}

#[tokio::test]
async fn a_key_that_a_failover_took_along_stands_again_for_the_order_that_was_admitted_under_it() -> Result<()>
{
    let ground = Ground::new().await?;
    ground.gate.load(voucher(), 5, SaleWindow::default()).await?;
    let (first, second) = both();
    // The key was remembered by a server that died, and the order was admitted by the next one.
    assert_eq!(ground.gate.admit(&first).await?, AdmitReply::Admitted);
    ground.gate.keep_key(&key()?, &first, false).await?;
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::Known(first.order));

    // Its caller has asked again meanwhile, and was refused as a buyer.
    ground.typed("FLUSHALL").await?;
    ground.gate.load(voucher(), 5, SaleWindow::default()).await?;
    assert_eq!(ground.gate.admit(&first).await?, AdmitReply::Admitted);
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::New);
    assert_eq!(ground.gate.admit(&second).await?, AdmitReply::UserHasOrder);
    ground.gate.keep_key(&key()?, &second, true).await?;
    ground.gate.keep_key(&key()?, &first, false).await?;
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::Known(first.order));
    // And nothing that is refused later takes it away.
    ground.gate.keep_key(&key()?, &second, true).await?;
    assert_eq!(ground.gate.remember_key(&key()?, &second).await?, KeyReply::Known(first.order));
    Ok(())
}

#[tokio::test]
async fn an_order_that_may_still_be_admitted_keeps_its_key_for_a_day() -> Result<()> {
    let ground = Ground::new().await?;
    ground.gate.load(voucher(), 5, SaleWindow::default()).await?;
    let (first, second) = both();
    ground.gate.keep_key(&key()?, &first, false).await?;
    assert_eq!(
        ground.gate.remember_key(&key()?, &second).await?,
        KeyReply::New,
        "nothing stands for no order"
    );
    ground.gate.keep_key(&key()?, &second, false).await?;
    assert!(kept_ms(&ground).await? > MOST_OF_A_DAY_MS);
    Ok(())
}

#[tokio::test]
async fn an_id_that_another_user_has_is_forgotten_with_its_key_soon_and_not_remembered_again() -> Result<()> {
    let ground = Ground::new().await?;
    ground.gate.load(voucher(), 5, SaleWindow::default()).await?;
    // After a failover, a counter of ids may give out an id again.
    let (mine, another) = (admission(1, 9), admission(2, 9));
    assert_eq!(ground.gate.admit(&admission(1, 8)).await?, AdmitReply::Admitted);
    assert_eq!(ground.gate.remember_key(&key()?, &mine).await?, KeyReply::New);
    assert!(matches!(ground.gate.admit(&mine).await, Err(GateError::IdTaken { .. })));
    ground.gate.keep_key(&key()?, &mine, true).await?;
    assert!(kept_ms(&ground).await? <= MINUTE_MS, "whoever asks later gets an id of its own");
    ground.typed("DEL seckill:idempotency:7:9:8254c329a92850f6d539dd376f4816ee").await?;
    ground.gate.keep_key(&key()?, &mine, true).await?;
    assert_eq!(ground.gate.remember_key(&key()?, &another).await?, KeyReply::New);
    Ok(())
}
