//! The fixture for tests of repairs: both stores with a voucher on sale whose journal is complete, and a comparison
//! that is as simple as quiet stores allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use fred::{
    clients::Pool,
    interfaces::{ClientLike, HashesInterface, KeysInterface, SetsInterface},
    types::{ClusterHash, CustomCommand, Value},
};
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use tidegate_compare::{
    Difference, DifferenceCause, Job, Progress, RepairMethod, Silent, reconciled::DifferenceKind,
};
use tidegate_lab::{MysqlServer, RedisServer};
use tidegate_operations::{
    CalendarSettings, End, FleetTiming, MySqlSettings, ReconcileSettings, RedisSettings, ResultsSettings,
    Stores, StreamSettings, SystemSettings,
    redacted::RedactedUrl,
    replay::{Replay, ReplayReport, ReplayRequest, ReplaySource},
    selection::EntryFilter,
};
use tidegate_orders::{
    JournalField, JournalNote, KeyTemplates, LockLayout, Published, Quantity, RedisStore, VoucherId, schema,
    scripts::{Admission, AdmitReply, Release, UserAfter},
};
use tidegate_reconcile::{Repair, RepairPlan, RepairReport, StockTotals, VoucherFindings};
use tidegate_stream::connect_pool;
use tokio_util::sync::CancellationToken;

/// The only voucher.
pub const VOUCHER: i64 = 10;
/// The units that were loaded.
pub const UNITS: i64 = 10_000;

/// Both stores, with voucher 10 on sale.
pub struct Fixture {
    pub redis: Pool,
    pub mysql: MySqlPool,
    pub store: RedisStore,
    pub settings: SystemSettings,
    _servers: (RedisServer, MysqlServer),
}

/// The state of the voucher in both stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub stock: i64,
    pub journal: BTreeMap<String, String>,
    pub buyers: BTreeSet<i64>,
    /// The rows by order: user, quantity, whether it is live, status.
    pub rows: BTreeMap<i64, (i64, i64, bool, i64)>,
    pub mysql_stock: i64,
    pub initial: Option<i64>,
}

pub fn voucher() -> VoucherId {
    VOUCHER.try_into().expect("a voucher id")
}

fn settings(redis: &RedisServer, mysql: &MysqlServer) -> SystemSettings {
    let second = Duration::from_secs(1);
    SystemSettings {
        redis: RedisSettings {
            master: None,
            sentinels: None,
            url: RedactedUrl::new(redis.url()),
            connections: 2,
            command_timeout: 30 * second,
            connect_timeout: 5 * second,
        },
        mysql: MySqlSettings {
            shard_tags: Vec::new(),
            url: RedactedUrl::new(mysql.url()),
            connections: 4,
            writers: 2,
            acquire_timeout: 10 * second,
            statement_timeout: 10 * second,
            time_zone: "+00:00".into(),
            lock_wait_timeout_s: 1,
        },
        stream: StreamSettings {
            name: "stream.orders".into(),
            dead: "stream.orders.dead".into(),
            results: "stream.orders.results".into(),
            group: "g1".into(),
            retention: None,
        },
        keys: KeyTemplates::default(),
        confirmation: None,
        pay_within: Duration::ZERO,
        reconcile: ReconcileSettings::default(),
        calendar: CalendarSettings::default(),
        results: ResultsSettings {
            published: Published::Exceptions,
            keep: None,
            keep_bytes: None,
            webhooks: Arc::default(),
        },
        fleet: FleetTiming {
            batch: 300,
            entry_max_bytes: 1 << 20,
            block: second,
            lock_lease: 2 * second,
            lock_layout: LockLayout::default(),
            lock_retry: second / 20,
            claim_idle: 30 * second,
            claim_every: 10 * second,
            backoff_max: second,
        },
    }
}

pub fn job() -> Job {
    Job { stop: CancellationToken::new(), progress: Box::new(Silent) }
}

