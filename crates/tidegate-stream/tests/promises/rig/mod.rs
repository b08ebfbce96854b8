//! A Redis of one test's own, proxies before it, and lanes that behave like those of one process.

mod log;
mod recording;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand, FromValue};
use tidegate_lab::{Proxy, RedisServer};
use tidegate_stream::{
    Backoff, Breaker, Counters, EntryId, Failover, Handler, Lane, LaneSettings, Outage, PauseSwitch, Reader,
    RedisConnection, RedisConnectionSettings, Stream, StreamNames, connect_pool, connect_reader,
};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber;

pub use log::Log;
pub use recording::{RecordingHandler, dead, number, set_aside, set_aside_for};

/// How long anything may take that is to happen.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Asks until it is so; panics at the deadline.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lanes that never claim, unless a test says so.
pub fn settings() -> LaneSettings {
    LaneSettings {
        batch: 10,
        batch_bytes: 8 << 20,
        entry_max_bytes: 1 << 20,
        set_aside_max: 1_000_000,
        block: ms(500),
        retry: ms(20),
        claim_idle: Duration::from_secs(3600),
        claim_every: Duration::from_secs(3600),
        backoff_min: ms(20),
        backoff_max: ms(500),
        failover: Failover::Never,
        replicas: None,
    }
}

/// One process: its lanes share a breaker, counters and a pool.
pub struct Rig {
    pub redis: RedisServer,
    /// Between the lanes' readers and Redis.
    pub reads: Proxy,
    /// Between everything else of the process and Redis.
    pub commands: Proxy,
    pub names: StreamNames,
    /// Goes to Redis through the proxy.
    pub pool: Pool,
    pub stream: Stream,
    pub breaker: Arc<Breaker>,
    pub pause_switch: Arc<PauseSwitch>,
    pub counters: Arc<Counters>,
    pub log: Log,
    /// Whether the store of the handlers works, as far as the probe is concerned.
    pub store_works: watch::Sender<bool>,
    pub probes: Arc<watch::Sender<usize>>,
    /// Goes to Redis past the proxies.
    direct: Pool,
}

impl Rig {
    pub async fn start() -> Self {
        Self::on(RedisServer::start().unwrap()).await
    }

    /// On a Redis that has everything that it has answered for, when it is killed.
    pub async fn start_durable() -> Self {
        Self::on(RedisServer::options().args(["--appendfsync", "always"]).start().unwrap()).await
    }

    /// On a Redis that is empty, and another one, after a restart.
    pub async fn start_forgetful() -> Self {
        Self::on(RedisServer::options().args(["--appendonly", "no", "--save", ""]).start().unwrap()).await
    }

    async fn on(redis: RedisServer) -> Self {
        let (reads, commands) =
            (Proxy::start(redis.port()).await.unwrap(), Proxy::start(redis.port()).await.unwrap());
        let names = StreamNames { stream: "s".into(), dead: "s.dead".into(), group: "g1".into() };
        let pool: Pool = connect_pool(&redis_settings(commands.url_for(&redis))).await.unwrap().into();
        let patient = RedisConnectionSettings { command_timeout: DEADLINE, ..redis_settings(redis.url()) };
        let direct = connect_pool(&patient).await.unwrap().into();
        let stream = Stream::new(pool.clone(), names.clone());
        stream.ensure_group().await.unwrap();
        let rig = Self {
            redis,
            reads,
            commands,
            names,
            pool,
            stream,
            breaker: Arc::default(),
            pause_switch: Arc::default(),
            counters: Arc::default(),
            log: Log::default(),
            store_works: watch::Sender::new(true),
            probes: Arc::default(),
            direct,
        };
        rig.watch_stores();
        rig
    }

    /// The stream, over connections that wait so long for a reply.
    pub async fn stream_within(&self, command_timeout: Duration) -> Stream {
        let settings =
            RedisConnectionSettings { command_timeout, ..redis_settings(self.commands.url_for(&self.redis)) };
        Stream::new(connect_pool(&settings).await.unwrap(), self.names.clone())
    }

    fn watch_stores(&self) {
        let (breaker, pool) = (Arc::clone(&self.breaker), self.pool.clone());
        let (store, probes) = (self.store_works.subscribe(), Arc::clone(&self.probes));
        let probe = move || {
            probes.send_modify(|count| *count += 1);
            let (pool, store_works) = (pool.clone(), *store.borrow());
            async move {
                let _pong: String = pool.ping(None).await?;
                if store_works { Ok(()) } else { Err(Outage::new("store", "still away")) }
            }
        };
        let watching =
            async move { breaker.run(probe, Backoff::new(ms(10), ms(100)), CancellationToken::new()).await };
        tokio::spawn(watching.with_subscriber(self.log.dispatch()));
    }

    pub async fn reader(&self, consumer: &str) -> Reader {
        self.reader_of(self.names.clone(), consumer).await
    }

    pub async fn reader_of(&self, names: StreamNames, consumer: &str) -> Reader {
        Reader::new(self.read_connection().await, names, consumer.to_owned())
    }

    pub async fn read_connection(&self) -> RedisConnection {
        self.read_connection_within(ms(2_000)).await
    }

    /// A connection for reads, which gives up itself when nothing comes for so long.
    pub async fn read_connection_within(&self, command_timeout: Duration) -> RedisConnection {
        let settings =
            RedisConnectionSettings { command_timeout, ..redis_settings(self.reads.url_for(&self.redis)) };
        connect_reader(&settings).await.unwrap()
    }

