//! The command `tidegate-bench demo`: a flash sale with accidents, followed by an audit.

mod board;
mod buyers;
mod fleet;
mod http_caller;
mod market;
mod rush;
mod shop;

use std::{
    collections::HashSet,
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use sqlx::{Connection, MySqlConnection};
use tidegate_lab::{MysqlServer, RedisCluster};
use tidegate_orders::{OrderId, UserId};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::sleep,
};

use board::{Board, Progress};
use buyers::{Ends, Then};
use fleet::Fleet;
use market::{Market, ORDERS_A_PHONE, Servers, Stall, USERS_A_PHONE};
use rush::{Rush, Sales};
use shop::{SHOP_VOUCHER, Shop};

/// The time after the last click within which the fleet must write the remaining orders.
const DRAIN_WITHIN: Duration = Duration::from_secs(90);
/// The time for which a worker is stopped. It is longer than the fleet's `claim_idle`: the others claim its entries,
/// and when it continues, it finds them written.
const STOPPED_FOR: Duration = Duration::from_secs(7);
/// The time that buyers have to pay: the longest time that they think, and some more.
const PAY_WITHIN: &str = "6s";
/// A partition of the master that dies.
const TAG_OF_THE_DEAD: &str = "3";
const TICK: Duration = Duration::from_millis(200);

/// Run a flash sale on private servers with accidents, and audit the result
///
/// Buyers race for vouchers through the real script, and some of them click twice. Most of them pay, some cancel, and
/// some forget to pay: their units are sold again. In a fleet of three workers, one is killed (-9) and one is stopped
/// for a few seconds. MySQL is killed and restarted once. The exit code is 1 if an order is lost, written twice or
/// oversold, or does not end as its owner wanted.
#[derive(Args, Debug)]
pub struct Demo {
    /// The number of buyers
    #[arg(long, default_value_t = 100_000)]
    buyers: u32,
    /// The number of units on sale
    #[arg(long, default_value_t = 20_000)]
    vouchers: u32,
    /// The clicks per second
    #[arg(long, default_value_t = NonZeroU32::new(4_000).unwrap())]
    rate: NonZeroU32,
    /// Sell in twelve partitions of a Redis Cluster: three masters, each with a replica. One master is killed in the
    /// middle of the sale
    #[arg(long)]
    cluster: bool,
    /// Sell a campaign of three regions under two limits, through two gates over HTTP. One gate is killed in the middle
    /// of the sale
    #[arg(long, conflicts_with = "cluster")]
    campaign: bool,
    /// Open the web shop of `examples/shop` beside the sale, until Ctrl-C. This needs Python 3.10 or later
    #[arg(long, conflicts_with_all = ["cluster", "campaign"])]
    shop: bool,
    /// The program to show [default: `tidegate` next to this program]
    #[arg(long)]
    tidegate: Option<PathBuf>,
}

impl Demo {
    /// Runs the sale, and reports whether every order is accounted for.
    pub fn run(self) -> Result<ExitCode> {
        tokio::runtime::Runtime::new()?.block_on(self.run_async())
    }

