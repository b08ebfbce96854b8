//! Tests of reads without a consumer group.

use std::time::Duration;

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{CustomCommand, Value, config::Config},
};
use tidegate_lab::RedisServer;
use tidegate_stream::{EntryId, PositionReader, RedisConnectionSettings, StreamSpan};

use crate::fixture::{Fixture, eventually};

async fn reader(redis: &RedisServer) -> PositionReader {
    PositionReader::connect(&RedisConnectionSettings::new(redis.url()), "s").await.expect("Redis answers")
}

async fn says(redis: &RedisServer, words: &[&str]) -> String {
    let client = Client::new(Config::from_url(&redis.url()).expect("a URL"), None, None, None);
    client.init().await.expect("Redis answers");
    let (name, args) = words.split_first().expect("a command");
    let answer: Value =
        client.custom(CustomCommand::new(*name, None, false), args.to_vec()).await.expect("an answer");
    answer.as_string().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_what_was_added_and_trimmed_and_waits_for_more() {
    let fixture = Fixture::start().await;
    let reader = reader(&fixture.redis).await;
    assert_eq!(reader.span().await.unwrap(), StreamSpan { added: Some(0), ..StreamSpan::default() });
    assert_eq!(reader.page(EntryId::MIN, 10).await.unwrap(), []);
    for ms in 1..=5 {
        let _id: String = fixture.call(&format!("XADD s {ms}-1 n {ms}")).await;
    }
    let _trimmed: i64 = fixture.call("XTRIM s MINID 3-0").await;
    let id = |ms| EntryId { ms, seq: 1 };
    let span = reader.span().await.unwrap();
    assert_eq!((span.first, span.last_id, span.length), (Some(id(3)), id(5), 3));
    // Redis before version 7 does not count the entries that were added.
    assert!([Some(2), None].contains(&span.removed()), "{span:?}");
    let page: Vec<EntryId> = reader.page(id(3), 10).await.unwrap().iter().map(|entry| entry.id).collect();
    assert_eq!(page, [id(4), id(5)]);
    assert!(reader.has(id(3)).await.unwrap() && !reader.has(id(2)).await.unwrap());
    let more = async {
        let _id: String = fixture.call("XADD s 6-1 n 6").await;
    };
    let (read, ()) = tokio::join!(reader.wait(id(5), 10, Duration::from_secs(20)), more);
    assert_eq!(read.unwrap()[0].id, id(6));
    assert_eq!(reader.wait(id(6), 10, Duration::from_millis(1)).await.unwrap(), []);
    assert_eq!(reader.reconnects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_changes_with_a_restart_and_with_each_promotion_and_a_replica_has_none() {
    let (first, second) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let (of_first, of_second) = (reader(&first).await, reader(&second).await);
    let history = of_first.history().await.unwrap();
    says(&first, &["XADD", "s", "1-1", "n", "1"]).await;
    assert_eq!(of_first.history().await.unwrap(), history, "writes do not change it");

    let replicate = async |replica: &RedisServer, master: &RedisServer| {
        says(replica, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await;
        eventually("it replicates", async || {
            says(replica, &["INFO", "replication"]).await.contains("master_link_status:up")
        })
        .await;
    };
    replicate(&second, &first).await;
    assert!(of_second.history().await.is_err(), "its data may be replaced at any time");
    says(&second, &["REPLICAOF", "NO", "ONE"]).await;
    assert_ne!(of_second.history().await.unwrap(), history);

    // The first server becomes the master again, without a restart. It may have other data now.
    replicate(&first, &second).await;
    says(&first, &["REPLICAOF", "NO", "ONE"]).await;
    let promoted = of_first.history().await.unwrap();
    assert_ne!(promoted, history);
    first.kill9().unwrap();
    first.restart().unwrap();
    eventually("the server answers", async || of_first.history().await.is_ok()).await;
    assert_ne!(of_first.history().await.unwrap(), promoted);
    assert!(of_first.reconnects() > 0);
}
