//! Test of the example of the crate, on a real Redis.

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use tidegate_lab::RedisServer;
use tidegate_stream::{RedisConnectionSettings, connect_pool};
use tokio_util::sync::CancellationToken;

use crate::fixture::eventually;

#[path = "../../examples/consume.rs"]
#[expect(dead_code, reason = "its main belongs to the program")]
mod consume;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_does_what_can_be_done_buries_the_rest_and_stops_in_good_order() {
    let server = RedisServer::start().unwrap();
    let pool: Pool = connect_pool(&RedisConnectionSettings::new(server.url())).await.unwrap().into();
    let call = async |words: &str| {
        let mut words = words.split(' ');
        let command = CustomCommand::new(words.next().unwrap(), ClusterHash::Random, false);
        let reply: Value = pool.custom(command, words.map(Value::from).collect()).await.unwrap();
        reply
    };
    for entry in ["XADD jobs * text hello", "XADD jobs * no text", "XADD jobs * text again"] {
        call(entry).await;
    }
    let stop = CancellationToken::new();
    let (url, stopped) = (server.url(), stop.clone());
    let consuming = async { consume::consume(&url, stopped).await.unwrap() };
    let watching = async {
        eventually("one is buried", async || call("XLEN jobs.dead").await.as_u64() == Some(1)).await;
        eventually("nothing is pending", async || {
            call("XPENDING jobs workers").await.into_array()[0].as_u64() == Some(0)
        })
        .await;
        stop.cancel();
    };
    tokio::join!(consuming, watching);
}
