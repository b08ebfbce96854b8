//! The sender of one webhook in one partition. All workers of a fleet share its consumer group, and a lease lets one of
//! them send at a time. So results are sent in stream order, and the bound of the pending list holds for the fleet.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fred::{interfaces::StreamsInterface, types::Value};
use tidegate_compare::text::error_chain;
use tidegate_operations::{WebhookSettings, webhooks::WebhookBacklog};
use tidegate_orders::{
    RedisStore,
    webhook_notes::{self, WebhookSender, group_of},
};
use tidegate_stream::{
    Backoff, Breaker, Counters, Lane, LaneSettings, LeaseGuard, Leases, Reader, RetryWait, Stream,
    StreamNames, connect_reader,
};
use tidegate_worker::ProcessSettings;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::{
    client::Client,
    delivery::{WebhookCaller, WebhookHandler},
    signer::Signer,
    state::WebhookState,
    target::Target,
};

/// The consumer of every sender. Only the worker with the lease reads, so the next worker continues with the pending
/// list of the last one.
const CONSUMER: &str = "sender";
/// The time after which another worker takes over from a dead one.
const LEASE: Duration = Duration::from_secs(5);
/// The pause between two attempts to get the lease while another worker has it.
const LEASE_EVERY: Duration = Duration::from_millis(2_500);
/// The pause between two checks of the pause by the worker with the lease.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The pause between two reads of the backlog for metrics.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

/// The largest number of results that a worker acknowledges together.
const BATCH: usize = 32;
/// The number of pending results at which the pending list stops growing: two batches may be in progress.
const PENDING_MAX: usize = 1_000;
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The sender of one webhook in one partition.
pub struct Sender {
    pub(super) process: ProcessSettings,
    pub(super) webhook: WebhookSettings,
    pub(super) target: Target,
    pub(super) signer: Arc<Signer>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) state: Arc<WebhookState>,
}

impl Sender {
    /// Sends results until `stop` is cancelled. While the webhook is paused, or another worker sends, this worker waits.
    pub async fn run(&self, redis: &RedisStore, stop: &CancellationToken) {
        let lane = &self.process.worker.lane;
        let mut backoff = Backoff::new(lane.backoff_min, lane.backoff_max);
        let mut is_logged = false;
        while !stop.is_cancelled() {
            let pause = match Box::pin(self.turn(redis, stop)).await {
                Ok(pause) => {
                    is_logged = false;
                    backoff.reset();
                    pause
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(
                            "{}. The webhook sends nothing until Redis works again",
                            error_chain(&error)
                        );
                    }
                    backoff.next_wait()
                }
            };
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }

    /// Reads the backlog for the metrics again and again, and the secrets. Ends when `stop` is cancelled.
    pub async fn follow(&self, redis: &RedisStore, stop: &CancellationToken) {
        let results = &self.process.system.stream.results;
        while !stop.is_cancelled() {
            stop.run_until_cancelled(self.reread_secrets()).await;
            let retrying = self.state.retrying();
            match WebhookBacklog::read(redis, results, &self.webhook.name).await {
                Ok(backlog) => {
                    self.state.forget_deleted(&retrying, backlog.oldest_pending);
                    self.state.set_backlog(backlog);
                }
                Err(error) => tracing::debug!(%error, "could not read the backlog of a webhook"),
            }
            stop.run_until_cancelled(sleep(FOLLOW_EVERY)).await;
        }
    }

    /// Reads the file with the secrets again. A file system that does not answer holds up no other task.
    async fn reread_secrets(&self) {
        let (signer, span) = (Arc::clone(&self.signer), Span::current());
        let _ended = spawn_blocking(move || span.in_scope(|| signer.reread())).await;
    }

    /// Sends results for as long as this worker has the lease and the webhook is not paused. Returns the pause before
    /// the next turn. Only the worker with the lease looks at the group and at the notes: the others try to get the lease.
    async fn turn(&self, redis: &RedisStore, stop: &CancellationToken) -> anyhow::Result<Duration> {
        // Without a secret, a worker leaves the lease to others as soon as there is a group.
        if !self.signer.has_secret() && self.state.has_started() {
            return Ok(LEASE_EVERY);
        }
        let (key, worker) =
            (redis.keys().fleet().webhook_sender(&self.webhook.name), &self.process.worker.name);
        let token = format!("{worker} ({:08x})", rand::random::<u32>());
        let Some(lease) = Leases::new(redis).hold(key, &token, LEASE).await? else { return Ok(LEASE_EVERY) };
        let sent = self.turn_with_lease(redis, &lease, stop).await;
        self.state.set_sender(false);
        lease.end().await;
        sent.map(|()| CHECK_EVERY)
    }

