//! Tests of leases.

use fred::types::{Key, Value};
use tidegate_stream::Leases;

use crate::fixture::{Fixture, eventually, ms};

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::from(*name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_lease_is_taken_for_itself_and_refusals_are_told_by_position() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    let long = ms(60_000);
    assert!(leases.take(keys(&["b", "d"]), "one", long).await.unwrap().is_empty());
    assert_eq!(leases.take(keys(&["a", "b", "c", "d"]), "two", long).await.unwrap(), [1, 3]);
    let holders: Vec<String> = fixture.call("MGET a b c d").await;
    assert_eq!(holders, ["two", "one", "two", "one"]);
    assert!(leases.take(Vec::<Key>::new(), "two", long).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_token_renews_and_another_does_not() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    leases.take(keys(&["a"]), "one", ms(60_000)).await.unwrap();
    assert!(leases.take(keys(&["a"]), "one", ms(600_000)).await.unwrap().is_empty());
    assert!(fixture.call::<i64>("PTTL a").await > 60_000);
    assert_eq!(leases.take(keys(&["a"]), "two", ms(6_000_000)).await.unwrap(), [0]);
    assert!(fixture.call::<i64>("PTTL a").await <= 600_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_ends_a_lease() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    leases.take(keys(&["a", "b"]), "one", ms(60_000)).await.unwrap();
    leases.take(keys(&["c"]), "two", ms(60_000)).await.unwrap();
    assert_eq!(leases.end(keys(&["a", "b", "c", "none"]), "two").await.unwrap(), 1);
    assert_eq!(fixture.call::<usize>("EXISTS a b c").await, 2);
    assert_eq!(leases.end(keys(&["a", "b", "c"]), "one").await.unwrap(), 2);
    assert_eq!(leases.end(keys(&["a", "b", "c"]), "one").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_renews_ends_by_time() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    leases.take(keys(&["a"]), "one", ms(50)).await.unwrap();
    eventually("another may take it", async || {
        leases.take(keys(&["a"]), "two", ms(60_000)).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(leases.end(keys(&["a"]), "one").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_reply_is_lost_is_still_ones_own() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    leases.take(keys(&["warm"]), "one", ms(60_000)).await.unwrap();
    let lost = fixture.commands.drop_next_reply("precious");
    assert!(leases.take(keys(&["precious"]), "one", ms(60_000)).await.unwrap().is_empty());
    lost.reached().await.unwrap();
    let holder: Value = fixture.call("GET precious").await;
    assert_eq!(holder.as_str().as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_another_kind_under_the_same_name_is_anothers_and_no_error() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    let _redisson: Value = fixture.call("HSET b 6f6a:1 1").await;
    assert_eq!(leases.take(keys(&["a", "b"]), "one", ms(60_000)).await.unwrap(), [1]);
    assert_eq!(leases.end(keys(&["a", "b"]), "one").await.unwrap(), 1);
    assert_eq!(fixture.call::<usize>("EXISTS a b").await, 1);
    assert_eq!(leases.end(Vec::<Key>::new(), "one").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_known_here_only_leave_no_trace_in_the_aof() {
    let fixture = Fixture::start_durable().await;
    let _ok: Value = fixture.call("CONFIG SET appendfsync always").await;
    let size = || async {
        let _ok: Value = fixture.call("SET marker 1").await;
        let info = fixture.call::<String>("INFO persistence").await;
        let line = info.lines().find_map(|line| line.strip_prefix("aof_current_size:"));
        line.expect("the AOF has a size").trim().parse::<u64>().unwrap()
    };
    let long = ms(60_000);
    let everywhere = Leases::new(fixture.pool.clone());
    let here = everywhere.clone().known_here_only();
    size().await;
    let (first, second) = (size().await, size().await);
    let marker = second - first;

    here.take(keys(&["a", "b"]), "one", long).await.unwrap();
    assert_eq!(here.take(keys(&["b"]), "two", long).await.unwrap(), [0], "taken, all the same");
    assert_eq!(here.end(keys(&["a", "b"]), "one").await.unwrap(), 2);
    assert_eq!(size().await, second + marker);

    everywhere.take(keys(&["a", "b"]), "one", long).await.unwrap();
    assert!(size().await > second + 2 * marker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lease_is_renewed_until_its_holder_ends_it() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    let held = leases.hold("a", "one", ms(5_000)).await.unwrap().expect("nobody has it");
    assert!(leases.hold("a", "two", ms(5_000)).await.unwrap().is_none());
    let _is_shorter: i64 = fixture.call("PEXPIRE a 2000").await;
    eventually("it is renewed", async || fixture.call::<i64>("PTTL a").await > 2_000).await;
    assert!(!held.lost().is_cancelled());
    held.end().await;
    assert_eq!(fixture.call::<usize>("EXISTS a").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lease_that_is_dropped_ends_before_its_time() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    drop(leases.hold("a", "one", ms(3_600_000)).await.unwrap().expect("nobody has it"));
    eventually("it ends", async || fixture.call::<usize>("EXISTS a").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_lease_hears_that_another_process_took_it() {
    let fixture = Fixture::start().await;
    let leases = Leases::new(fixture.pool.clone());
    let held = leases.hold("a", "one", ms(1_000)).await.unwrap().expect("nobody has it");
    let _ok: String = fixture.call("SET a two").await;
    eventually("it is lost", async || held.lost().is_cancelled()).await;
    held.end().await;
    assert_eq!(fixture.call::<String>("GET a").await, "two");
}
