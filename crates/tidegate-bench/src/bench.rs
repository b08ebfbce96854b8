//! The command `tidegate-bench bench`: measures Tidegate, its bare servers, and the consumer that it replaces.

mod admission;
mod books;
mod ceiling;
mod charts;
mod compare;
mod contender;
mod cost;
mod counts;
mod drain;
mod existing;
mod fixture;
mod gate;
mod git;
mod headlines;
mod latency;
mod limits;
mod machine;
mod meter;
mod orders;
mod over_http;
mod proc;
mod report;
mod resp;
mod results;
mod scale;
mod sender;
mod sizes;
mod tap;
mod targets;
mod trouble;
mod tutorial;
mod workers;
mod writers;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use tidegate_lab::MysqlFlavour;

use contender::Contender;
use fixture::Fixture;
pub use gate::BareHandler;
use machine::Machine;
use results::{Results, SCHEMA, ServerResults};
use sizes::{Shapes, Sizes};
use trouble::Rows;
use writers::tell;

/// Measure Tidegate, its bare servers, and the consumer that it replaces
///
/// It runs on private servers that are as durable as in production, with all measurements in turn in the same run. It
/// writes a JSON file and a report with charts. Figures depend on the machine and on its other load; compare only
/// ratios within one run.
#[derive(Args, Debug)]
pub struct Bench {
    /// The kind of run
    #[arg(value_enum, default_value_t = What::Full)]
    what: What,
    /// For `compare`: two JSON files; or two commits or program files, which are then measured in turn
    pair: Vec<String>,
    /// Where the results go [default: docs/benchmarks for a full run with everything, else target/benchmarks]
    #[arg(long)]
    out: Option<PathBuf>,
    /// The program to measure [default: `tidegate` next to this program]
    #[arg(long)]
    tidegate: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Only these rows of the part trouble
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Rows>,
    /// Only with these servers [default: MariaDB, and MySQL if `just matrix` has fetched it]
    #[arg(long, value_enum, value_delimiter = ',')]
    mysql: Vec<Server>,
    /// Share of the usual sizes, for a quick check that everything runs
    #[arg(long, default_value_t = 1.0, hide = true)]
    scale: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A short run: about two minutes
    Quick,
    /// Everything, including partitions and HTTP: about an hour
    Full,
    /// Only trouble, in large sizes: about a quarter of an hour
    Trouble,
    /// Only the cost of an order, in large sizes: about five minutes
    Cost,
    /// The costs and gains of partitions, on Redis Clusters: about five minutes
    Scale,
    /// Events, results and webhooks over HTTP: about two minutes
    Http,
    /// The page and its charts again from `results.json`, without measuring
    Page,
    /// Ratios of two runs, or of two commits, which are built and measured in turn: four minutes for each MySQL
    Compare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The most that MySQL can do
    Ceiling,
    /// The tutorial's consumer
    Tutorial,
    /// From a full stream to rows, and the cost of that
    Drain,
    /// The gate and its script
    Admission,
    /// The cost of limits for an admission
    Limits,
    /// The gate over HTTP, compared with a bare handler
    Gate,
    /// Latency at several rates, in an open loop
    Latency,
    /// Drains with all lanes, batches, processes, vouchers (full only)
    Shapes,
    /// The memory of a worker with a long backlog (full only)
    Memory,
    /// The cost of an order, compared with a bare insert
    Cost,
    /// Streams with unusual orders, as shares of the plain rate
    Trouble,
    /// Comparing both stores, and filling an empty Redis (with the first server)
    Books,
}

/// The parts of this run; an empty list means all.
struct Parts(Vec<Part>);

