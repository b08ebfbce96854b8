//! Tests of the audit, on real servers: the faults that it finds, and correct states that it must not report.

use std::{collections::HashMap, sync::Mutex, time::Instant};

use anyhow::{Context, Result};
use fred::{
    clients::Pool,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, Value},
};
use sqlx::{AssertSqlSafe, MySqlPool};
use tidegate_compare::{
    Comparison, ComparisonRequest, Job, Pace, Silent,
    audit::{AuditReport, VoucherAudit, audit},
};
use tidegate_lab::{MysqlServer, RedisServer};
use tidegate_orders::{
    KeyTemplates, RedisStore,
    records::journal::{COMPLETE, write},
    schema,
};
use tidegate_stream::{
    DeadLetterReason, Entry, EntryId, RedisConnectionSettings, ServerRun, Stream, StreamNames, connect_pool,
    server_time_ms,
};
use tokio_util::sync::CancellationToken;

const VOUCHER: i64 = 10;

/// The content of the journal of voucher 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journal {
    /// Every movement of the stock; the rows name their entries.
    Complete,
    /// Orders only, as if another program had loaded the stock and wrote the rows.
    Orders,
}

/// Both stores with voucher 10 and its 100 loaded units, and a group that reads.
struct World {
    journal: Journal,
    /// The entries by order.
    entries: Mutex<HashMap<i64, EntryId>>,
    redis: Pool,
    mysql: MySqlPool,
    names: StreamNames,
    _servers: (RedisServer, MysqlServer),
}

impl World {
    async fn start() -> Result<Self> {
        Self::with(Journal::Orders).await
    }

    async fn both() -> Result<[Self; 2]> {
        Ok([Self::with(Journal::Orders).await?, Self::with(Journal::Complete).await?])
    }

    async fn with(journal: Journal) -> Result<Self> {
        let servers =
            tokio::task::spawn_blocking(|| anyhow::Ok((RedisServer::start()?, MysqlServer::shared()?)))
                .await??;
        let settings = RedisConnectionSettings {
            master: None,
            sentinels: None,
            url: servers.0.url(),
            connections: 2,
            command_timeout: std::time::Duration::from_secs(30),
            connect_timeout: std::time::Duration::from_secs(5),
        };
        let names = StreamNames {
            stream: "stream.orders".into(),
            dead: "stream.orders.dead".into(),
            group: "g1".into(),
        };
        let world = Self {
            journal,
            entries: Mutex::default(),
            redis: connect_pool(&settings).await?.into(),
            mysql: MySqlPool::connect(&servers.1.url()).await?,
            names,
            _servers: servers,
        };
        schema::migrate(&world.mysql).await?;
        world
            .sql("INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock) VALUES (10, 100, 100)")
            .await?;
        world.redis("XGROUP CREATE stream.orders g1 0 MKSTREAM").await?;
        world.redis("SET seckill:stock:10 100").await?;
        if journal == Journal::Complete {
            let now_ms = world.now_ms().await?;
            let notes = [
                (write::LOAD, write::load(100, "test", now_ms)),
                (COMPLETE, write::complete("test", "1", now_ms)),
            ];
            for (field, note) in notes {
                world.redis(&format!("HSET seckill:journal:10 {field} {note}")).await?;
            }
        }
        Ok(world)
    }