    async fn run_async(self) -> Result<ExitCode> {
        let began = Instant::now();
        if self.shop {
            Shop::ensure_python()?;
        }
        println!("Starting private servers, as durable as in production");
        let (servers, mysql) = (Servers::start(self.cluster)?, MysqlServer::start()?);
        println!("  Redis  {}\n  MySQL  {}", servers.url(), mysql.url());
        let program = self.tidegate.clone().map_or_else(beside_this_program, Ok)?;
        let mut fleet = Fleet::new(program, &servers.url(), &mysql.url(), &servers.tags())?;
        let market = Arc::new(Market::open(servers, self.campaign).await?);
        println!("Opening the sale of {} vouchers", self.vouchers);
        fleet.tidegate(&["migrate"])?;
        let gates = self.load(&mut fleet, &market).await?;
        let shop = if self.shop { Some(Shop::open(&mut fleet).await?) } else { None };
        for name in ["worker-1", "worker-2", "worker-3"] {
            fleet.start(name)?;
        }

        let (admitted, owners) = unbounded_channel();
        let rush = self.rush(&market, gates, admitted);
        println!("{} people race; three workers write ({} clicks a second)", self.buyers, self.rate);
        println!("Seven of ten pay, some cancel; an order that is not paid expires after {PAY_WITHIN}\n");
        let acting = tokio::spawn(buyers::act(Arc::clone(&market), owners));
        let sales = Arc::new(Sales::default());
        let board = Board::new(rush.clicks(), self.vouchers);
        let clicking = tokio::spawn(rush.run(Arc::clone(&sales)));
        let progress = Progress::default();
        let mut sale =
            Sale { demo: &self, mysql: &mysql, market: &market, sales: &sales, board: &board, progress };
        sale.accidents(&mut fleet).await?;
        while !clicking.is_finished() {
            sale.watch().await;
        }
        clicking.await??;
        acting.await??;
        sale.drain(&mut fleet).await?;
        if market.is_cluster() {
            board.say("orders that only the dead master had are searched for: `tidegate reconcile --repair`");
            fleet.show_quietly(&["reconcile", "--repair", "--yes"])?;
            sale.drain(&mut fleet).await?;
        }
        board.finish();
        let Some(shop) = shop else {
            fleet.stop()?;
            return conclude(&fleet, &mysql, &sales, self.campaign, began).await;
        };
        let verdict = conclude(&fleet, &mysql, &sales, self.campaign, began).await?;
        shop.serve().await?;
        Ok(verdict)
    }

    /// Puts everything on sale, and returns the addresses of the gates.
    async fn load(&self, fleet: &mut Fleet, market: &Market) -> Result<Vec<SocketAddr>> {
        let stock = u64::from(self.vouchers) / market.stalls.len() as u64;
        if !self.campaign {
            for stall in &market.stalls {
                let (voucher, stock) = (stall.voucher.to_string(), stock.to_string());
                let load = ["voucher", "load", "--voucher", &voucher, "--stock", &stock];
                fleet.tidegate(&[&load[..], &["--pay-within", PAY_WITHIN]].concat())?;
            }
            return Ok(Vec::new());
        }
        let line =
            |stall: &Stall| format!("{},{},{stock}\n", stall.region.unwrap_or_default(), stall.voucher);
        let regions = fleet.file("regions.csv", &market.stalls.iter().map(line).collect::<String>())?;
        let load = ["campaign", "load", "--campaign", "1", "--regions", &regions, "--pay-within", PAY_WITHIN];
        fleet.tidegate(&load)?;
        let phones = ORDERS_A_PHONE.to_string();
        for limit in [
            ["--name", "phones", "--subject", "phone", "--window", "sale", "--orders", &phones],
            ["--name", "each", "--subject", "user", "--window", "order", "--units", "1"],
        ] {
            fleet.tidegate(&[&["limit", "set", "--campaign", "1", "--yes"][..], &limit].concat())?;
        }
        println!("  three regions; three people share each phone, which may have {phones} orders");
        Ok(vec![fleet.start_gate("gate-1").await?, fleet.start_gate("gate-2").await?])
    }

    fn rush(
        &self,
        market: &Arc<Market>,
        gates: Vec<SocketAddr>,
        admitted: UnboundedSender<(OrderId, UserId)>,
    ) -> Rush {
        Rush { market: Arc::clone(market), gates, buyers: self.buyers, rate: self.rate, admitted }
    }
}

/// The running sale.
struct Sale<'a> {
    demo: &'a Demo,
    mysql: &'a MysqlServer,
    market: &'a Market,
    sales: &'a Sales,
    board: &'a Board,
    /// The last answer of MySQL, which is kept while MySQL is away.
    progress: Progress,
}

