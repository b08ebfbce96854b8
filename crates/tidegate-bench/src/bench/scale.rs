//! The costs and gains of partitions: processor time of an order, and the rate of masters that each have a fixed share
//! of a core.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use fred::clients::Pool;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::MySqlPool;
use tidegate_lab::{MysqlServer, RedisCluster, RedisServer, slot_of};
use tidegate_orders::{
    KeyTemplates, Partition, Quantity, RedisStore, VoucherId, schema, scripts::Admission as Wanted,
};
use tidegate_stream::{RedisCluster as KnownCluster, RedisConnectionSettings, connect_pool};
use tokio::task::JoinSet;

use super::{
    machine::Machine,
    proc,
    results::Rate,
    workers::{Shape, Workers},
};

/// The orders of one call.
const TOGETHER: usize = 64;
/// The calls in flight for each partition.
const CALLS: usize = 4;
/// The share of a core that a limited master has.
const SHARE: f64 = 0.15;
/// The interval at which that share is checked.
const LOOK_EVERY: Duration = Duration::from_micros(500);
const DRAIN_WITHIN: Duration = Duration::from_secs(120);

/// One way to spread a sale.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// The number of masters. None: one server, no tags.
    masters: Option<usize>,
    partitions: usize,
}

/// The servers, and a gate for each partition.
struct ScaledSystem {
    servers: Servers,
    tags: Vec<String>,
    gates: Vec<(VoucherId, RedisStore)>,
}

enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
}

/// The processor time of an order by process, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    redis: f64,
    other: f64,
    mysql: f64,
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::One(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::One(redis) => redis.pid().into_iter().collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().filter_map(|node| node.server().pid()).collect(),
        }
    }

    fn cpu_s(&self) -> f64 {
        self.pids().into_iter().map(proc::cpu_s).sum()
    }
}

impl ScaledSystem {
    /// Starts the servers, with a voucher on sale in each partition.
    async fn open(spread: Spread) -> Result<Self> {
        let (servers, tags) = match spread.masters {
            None => (Servers::One(RedisServer::start()?), Vec::new()),
            Some(masters) => {
                let cluster = RedisCluster::options().masters(masters).replicas(0).start()?;
                let tags = tags_of(&cluster, masters, spread.partitions)?;
                (Servers::Cluster(cluster), tags)
            }
        };
        let url = servers.url();
        let known = match &servers {
            Servers::One(_) => None,
            Servers::Cluster(_) => Some(KnownCluster::new(&url)?),
        };
        let mut gates = Vec::new();
        for partition in Partition::all(&tags) {
            let stream = format!("{}stream.orders", partition.prefix());
            let limit = Duration::from_secs(30);
            let settings = RedisConnectionSettings {
                sentinels: None,
                url: url.clone(),
                master: known.as_ref().map(|known| known.master_of(&stream)),
                connections: 1,
                command_timeout: limit,
                connect_timeout: limit,
            };
            let pool: Pool = connect_pool(&settings).await?.into();
            let gate = RedisStore::with_default_names(pool, KeyTemplates::default().of_partition(&partition));
            let index = i64::try_from(partition.index())?;
            let voucher = VoucherId::try_from(if index == 0 { tags.len().max(1) as i64 } else { index })?;
            gate.sales().load(voucher, 1_000_000_000, Default::default()).await?;
            gates.push((voucher, gate));
        }
        Ok(Self { servers, tags, gates })
    }

