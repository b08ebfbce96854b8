//! Tests of a worker that is frozen in the middle of a batch, and later continues without knowing what happened
//! meanwhile.

use nix::sys::signal::Signal;

use crate::{
    faults::proxies::{CHECKED_COMMIT, LOCK, Proxies, quick},
    fixture::{Fixture, rush::PLENTY, until},
};

/// The first statement of a transaction that is not written in one packet: it locks its vouchers.
const LOCK_VOUCHERS: &[u8] = b"ORDER BY voucher_id FOR UPDATE";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_in_an_open_transaction_is_replaced() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    let locked = proxies.mysql.hold_reply_when(LOCK_VOUCHERS);
    let sleeper = proxies.before(quick(&fixture, "sleeper"), &fixture).start();
    locked.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);
    locked.release();

    let heir = quick(&fixture, "heir").start();
    fixture.settled().await;
    fixture.invariants().await;

    sleeper.signal(Signal::SIGCONT);
    sleeper.says("outage over").await;
    fixture.rush(2_000, 300).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_before_it_writes_wakes_up_to_find_it_done() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    fixture.add_poison().await;
    let locked = proxies.redis.hold_reply_when(LOCK);
    let sleeper = proxies.before(quick(&fixture, "sleeper"), &fixture).start();
    locked.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);

    let heir = quick(&fixture, "heir").start();
    fixture.settled().await;
    assert!(heir.stop().await.success());

    sleeper.signal(Signal::SIGCONT);
    locked.release();
    fixture.rush(2_000, 300).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_commit_arrives_late_doubles_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.plain_rush(1_000, 300).await;
    let commit = proxies.mysql.hold_when(CHECKED_COMMIT);
    let sleeper = proxies.before(quick(&fixture, "sleeper"), &fixture).start();
    commit.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);
    let heir = quick(&fixture, "heir").start();
    until("the entries are claimed", || async {
        heir.log().contains("contention") || fixture.orders().await.len() == 300
    })
    .await;
    // The worker may still be in time, or the server has ended its transaction already.
    commit.release();
    sleeper.signal(Signal::SIGCONT);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_up_without_its_name_stops() {
    let fixture = Fixture::open().await;
    fixture.load(PLENTY, 1_000).await;
    let mut sleeper = quick(&fixture, "same").start();
    sleeper.says("worker started").await;
    sleeper.signal(Signal::SIGSTOP);
    let heir = quick(&fixture, "same").log_as("heir").start();
    heir.says("worker started").await;
    sleeper.signal(Signal::SIGCONT);
    assert_eq!(sleeper.ended().await.code(), Some(5));
    assert!(sleeper.log().contains("another live worker is named \"same\""));

    fixture.plain_rush(1_000, 300).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}