    pub async fn lane<H: Handler>(
        &self,
        consumer: &str,
        handler: &Arc<H>,
        settings: LaneSettings,
    ) -> Lane<H> {
        let (breaker, counters) = (Arc::clone(&self.breaker), Arc::clone(&self.counters));
        let reader = self.reader(consumer).await;
        Lane::new(reader, self.stream.clone(), Arc::clone(handler), breaker, counters, settings)
            .with_pause_switch(Arc::clone(&self.pause_switch))
    }

    /// Starts a lane.
    pub async fn run<H: Handler>(&self, consumer: &str, handler: &Arc<H>, settings: LaneSettings) -> Running {
        self.run_lane(self.lane(consumer, handler, settings).await)
    }

    /// Starts a lane that is made.
    pub fn run_lane<H: Handler>(&self, lane: Lane<H>) -> Running {
        let stop = CancellationToken::new();
        let task = tokio::spawn(lane.run(stop.clone()).with_subscriber(self.log.dispatch()));
        Running { stop, task }
    }

    /// A command to Redis, past the proxies: words with blanks between them.
    pub async fn try_call<T: FromValue>(&self, words: &str) -> FredResult<T> {
        let mut words = words.split(' ');
        let command = CustomCommand::new(words.next().unwrap_or_default(), ClusterHash::FirstKey, false);
        self.direct.custom(command, words.map(Value::from).collect()).await
    }

    pub async fn call<T: FromValue>(&self, words: &str) -> T {
        self.try_call(words).await.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    pub async fn eval<T: FromValue>(&self, lua: &str, args: &[&str]) -> T {
        let keys = vec![self.names.stream.as_str()];
        self.direct.eval(lua, keys, args.to_vec()).await.unwrap()
    }

    /// Adds entries with one field each, `n`, which counts on from 1.
    pub async fn add(&self, count: usize) -> Vec<EntryId> {
        let lua = "local ids = {}
            for at = 1, tonumber(ARGV[1]) do
                ids[at] = redis.call('XADD', KEYS[1], '*', 'n', redis.call('INCR', 'added'))
            end
            return ids";
        let ids: Vec<String> = self.eval(lua, &[&count.to_string()]).await;
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    /// Adds entries and delivers all that is new to a consumer that does nothing with them.
    pub async fn add_delivered(&self, count: usize, consumer: &str) -> Vec<EntryId> {
        let ids = self.add(count).await;
        let lua = "repeat
                local read = redis.call('XREADGROUP', 'GROUP', 'g1', ARGV[1], 'COUNT', 1000, 'STREAMS', KEYS[1], '>')
            until not read";
        let _nothing: Value = self.eval(lua, &[consumer]).await;
        ids
    }

    /// Makes pending entries look as if nobody had touched them for an hour.
    pub async fn age(&self, consumer: &str) {
        let lua = "local first = '-'
            repeat
                local some = redis.call('XPENDING', KEYS[1], 'g1', first, '+', 1000, ARGV[1])
                local claim = {'XCLAIM', KEYS[1], 'g1', ARGV[1], 0}
                for _, entry in ipairs(some) do
                    claim[#claim + 1] = entry[1]
                    first = '(' .. entry[1]
                end
                if #some > 0 then
                    for _, word in ipairs({'IDLE', 7200000, 'JUSTID'}) do claim[#claim + 1] = word end
                    redis.call(unpack(claim))
                end
            until #some == 0";
        let _nothing: Value = self.eval(lua, &[consumer]).await;
    }

    /// Number of pending entries of the whole group.
    pub async fn pending(&self) -> usize {
        let summary: Vec<Value> = self.call("XPENDING s g1").await;
        summary[0].as_usize().unwrap()
    }

    pub async fn nothing_is_pending(&self) {
        eventually("nothing is pending", async || self.pending().await == 0).await;
    }

    /// How long nobody has touched the first entry of a consumer, by Redis' clock.
    pub async fn idle_ms(&self, consumer: &str) -> u64 {
        let first: Vec<Value> = self.call(&format!("XPENDING s g1 - + 1 {consumer}")).await;
        first[0].clone().into_array()[2].as_u64().unwrap()
    }

    /// Asks Redis a hundred times. A lane that was woken before would have asked it, too, however busy the machine is.
    pub async fn lanes_had_their_turn(&self) {
        for _ in 0..100 {
            let _pong: String = self.call("PING").await;
        }
    }

    /// How often Redis has been told to do this, in lower case; `client|unblock` for a word and its second.
    pub async fn calls_of(&self, command: &str) -> usize {
        let stats: String = self.call("INFO commandstats").await;
        let begin = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// Waits until this many clients wait in blocked reads.
    pub async fn until_blocked(&self, clients: usize) {
        let wanted = format!("blocked_clients:{clients}\r");
        eventually("reads are blocked", async || {
            let info: String = self.call("INFO clients").await;
            info.lines().any(|line| line == wanted.trim_end())
        })
        .await;
    }
}

fn redis_settings(url: String) -> RedisConnectionSettings {
    RedisConnectionSettings {
        url,
        master: None,
        sentinels: None,
        connections: 2,
        command_timeout: ms(2000),
        connect_timeout: ms(2000),
    }
}

/// A lane at work.
pub struct Running {
    pub stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Waits for its end.
    pub async fn ended(self) -> Result<(), JoinError> {
        tokio::time::timeout(DEADLINE, self.task).await.expect("the lane ends in time")
    }

    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// As if its process had died.
    pub async fn kill(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }

    /// Stops it; how long that took.
    pub async fn stop(self) -> Duration {
        let begun = Instant::now();
        self.stop.cancel();
        self.ended().await.unwrap();
        begun.elapsed()
    }
}