    async fn turn_with_lease(
        &self,
        redis: &RedisStore,
        lease: &LeaseGuard,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        self.ensure_group(redis).await?;
        if !self.signer.has_secret() {
            return Ok(());
        }
        // The worker keeps the lease during a pause, so that only one worker looks for the end of the pause.
        while webhook_notes::read(redis, &self.webhook.name).await?.pause.is_some() {
            stop.run_until_cancelled(sleep(CHECK_EVERY)).await;
            if stop.is_cancelled() || lease.lost().is_cancelled() {
                return Ok(());
            }
        }
        self.state.set_sender(true);
        // On the heap: in a debug build, the nested futures would need more than the stack of a thread.
        Box::pin(self.send(redis, lease, stop)).await
    }

    async fn send(
        &self,
        redis: &RedisStore,
        lease: &LeaseGuard,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let names = self.names();
        let stream = Stream::new(redis, names.clone()).without_crash_counts();
        let connection = connect_reader(&self.process.system.redis.connection()).await?;
        let (breaker, ended) = (Arc::new(Breaker::default()), stop.child_token());
        let caller = WebhookCaller {
            redis: redis.clone(),
            kinds: self.webhook.kinds.clone(),
            signer: Arc::clone(&self.signer),
            client: Client::new(self.target.clone(), Arc::clone(&self.tls)),
            state: Arc::clone(&self.state),
            worker: self.process.worker.name.clone(),
            ended: ended.clone(),
            late: Mutex::default(),
        };
        let handler = Arc::new(WebhookHandler::new(caller));
        let lane = Lane::new(
            Reader::new(connection, names, CONSUMER.to_owned()),
            stream.clone(),
            Arc::clone(&handler),
            Arc::clone(&breaker),
            Arc::new(Counters::default()),
            self.lane_settings(),
        );
        let settings = &self.process.worker.lane;
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
        let probe = || async { Ok(stream.probe().await?) };
        tokio::join!(
            Box::pin(lane.run(ended.clone())),
            breaker.run(probe, backoff, ended.clone()),
            self.watch(redis, lease, &ended),
        );
        // Only then may another worker send.
        handler.end().await;
        Ok(())
    }

    /// Ends the sending if the lease is lost or the webhook is paused. Meanwhile, writes the state of this sender to
    /// Redis when it changes.
    async fn watch(&self, redis: &RedisStore, lease: &LeaseGuard, ended: &CancellationToken) {
        let (name, worker) = (&self.webhook.name, &self.process.worker.name);
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = WebhookSender::default();
        loop {
            tokio::select! {
                _ = checks.tick() => {}
                () = lease.lost().cancelled() => {
                    tracing::info!("this worker has lost the lease of the webhook, and stops sending its results");
                    ended.cancel();
                }
                () = ended.cancelled() => {}
            }
            let note = self.state.note(worker);
            let is_new = WebhookSender { at_ms: written.at_ms, ..note.clone() } != written;
            if is_new && webhook_notes::write_sender(redis, name, &note).await.is_ok() {
                written = note;
            }
            if ended.is_cancelled() {
                return;
            }
            if matches!(webhook_notes::read(redis, name).await, Ok(notes) if notes.pause.is_some()) {
                ended.cancel();
            }
        }
    }

    /// Creates the consumer group if it is missing. A new webhook gets the results from now on. If the webhook has
    /// started before, Redis lost the group, and the webhook gets all results that the stream has: some may come again,
    /// but none is skipped. An operator may pause a webhook before it starts, so a pause says nothing.
    async fn ensure_group(&self, redis: &RedisStore) -> anyhow::Result<()> {
        let names = self.names();
        let backlog = WebhookBacklog::read(redis, &names.stream, &self.webhook.name).await?;
        if !backlog.has_group {
            if self.state.has_started() || backlog.has_lost_group() {
                Stream::new(redis, names).restore_group().await?;
            } else {
                let StreamNames { stream, group, .. } = names;
                let _made: Value = redis.pool().xgroup_create(stream, group, "$", true).await?;
                tracing::info!("the webhook is new: it gets the results from now on");
            }
        }
        self.state.set_backlog(WebhookBacklog { has_group: true, ..backlog });
        Ok(())
    }

    fn names(&self) -> StreamNames {
        let results = &self.process.system.stream.results;
        // Nothing is buried, so the second name is never used.
        StreamNames { stream: results.clone(), dead: results.clone(), group: group_of(&self.webhook.name) }
    }

    fn lane_settings(&self) -> LaneSettings {
        LaneSettings {
            batch: BATCH,
            batch_bytes: 1 << 20,
            // No result is too large: a result that is buried would be lost for the receiver.
            entry_max_bytes: usize::MAX,
            set_aside_max: PENDING_MAX - 2 * BATCH,
            retry: RetryWait { first: RETRY_MIN, longest: RETRY_MAX },
            replicas: None,
            ..self.process.worker.lane.clone()
        }
    }
}
