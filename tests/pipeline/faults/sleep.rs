//! A worker is put to sleep in the middle of a batch, wakes up, and knows nothing of what happened meanwhile.

use nix::sys::signal::Signal;

use crate::{
    faults::proxies::{CHECKED_COMMIT, LOCK, Proxies, quick},
    site::{Site, rush::PLENTY, until},
};

/// What a transaction does first when it cannot be written in one go: it locks its vouchers.
const LOCK_VOUCHERS: &[u8] = b"ORDER BY voucher_id FOR UPDATE";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_in_an_open_transaction_is_replaced() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.rush(1_000, 300).await;
    let locked = proxies.mysql.hold_reply_when(LOCK_VOUCHERS);
    let sleeper = proxies.before(quick(&site, "sleeper"), &site).start();
    locked.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);
    locked.release();

    let heir = quick(&site, "heir").start();
    site.settled().await;
    site.invariants().await;

    sleeper.signal(Signal::SIGCONT);
    sleeper.says("outage over").await;
    site.rush(2_000, 300).await;
    site.settled().await;
    site.invariants().await;
    assert!(heir.stop().await.success());
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_before_it_writes_wakes_up_to_find_it_done() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.rush(1_000, 300).await;
    site.add_poison().await;
    let locked = proxies.redis.hold_reply_when(LOCK);
    let sleeper = proxies.before(quick(&site, "sleeper"), &site).start();
    locked.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);

    let heir = quick(&site, "heir").start();
    site.settled().await;
    assert!(heir.stop().await.success());

    sleeper.signal(Signal::SIGCONT);
    locked.release();
    site.rush(2_000, 300).await;
    site.settled().await;
    site.invariants().await;
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_commit_arrives_late_doubles_nothing() {
    let site = Site::open().await;
    site.open_sale().await;
    let proxies = Proxies::start(&site).await;
    site.plain_rush(1_000, 300).await;
    let commit = proxies.mysql.hold_when(CHECKED_COMMIT);
    let sleeper = proxies.before(quick(&site, "sleeper"), &site).start();
    commit.reached().await.expect("a batch is in progress");
    sleeper.signal(Signal::SIGSTOP);
    let heir = quick(&site, "heir").start();
    until("the entries are claimed", || async {
        heir.log().contains("contention") || site.orders().await.len() == 300
    })
    .await;
    // It may be in time, or the server has ended its transaction already.
    commit.release();
    sleeper.signal(Signal::SIGCONT);
    site.settled().await;
    site.invariants().await;
    assert!(heir.stop().await.success());
    assert!(sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_up_without_its_name_stops() {
    let site = Site::open().await;
    site.load(PLENTY, 1_000).await;
    let mut sleeper = quick(&site, "same").start();
    sleeper.says("worker started").await;
    sleeper.signal(Signal::SIGSTOP);
    let heir = quick(&site, "same").log_as("heir").start();
    heir.says("worker started").await;
    sleeper.signal(Signal::SIGCONT);
    assert_eq!(sleeper.ended().await.code(), Some(5));
    assert!(sleeper.log().contains("another live worker is named \"same\""));

    site.plain_rush(1_000, 300).await;
    site.settled().await;
    site.invariants().await;
    assert!(heir.stop().await.success());
}
