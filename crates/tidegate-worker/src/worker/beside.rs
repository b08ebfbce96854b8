//! What runs beside the lanes of a worker: it looks after the stream, the group and the results now and then, and says what is
//! done. Any process may do any of it at any time.

use std::{sync::Arc, time::Duration};

use tidegate_orders::{
    Announcer, Keys, OrderCounters, RedisStore, ResultsTrimmer, WorkerHands, announcer::Remembered,
    keys::process_of, order_counters::OrderCounts, worker_hands,
};
use tidegate_stream::{
    ConsumerRemover, Counters, Counts, LaneStatus, ServerClock, SetAsideNote, SetAsideNotes, Trimmer,
    server_time_ms,
};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

/// How often others are told what is set aside.
const POST_EVERY: Duration = Duration::from_secs(1);
/// How often MySQL is asked for results that Redis did not take.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);

/// Looks for dead, empty consumers now and then.
pub async fn remove_consumers(
    remover: &ConsumerRemover,
    keys: &Keys,
    every: Duration,
    stop: CancellationToken,
) {
    let heartbeat = |consumer: &str| keys.heartbeat(process_of(consumer));
    stop.run_until_cancelled(async {
        loop {
            sleep(every).await;
            if let Err(error) = remover.run_once(heartbeat).await {
                tracing::debug!(%error, "did not look for dead consumers");
            }
        }
    })
    .await;
}

/// Looks now and then whether somebody has set the clock of Redis.
pub async fn mind_the_clock(mut clock: ServerClock, every: Duration, stop: CancellationToken) {
    stop.run_until_cancelled(async {
        loop {
            if let Err(error) = clock.run_once().await {
                tracing::debug!(%error, "did not look at the clock of Redis");
            }
            sleep(every).await;
        }
    })
    .await;
}

/// Deletes old entries now and then. Any process may: a script decides, and what is gone is gone once.
pub async fn trim(trimmer: Option<&Trimmer>, every: Duration, stop: CancellationToken) {
    let Some(trimmer) = trimmer else { return };
    stop.run_until_cancelled(async {
        loop {
            sleep(every).await;
            match trimmer.run_once().await {
                Ok(0) => {}
                Ok(trimmed) => tracing::info!(trimmed, "entries beyond the retention deleted"),
                Err(error) => tracing::debug!(%error, "did not trim the stream"),
            }
        }
    })
    .await;
}

/// Deletes old results now and then.
pub async fn trim_results(trimmer: &ResultsTrimmer, every: Duration, stop: CancellationToken) {
    stop.run_until_cancelled(async {
        loop {
            sleep(every).await;
            match trimmer.run_once().await {
                Ok(0) => {}
                Ok(trimmed) => tracing::info!(trimmed, "results deleted that are too old or too many"),
                Err(error) => tracing::debug!(%error, "did not trim the results"),
            }
        }
    })
    .await;
}

/// Announces what Redis did not take when it was to be announced, as soon as it does.
pub async fn announce_remembered(announcer: &Announcer, stop: CancellationToken) {
    stop.run_until_cancelled(async {
        loop {
            match announcer.announce_remembered().await {
                Ok(Remembered::Announced) => continue,
                Ok(Remembered::None | Remembered::Refused) => {}
                Err(outage) => tracing::debug!(%outage, "did not look for results that Redis refused"),
            }
            sleep(ANNOUNCE_EVERY).await;
        }
    })
    .await;
}

/// Writes down for others what is set aside, while anything is.
pub async fn post(
    set_aside_notes: &SetAsideNotes,
    process: &str,
    counters: &Counters,
    stop: CancellationToken,
) {
    let mut posted = None;
    loop {
        let notice = SetAsideNote::of(counters.set_aside());
        // One of a process before this one may be there still.
        if notice.entries > 0 || posted != Some(0) {
            match set_aside_notes.write(process, &notice).await {
                Ok(()) => posted = Some(notice.entries),
                Err(error) => tracing::debug!(%error, "could not write down what is set aside"),
            }
        }
        if stop.run_until_cancelled(sleep(POST_EVERY)).await.is_none() {
            // What is pending from now on is nobody's any more.
            let _gone = set_aside_notes.write(process, &SetAsideNote::default()).await;
            return;
        }
    }
}

/// Writes down for others since when the oldest batch is in hand, for ever: also while a stop waits for batches.
pub async fn tell_hands(redis: &RedisStore, process: &str, lanes: &[Arc<LaneStatus>]) {
    loop {
        let told = async {
            // The clock first: what is read from now on is read later than that.
            let now_ms = server_time_ms(redis.pool()).await.map_err(|error| error.to_string())?;
            let states = lanes.iter().map(|lane| lane.state());
            let turns = states.filter(|lane| lane.activity.may_hold_entries()).map(|lane| lane.turn_lasting);
            let hands = WorkerHands::at(now_ms, turns.max());
            worker_hands::write(redis, process, hands).await.map_err(|error| error.to_string())
        };
        if let Err(error) = told.await {
            tracing::debug!(error, "could not write down since when entries are in hand");
        }
        sleep(POST_EVERY).await;
    }
}

/// Says now and then what was done, if anything was.
pub async fn report(
    counters: &Counters,
    order_counters: &OrderCounters,
    every: Duration,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(async {
        let mut ticks = interval(every);
        let mut told = counters.counts();
        loop {
            ticks.tick().await;
            let now = counters.counts();
            if now != told {
                told = now;
                tell("so far", counters, order_counters);
            }
        }
    })
    .await;
}

/// Logs the sums.
pub fn tell(what: &str, counters: &Counters, order_counters: &OrderCounters) {
    let Counts { batches, done: _, buried, gone, retried, claimed } = counters.counts();
    let OrderCounts {
        created,
        already_there,
        user_has_order,
        out_of_stock,
        lock_refused,
        contended,
        limit_uses: _,
    } = order_counters.counts();
    tracing::info!(
        created,
        already_there,
        user_has_order,
        out_of_stock,
        buried,
        gone,
        claimed,
        retried,
        lock_refused,
        contended,
        batches,
        "{what}"
    );
}
