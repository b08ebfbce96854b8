//! Consumes the stream `jobs` until it is interrupted: `REDIS_URL=redis://127.0.0.1:6379 cargo run --example consume`.
//! Each entry should have a field `text`: `redis-cli -u "$REDIS_URL" XADD jobs '*' text hello`.

use std::{error::Error, sync::Arc};

use tidegate_stream::{
    Backoff, Breaker, Counters, DeadLetterReason, Entry, Handled, Handler, Lane, LaneSettings, Outage,
    Outcome, Reader, RedisConnectionSettings, Stream, StreamNames, connect_pool, connect_reader,
};
use tokio_util::sync::CancellationToken;

/// A handler that prints the field `text` of each entry.
struct Printing;

impl Handler for Printing {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        Ok(batch.iter().map(print).collect())
    }
}

fn print(entry: &Entry) -> Outcome {
    let Some((_, text)) = entry.fields.iter().find(|(name, _)| name == "text") else {
        let error = "it has no field text".to_owned();
        return Outcome::Dead(DeadLetterReason { reason: "no_text", error });
    };
    println!("{} {}", entry.id, String::from_utf8_lossy(text));
    Outcome::Done
}

/// Consumes entries until `stop` is cancelled, and settles the batch in progress before it returns.
pub async fn consume(redis_url: &str, stop: CancellationToken) -> Result<(), Box<dyn Error>> {
    let redis = RedisConnectionSettings::new(redis_url);
    let names = StreamNames { stream: "jobs".into(), dead: "jobs.dead".into(), group: "workers".into() };
    let stream = Stream::new(connect_pool(&redis).await?, names.clone());
    stream.ensure_group().await?;

    let (breaker, counters) = (Arc::new(Breaker::default()), Arc::new(Counters::default()));
    let reader = Reader::new(connect_reader(&redis).await?, names, "worker-1".into());
    let lane = Lane::new(
        reader,
        stream.clone(),
        Arc::new(Printing),
        Arc::clone(&breaker),
        Arc::clone(&counters),
        LaneSettings::default(),
    );
    // After an outage, the breaker repeats this probe. The lane continues once Redis accepts a write.
    let probe = || async { Ok(stream.probe().await?) };
    tokio::join!(lane.run(stop.clone()), breaker.run(probe, Backoff::default(), stop));

    let counts = counters.counts();
    println!("{} done, {} dead", counts.done, counts.buried);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let stop = CancellationToken::new();
    let interrupted = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    consume(&url, stop).await
}