/// Stops its job at the first progress.
#[derive(Debug)]
pub struct StopsAfter(pub CancellationToken);

impl Progress for StopsAfter {
    fn expect(&self, _total: u64, _what: &'static str) {}

    fn add(&self, _done: u64) {
        self.0.cancel();
    }

    fn say(&self, _line: &str) {}
}

impl Fixture {
    pub async fn start() -> Result<Arc<Self>> {
        let servers =
            tokio::task::spawn_blocking(|| anyhow::Ok((RedisServer::start()?, MysqlServer::shared()?)))
                .await??;
        let settings = settings(&servers.0, &servers.1);
        let redis: Pool = connect_pool(&settings.redis.connection()).await?.into();
        let fixture = Self {
            store: RedisStore::new(redis.clone(), settings.keys.clone(), settings.stream_names()),
            mysql: MySqlPool::connect(&servers.1.url()).await?,
            redis,
            settings,
            _servers: servers,
        };
        schema::migrate(&fixture.mysql).await?;
        let row = format!(
            "INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock) VALUES ({VOUCHER}, {UNITS}, {UNITS})"
        );
        fixture.sql(&row).await?;
        fixture.typed("XGROUP CREATE stream.orders g1 0 MKSTREAM").await?;
        fixture.typed(&format!("SET seckill:stock:10 {UNITS}")).await?;
        let load = format!(
            r#"{{"action":"load","from":null,"to":{UNITS},"change":{UNITS},"by":"x","timestamp":1}}"#
        );
        fixture.note("#load", &load).await?;
        fixture.note("#complete", r#"{"action":"complete","by":"load","timestamp":1}"#).await?;
        Ok(Arc::new(fixture))
    }

    pub async fn sql(&self, sql: &str) -> Result<()> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        sql.execute(&self.mysql).await?;
        Ok(())
    }

    pub async fn typed(&self, command: &str) -> Result<Value> {
        let mut words = command.split(' ');
        let name = words.next().context("a command")?;
        let args: Vec<Value> = words.map(Value::from).collect();
        let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
        Ok(self.redis.next().custom(command, args).await?)
    }

    /// Writes a note of the journal by hand.
    pub async fn note(&self, field: &str, note: &str) -> Result<()> {
        Ok(self.redis.hset(self.store.keys().journal(voucher()), (field, note)).await?)
    }

    /// An order of one unit of the user with its number.
    pub fn admission(&self, order: i64) -> Result<Admission> {
        Ok(Admission {
            order: order.try_into()?,
            user: order.try_into()?,
            voucher: voucher(),
            quantity: Quantity::ONE,
            subjects: tidegate_orders::Subjects::none(),
            traceparent: None,
        })
    }

    /// The release of that order.
    pub fn release(&self, order: i64) -> Result<Release> {
        Ok(Release {
            order: order.try_into()?,
            user: order.try_into()?,
            voucher: voucher(),
            units: Some(Quantity::ONE),
            user_after: UserAfter::Freed,
            by: "worker:test".into(),
        })
    }

    /// Orders of one unit, each of the user with its number.
    pub async fn admit(&self, orders: impl Iterator<Item = i64>) -> Result<()> {
        for admissions in orders.map(|order| self.admission(order)).collect::<Result<Vec<_>>>()?.chunks(50) {
            for reply in self.store.admissions().admit_all(admissions).await {
                ensure!(reply? == AdmitReply::Admitted);
            }
        }
        Ok(())
    }

    pub async fn event(&self, order: i64, event: &str, rest: &str) -> Result<()> {
        let entry =
            format!("XADD stream.orders * event {event} orderId {order} userId {order} voucherId 10{rest}");
        self.typed(&entry).await?;
        Ok(())
    }