impl Parts {
    fn wants(&self, part: Part) -> bool {
        self.0.is_empty() || self.0.contains(&part)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    Mariadb,
    Mysql,
}

impl Bench {
    /// Runs the selected benchmark.
    pub fn run(self) -> Result<()> {
        match self.what {
            What::Compare => self.compare(),
            What::Page => {
                let folder = self.out.clone().unwrap_or_else(|| "docs/benchmarks".into());
                let text =
                    fs::read_to_string(folder.join("results.json")).context("Failed to read the results")?;
                report::write(&serde_json::from_str(&text)?, &folder)
            }
            What::Scale | What::Http => {
                let program = self.tidegate.clone().map_or_else(crate::demo::beside_this_program, Ok)?;
                let folder = self.out.clone().unwrap_or_else(|| "docs/benchmarks".into());
                let runtime = tokio::runtime::Runtime::new()?;
                match self.what {
                    What::Http => runtime.block_on(over_http::measure(&program, &folder, self.scale)),
                    _ => runtime.block_on(scale::measure(&program, &folder, self.scale)),
                }
            }
            What::Quick | What::Full | What::Trouble | What::Cost => {
                tokio::runtime::Runtime::new()?.block_on(self.measure())
            }
        }
    }

    fn compare(&self) -> Result<()> {
        let [a, b] = self.pair.as_slice() else {
            bail!("Name two files, or two commits: compare A.json B.json, compare HEAD~1 HEAD")
        };
        let is_json = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "json");
        if is_json(a) && is_json(b) {
            return compare::files(a.as_ref(), b.as_ref());
        }
        ensure!(!is_json(a) && !is_json(b), "Name two JSON files, or none: {a}, {b}");
        let machine = Machine::look();
        if machine.is_busy() {
            println!("NOTE: {}", machine.busy_note());
        }
        let pair = Contender::pair([a, b])?;
        let sizes = Sizes::compare(self.scale);
        let runtime = tokio::runtime::Runtime::new()?;
        for flavour in self.servers().0 {
            runtime.block_on(compare::programs(flavour, pair.clone(), &sizes))?;
        }
        Ok(())
    }

    async fn measure(self) -> Result<()> {
        ensure!(self.pair.is_empty(), "Only `compare` takes names behind it");
        let program = self.tidegate.clone().map_or_else(crate::demo::beside_this_program, Ok)?;
        let (began, started, machine) = (Instant::now(), Timestamp::now(), Machine::look());
        println!(
            "{} cores, {}, {} MiB, Linux {}",
            machine.cores, machine.cpu, machine.memory_mib, machine.kernel
        );
        if machine.is_busy() {
            println!("NOTE: {}", machine.busy_note());
        }
        let (flavours, left_out) = self.servers();
        let mut servers = Vec::new();
        for flavour in flavours {
            servers.push(self.with_server(flavour, program.clone(), servers.is_empty()).await?);
        }
        let results = Results {
            schema: SCHEMA,
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            commit: machine::commit(),
            mode: self.what.to_possible_value().map_or_else(String::new, |mode| mode.get_name().to_owned()),
            scale: self.scale,
            started: started.to_string(),
            took_s: began.elapsed().as_secs_f64(),
            machine,
            servers,
            left_out,
        };
        let folder = self.out.clone().unwrap_or_else(|| self.usual_folder());
        Self::keep(&results, &folder)?;
        if self.what == What::Full && self.only.is_empty() && self.mysql.is_empty() {
            scale::measure(&program, &folder, self.scale).await?;
            over_http::measure(&program, &folder, self.scale).await?;
        }
        Ok(())
    }

    fn keep(results: &Results, folder: &Path) -> Result<()> {
        println!();
        for line in headlines::of(results) {
            println!("{:<86} {:>12} {}", line.name, headlines::show(line.value), line.unit);
        }
        fs::create_dir_all(folder).with_context(|| format!("Failed to make {}", folder.display()))?;
        let text = serde_json::to_string_pretty(results)? + "\n";
        fs::write(folder.join("results.json"), text).context("Failed to write the results")?;
        report::write(results, folder)?;
        println!("Took {:.0} s; results.json and README.md are in {}", results.took_s, folder.display());
        Ok(())
    }