impl Sale<'_> {
    /// Causes the accidents, each in the middle of the work.
    async fn accidents(&mut self, fleet: &mut Fleet) -> Result<()> {
        self.until_written_percent(fleet, 15).await?;
        fleet.kill9("worker-1")?;
        let held = self.market.held_by("worker-1").await?;
        self.board
            .say(&format!("worker-1 killed (-9) with {held} orders in progress: the others will claim them"));

        if self.demo.campaign {
            self.until_written_percent(fleet, 25).await?;
            fleet.kill9("gate-1")?;
            self.board
                .say("gate-1 killed (-9): its callers ask gate-2 the same again, and get one order each");
        }

        self.until_written_percent(fleet, 35).await?;
        fleet.pause("worker-2")?;
        let held = self.market.held_by("worker-2").await?;
        self.board.say(&format!(
            "worker-2 stopped (SIGSTOP) with {held} orders in progress, as by a pause of its machine"
        ));
        let stopped = Instant::now();

        if let Servers::Cluster(cluster) = &self.market.servers {
            self.until_written_percent(fleet, 50).await?;
            self.lose_a_master(cluster).await?;
        }

        self.until_written_percent(fleet, 60).await?;
        self.mysql.kill9()?;
        self.board.say("MySQL killed (-9): the workers stop reading, and count no failure against any order");
        let away = Instant::now();
        while away.elapsed() < Duration::from_secs(2) {
            self.watch().await;
        }
        self.mysql.restart()?;
        self.board.say("MySQL restarted on its data");

        while stopped.elapsed() < STOPPED_FOR {
            self.watch().await;
        }
        let held = self.market.held_by("worker-2").await?;
        fleet.resume("worker-2")?;
        self.board.say(&format!("worker-2 continues (SIGCONT); it still owns {held} of these orders"));
        Ok(())
    }

    /// Kills the master of four partitions. When its replica has taken over, the master comes back and becomes the
    /// replica.
    async fn lose_a_master(&mut self, cluster: &RedisCluster) -> Result<()> {
        let dead = cluster.master_of(TAG_OF_THE_DEAD)?;
        dead.server().kill9()?;
        self.board.say("a Redis master killed (-9) with four of the twelve partitions; the others continue");
        let began = Instant::now();
        while cluster.master_of(TAG_OF_THE_DEAD).map_or(true, |master| master.id() == dead.id()) {
            ensure!(began.elapsed() < DRAIN_WITHIN, "Its replica does not take over");
            self.watch().await;
        }
        self.board.say("its replica has taken over");
        dead.server().restart()?;
        self.board
            .say("the old master is back, as a replica: callers who waited for a replica get their answer");
        Ok(())
    }

    async fn until_written_percent(&mut self, fleet: &mut Fleet, percent: u64) -> Result<()> {
        let wanted = u64::from(self.demo.vouchers) * percent / 100;
        let began = Instant::now();
        while self.progress.written < wanted {
            fleet.ensure_alive()?;
            ensure!(began.elapsed() < DRAIN_WITHIN, "No progress: {} orders written", self.progress.written);
            self.watch().await;
        }
        Ok(())
    }

    /// Waits until nothing is undelivered, pending or unpaid.
    async fn drain(&mut self, fleet: &mut Fleet) -> Result<()> {
        let began = Instant::now();
        loop {
            fleet.ensure_alive()?;
            let on_their_way = self.market.on_their_way().await;
            let is_quiet = matches!(on_their_way, Ok((0, 0)));
            if is_quiet && self.watch().await && self.progress.unpaid == 0 {
                return Ok(());
            }
            ensure!(
                began.elapsed() < DRAIN_WITHIN,
                "The streams are not drained after {} s: {on_their_way:?} undelivered and pending, {} unpaid",
                DRAIN_WITHIN.as_secs(),
                self.progress.unpaid
            );
            self.watch().await;
        }
    }

    /// Reads the stores once, and shows the progress. Returns whether MySQL answered.
    async fn watch(&mut self) -> bool {
        let progress = progress(&self.mysql.url()).await;
        self.progress = *progress.as_ref().unwrap_or(&self.progress);
        self.board.show(self.sales, self.progress);
        sleep(TICK).await;
        progress.is_ok()
    }
}

