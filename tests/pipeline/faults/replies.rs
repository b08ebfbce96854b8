//! Tests of lost replies: a server executes a request, and its reply is lost. The worker cannot know that, and must be
//! right nevertheless.

use tidegate_lab::{DroppedReply, Proxy};

use crate::{
    faults::proxies::{
        ACK, CHECKED_COMMIT, CLAIM, LOCK, Proxies, READ_NEW, REFUSING_COMMIT, bury, quick, release, unlock,
    },
    fixture::{Fixture, until},
};

/// Loses one reply that `arm` chooses, in the middle of a mixed or a plain rush.
async fn survive_loss(arm: impl Fn(&Proxies) -> DroppedReply) {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    fixture.add_poison().await;
    let lost = arm(&proxies);
    let worker = proxies.before(quick(&fixture, "w"), &fixture).start();
    lost.reached().await.expect("the reply is lost");
    fixture.rush(2_000, 300).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

async fn survive_loss_at_redis(pattern: impl AsRef<[u8]>) {
    survive_loss(|proxies| Proxy::drop_next_reply(&proxies.redis, pattern.as_ref())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_read_loses_no_entry() {
    survive_loss_at_redis(READ_NEW).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_lock_holds_up_nobody() {
    survive_loss_at_redis(LOCK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_without_a_reply_in_time_makes_its_own_batch_wait_for_no_lease() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.plain_rush(1_000, 300).await;
    let reply = proxies.redis.hold_reply_when(LOCK);
    let plan = proxies.before(quick(&fixture, "w"), &fixture).set("REDIS_COMMAND_TIMEOUT_MS", 1_000);
    let plan = plan.set("WORKER_LOCK_LEASE_MS", 300_000).set("WORKER_CLAIM_IDLE_MS", 600_000);
    let worker = plan.start();
    reply.reached().await.expect("the users are locked");
    worker.says("outage began").await;
    drop(reply);
    // This happens long before the lease ends.
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_release_releases_once() {
    survive_loss_at_redis(release()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_the_unlock_holds_up_nobody() {
    survive_loss_at_redis(unlock()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_an_acknowledgement_doubles_nothing() {
    survive_loss_at_redis(ACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_burial_buries_once() {
    survive_loss_at_redis(bury()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_commit_with_refusals_doubles_nothing() {
    survive_loss(|proxies| proxies.mysql.drop_next_reply(REFUSING_COMMIT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_plain_commit_doubles_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.plain_rush(1_000, 300).await;
    let lost = proxies.mysql.drop_next_reply(CHECKED_COMMIT);
    let worker = proxies.before(quick(&fixture, "w"), &fixture).start();
    lost.reached().await.expect("the reply is lost");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_of_a_claim_loses_no_entry() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = Proxies::start(&fixture).await;
    fixture.rush(1_000, 300).await;
    fixture.add_poison().await;
    let lock = proxies.redis.hold_when(LOCK);
    let victim = proxies.before(quick(&fixture, "victim"), &fixture).start();
    lock.reached().await.expect("all are pending");
    victim.kill9();
    until("all may be claimed", || async { fixture.longest_idle_ms().await > Some(1_000) }).await;

    let lost = proxies.redis.drop_next_reply(CLAIM);
    let heir = proxies.before(quick(&fixture, "heir"), &fixture).start();
    lost.reached().await.expect("the reply is lost");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}