    /// Writes and acknowledges all entries of the stream, as workers do.
    pub async fn work(&self) -> Result<()> {
        self.typed("XREADGROUP GROUP g1 c1 COUNT 100000 STREAMS stream.orders >").await?;
        let request = ReplayRequest {
            source: ReplaySource::Stream,
            first: None,
            last: None,
            filter: EntryFilter::default(),
            rate: None,
            publish: false,
            predict: false,
        };
        let replay = Replay::open(&Stores::new(&self.settings), request).await?;
        let plan = replay.plan(&Silent).await?;
        let mut report = ReplayReport::new(&plan);
        ensure!(replay.run(&plan, &mut report, &job()).await? == End::Whole);
        ensure!(report.left == 0, "{report:?}");
        Ok(())
    }

    /// Deletes these orders from MySQL, as if it were restored from a backup that is older than they are.
    pub async fn lose_in_mysql(&self, orders: std::ops::RangeInclusive<i64>) -> Result<()> {
        let (first, last) = orders.into_inner();
        let of = format!("BETWEEN {first} AND {last}");
        let units = format!(
            "SELECT COALESCE(SUM(quantity), 0) FROM tb_voucher_order WHERE id {of} AND slot IS NOT NULL"
        );
        self.sql(&format!(
            "UPDATE tb_seckill_voucher SET stock = stock + ({units}) WHERE voucher_id = 10; \
             DELETE FROM tb_voucher_order WHERE id {of}; DELETE FROM tidegate_event WHERE order_id {of}; \
             DELETE FROM tidegate_refusal WHERE order_id {of}"
        ))
        .await
    }

    pub async fn held(&self) -> Result<Held> {
        let buyers: Vec<i64> = self.redis.smembers(self.store.keys().buyers(voucher())).await?;
        let sql = "SELECT CAST(id AS SIGNED), CAST(user_id AS SIGNED), CAST(quantity AS SIGNED), \
                   CAST(slot IS NOT NULL AS SIGNED), CAST(COALESCE(status, 1) AS SIGNED) FROM tb_voucher_order \
                   WHERE voucher_id = 10";
        let rows = sqlx::raw_sql(sql).fetch_all(&self.mysql).await?;
        let of_row = |row: sqlx::mysql::MySqlRow| {
            let is_live: i64 = row.get(3);
            (row.get::<i64, _>(0), (row.get(1), row.get(2), is_live == 1, row.get(4)))
        };
        let sql = "SELECT CAST(stock AS SIGNED), CAST(initial_stock AS SIGNED) FROM tb_seckill_voucher \
                   WHERE voucher_id = 10";
        let stocks = sqlx::raw_sql(sql).fetch_one(&self.mysql).await?;
        Ok(Held {
            stock: self.redis.get(self.store.keys().stock(voucher())).await?,
            journal: self.redis.hgetall(self.store.keys().journal(voucher())).await?,
            buyers: buyers.into_iter().collect(),
            rows: rows.into_iter().map(of_row).collect(),
            mysql_stock: stocks.get(0),
            initial: stocks.get(1),
        })
    }

    /// Compares both stores, which have to be quiet.
    pub async fn look(&self) -> Result<VoucherFindings> {
        let guard = self.store.repairs().repair_guard(voucher()).await?;
        let held = self.held().await?;
        Ok(VoucherFindings {
            is_partial: false,
            voucher: voucher(),
            totals: Some(held.totals(guard.is_change_open())),
            guard,
            differences: held.differences(),
        })
    }

    /// Repairs what a comparison found.
    pub async fn repair(&self, findings: VoucherFindings) -> Result<RepairReport> {
        let plan = RepairPlan::new(vec![findings], 0);
        let mut report = RepairReport::new(&plan);
        let stores = Stores::new(&self.settings);
        let repair = Repair::connect(&stores, "tester".to_owned()).await?;
        ensure!(repair.run(&plan, &mut report, &job()).await? == End::Whole);
        Ok(report)
    }