    /// The default folder: the repository keeps the latest complete run.
    fn usual_folder(&self) -> PathBuf {
        let is_whole = self.what == What::Full
            && self.only.is_empty()
            && self.rows.is_empty()
            && self.mysql.is_empty()
            && self.tidegate.is_none()
            && self.scale == 1.0;
        PathBuf::from(if is_whole { "docs/benchmarks" } else { "target/benchmarks" })
    }

    fn servers(&self) -> (Vec<MysqlFlavour>, Vec<String>) {
        let is_wanted = |server| self.mysql.is_empty() || self.mysql.contains(&server);
        let (mut flavours, mut left_out) = (Vec::new(), Vec::new());
        if is_wanted(Server::Mariadb) {
            flavours.push(MysqlFlavour::MariaDb);
        }
        if is_wanted(Server::Mysql) {
            if MysqlFlavour::Mysql.is_installed() {
                flavours.push(MysqlFlavour::Mysql);
            } else {
                println!("MySQL is not here, so MariaDB only; `just matrix` fetches it");
                left_out.push("MySQL: not fetched (`just matrix`)".to_owned());
            }
        }
        (flavours, left_out)
    }

    /// Measures everything with one MySQL. Parts that concern Redis alone are measured once, with the first server.
    async fn with_server(
        &self,
        flavour: MysqlFlavour,
        program: PathBuf,
        is_first: bool,
    ) -> Result<ServerResults> {
        let sizes = match self.what {
            What::Quick => Sizes::quick(self.scale),
            What::Cost => Sizes::cost(self.scale),
            What::Trouble => Sizes::trouble(self.scale),
            What::Full | What::Scale | What::Http | What::Page | What::Compare => Sizes::full(self.scale),
        };
        let parts = match self.what {
            What::Cost => Parts(vec![Part::Cost]),
            What::Trouble => Parts(vec![Part::Trouble]),
            What::Quick | What::Full | What::Scale | What::Http | What::Page | What::Compare => {
                Parts(self.only.clone())
            }
        };
        let mut fixture = Fixture::open(flavour, program).await?;
        let mut results = ServerResults { server: fixture.describe().await?, ..Default::default() };
        println!("\n{} and {}", results.server.redis, results.server.mysql);
        for (name, value) in results.server.redis_settings.iter().chain(&results.server.mysql_settings) {
            println!("  {name} = {value}");
        }
        writers::compare(&mut fixture, &sizes, &parts, &mut results).await?;
        if is_first && parts.wants(Part::Admission) {
            tell("admission");
            results.admission = Some(admission::measure(&mut fixture, sizes.calls, sizes.rounds).await?);
        }
        if is_first && parts.wants(Part::Limits) {
            tell("limits");
            results.limits = Some(limits::measure(&mut fixture, sizes.calls, sizes.rounds).await?);
        }
        if is_first && parts.wants(Part::Gate) {
            tell("gate");
            results.gate = Some(gate::measure(&mut fixture, &sizes).await?);
        }
        if parts.wants(Part::Latency) {
            tell("latency");
            results.latency = Some(latency::measure(&mut fixture, &sizes).await?);
        }
        if sizes.shapes == Shapes::All && parts.wants(Part::Shapes) {
            writers::all_shapes(&mut fixture, &sizes, &mut results).await?;
            writers::growing(&mut fixture, &sizes, &mut results).await?;
        }
        if is_first && sizes.backlog > 0 && parts.wants(Part::Memory) {
            tell("memory");
            results.memory = Some(writers::memory(&mut fixture, &sizes).await?);
        }
        if parts.wants(Part::Cost) {
            results.cost = Some(cost::measure(&mut fixture, sizes.cost, sizes.rounds).await?);
        }
        if parts.wants(Part::Trouble) {
            results.trouble =
                Some(trouble::measure(&mut fixture, flavour, &sizes.trouble, &self.rows, is_first).await?);
        }
        if is_first && parts.wants(Part::Books) {
            results.books = Some(books::measure(&mut fixture, &sizes.books).await?);
        }
        Ok(results)
    }
}
