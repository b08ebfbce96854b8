//! Redis behind a Sentinel: the master dies, a replica takes over, and workers and commands follow by themselves.

use fred::{interfaces::ClientLike, types::Value};
use tidegate_lab::{RedisSentinel, RedisServer};

use crate::{
    program::Program,
    site::{Site, connect, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn when_the_master_dies_its_replica_takes_over_and_no_order_is_lost() {
    let site = Site::open().await;
    let master = site.redis.port().to_string();
    let replica =
        RedisServer::options().args(["--replicaof", "127.0.0.1", &master]).start().expect("a replica");
    let sentinel = RedisSentinel::watch(&site.redis).expect("a Sentinel");
    let watched = connect(&format!("redis://127.0.0.1:{}", sentinel.port())).await;
    until("the Sentinel knows the replica", || async {
        let master: Vec<Value> = call(&watched, "SENTINEL REPLICAS shop").await.into_array();
        !master.is_empty()
    })
    .await;

    site.open_sale().await;
    let worker = site.worker("w").set("REDIS_URL", sentinel.url()).start();
    site.rush(1_000, 300).await;
    site.settled().await;
    // These are admitted and not written: what the replica does not have is lost with its master.
    worker.signal(nix::sys::signal::Signal::SIGSTOP);
    site.plain_rush(2_000, 300).await;
    let replicas = site.call("WAIT 1 10000").await;
    assert_eq!(replicas.as_u64(), Some(1), "the replica has it all");
    site.redis.kill9().expect("the master is killed");
    worker.signal(nix::sys::signal::Signal::SIGCONT);

    let client = connect(&replica.url()).await;
    until("the replica is the master", || async {
        let role = call(&client, "ROLE").await.into_array();
        role.first().and_then(Value::as_string).as_deref() == Some("master")
    })
    .await;
    let program = Program::with_flags(&["--redis-url", &sentinel.url(), "--mysql-url", &site.mysql.url()]);
    until("all orders are written", || async { site.orders().await.len() >= 300 + 200 }).await;
    until("nothing is on its way", || async {
        let status = program.run("status --json");
        let is_settled = |stream: &serde_json::Value| stream["pending"] == 0 && stream["undelivered"] == 0;
        status.code == 0 && is_settled(&status.json()["stream"])
    })
    .await;
    let orders = site.orders().await;
    assert!((2_000..2_300).all(|id| orders.iter().any(|order| order.id == id)), "{orders:?}");
    // Of the other one, Redis offers more than MySQL has.
    program.run("audit --voucher 1").expect(0);
    program.run("admit --voucher 1 --user 9001").expect(0);
    program.run("doctor").expect(0);
    assert!(worker.stop().await.success());
}

async fn call(client: &fred::clients::Client, words: &str) -> Value {
    let mut words = words.split(' ');
    let name = words.next().expect("a command").to_owned();
    let command = fred::types::CustomCommand::new(name, None, false);
    client.custom(command, words.map(str::to_owned).collect::<Vec<_>>()).await.expect("it answers")
}