    /// Checks that both stores agree, and that a repair has nothing to do.
    pub async fn expect_agreement(&self) -> Result<Held> {
        let found = self.look().await?;
        ensure!(found.differences.is_empty(), "{:?}", found.differences);
        let moved = found.totals.and_then(|totals| totals.stock_move()).context("totals")?;
        ensure!(moved.is_nothing(), "{moved:?} by {:?}", found.totals);
        let held = self.held().await?;
        ensure!(held.stock == held.mysql_stock, "Redis has {}, MySQL {}", held.stock, held.mysql_stock);
        Ok(held)
    }
}

impl Held {
    fn entries(&self) -> impl Iterator<Item = (JournalField<'_>, &String, JournalNote)> {
        self.journal.iter().map(|(field, note)| {
            let entry = JournalNote::parse(note.as_bytes()).unwrap_or_default();
            (JournalField::parse(field), note, entry)
        })
    }

    pub fn live_units(&self) -> i64 {
        self.rows.values().filter(|row| row.2).map(|row| row.1).sum()
    }

    fn totals(&self, is_change_open: bool) -> StockTotals {
        let sum: i64 = self.entries().map(|(.., entry)| entry.total_change()).sum();
        let of_sale = self.entries().filter(|(field, ..)| matches!(field, JournalField::Sale(_)));
        StockTotals {
            redis_drift: self.stock - sum,
            loaded: of_sale.map(|(.., entry)| entry.total_change()).sum(),
            mysql_stock: self.mysql_stock,
            initial: self.initial,
            live_units: self.live_units(),
            is_change_open,
        }
    }

    fn differences(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut add = |kind, repair, order: Option<i64>, user: i64, units, note: Option<&String>| {
            found.push(Difference {
                kind,
                voucher: voucher(),
                order: order.and_then(|order| order.try_into().ok()),
                user: user.try_into().ok(),
                units,
                cause: DifferenceCause::Unknown,
                repair,
                counter: None,
                status: None,
                entry: None,
                note: note.cloned(),
            });
        };
        let mut told = BTreeSet::new();
        for (field, note, entry) in self.entries() {
            let JournalField::Order(order) = field else { continue };
            let (order, note) = (order.get(), Some(note));
            let user = match entry.admitted {
                Some(admitted) => admitted.user.map_or(0, tidegate_orders::UserId::get),
                None => entry.by.as_deref().and_then(|by| by.parse().ok()).unwrap_or(0),
            };
            let units = -entry.admitted.map_or(entry.change.unwrap_or(0), |admitted| admitted.change);
            let (kind, repair) = match (entry.is_admission(), self.rows.get(&order)) {
                (true, None) => (DifferenceKind::LostOrder, RepairMethod::RunAgain),
                (true, Some(row)) if !row.2 => (DifferenceKind::NotReleased, RepairMethod::Release),
                (false, None) => (DifferenceKind::ReleaseUnknownToMysql, RepairMethod::WriteCancelledRow),
                (false, Some(row)) if row.2 => (DifferenceKind::ReleasedAndLive, RepairMethod::Admit),
                _ => continue,
            };
            told.insert(user);
            add(kind, repair, Some(order), user, units, note);
        }
        for (order, (user, quantity, is_live, _)) in &self.rows {
            if *is_live && !self.journal.contains_key(&order.to_string()) {
                told.insert(*user);
                add(DifferenceKind::NotAdmitted, RepairMethod::Admit, Some(*order), *user, *quantity, None);
            }
        }
        let live: BTreeSet<i64> = self.rows.values().filter(|row| row.2).map(|row| row.0).collect();
        for user in self.buyers.symmetric_difference(&live).filter(|user| !told.contains(user)) {
            let (kind, repair) = match live.contains(user) {
                true => (DifferenceKind::NotBarred, RepairMethod::Bar),
                false => (DifferenceKind::BarredWithoutOrder, RepairMethod::Unbar),
            };
            add(kind, repair, None, *user, 0, None);
        }
        found
    }
}