    /// Admits this many orders, in all partitions at the same time. Returns how long that took.
    async fn admit(&self, orders: usize, first: i64) -> Result<Duration> {
        let (began, each) = (Instant::now(), orders / self.gates.len() / CALLS);
        let mut callers = JoinSet::new();
        for (at, (voucher, gate)) in self.gates.iter().enumerate() {
            for call in 0..CALLS {
                let (gate, voucher) = (gate.clone(), *voucher);
                let first = first + ((at * CALLS + call) * each) as i64;
                callers.spawn(async move {
                    for begin in (0..each).step_by(TOGETHER) {
                        let ids = (begin..(begin + TOGETHER).min(each)).map(|at| first + at as i64);
                        let wanted = ids.map(|id| wanted(id, voucher)).collect::<Result<Vec<_>>>()?;
                        for reply in gate.admissions().admit_all(&wanted).await {
                            ensure!(reply?.is_admitted(), "Not admitted");
                        }
                    }
                    Ok(())
                });
            }
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        Ok(began.elapsed())
    }

    fn admitted(&self, orders: usize) -> usize {
        orders / self.gates.len() / CALLS * CALLS * self.gates.len()
    }
}

fn wanted(id: i64, voucher: VoucherId) -> Result<Wanted> {
    Ok(Wanted {
        order: id.try_into()?,
        user: id.try_into()?,
        voucher,
        quantity: Quantity::ONE,
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    })
}

/// The tags of the partitions, distributed over the masters in turn.
fn tags_of(cluster: &RedisCluster, masters: usize, partitions: usize) -> Result<Vec<String>> {
    let mut tags: Vec<String> = Vec::new();
    for partition in 0..partitions {
        let wanted = cluster.nodes()[partition % masters].id();
        let mut free = (0..1_000).map(|tag: u32| tag.to_string()).filter(|tag| !tags.contains(tag));
        let tag = free.find(|tag| cluster.master_of(tag).is_ok_and(|master| master.id() == wanted));
        tags.push(tag.with_context(|| format!("No tag for slot {} and its master", slot_of("0")))?);
    }
    Ok(tags)
}

/// Limits a process to a fixed share of a core, by stopping it while it has used more. The kernel counts its time in
/// nanoseconds.
struct Limit {
    is_over: Arc<AtomicBool>,
    keepers: Vec<thread::JoinHandle<()>>,
}

impl Limit {
    fn of(pids: Vec<u32>, share: f64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let keep = |pid| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || keep(pid, share, &is_over))
        };
        Self { keepers: pids.into_iter().map(keep).collect(), is_over }
    }

    fn end(self) {
        self.is_over.store(true, Relaxed);
        for keeper in self.keepers {
            let _ended = keeper.join();
        }
    }
}

fn keep(pid: u32, share: f64, is_over: &AtomicBool) {
    let used = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default())
    };
    let process = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
    let (mut began, mut before, mut is_stopped) = (Instant::now(), used(), false);
    while !is_over.load(Relaxed) {
        let (spent, due) = (used() - before, began.elapsed().mul_f64(share));
        // Unused time is lost, so that it cannot be used later in a burst.
        if due > spent + Duration::from_millis(20) {
            (began, before) = (Instant::now(), used());
        }
        if (spent > due) != is_stopped {
            is_stopped = !is_stopped;
            let _sent = kill(process, if is_stopped { Signal::SIGSTOP } else { Signal::SIGCONT });
        }
        thread::sleep(LOOK_EVERY);
    }
    let _sent = kill(process, Signal::SIGCONT);
}

/// Measures everything, and writes `scale.md` into `folder`.
pub async fn measure(program: &Path, folder: &Path, scale: f64) -> Result<()> {
    let orders = ((192_000.0 * scale) as usize).max(2_048);
    let rounds = super::sizes::rounds(3, scale);
    let machine = Machine::look();
    let spreads = [
        Spread { masters: None, partitions: 1 },
        Spread { masters: Some(1), partitions: 1 },
        Spread { masters: Some(2), partitions: 2 },
        Spread { masters: Some(2), partitions: 4 },
        Spread { masters: Some(2), partitions: 8 },
    ];
    let mut text = format!(
        "# Partitions\n\nMade by `just bench`, or `just bench scale`: {} cores, {}, Linux {}, commit {}; others kept {:.0} % of the cores busy \
         just before. Medians of {rounds} rounds in turn, {orders} orders each.\n\n## Processor time an order, in microseconds\n\n\
         | partitions | masters | admission: Redis | gate | drain: Redis | worker | MariaDB |\n|---|---|---|---|---|---|---|\n",
        machine.cores,
        machine.cpu,
        machine.kernel,
        super::machine::commit(),
        100.0 * machine.busy_before,
    );
    let mysql = MysqlServer::start()?;
    let mut found: Vec<Vec<(Cost, Cost)>> = vec![Vec::new(); spreads.len()];
    for round in 0..rounds {
        for (at, spread) in spreads.into_iter().enumerate() {
            println!("round {round}: {spread:?}");
            found[at].push(cost_of(program, &mysql, spread, orders).await?);
        }
    }
    for (spread, costs) in spreads.iter().zip(&found) {
        let of = |one: fn(&(Cost, Cost)) -> f64| Rate::of(costs.iter().map(one).collect()).median;
        let (partitions, masters) = match spread.masters {
            None => ("none".to_owned(), "1, no cluster".to_owned()),
            Some(masters) => (spread.partitions.to_string(), masters.to_string()),
        };
        writeln!(
            text,
            "| {partitions} | {masters} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            of(|c| c.0.redis),
            of(|c| c.0.other),
            of(|c| c.1.redis),
            of(|c| c.1.other),
            of(|c| c.1.mysql)
        )?;
    }
    write!(
        text,
        "\n## Rate, where each master has {SHARE} of a core\n\nA server is stopped (SIGSTOP) while it has had more, as a cgroup's quota would \
         do.\n\n| masters and partitions | admissions/s | against one |\n|---|---|---|\n"
    )?;
    let mut first = None;
    for masters in [1, 2, 4] {
        let mut rates = Vec::new();
        for _ in 0..rounds {
            rates.push(limited(masters, orders / 2).await?);
        }
        let rate = Rate::of(rates).median;
        let one = *first.get_or_insert(rate);
        println!("{masters} masters: {rate:.0}/s");
        writeln!(text, "| {masters} | {rate:.0} | {:.2} |", rate / one)?;
    }
    fs::create_dir_all(folder).with_context(|| format!("Failed to make {}", folder.display()))?;
    fs::write(folder.join("scale.md"), &text).context("Failed to write scale.md")?;
    println!("\n{text}\nscale.md is in {}", folder.display());
    Ok(())
}

