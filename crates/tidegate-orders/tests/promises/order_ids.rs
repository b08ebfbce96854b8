//! Tests of order ids, with a counter in a real Redis.

use std::{
    collections::HashSet,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use crate::fixture::{Fixture, connect};
use anyhow::Result;
use jiff::Timestamp;
use tidegate_lab::Proxy;
use tidegate_orders::{
    KeyTemplates, OrderIdAllocator, RedisStore,
    order_id::{EPOCH_SECONDS, OrderIdError, decompose},
};

const DAY: i64 = 86_400;
/// Noon of 2024-06-10.
const NOON: i64 = 1_718_020_800;
const COUNTER: &str = "icr:order:2024:06:10";

/// An allocator, and its clock in Unix seconds, which a test can set.
fn allocator(fixture: &Fixture, block_size: u32) -> (OrderIdAllocator, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let hands = Arc::clone(&clock);
    let now = move || Timestamp::from_second(hands.load(Ordering::Relaxed)).expect("a time");
    let size = NonZeroU32::new(block_size).expect("a block holds something");
    (OrderIdAllocator::with_clock(fixture.store.clone(), size, now), clock)
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_and_two_processes_get_a_thousand_different_ids_whatever_the_block_size() -> Result<()> {
    let fixture = Fixture::new().await?;
    for block_size in [1, 7, 1000] {
        let allocators =
            [Arc::new(allocator(&fixture, block_size).0), Arc::new(allocator(&fixture, block_size).0)];
        let tasks: Vec<_> = (0..50)
            .map(|task| {
                let allocator = Arc::clone(&allocators[task % 2]);
                tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for _ in 0..20 {
                        ids.push(allocator.next().await?);
                    }
                    Ok::<_, OrderIdError>(ids)
                })
            })
            .collect();
        let mut ids = HashSet::new();
        for task in tasks {
            ids.extend(task.await??);
        }
        assert_eq!(ids.len(), 1000);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_holds_the_second_and_the_sequence_of_the_days_counter() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.words(&["SET", COUNTER, "41"]).await?;
    let (allocator, _) = allocator(&fixture, 10);
    assert_eq!(decompose(allocator.next().await?), (NOON - EPOCH_SECONDS, 42));
    assert_eq!(decompose(allocator.next().await?), (NOON - EPOCH_SECONDS, 43));
    assert_eq!(fixture.words(&["GET", COUNTER]).await?.convert::<i64>()?, 51);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_within_the_day_of_its_block_repeats_no_id() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (allocator, clock) = allocator(&fixture, 2);
    let mut ids = HashSet::new();
    for step in [0, -10, 5, -10, 0, -3600] {
        clock.store(NOON + step, Ordering::Relaxed);
        assert!(ids.insert(allocator.next().await?));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_to_an_earlier_day_is_refused_until_it_has_caught_up() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (allocator, clock) = allocator(&fixture, 10);
    let first = allocator.next().await?;
    clock.store(NOON - DAY, Ordering::Relaxed);
    let error = allocator.next().await.expect_err("a day back");
    assert!(matches!(error, OrderIdError::ClockWentBack { .. }));
    assert!(error.to_string().contains("2024:06:10") && error.to_string().contains("2024:06:09"), "{error}");
    clock.store(NOON, Ordering::Relaxed);
    assert_eq!(decompose(allocator.next().await?).1, decompose(first).1 + 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_midnight_the_rest_of_the_block_is_dropped_and_the_new_days_counter_is_used() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (allocator, clock) = allocator(&fixture, 10);
    allocator.next().await?;
    clock.store(NOON + DAY, Ordering::Relaxed);
    let first_of_day = decompose(allocator.next().await?);
    assert_eq!(first_of_day, (NOON + DAY - EPOCH_SECONDS, 1));
    assert_eq!(fixture.typed("GET icr:order:2024:06:11").await?.convert::<i64>()?, 10);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_sequence_of_a_day_is_given_out_and_then_none() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.words(&["SET", COUNTER, "4294967293"]).await?;
    let (allocator, _) = allocator(&fixture, 10);
    for last in [4_294_967_294, 4_294_967_295] {
        assert_eq!(decompose(allocator.next().await?).1, last);
    }
    for _ in 0..2 {
        let error = allocator.next().await.expect_err("all are used up");
        assert!(matches!(error, OrderIdError::SequenceOutOfRange { .. }), "{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_before_2022_or_beyond_31_bits_is_refused_and_takes_nothing_from_redis() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (allocator, clock) = allocator(&fixture, 10);
    for wrong in [0, EPOCH_SECONDS - 1, EPOCH_SECONDS + (1 << 31)] {
        clock.store(wrong, Ordering::Relaxed);
        let error = allocator.next().await.expect_err("no time for an order id");
        assert!(matches!(error, OrderIdError::SecondsOutOfRange { .. }), "{error}");
    }
    assert!(fixture.everything().await?.is_empty());
    clock.store(EPOCH_SECONDS + (1 << 31) - 1, Ordering::Relaxed);
    assert_eq!(decompose(allocator.next().await?), ((1 << 31) - 1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_of_another_type_or_below_zero_is_an_error_and_no_id() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (allocator, _) = allocator(&fixture, 10);
    fixture.words(&["RPUSH", COUNTER, "x"]).await?;
    assert!(matches!(allocator.next().await, Err(OrderIdError::Redis(_))));
    fixture.words(&["SET", COUNTER, "-100"]).await?;
    assert!(matches!(allocator.next().await, Err(OrderIdError::SequenceOutOfRange { .. })));
    Ok(())
}

/// Takes this many ids, and checks that each is new.
async fn take_new(allocator: &OrderIdAllocator, taken: &mut HashSet<i64>, count: usize) -> Result<()> {
    for _ in 0..count {
        let id = allocator.next().await?;
        assert!(taken.insert(id.get()), "{:?} was given out before", decompose(id));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gives_out_no_id_twice_when_the_counter_goes_back() -> Result<()> {
    let fixture = Fixture::new().await?;
    for block_size in [1, 7, 10] {
        let ((one, _), (other, _)) = (allocator(&fixture, block_size), allocator(&fixture, 3));
        for counter in [0, 5, 12, 13, 20, 21] {
            fixture.words(&["DEL", COUNTER]).await?;
            let (mut of_one, mut of_other) = (HashSet::new(), HashSet::new());
            take_new(&one, &mut of_one, 25).await?;
            take_new(&other, &mut of_other, 25).await?;
            fixture.words(&["SET", COUNTER, &counter.to_string()]).await?;
            take_new(&one, &mut of_one, 25).await?;
            take_new(&other, &mut of_other, 25).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_ends_when_another_server_answers_which_may_give_it_to_somebody_else() -> Result<()> {
    let fixture = Fixture::new().await?;
    let promoted = Fixture::new().await?;
    let proxy = Proxy::start(fixture.redis.port()).await?;
    let pool = connect(&proxy.url_for(&fixture.redis), 2).await?;
    let store = RedisStore::with_default_names(pool, KeyTemplates::default());
    let now = Arc::new(AtomicI64::new(NOON));
    let allocator = || {
        let (now, size) = (Arc::clone(&now), NonZeroU32::new(10).expect("a block holds something"));
        let clock = move || Timestamp::from_second(now.load(Ordering::Relaxed)).expect("a time");
        OrderIdAllocator::with_clock(store.clone(), size, clock)
    };
    let (one, other) = (allocator(), allocator());
    let mut taken = HashSet::new();
    take_new(&one, &mut taken, 15).await?;
    take_new(&other, &mut taken, 3).await?;
    // The promoted replica has received none of these increments.
    promoted.words(&["SET", COUNTER, "2"]).await?;
    proxy.lead_to(promoted.redis.port());
    proxy.cut_connections().await;
    now.fetch_add(1, Ordering::Relaxed);
    for _ in 0..6 {
        take_new(&other, &mut taken, 3).await?;
        take_new(&one, &mut taken, 3).await?;
    }
    Ok(())
}