/// Runs the audit of the program, and then compares the answers that callers got with the orders in MySQL.
async fn conclude(
    fleet: &Fleet,
    mysql: &MysqlServer,
    sales: &Sales,
    is_campaign: bool,
    began: Instant,
) -> Result<ExitCode> {
    println!("\n{sales}\n\nAudit (`tidegate audit`):");
    let audit_holds = fleet.show(&["audit"])?;
    let promised = sales.admitted();
    let mut connection = MySqlConnection::connect(&mysql.url()).await?;
    let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
        "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(status AS SIGNED) FROM tb_voucher_order \
         WHERE voucher_id <> ?",
    )
    .bind(SHOP_VOUCHER)
    .fetch_all(&mut connection)
    .await?;
    let kept: HashSet<i64> = rows.iter().map(|(id, ..)| *id).collect();
    let ends = Ends::of(&rows.iter().map(|(_, user, status)| (*user, *status)).collect::<Vec<_>>());
    let lost = promised.difference(&kept).count();
    let extra = kept.difference(&promised).count();
    println!(
        "Callers were told of {} admitted orders; MySQL holds {} of them, and {extra} that no caller was told of.",
        promised.len(),
        promised.len() - lost
    );
    println!(
        "Of these, {} were paid, {} cancelled, and {} expired; {} ended differently from what their buyers did.",
        ends.count(Then::Pays),
        ends.count(Then::Cancels),
        ends.count(Then::Forgets),
        ends.wrong
    );
    let mut over_limit = 0;
    if is_campaign {
        over_limit = phones_over_limit(&mut connection).await?;
        println!("{over_limit} phones have more orders than they may have.");
    }
    println!("Took {} s.", began.elapsed().as_secs());
    if audit_holds && over_limit == 0 && lost == 0 && extra == 0 && ends.wrong == 0 && !promised.is_empty() {
        println!(
            "\nVERDICT: every admitted order was written exactly once, every buyer who paid has an order, and unpaid \
             units were sold again; no order was lost or doubled, and nothing was oversold."
        );
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = ends.wrong;
    println!(
        "\nVERDICT: FAILED. Lost: {lost}; in MySQL, but no caller was told: {extra}; ended otherwise: {wrong}; \
         audit: {audit_holds}."
    );
    println!("The workers' logs: {}", fleet.keep_logs().display());
    Ok(ExitCode::FAILURE)
}

/// The phones that have more orders than the campaign's limit allows.
async fn phones_over_limit(connection: &mut MySqlConnection) -> Result<i64> {
    let sql = "SELECT COUNT(*) FROM (SELECT user_id DIV ? AS phone FROM tb_voucher_order WHERE status < 4 \
               GROUP BY phone HAVING COUNT(*) > ?) AS beyond";
    let query = sqlx::query_scalar(sql).bind(USERS_A_PHONE).bind(ORDERS_A_PHONE);
    Ok(query.fetch_one(connection).await?)
}

/// The progress in MySQL.
async fn progress(url: &str) -> Result<Progress> {
    // The demo must not wait for a server that is being restarted.
    let look = async {
        let mut connection = MySqlConnection::connect(url).await?;
        let sql = "SELECT COUNT(*), COUNT(IF(status = 1, 1, NULL)), COUNT(IF(status = 2, 1, NULL)) FROM tb_voucher_order \
                   WHERE voucher_id <> ?";
        let row: (i64, i64, i64) = sqlx::query_as(sql).bind(SHOP_VOUCHER).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(row)
    };
    let (written, unpaid, paid) = tokio::time::timeout(Duration::from_secs(1), look).await??;
    Ok(Progress {
        written: u64::try_from(written)?,
        unpaid: u64::try_from(unpaid)?,
        paid: u64::try_from(paid)?,
    })
}

/// The program that was built together with this one.
pub fn beside_this_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("tidegate");
    ensure!(path.is_file(), "{} is not there: build it, or name it with --tidegate", path.display());
    Ok(path)
}