    async fn sql(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.mysql).await.with_context(|| sql.to_owned())?;
        Ok(())
    }

    async fn redis(&self, command: &str) -> Result<Value> {
        let mut words = command.split(' ');
        let name = words.next().context("a command")?;
        let args: Vec<Value> = words.map(Value::from).collect();
        let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
        Ok(self.redis.next().custom(command, args).await?)
    }

    async fn now_ms(&self) -> Result<i64> {
        Ok(i64::try_from(server_time_ms(&self.redis).await?)?)
    }

    /// Admits an order as the script does: stock, journal, stream. User n has order n. Returns the entry.
    async fn admit(&self, order: i64) -> Result<EntryId> {
        self.redis("DECR seckill:stock:10").await?;
        let at_ms = match self.journal {
            Journal::Complete => self.now_ms().await?,
            Journal::Orders => 1,
        };
        let note =
            format!(r#"{{"action":"admit","from":9,"to":8,"change":-1,"by":"{order}","timestamp":{at_ms}}}"#);
        self.redis(&format!("HSET seckill:journal:10 {order} {note}")).await?;
        self.redis(&format!("SADD seckill:order:10 {order}")).await?;
        let entry = self.append(&format!("userId {order} voucherId {VOUCHER} id {order}")).await?;
        self.entries.lock().expect("no panic").insert(order, entry);
        Ok(entry)
    }

    async fn append(&self, fields: &str) -> Result<EntryId> {
        let id = self.redis(&format!("XADD stream.orders * {fields}")).await?;
        Ok(id.as_string().context("an entry id")?.parse()?)
    }

    async fn deliver(&self, count: usize) -> Result<()> {
        self.redis(&format!("XREADGROUP GROUP g1 c1 COUNT {count} STREAMS stream.orders >")).await?;
        Ok(())
    }

    async fn settle(&self, entry: EntryId) -> Result<()> {
        self.redis(&format!("XACK stream.orders g1 {entry}")).await?;
        Ok(())
    }

    /// Writes an order as the ledger does: the row and its unit, in one transaction.
    async fn write(&self, order: i64) -> Result<()> {
        let entry = self.entries.lock().expect("no panic").get(&order).copied();
        let entry = entry.filter(|_| self.journal == Journal::Complete);
        let entry = entry.map_or_else(|| "NULL".to_owned(), |entry| format!("'{entry}'"));
        let insert = format!(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, entry_id) VALUES ({order}, {order}, 10, {entry})"
        );
        let take = "UPDATE tb_seckill_voucher SET stock = stock - 1 WHERE voucher_id = 10";
        self.sql(&format!("START TRANSACTION; {insert}; {take}; COMMIT")).await
    }

    async fn release(&self, order: i64) -> Result<()> {
        self.redis("INCR seckill:stock:10").await?;
        let note = r#"{"action":"release","from":8,"to":9,"change":1,"by":"worker:test","timestamp":2}"#;
        self.redis(&format!("HSET seckill:journal:10 {order} {note}")).await?;
        Ok(())
    }

    async fn bury(&self, entry: EntryId, fields: &[(&str, &str)]) -> Result<()> {
        let fields = fields.iter().map(|(name, value)| (name.to_string().into(), value.to_string().into()));
        let entry = Entry { id: entry, fields: fields.collect() };
        let why = DeadLetterReason { reason: "test", error: "a test".into() };
        let stream = Stream::new(self.redis.clone(), self.names.clone());
        anyhow::ensure!(stream.bury_of(&ServerRun::Any, &entry, &why).await?, "it was not pending");
        Ok(())
    }

    async fn audit(&self) -> Result<AuditReport> {
        let request = ComparisonRequest { vouchers: Vec::new(), since_ms: None, pace: Pace::Full };
        let store = RedisStore::new(self.redis.clone(), KeyTemplates::default(), self.names.clone());
        let comparison = Comparison::new((store, self.mysql.clone()), request);
        let job = Job { stop: CancellationToken::new(), progress: Box::new(Silent) };
        Ok(audit(&comparison, &job).await?)
    }

    async fn audit_voucher(&self) -> Result<VoucherAudit> {
        let report = self.audit().await?;
        report.vouchers.into_iter().find(|voucher| voucher.voucher.get() == VOUCHER).context("voucher 10")
    }

    /// Admits, delivers, writes and settles orders `1 ..= count`.
    async fn sell(&self, count: i64) -> Result<()> {
        for order in 1..=count {
            let entry = self.admit(order).await?;
            self.deliver(1).await?;
            self.write(order).await?;
            self.settle(entry).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_state_with_orders_of_every_fate_holds() -> Result<()> {
    for world in World::both().await? {
        world.sell(3).await?;
        // Order 4 is released; 5 is dead, and so is an entry without an order. 6 is written but not settled, 7 is
        // pending, and 8 is undelivered.
        let released = world.admit(4).await?;
        let dead = world.admit(5).await?;
        let unreadable = world.append("userId x").await?;
        world.admit(6).await?;
        world.admit(7).await?;
        world.deliver(5).await?;
        world.release(4).await?;
        world.settle(released).await?;
        world.bury(dead, &[("userId", "5"), ("voucherId", "10"), ("id", "5")]).await?;
        world.bury(unreadable, &[("userId", "x")]).await?;
        world.write(6).await?;
        world.admit(8).await?;
        // Order 3 is cancelled since, and its unit is released on both sides.
        world.sql("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 3").await?;
        world.sql("UPDATE tb_seckill_voucher SET stock = stock + 1").await?;
        world.release(3).await?;
        // An order that only MySQL knows.
        world.write(1000).await?;
        let is_taken = world.journal == Journal::Orders;
        if is_taken {
            world.redis("DECR seckill:stock:10").await?;
        }

        let report = world.audit().await?;
        assert_eq!(report.failures(), Vec::<String>::new());
        let unreadable = &report.unreadable;
        assert_eq!((unreadable.total, unreadable.dead, unreadable.lost.total), (1, 1, 0));
        let voucher = world.audit_voucher().await?;
        assert_eq!((voucher.orders.admitted, voucher.orders.written), (8, 3));
        assert_eq!((voucher.orders.released, voucher.orders.dead, voucher.orders.in_flight), (2, 1, 2));
        assert_eq!(
            (voucher.rows.live_orders, voucher.rows.cancelled_orders, voucher.rows.unknown_orders),
            (4, 1, 1)
        );
        let (redis, risk) = if is_taken { (93, 0) } else { (94, 1) };
        let stocks = (voucher.stocks.stock, voucher.stocks.redis_stock, voucher.oversell_risk());
        assert_eq!(stocks, (Some(96), Some(redis), Some(risk)));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_acknowledged_and_not_written_is_lost() -> Result<()> {
    for world in World::both().await? {
        world.sell(2).await?;
        let lost = world.admit(3).await?;
        world.deliver(1).await?;
        assert!(world.audit_voucher().await?.failures().is_empty(), "pending is not lost");
        world.settle(lost).await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(voucher.failures(), ["voucher 10: 1 admitted order is lost: 3"]);
        assert_eq!(
            (voucher.offences.lost.orders.total, &voucher.offences.lost.orders.first[..]),
            (1, &["3".to_owned()][..])
        );
        // The journal still knows the order after its entry has been trimmed.
        world.redis("XTRIM stream.orders MAXLEN 0").await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(
            (voucher.orders.admitted, voucher.orders.written, voucher.offences.lost.orders.total),
            (3, 2, 1)
        );
    }
    Ok(())
}

/// A producer appends by XADD alone, into a sale with a complete journal.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_without_an_admission_is_found_by_its_entry() -> Result<()> {
    let world = World::with(Journal::Complete).await?;
    world.sell(2).await?;
    let entry = world.append("userId 50 voucherId 10 id 50").await?;
    world.entries.lock().expect("no panic").insert(50, entry);
    let counts = async || {
        let voucher = world.audit_voucher().await?;
        let (written, in_flight, lost) =
            (voucher.orders.written, voucher.orders.in_flight, voucher.offences.lost.orders.first);
        anyhow::Ok((voucher.orders.admitted, written, in_flight, lost))
    };
    assert_eq!(counts().await?, (3, 2, 1, vec![]));
    world.deliver(1).await?;
    world.settle(entry).await?;
    assert_eq!(counts().await?, (3, 2, 0, vec!["50".to_owned()]));
    let voucher = world.audit_voucher().await?;
    assert_eq!(voucher.failures(), ["voucher 10: 1 admitted order is lost: 50"]);
    let span = voucher.offences.lost.span.context("its entry says when")?;
    assert_eq!((span.in_stream, span.entries), (1, Some((entry, entry))));
    world.write(50).await?;
    assert_eq!(counts().await?, (3, 3, 0, vec![]));
    // The dead letter is the only trace of another order.
    let dead = world.append("userId 51 voucherId 10 id 51").await?;
    world.deliver(1).await?;
    world.bury(dead, &[("userId", "51"), ("voucherId", "10"), ("id", "51")]).await?;
    let voucher = world.audit_voucher().await?;
    assert_eq!(
        (voucher.orders.admitted, voucher.orders.written, voucher.orders.dead, voucher.rows.unknown_orders),
        (4, 3, 1, 0)
    );
    assert_eq!(voucher.failures(), Vec::<String>::new());
    // Without its entry, Redis does not know the order that was written, and the dead letter is the only trace of the
    // other.
    world.redis("XTRIM stream.orders MAXLEN 0").await?;
    let voucher = world.audit_voucher().await?;
    assert_eq!(
        (voucher.orders.admitted, voucher.orders.written, voucher.orders.dead, voucher.rows.unknown_orders),
        (3, 2, 1, 1)
    );
    assert_eq!(voucher.failures(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_is_a_finding_until_redis_releases_it() -> Result<()> {
    for world in World::both().await? {
        world.sell(1).await?;
        let refused = world.admit(2).await?;
        world.deliver(1).await?;
        let refusal =
            "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) VALUES";
        world.sql(&format!("{refusal} (2, 2, 10, 1, 'out_of_stock', '{refused}')")).await?;
        assert_eq!(world.audit().await?.failures(), Vec::<String>::new(), "its worker may be at it");
        world.settle(refused).await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(
            voucher.failures(),
            ["voucher 10: 1 order was refused, but its units are not back in the stock in Redis: 2"]
        );
        assert_eq!((voucher.orders.admitted, voucher.orders.written, voucher.orders.released), (2, 1, 0));
        world.release(2).await?;
        world.redis("SREM seckill:order:10 2").await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(voucher.failures(), Vec::<String>::new());
        assert_eq!((voucher.orders.admitted, voucher.orders.written, voucher.orders.released), (2, 1, 1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_under_the_id_of_another_users_order_must_be_buried() -> Result<()> {
    for world in World::both().await? {
        world.sell(2).await?;
        for is_buried in [true, false] {
            let entry = world.append("userId 99 voucherId 10 id 1").await?;
            world.deliver(1).await?;
            if is_buried {
                world.bury(entry, &[("userId", "99"), ("voucherId", "10"), ("id", "1")]).await?;
            } else {
                world.settle(entry).await?;
            }
            let voucher = world.audit_voucher().await?;
            let expected = if is_buried { vec![] } else { vec!["1".to_owned()] };
            assert_eq!(voucher.offences.mismatched.first, expected, "{:?} {voucher:?}", world.journal);
            assert_eq!(voucher.failures().len(), expected.len());
            world.redis("DEL stream.orders.dead").await?;
            world.redis(&format!("XDEL stream.orders {entry}")).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_a_voucher_that_only_rows_or_entries_name_are_counted() -> Result<()> {
    let world = World::with(Journal::Complete).await?;
    world.sell(1).await?;
    world
        .sql("INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity) VALUES (70, 70, 12, 3)")
        .await?;
    let lost = world.append("userId 80 voucherId 13 id 80").await?;
    world.deliver(1).await?;
    world.settle(lost).await?;
    let report = world.audit().await?;
    let of = |id: i64| report.vouchers.iter().find(|it| it.voucher.get() == id).context("it is looked at");
    let rows = &of(12)?.rows;
    assert_eq!((rows.live_orders, rows.live_units, rows.unknown_orders), (1, 3, 1));
    assert!(!of(12)?.is_unknown());
    assert_eq!(report.failures(), ["voucher 13: 1 admitted order is lost: 80"]);
    assert_eq!(of(10)?.orders.written, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_acknowledged_and_not_recorded_is_named_and_one_that_was_buried_is_not()
-> Result<()> {
    for world in World::both().await? {
        world.sell(1).await?;
        let event = world.append("event paid orderId 1 userId 1 voucherId 10").await?;
        world.deliver(1).await?;
        assert_eq!(world.audit().await?.failures(), Vec::<String>::new(), "it is in progress");
        world.settle(event).await?;
        let failures = world.audit().await?.failures();
        assert_eq!(failures, ["voucher 10: 1 order has acknowledged events that are missing in MySQL: 1"]);
        world.redis(&format!("XDEL stream.orders {event}")).await?;
        let unreadable = world.append("event bogus orderId 1 userId 1 voucherId 10").await?;
        world.deliver(1).await?;
        let fields = [("event", "bogus"), ("orderId", "1"), ("userId", "1"), ("voucherId", "10")];
        world.bury(unreadable, &fields).await?;
        let report = world.audit().await?;
        assert_eq!(report.failures(), Vec::<String>::new());
        assert_eq!((report.unreadable.total, report.unreadable.dead), (1, 1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_with_two_entries_in_flight_is_one_order_and_an_event_hides_no_finding() -> Result<()> {
    for world in World::both().await? {
        world.sell(2).await?;
        world.admit(3).await?;
        for order in [1, 3, 3] {
            world.append(&format!("userId {order} voucherId 10 id {order}")).await?;
        }
        let voucher = world.audit_voucher().await?;
        let orders = &voucher.orders;
        assert_eq!((orders.admitted, orders.written, orders.in_flight), (3, 2, 1), "{:?}", world.journal);
        assert_eq!((orders.in_flight_units, voucher.oversell_risk()), (1, Some(0)));
        world.release(2).await?;
        world.append("event paid orderId 2 userId 2 voucherId 10").await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(voucher.offences.doubled_back.first, ["2"], "{:?}", world.journal);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_entry_that_was_acknowledged_and_not_buried_is_lost() -> Result<()> {
    for world in World::both().await? {
        let entry = world.append("voucherId 10").await?;
        world.deliver(1).await?;
        assert!(world.audit().await?.failures().is_empty());
        world.settle(entry).await?;
        let report = world.audit().await?;
        assert_eq!(report.unreadable.lost.first, [entry.to_string()]);
        assert!(
            report.failures()[0].starts_with("1 unreadable entry was acknowledged"),
            "{:?}",
            report.failures()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversold_voucher_and_a_wrong_stock_are_found() -> Result<()> {
    for world in World::both().await? {
        world.sell(3).await?;
        world.sql("UPDATE tb_seckill_voucher SET initial_stock = 2, stock = 0").await?;
        let failures = world.audit_voucher().await?.failures();
        assert!(failures[0].contains("oversold: live orders take 3 of 2 units"), "{failures:?}");
        world.sql("UPDATE tb_seckill_voucher SET initial_stock = 100, stock = 98").await?;
        let failures = world.audit_voucher().await?.failures();
        assert!(
            failures[0].contains("is 98, but should be 97: 100 loaded units minus 3 units of live orders"),
            "{failures:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_stock_is_found_also_for_a_voucher_that_was_taken_over() -> Result<()> {
    let world = World::start().await?;
    world.sql("UPDATE tb_seckill_voucher SET initial_stock = NULL, stock = 5").await?;
    assert!(world.audit_voucher().await?.failures().is_empty());
    world.sql("UPDATE tb_seckill_voucher SET stock = -1").await?;
    let failures = world.audit_voucher().await?.failures();
    assert_eq!(failures, ["voucher 10: the stock in MySQL is negative: -1"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_order_that_was_released_as_well_is_found() -> Result<()> {
    for world in World::both().await? {
        world.sell(2).await?;
        world.release(2).await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(
            (voucher.offences.doubled_back.total, &voucher.offences.doubled_back.first[..]),
            (1, &["2".to_owned()][..])
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_live_orders_in_one_slot_are_found_where_the_unique_key_is_missing() -> Result<()> {
    for world in World::both().await? {
        world.sell(1).await?;
        world.sql("ALTER TABLE tb_voucher_order DROP KEY uk_voucher_user_slot").await?;
        assert!(world.audit_voucher().await?.failures().is_empty());
        world.sql("INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (2, 1, 10)").await?;
        world.sql("UPDATE tb_seckill_voucher SET stock = stock - 1").await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!(voucher.offences.shared_slots.first, ["1/1"]);
        assert_eq!(voucher.failures().len(), 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_another_user_than_was_admitted_is_found() -> Result<()> {
    for world in World::both().await? {
        world.sell(1).await?;
        world.sql("UPDATE tb_voucher_order SET user_id = 99").await?;
        let voucher = world.audit_voucher().await?;
        assert_eq!((voucher.offences.mismatched.first, voucher.orders.written), (vec!["1".to_owned()], 0));
    }
    Ok(())
}

/// Measures; run by hand: `cargo test --release -p tidegate-compare --test compare audit -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute and half a gigabyte of disk"]
async fn a_million_orders_are_audited() -> Result<()> {
    let world = World::start().await?;
    let fill = "for i = ARGV[1], ARGV[2] do local n = string.format('%d', i) \
        redis.call('XADD', KEYS[1], '*', 'userId', n, 'voucherId', '10', 'id', n) redis.call('HSET', KEYS[2], n, \
        '{\"action\":\"admit\",\"from\":9,\"to\":8,\"change\":-1,\"by\":\"'..n..'\",\"timestamp\":1718000000000}') end";
    for from in (1..1_000_000).step_by(10_000) {
        let command = CustomCommand::new_static("EVAL", ClusterHash::FirstKey, false);
        let args: Vec<Value> = vec![
            fill.into(),
            2.into(),
            "stream.orders".into(),
            "seckill:journal:10".into(),
            from.into(),
            (from + 9_999).into(),
        ];
        let _done: Value = world.redis.next().custom(command, args).await?;
        let rows: Vec<String> = (from..from + 10_000).map(|id| format!("({id},{id},10)")).collect();
        let insert = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES ";
        world.sql(&format!("{insert}{}", rows.join(","))).await?;
    }
    world.sql("UPDATE tb_seckill_voucher SET initial_stock = 1000000, stock = 0").await?;
    world.redis("XGROUP SETID stream.orders g1 $").await?;
    let (before, start) = (memory_kib("VmRSS")?, Instant::now());
    let voucher = world.audit_voucher().await?;
    assert_eq!(
        (voucher.orders.admitted, voucher.orders.written, voucher.failures()),
        (1_000_000, 1_000_000, vec![])
    );
    println!("{:?}; {before} KiB before, {} KiB at most", start.elapsed(), memory_kib("VmHWM")?);
    Ok(())
}

fn memory_kib(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).context("a line")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_slot_and_status_contradict_each_other_is_a_finding_of_its_own() -> Result<()> {
    for world in World::both().await? {
        world.sell(4).await?;
        // 1 is cancelled correctly. In the rows of 2 and 3, one column was changed and the other forgotten.
        let back = "UPDATE tb_seckill_voucher SET stock = stock + 1 WHERE voucher_id = 10";
        world
            .sql(&format!("UPDATE tb_voucher_order SET status = 4, slot = NULL WHERE id = 1; {back}"))
            .await?;
        world.release(1).await?;
        assert_eq!(world.audit().await?.failures(), Vec::<String>::new());
        world.sql("UPDATE tb_voucher_order SET status = 6 WHERE id = 2").await?;
        world.sql("UPDATE tb_voucher_order SET slot = NULL WHERE id = 3").await?;
        // The audit cannot know whether their units were released, so it accepts none, one or two of them.
        let what = "voucher 10: 2 orders are neither live nor cancelled: their columns status and slot contradict \
                    each other: 2, 3";
        for _ in 0..3 {
            let audit = world.audit().await?;
            assert_eq!(audit.failures(), [what]);
            let voucher = &audit.vouchers[0];
            assert_eq!(
                (voucher.rows.live_orders, voucher.rows.live_units, voucher.rows.cancelled_orders),
                (1, 1, 1)
            );
            assert_eq!(
                (voucher.offences.contradictory.orders.total, voucher.offences.contradictory.units),
                (2, 2)
            );
            assert_eq!(
                (voucher.orders.written, voucher.orders.released, voucher.offences.lost.orders.total),
                (3, 1, 0)
            );
            world.sql(back).await?;
        }
        let failures = world.audit().await?.failures();
        assert_eq!(failures.len(), 2, "three units too many are: {failures:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_counted_by_what_has_become_of_them_for_each_voucher_and_in_all() -> Result<()> {
    let world = World::start().await?;
    world.sql("INSERT INTO tb_seckill_voucher (voucher_id, stock, initial_stock) VALUES (11, 5, 6)").await?;
    // Status and slot; NULL is unpaid. A payment that came after the cancellation has no slot.
    let rows =
        [(1, "1"), (1, "1"), (2, "1"), (3, "1"), (5, "1"), (5, "NULL"), (4, "NULL"), (6, "NULL"), (4, "1")];
    for (order, (status, slot)) in (1..).zip(rows) {
        let values = format!("({order}, {order}, 10, {status}, {slot})");
        world
            .sql(&format!(
                "INSERT INTO tb_voucher_order (id, user_id, voucher_id, status, slot) VALUES {values}"
            ))
            .await?;
    }
    world
        .sql("INSERT INTO tb_voucher_order (id, user_id, voucher_id, status) VALUES (99, 99, 11, 2)")
        .await?;
    let report = world.audit().await?;
    let states: Vec<[u64; 7]> = report.vouchers.iter().map(|voucher| voucher.rows.states.all()).collect();
    assert_eq!(states, [[2, 1, 1, 2, 1, 1, 1], [0, 1, 0, 0, 0, 0, 0]]);
    assert_eq!(report.states.all(), [2, 2, 1, 2, 1, 1, 1]);
    Ok(())
}
