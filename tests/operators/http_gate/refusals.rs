//! Tests of the gate's log while Redis refuses all requests.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{address_of, post};
use crate::{fixture::Fixture, order_event::operator};

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_refuses_everybody_does_not_fill_the_log_of_the_gate() {
    const ASKED: usize = 100;
    let fixture = Fixture::open().await;
    operator(&fixture).run("voucher load --voucher 7 --stock 1000").expect(0);
    let mut gate = fixture.worker("gate").set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let address = address_of(&gate).await;
    let mut user = 0;
    let mut ask = async || {
        user += 1;
        post(address, &json!({ "voucherId": "7", "userId": user })).await
    };
    // From here on, the gate holds a block of order ids. So Redis refuses the orders themselves, and later the order
    // ids.
    assert_eq!(ask().await.status, 202);
    for (setting, value) in [("min-replicas-to-write", "1"), ("maxmemory", "1")] {
        fixture.redis_says(&["CONFIG", "SET", setting, value]).await;
        for _ in 0..ASKED {
            let answer = ask().await;
            assert_eq!(
                (answer.status, &answer.body["type"]),
                (503, &json!("/problems/redis-refused")),
                "{setting}"
            );
        }
        fixture.redis_says(&["CONFIG", "SET", setting, "0"]).await;
    }
    let log = gate.log();
    let errors = log.lines().filter(|line| line.contains("ERROR")).count();
    assert!((2..=16).contains(&errors), "{errors} of {} callers have a line:\n{log}", 2 * ASKED);
    assert!(log.contains("NOREPLICAS") && log.contains("OOM"), "{log}");
    gate.signal(Signal::SIGTERM);
    assert!(gate.ended().await.success());
    // All other refusals are logged as sums, at the end of each minute or of the process.
    let log = gate.log();
    let sums = log.lines().filter(|line| line.contains("more callers were refused for this reason"));
    let counts = sums.map(|line| {
        let count = line.split("count=").nth(1).expect("a count");
        count.split_whitespace().next().and_then(|count| count.parse::<usize>().ok()).expect("a number")
    });
    assert_eq!(counts.sum::<usize>() + errors, 2 * ASKED, "{log}");
}