/// Measures the cost of an admission, and then of a drain of the admitted orders.
async fn cost_of(program: &Path, mysql: &MysqlServer, spread: Spread, orders: usize) -> Result<(Cost, Cost)> {
    let system = ScaledSystem::open(spread).await?;
    let url = mysql.create_database(&format!("scale_{}", rand::random::<u32>()))?;
    let pool = MySqlPool::connect(&url).await?;
    schema::migrate(&pool).await?;
    for (voucher, _) in &system.gates {
        let sql = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) VALUES (?, 1000000000, \
                   '2020-01-01', '2037-01-01')";
        sqlx::query(sql).bind(voucher.get()).execute(&pool).await?;
    }
    system.admit(orders / 10, 1_000_000_000).await?;
    let own = std::process::id();
    let before = (system.servers.cpu_s(), proc::cpu_s(own));
    system.admit(orders, 1).await?;
    let admitted = system.admitted(orders) as f64;
    let us = |spent: f64, of: f64| spent * 1e6 / of;
    let admission = Cost {
        redis: us(system.servers.cpu_s() - before.0, admitted),
        other: us(proc::cpu_s(own) - before.1, admitted),
        mysql: 0.0,
    };
    let all = (system.admitted(orders) + system.admitted(orders / 10)) as f64;
    let mysql_pid = mysql.pid().context("MariaDB runs")?;
    let before = (system.servers.cpu_s(), proc::cpu_s(mysql_pid));
    let tags = system.tags.join(",");
    let settings = [("TIDEGATE_STREAM_PARTITIONS", tags.as_str())];
    let workers =
        Workers::start_with(program, Shape::DEFAULT, &system.servers.url(), &[&url], &settings).await?;
    let began = Instant::now();
    loop {
        let sql = "SELECT CAST(SUM(1000000000 - stock) AS SIGNED) FROM tb_seckill_voucher";
        let written: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await?;
        if written as f64 >= all {
            break;
        }
        ensure!(began.elapsed() < DRAIN_WITHIN, "Only {written} of {all} orders are written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let drain = Cost {
        redis: us(system.servers.cpu_s() - before.0, all),
        other: us(workers.cpu_s(), all),
        mysql: us(proc::cpu_s(mysql_pid) - before.1, all),
    };
    workers.stop().await?;
    pool.close().await;
    Ok((admission, drain))
}

/// Returns the admissions per second with this many masters, and as many partitions. Each master has a fixed share of a
/// core.
async fn limited(masters: usize, orders: usize) -> Result<f64> {
    let system = ScaledSystem::open(Spread { masters: Some(masters), partitions: masters }).await?;
    system.admit(2_048, 1_000_000_000).await?;
    let limit = Limit::of(system.servers.pids(), SHARE);
    let orders = orders / 2 * masters;
    let took = system.admit(orders, 1).await;
    limit.end();
    Ok(system.admitted(orders) as f64 / took?.as_secs_f64())
}
