//! Tests of a worker's metrics of limits.

use fred::interfaces::HashesInterface;

use crate::{
    browser::{get, until_page},
    fixture::Fixture,
};

/// The number of vouchers that are shown at most.
const MOST: i64 = 50;

async fn rules(fixture: &Fixture, owner: &str, rules: &str) {
    let key = format!("seckill:limits:{owner}");
    fixture.client.hset::<(), _, _>(key, ("rules", rules)).await.expect("Redis answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_for_limits_is_on_the_page_of_a_worker() {
    let fixture = Fixture::open().await;
    let runs = |line: &str| {
        let output = fixture.tidegate(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {output:?}");
    };
    runs("voucher load --voucher 907 --stock 100");
    runs("limit set --voucher 907 --name mine --subject user --window sale --orders 3 --yes");
    runs("limit set --voucher 907 --name phones --subject phone --window day --orders 5 --yes");
    // There are more vouchers with limits than the page shows, and two campaigns. The page does not show the campaign
    // of the first vouchers either.
    for voucher in 1..=MOST + 4 {
        fixture.load(voucher, 10).await;
        rules(&fixture, &format!("voucher:{voucher}"), if voucher < 5 { "0 6;" } else { "0 5;" }).await;
    }
    rules(&fixture, "campaign:5", "0 5;1 all * sale 0 9 -").await;
    fixture.client.hset::<(), _, _>("seckill:uses:campaign:5", ("1:", "0:1:1")).await.expect("Redis answers");
    let worker = fixture.worker("w").start();
    for (user, phone) in [(1, "a"), (1, "b"), (2, "a")] {
        runs(&format!("admit --voucher 907 --user {user} --subject phone={phone}"));
    }
    fixture.settled().await;
    // The counters are those of two users and two phones, and the slots of two users.
    until_page(&worker, "/metrics", 200, "tidegate_limit_counters{owner=\"voucher:907\"} 6\n").await;
    let samples = get(&worker, "/metrics").await.samples();
    assert_eq!(samples["tidegate_limit_uses_written_total"], 6.0, "two of each order");
    assert_eq!(samples[r#"tidegate_limit_counters{owner="campaign:5"}"#], 1.0);
    let of = |kind: &str| {
        let begins = format!("tidegate_limit_counters{{owner=\"{kind}:");
        samples.keys().filter(|name| name.starts_with(&begins)).count()
    };
    assert_eq!((of("voucher"), of("campaign")), (MOST as usize, 1));
    assert!(worker.stop().await.success());
}
