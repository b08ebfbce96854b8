//! Tests of the commands for dead letters: real servers, real workers, the real program.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use fred::{
    interfaces::{ClientLike, SetsInterface, StreamsInterface},
    types::{CustomCommand, Value},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value as Json, json};
use tidegate_lab::{Hold, Proxy};

use crate::{
    fixture::{
        DEAD, Fixture, GROUP, OrderRow, STREAM, Worker,
        rush::{Wanted, Way},
        until,
    },
    program::{Program, Run, go_on, pastes},
    sale::program,
    terminal::Terminal,
};

/// Field names and values, byte for byte, in order.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A fixture whose voucher 1 has 100 units, with the scripts of the operator's commands loaded.
async fn open() -> (Fixture, Program) {
    let fixture = Fixture::open().await;
    fixture.load(1, 100).await;
    let program = program(&fixture);
    (fixture, program)
}

/// Adds an entry of any bytes; returns its id.
async fn add(fixture: &Fixture, fields: &Fields) -> String {
    let mut args: Vec<Value> = vec![STREAM.into(), "*".into()];
    for (name, value) in fields {
        args.extend([Value::from(name.as_slice()), Value::from(value.as_slice())]);
    }
    let command = CustomCommand::new_static("XADD", None, false);
    fixture.client.custom::<String, _>(command, args).await.expect("the entry is added")
}

/// The entries of a stream: ids and fields, byte for byte.
async fn entries(fixture: &Fixture, key: &str) -> Vec<(String, Fields)> {
    let entries: Vec<(String, Value)> =
        fixture.client.xrange(key, "-", "+", None).await.expect("Redis answers");
    let bytes = |value: &Value| value.as_bytes().expect("a string").to_vec();
    let pairs = |fields: Value| {
        fields.into_array().chunks(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect()
    };
    entries.into_iter().map(|(id, fields)| (id, pairs(fields))).collect()
}

async fn letter_ids(fixture: &Fixture) -> Vec<String> {
    entries(fixture, DEAD).await.into_iter().map(|(id, _)| id).collect()
}

/// All data of Redis, byte for byte, without the operator log.
async fn dump(fixture: &Fixture) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for key in fixture.call("KEYS *").await.convert::<Vec<String>>().expect("keys") {
        all.insert(key.clone(), fixture.redis_says(&["DUMP", &key]).await);
    }
    all.remove("tidegate:log");
    all
}

/// Lets a worker write or bury all entries.
async fn settled(fixture: &Fixture, name: &str) {
    let worker = fixture.worker(name).start();
    stopped(fixture, worker).await;
}

async fn stopped(fixture: &Fixture, worker: Worker) {
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

#[track_caller]
fn is_why(run: &Run, why: &str, letters: u64) {
    let staying = run.json()["stay"].as_array().cloned().unwrap_or_default();
    let found = staying.iter().find(|staying| staying["why"] == why);
    assert_eq!(found.map(|staying| &staying["letters"]), Some(&json!(letters)), "{run:#?}");
}

/// Sells an order of voucher 77, which has no row in MySQL.
async fn sell_unknown(fixture: &Fixture, id: i64, user: i64, quantity: i64) {
    if fixture.redis_stock(77).await.is_none() {
        fixture.redis_says(&["SET", "seckill:stock:77", "100"]).await;
        fixture.caller_log.write(|pages| _ = pages.loaded.insert(77, 100));
    }
    fixture.admit(id, user, 77, quantity).await;
}

async fn add_row_of_77(fixture: &Fixture) {
    let insert = "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time, initial_stock) \
                  VALUES (77, 100, NOW(), NOW() + INTERVAL 1 DAY, 100)";
    sqlx::query(insert).execute(&fixture.pool).await.expect("the row is inserted");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_cause_is_fixed_requeued_letters_become_orders_and_both_stores_agree_at_every_step() {
    let (fixture, program) = open().await;
    for at in 0..30 {
        sell_unknown(&fixture, 1_000 + at, 10 + at, 1 + at % 3).await;
        fixture.admit(2_000 + at, 10 + at, 1, 1).await;
    }
    settled(&fixture, "w").await;
    fixture.judge().await;
    let listed = program.run("dead list --json").expect(0).json();
    assert_eq!((&listed["letters"], &listed["groups"][0]["voucher"]), (&json!(30), &json!("77")), "{listed}");
    assert_eq!(listed["newest"].as_array().unwrap().len(), 10, "{listed}");
    let shown = program.run("dead list").expect(0).stdout;
    assert_eq!((shown.matches("as above").count(), shown.matches("and 20 older").count()), (9, 1), "{shown}");

    // Nothing is repaired yet, so the letters are buried again, with their history.
    let again = program.run("dead requeue --reason unknown_voucher --yes").expect(0);
    assert!(
        again.stderr.contains("warning: 30 letters would be buried again: MySQL has no row of voucher 77"),
        "{again:?}"
    );
    assert!(fixture.dead().await.is_empty());
    fixture.judge_with_open(30).await;
    settled(&fixture, "w").await;
    fixture.judge().await;
    assert_eq!(letter_ids(&fixture).await.len(), 30);

    add_row_of_77(&fixture).await;
    let done = program.run("dead requeue --voucher 77 --yes --json").expect(0).json();
    assert_eq!((&done["letters"], &done["gone"]), (&json!(30), &json!(0)), "{done}");
    fixture.judge_with_open(30).await;
    settled(&fixture, "w").await;
    assert_eq!(fixture.orders().await.len(), 60);
    fixture.invariants().await;
    let log = program.run("log --json").expect(0).json();
    assert_eq!(log[0]["counts"], json!({ "requeued": 30, "gone": 0, "stay": 0 }), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_goes_round_byte_for_byte_and_its_history_is_kept() {
    let (fixture, program) = open().await;
    let all: Vec<u8> = (0..=255).collect();
    let order: Fields = [("userId", "5"), ("voucherId", "77"), ("id", "106")]
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .into();
    let mut strange = order.clone();
    strange.extend([
        (all.clone(), all.clone()),
        (b"dead:requeued".to_vec(), b"9".to_vec()),
        (vec![], vec![]),
    ]);
    let mut many = order.clone();
    many.extend((0..2997).map(|at| (vec![0xff, b'0' + (at % 10) as u8], all[at % 256..].to_vec())));
    let poison: Fields = vec![(b"userId".to_vec(), b"\xff".to_vec())];
    let originals = [strange, many, poison];
    for fields in &originals {
        add(&fixture, fields).await;
    }
    settled(&fixture, "w").await;
    for time in 1..=3 {
        let before = entries(&fixture, STREAM).await.len();
        let done = program.run("dead requeue --all --yes --json").expect(0).json();
        assert_eq!(done["letters"], 3, "{done}");
        let back = entries(&fixture, STREAM).await.split_off(before);
        for ((id, fields), original) in back.iter().zip(&originals) {
            assert!(fields.starts_with(original) && fields.len() == original.len() + 2, "{id}");
            assert_eq!(fields[original.len()], (b"dead:requeued".to_vec(), time.to_string().into_bytes()));
            assert_eq!(fields[original.len() + 1].0, b"dead:history");
        }
        fixture.judge_with_open(3).await;
        settled(&fixture, "w").await;
        fixture.judge().await;
    }
    // The export has the original fields of the entries, and everything that happened to them.
    let export = program.run("dead export").expect(0).stdout;
    let lines: Vec<Json> = export.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (line, original) in export.lines().zip(&originals) {
        let entry = tidegate_stream::EntryLine::parse(line.as_bytes()).expect("an entry");
        let fields: Fields =
            entry.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        assert_eq!(&fields, original);
    }
    let reasons: BTreeSet<&str> = lines.iter().map(|line| line["dead"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, BTreeSet::from(["bad_value", "unknown_voucher"]));
    assert!(lines.iter().all(|line| line["dead"]["requeued"] == 3));
    assert!(lines.iter().all(|line| line["dead"]["history"].as_array().unwrap().len() == 3));

    let one = lines[2]["dead"]["letter"].as_str().unwrap();
    let shown = program.run(&format!("dead show {one}")).expect(0).stdout;
    assert!(shown.contains("bad_value") && shown.contains("requeued   3 times"), "{shown}");
    assert!(shown.contains(r"userId = \xff"), "{shown}");
    assert_eq!(program.run(&format!("dead show {one} --json")).expect(0).json(), lines[2]);
    program.run("dead show 1-1").expect(1);
    assert!(program.run("dead show 1-1 --json").expect(1).json().is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_was_requeued_often_stays_until_somebody_insists() {
    let (fixture, program) = open().await;
    fixture.add(&[("userId", "nobody")]).await;
    sell_unknown(&fixture, 1, 1, 1).await;
    settled(&fixture, "w").await;
    for _ in 0..3 {
        program.run("dead requeue --reason bad_value --reason missing_field --yes").expect(2);
        program.run("dead requeue --reason bad_value --yes").expect(0);
        settled(&fixture, "w").await;
    }
    let before = dump(&fixture).await;
    let dry = program.run("dead requeue --all --dry-run --json").expect(0);
    is_why(&dry, "needs_force", 1);
    assert_eq!(dry.json()["would"], 1);
    let id = dry.json()["stay"][0]["first"][0].as_str().unwrap().to_owned();
    let refused = program.run(&format!("dead requeue {id} --yes --json")).expect(1);
    is_why(&refused, "needs_force", 1);
    assert_eq!(dump(&fixture).await, before);

    let partly = program.run("dead requeue --all --yes --json").expect(1);
    is_why(&partly, "needs_force", 1);
    let log = program.run("log --last 1 --json").expect(0).json();
    assert_eq!(log[0]["outcome"], "partly", "{log:#}");
    assert_eq!((&partly.json()["letters"], letter_ids(&fixture).await), (&json!(1), vec![id.clone()]));
    program.run(&format!("dead requeue {id} --yes --force")).expect(0);
    assert!(letter_ids(&fixture).await.is_empty());
    program.run("dead requeue --all --yes").expect(0);
    fixture.judge_with_open(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_releases_once_and_frees_the_user_and_nothing_brings_the_order_back() {
    let (fixture, program) = open().await;
    for at in 0..20 {
        sell_unknown(&fixture, 1_000 + at, 10 + at, 2).await;
    }
    settled(&fixture, "w").await;
    let left = fixture.redis_stock(77).await;
    assert_eq!(left, Some(60));
    let dry = program.run("dead cancel --all --dry-run").expect(0);
    assert!(dry.stdout.contains("20 letters selected"), "{dry:?}");
    let would =
        "20 orders would be released: 40 units of voucher 77 (Redis has 60 units), 20 users may buy again";
    assert!(dry.stdout.contains(would), "{dry:?}");
    let first = letter_ids(&fixture).await[0].clone();
    let dry = program.run(&format!("dead cancel {first} --dry-run")).expect(0);
    assert!(dry.stdout.contains("1 order would be released: 2 units"), "{dry:?}");
    assert!(dry.stdout.contains("user 10 may buy again"), "{dry:?}");
    let exported = program.run("dead export").expect(0).stdout;
    let one = letter_ids(&fixture).await[3].clone();
    let done = program.run(&format!("dead cancel {one} --yes")).expect(0);
    assert!(done.stdout.contains("released, order 1003"), "{done:?}");
    assert_eq!(fixture.redis_stock(77).await, Some(62));
    program.run(&format!("dead cancel {one} --yes")).expect(1);
    assert_eq!(fixture.redis_stock(77).await, Some(62), "once");
    fixture.judge().await;

    program.run("dead cancel --voucher 77 --yes").expect(0);
    assert_eq!(fixture.redis_stock(77).await, Some(100));
    let buyers: u64 = fixture.client.scard("seckill:order:77").await.unwrap();
    assert_eq!((buyers, letter_ids(&fixture).await.len()), (0, 0));
    assert!(fixture.journal(77).await.values().all(|note| note.contains(r#""by":"operator:dead_cancel""#)));
    fixture.judge().await;

    // The row is added after all, and the orders come again: as new entries, and from a file.
    add_row_of_77(&fixture).await;
    for id in [1_000, 1_001] {
        add_again(&fixture, id).await;
    }
    sell_unknown(&fixture, 2_000, 99, 2).await;
    settled(&fixture, "w").await;
    assert_eq!(ids(&fixture.live_orders().await), [2_000]);
    replay(&fixture, &program, &exported);
    assert_eq!(ids(&fixture.live_orders().await), [2_000]);
    assert_eq!(ids(&fixture.cancelled_orders().await), (1_000..1_020).collect::<Vec<_>>());
    assert_eq!((fixture.redis_stock(77).await, fixture.mysql_stock(77).await), (Some(98), 98), "once");
    fixture.invariants().await;
}

/// Adds the entry of an order in the caller log once more, with its fields in another order.
async fn add_again(fixture: &Fixture, id: i64) {
    let wanted = fixture.caller_log.read().orders[&id];
    let [user, voucher, quantity] = [wanted.user, wanted.voucher, wanted.quantity].map(|it| it.to_string());
    let id = id.to_string();
    fixture.add(&[("id", &id), ("quantity", &quantity), ("voucherId", &voucher), ("userId", &user)]).await;
}

/// Runs exported dead letters again.
fn replay(fixture: &Fixture, program: &Program, exported: &str) {
    let file = fixture.file("exported.jsonl", exported);
    program.run(&format!("replay --file {} --yes", file.display())).expect(0);
}

fn ids(orders: &[OrderRow]) -> Vec<i64> {
    orders.iter().map(|order| order.id).collect()
}

/// Kills `tidegate dead cancel` after its change in MySQL and before that in Redis.
async fn cancel_half(fixture: &Fixture, letter: &str) {
    let (_proxy, mut child, held) = cancel_up_to_redis(fixture, letter).await;
    child.kill().unwrap();
    child.wait().unwrap();
    held.cut();
}

/// Holds `tidegate dead cancel` after its change in MySQL and before that in Redis.
async fn cancel_up_to_redis(fixture: &Fixture, letter: &str) -> (Proxy, Child, Hold) {
    up_to_script(fixture, &["dead", "cancel", letter, "--yes"], include_str!("../../lua/cancel.lua")).await
}

/// The script that puts letters back.
const REQUEUE: &str = include_str!("../../lua/requeue.lua");

/// Holds a command before it calls this script, after it has finished with MySQL.
async fn up_to_script(fixture: &Fixture, words: &[&str], script: &str) -> (Proxy, Child, Hold) {
    let proxy = Proxy::start(fixture.redis.port()).await.unwrap();
    let through = Program::with_flags(&[
        "--redis-url",
        &proxy.url_for(&fixture.redis),
        "--mysql-url",
        &fixture.mysql.url(),
    ]);
    let held = proxy.hold_when(fixture.sha(script).await);
    let mut command = through.command(words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    held.reached().await.unwrap();
    (proxy, child, held)
}

/// An operator inserts the row of the voucher. It shows nothing of the orders that were cancelled before.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_cancelled_before_its_voucher_had_a_row_is_never_written() {
    let (fixture, program) = open().await;
    for order in 1..=4 {
        sell_unknown(&fixture, order, order, 1).await;
    }
    settled(&fixture, "w").await;
    let letters = letter_ids(&fixture).await;
    let exported = program.run("dead export").expect(0).stdout;
    program.run(&format!("dead cancel {} --yes", letters[0])).expect(0);
    cancel_half(&fixture, &letters[1]).await;
    assert_eq!(fixture.redis_stock(77).await, Some(97), "one of the two was released");
    fixture.judge().await;

    add_row_of_77(&fixture).await;
    replay(&fixture, &program, &exported);
    assert_eq!(ids(&fixture.live_orders().await), [3, 4]);
    for order in 1..=4 {
        add_again(&fixture, order).await;
    }
    sell_unknown(&fixture, 5, 5, 1).await;
    settled(&fixture, "w").await;
    assert_eq!(ids(&fixture.live_orders().await), [3, 4, 5]);
    // A replay of a file has written these orders, so their letters stay.
    fixture.judge_except(&["order 3 is alive, and its entry", "order 4 is alive, and its entry"]).await;

    // The letter of an order that is cancelled and not released stays until the order is released. Both commands say
    // how to release it.
    let audited = program.run("audit").expect(0).stdout;
    assert!(
        audited.contains("Of voucher 77, 1 order is cancelled in MySQL and not released in Redis (id 2)."),
        "{audited}"
    );
    let told = program.run("order show 2 --json").expect(0).json();
    assert_eq!(told["fate"]["is"], "cancelled", "{told:#}");
    let cancel = told["fate"]["commands"][0].as_str().unwrap();
    assert!(cancel.ends_with(&format!(" dead cancel {}", letters[1])), "{told:#}");
    assert!(cancel.starts_with("tidegate --redis-url redis://"), "{cancel}");
    let requeued = program.run("dead requeue --all --yes --json").expect(1);
    is_why(&requeued, "cancelled", 1);
    assert_eq!(letter_ids(&fixture).await, [letters[1].clone()]);
    settled(&fixture, "w").await;
    let done = program.run("dead cancel --all --yes").expect(0);
    assert!(done.stdout.contains("released, order 2"), "{done:?}");
    assert_eq!((fixture.redis_stock(77).await, fixture.mysql_stock(77).await), (Some(97), 97));
    fixture.invariants().await;
}

/// Another operator puts a copy of the order back while its letter is cancelled. The copy changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_cancelled_while_a_copy_of_it_is_in_flight_is_not_written() {
    let (fixture, program) = open().await;
    fixture.admit(5, 50, 1, 3).await;
    // The database refuses this row twice: after the group is created again, the entry is buried again.
    let check = "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_50 CHECK (user_id <> 50)";
    sqlx::query(check).execute(&fixture.pool).await.unwrap();
    settled(&fixture, "w").await;
    fixture.call(&format!("XGROUP DESTROY {STREAM} {GROUP}")).await;
    settled(&fixture, "w").await;
    sqlx::query("ALTER TABLE tb_voucher_order DROP CONSTRAINT no_user_50")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let twins = letter_ids(&fixture).await;
    assert_eq!(twins.len(), 2);
    program.run(&format!("dead requeue {} --yes", twins[0])).expect(0);
    program.run(&format!("dead cancel {} --yes", twins[1])).expect(0);
    assert_eq!(fixture.redis_stock(1).await, Some(100));
    settled(&fixture, "w").await;
    assert!(fixture.live_orders().await.is_empty());
    assert_eq!((fixture.redis_stock(1).await, fixture.mysql_stock(1).await), (Some(100), 100));
    fixture.invariants().await;

    // The command is killed between its writes to MySQL and Redis: the letter stays until an operator cancels it again.
    fixture.admit(6, 60, 1, 3).await;
    let check = "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_60 CHECK (user_id <> 60)";
    sqlx::query(check).execute(&fixture.pool).await.unwrap();
    settled(&fixture, "w").await;
    sqlx::query("ALTER TABLE tb_voucher_order DROP CONSTRAINT no_user_60")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let letter = letter_ids(&fixture).await.remove(0);
    cancel_half(&fixture, &letter).await;
    assert_eq!((letter_ids(&fixture).await.len(), fixture.redis_stock(1).await), (1, Some(97)));
    fixture.judge().await;
    is_why(&program.run("dead requeue --all --yes --json").expect(1), "cancelled", 1);
    program.run("dead cancel --all --yes").expect(0);
    assert_eq!((fixture.redis_stock(1).await, fixture.mysql_stock(1).await), (Some(100), 100));
    fixture.invariants().await;

    // The letter is requeued between the writes to MySQL and Redis. The new entry changes nothing, so the command
    // releases the units.
    fixture.admit(7, 70, 1, 3).await;
    let check = "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_70 CHECK (user_id <> 70)";
    sqlx::query(check).execute(&fixture.pool).await.unwrap();
    settled(&fixture, "w").await;
    sqlx::query("ALTER TABLE tb_voucher_order DROP CONSTRAINT no_user_70")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let letter = letter_ids(&fixture).await.remove(0);
    let (_proxy, child, held) = cancel_up_to_redis(&fixture, &letter).await;
    add_again(&fixture, 7).await;
    fixture.call(&format!("XDEL {DEAD} {letter}")).await;
    held.release();
    Run::from(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(fixture.redis_stock(1).await, Some(100));
    settled(&fixture, "w").await;
    fixture.invariants().await;
}

/// Between the look and the script of a requeue, a cancel writes the cancelled row and dies before its release. No
/// letter is left for a later release, so the requeue releases the order.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_while_it_is_requeued_is_released_once_though_the_cancel_dies() {
    let (fixture, program) = open().await;
    for order in 1..=3 {
        sell_unknown(&fixture, order, order, 2).await;
    }
    settled(&fixture, "w").await;
    let letters = letter_ids(&fixture).await;
    let patient = ["--set", "redis.command_timeout_ms=60000"];
    let words = [&["dead", "requeue", "--all", "--yes", "--json"][..], &patient].concat();
    let (_proxy, requeue, held) = up_to_script(&fixture, &words, REQUEUE).await;
    cancel_half(&fixture, &letters[0]).await;
    // One command loses its connection to Redis. The other one is held, and continues after the requeue has released.
    let (cut, without_redis, held_cancel) = cancel_up_to_redis(&fixture, &letters[1]).await;
    cut.cut().await;
    drop(held_cancel);
    Run::from(without_redis.wait_with_output().unwrap()).expect(3);
    let (_through, whole, held_whole) = cancel_up_to_redis(&fixture, &letters[2]).await;
    assert_eq!(ids(&fixture.cancelled_orders().await), [1, 2, 3]);
    held.release();
    let requeued = Run::from(requeue.wait_with_output().unwrap()).expect(0).json();
    assert_eq!([&requeued["letters"], &requeued["gone"], &requeued["released"]], [0, 3, 3], "{requeued}");
    held_whole.release();
    Run::from(whole.wait_with_output().unwrap()).expect(0);
    settled(&fixture, "w").await;

    assert!(letter_ids(&fixture).await.is_empty());
    assert_eq!(fixture.redis_stock(77).await, Some(100), "once");
    assert_eq!(fixture.client.scard::<u64, _>("seckill:order:77").await.unwrap(), 0);
    fixture.judge().await;
    assert!(!program.run("audit").expect(0).stdout.contains("not released"), "all is released");
    fixture.invariants().await;
}

/// A service that cancels without the journal leaves such orders, and so do two killed commands.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_cancelled_and_stays_in_the_journal_is_named_with_what_to_type() {
    let (fixture, program) = open().await;
    sell_unknown(&fixture, 7, 70, 3).await;
    settled(&fixture, "w").await;
    let letter = letter_ids(&fixture).await.remove(0);
    cancel_half(&fixture, &letter).await;
    add_again(&fixture, 7).await;
    fixture.call(&format!("XDEL {DEAD} {letter}")).await;
    settled(&fixture, "w").await;
    fixture.judge().await;
    let audited = program.run("audit").expect(0).stdout;
    assert!(audited.contains("cancelled in MySQL and not released in Redis: 7."), "{audited}");

    let told = program.run("order show 7 --json").expect(0).json();
    let release = told["fate"]["commands"][0].as_str().unwrap();
    for _ in 0..2 {
        let mut typed = Command::new("sh");
        typed.args(["-c", release]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let typed = typed.env("TIDEGATE_REDIS_URL", fixture.redis.url()).output().unwrap();
        assert!(typed.status.success(), "{release}: {typed:?}");
        assert_eq!(fixture.redis_stock(77).await, Some(100), "once: {release}: {typed:?}");
    }
    let audited = program.run("audit").expect(0).stdout;
    assert!(!audited.contains("cancelled in MySQL and not released in Redis"), "{audited}");
    fixture.invariants().await;
}

/// The journal shows which user has the id. MySQL must get no row of a forgery, because such a row would block the
/// genuine order.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_letter_is_not_cancelled_in_the_place_of_the_genuine_order() {
    let (fixture, program) = open().await;
    sell_unknown(&fixture, 58, 1, 1).await;
    fixture.add(&[("userId", "666"), ("voucherId", "77"), ("id", "58")]).await;
    settled(&fixture, "w").await;
    let [genuine, forged] = <[String; 2]>::try_from(letter_ids(&fixture).await).expect("two letters");
    let before = dump(&fixture).await;
    for how in ["--dry-run", "--yes"] {
        is_why(&program.run(&format!("dead cancel {forged} --json {how}")).expect(1), "id_taken", 1);
    }
    assert!(fixture.cancelled_orders().await.is_empty(), "nothing was written");
    assert_eq!(dump(&fixture).await, before);
    is_why(&program.run(&format!("dead drop {genuine} --yes --json")).expect(1), "holds_order", 1);

    add_row_of_77(&fixture).await;
    program.run(&format!("dead requeue {genuine} --yes")).expect(0);
    settled(&fixture, "w").await;
    assert_eq!(
        fixture.live_orders().await.iter().map(|order| (order.id, order.user)).collect::<Vec<_>>(),
        [(58, 1)]
    );
    program.run(&format!("dead drop {forged} --yes")).expect(0);
    assert!(letter_ids(&fixture).await.is_empty());
    fixture.judge().await;
    fixture.invariants().await;
}

/// MySQL refuses the rows of a user, cancelled ones as well. The letters stay and are reported, and can be cancelled
/// afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn what_mysql_refuses_is_not_released_and_its_neighbours_go_on() {
    let (fixture, program) = open().await;
    let check = "ALTER TABLE tb_voucher_order ADD CONSTRAINT no_user_2 CHECK (user_id <> 2)";
    sqlx::query(check).execute(&fixture.pool).await.unwrap();
    for order in 1..=3 {
        sell_unknown(&fixture, order, order, 1).await;
    }
    fixture.admit(4, 2, 1, 1).await;
    settled(&fixture, "w").await;
    program.run("dead cancel --all --dry-run").expect(0);
    let partly = program.run("dead cancel --all --yes --json").expect(1);
    is_why(&partly, "rejected", 2);
    assert!(partly.json()["stay"][0]["error"].as_str().unwrap().contains("no_user_2"), "{partly:?}");
    assert_eq!((fixture.redis_stock(77).await, fixture.redis_stock(1).await), (Some(99), Some(99)));
    fixture.judge().await;
    sqlx::query("ALTER TABLE tb_voucher_order DROP CONSTRAINT no_user_2")
        .execute(&fixture.pool)
        .await
        .unwrap();
    program.run("dead cancel --all --yes").expect(0);
    assert_eq!((fixture.redis_stock(77).await, fixture.redis_stock(1).await), (Some(100), Some(100)));
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_stands_in_mysql_is_not_cancelled_and_requeue_or_drop_ends_its_letter() {
    let (fixture, program) = open().await;
    sell_unknown(&fixture, 1, 1, 1).await;
    settled(&fixture, "w").await;
    let twin = entries(&fixture, DEAD).await.remove(0).1;
    program.run("dead requeue --all --yes").expect(0);
    add_row_of_77(&fixture).await;
    settled(&fixture, "w").await;
    // The letter comes back, as from a backup.
    let mut words: Vec<String> = vec!["XADD".into(), DEAD.into(), "*".into()];
    words.extend(
        twin.iter()
            .flat_map(|(name, value)| [name, value])
            .map(|text| String::from_utf8(text.clone()).unwrap()),
    );
    fixture.redis_says(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let before = dump(&fixture).await;
    for line in ["dead cancel --all --dry-run --json", "dead cancel --all --yes --json"] {
        is_why(&program.run(line).expect(1), "order_exists", 1);
    }
    assert_eq!(dump(&fixture).await, before);
    program.run("dead requeue --all --yes").expect(0);
    settled(&fixture, "w").await;
    assert!(letter_ids(&fixture).await.is_empty());
    fixture.redis_says(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (stock, journal) = (fixture.redis_stock(77).await, fixture.journal(77).await);
    program.run("dead drop --all --yes").expect(0);
    assert!(letter_ids(&fixture).await.is_empty());
    assert_eq!(
        (fixture.redis_stock(77).await, fixture.journal(77).await),
        (stock, journal),
        "nothing is released"
    );
    fixture.invariants().await;
}

/// Only the letter has the payload, and no worker processes it. A replay writes the order nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_is_too_large_is_foreseen_to_die_again_and_ends_once_its_order_is_written() {
    let (fixture, program) = open().await;
    let large = "x".repeat(2 << 20);
    fixture.add(&[("userId", "5"), ("voucherId", "1"), ("id", "50"), ("note", &large)]).await;
    settled(&fixture, "w").await;
    let letters = letter_ids(&fixture).await;
    assert_eq!(letters.len(), 1);
    is_why(&program.run("dead drop --all --yes --json").expect(1), "holds_order", 1);
    let dry = program.run("dead requeue --all --dry-run --json").expect(0).json();
    assert_eq!(dry["again"][0]["reason"], "too_large", "{dry}");
    let raised = "dead requeue --all --dry-run --json --set worker.entry_max_bytes=4194304";
    assert_eq!(program.run(raised).expect(0).json()["again"], json!([]));
    replay(&fixture, &program, &program.run("dead export").expect(0).stdout);
    assert_eq!(ids(&fixture.live_orders().await), [50]);
    let shown = program.run("order show 50").expect(0).stdout;
    assert!(shown.contains(&format!("dead drop {}", letters[0])), "{shown}");
    is_why(&program.run("dead cancel --all --yes --json").expect(1), "order_exists", 1);
    program.run("dead drop --all --yes").expect(0);
    assert!(letter_ids(&fixture).await.is_empty());
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_about_money_can_be_put_back_and_not_dropped() {
    let (fixture, program) = open().await;
    fixture.admit(60, 6, 1, 1).await;
    settled(&fixture, "w").await;
    let large = "x".repeat(2 << 20);
    for (event, reference) in [("paid", "p-1"), ("used", "u-1")] {
        let about = [("orderId", "60"), ("userId", "6"), ("voucherId", "1"), ("ref", reference)];
        fixture.add(&[&[("event", event)], &about[..], &[("note", &large)]].concat()).await;
    }
    settled(&fixture, "w").await;
    let [paid, used] = letter_ids(&fixture).await.try_into().expect("both are buried");
    is_why(&program.run("dead cancel --all --dry-run --json").expect(1), "holds_payment", 1);
    let dropped = program.run("dead drop --all --yes --json").expect(1);
    is_why(&dropped, "holds_payment", 1);
    assert_eq!(
        (&dropped.json()["letters"], &dropped.json()["first"][0]["letter"]),
        (&json!(1), &json!(used))
    );
    assert_eq!(letter_ids(&fixture).await, [paid]);
    let raised = "worker.entry_max_bytes=4194304";
    let dry = program.run(&format!("dead requeue --all --dry-run --json --set {raised}")).expect(0).json();
    assert_eq!((&dry["would"], &dry["again"]), (&json!(1), &json!([])), "{dry}");
    program.run("dead requeue --all --yes").expect(0);
    let worker = fixture.worker("w").set("WORKER_ENTRY_MAX_BYTES", 4 << 20).start();
    stopped(&fixture, worker).await;
    assert!(letter_ids(&fixture).await.is_empty());
    let shown = program.run("order show 60 --json").expect(0).json();
    assert_eq!(shown["events"][0]["event"], "paid", "{shown:#}");
}

/// Buries an event of order `order` of user `user` for voucher 77, as an operator does.
async fn bury_event(
    fixture: &Fixture,
    program: &Program,
    event: &str,
    order: i64,
    user: i64,
    reference: &str,
) -> String {
    let (order, user) = (order.to_string(), user.to_string());
    let about =
        [("event", event), ("orderId", &*order), ("userId", &*user), ("voucherId", "77"), ("ref", reference)];
    let entry = fixture.add(&about).await;
    let _: Value = fixture.call(&format!("XREADGROUP GROUP {GROUP} gone COUNT 1 STREAMS {STREAM} >")).await;
    let listed = program.run("pending list --json").expect(0).json();
    let pending = &listed["entries"][0];
    assert_eq!(
        (&pending["payload"], &pending["event"]["event"]),
        (&json!("event"), &json!(event)),
        "{listed:#}"
    );
    let listed = program.run("pending list").expect(0).stdout;
    assert!(
        listed.contains(&format!("{event} of order {order} of user {user} for voucher 77, ref {reference}"))
    );
    assert!(listed.contains("1 shown (1 event) of 1 entry pending."), "{listed}");
    program.run(&format!("pending bury {entry} --why test --yes")).expect(0);
    letter_ids(fixture).await.pop().expect("a letter")
}

/// Orders 1 and 2 of voucher 77, which has no row in MySQL. Both are buried, with events of the first before and after
/// it. Returns the letters of the two orders, and those of the events in their sequence: paid, refunding, refunded.
async fn with_buried_events() -> (Fixture, Program, [String; 2], [String; 3]) {
    let (fixture, program) = open().await;
    settled(&fixture, "first").await;
    let refunding = bury_event(&fixture, &program, "refunding", 1, 11, "r").await;
    sell_unknown(&fixture, 1, 11, 2).await;
    sell_unknown(&fixture, 2, 12, 1).await;
    settled(&fixture, "w").await;
    let [_, first, second] = letter_ids(&fixture).await.try_into().expect("three letters");
    let refunded = bury_event(&fixture, &program, "refunded", 1, 11, "r").await;
    (fixture, program, [first, second], [String::new(), refunding, refunded])
}

async fn status_of(fixture: &Fixture, order: i64) -> Option<i64> {
    let sql = "SELECT CAST(status AS SIGNED) FROM tb_voucher_order WHERE id = ?";
    sqlx::query_scalar(sql).bind(order).fetch_optional(&fixture.pool).await.expect("MySQL answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_put_back_takes_its_buried_events_along_behind_it_in_their_order() {
    let (fixture, program, [first, second], [_, refunding, refunded]) = with_buried_events().await;
    let paid = bury_event(&fixture, &program, "paid", 2, 12, "p").await;
    let of_another = bury_event(&fixture, &program, "cancelled", 2, 99, "c").await;
    let listed = program.run("dead list --json").expect(0).json();
    assert_eq!((&listed["letters"], &listed["events"]), (&json!(6), &json!(4)), "{listed:#}");
    let of_operator = listed["groups"].as_array().unwrap().iter().find(|it| it["reason"] == "by_operator");
    assert_eq!(
        of_operator.map(|it| (&it["letters"], &it["events"])),
        Some((&json!(4), &json!(4))),
        "{listed:#}"
    );
    let newest = &listed["newest"][1];
    assert_eq!((&newest["event"], &newest["order"]), (&json!("paid"), &json!("2")), "{listed:#}");
    let shown = program.run(&format!("dead show {paid}")).expect(0).stdout;
    assert!(shown.contains("event      paid of order 2 of user 12 for voucher 77, ref p"), "{shown}");

    let file = fixture.file("letters", "").with_extension("jsonl");
    let exported = program.run(&format!("dead export --out {} --json", file.display())).expect(0).json();
    assert_eq!((&exported["entries"], &exported["events"]), (&json!(6), &json!(4)), "{exported:#}");
    let told = program.run("order show 1").expect(0).stdout;
    for part in ["by_operator; its event refunding, ref r", "Its event refunded is a dead letter: "] {
        assert!(told.contains(part), "{part}: {told}");
    }

    // The order would be buried again, so its events stay, even if the command names them.
    let dry = program.run("dead requeue --all --dry-run --json").expect(0).json();
    assert_eq!((&dry["would"], &dry["along"]), (&json!(3), &json!(0)), "{dry:#}");
    add_row_of_77(&fixture).await;
    let alone = program.run(&format!("dead requeue {refunding} {refunded} --yes --json")).expect(1);
    is_why(&alone, "order_is_dead", 2);
    let dry = program.run("dead requeue --all --dry-run").expect(0).stdout;
    assert!(dry.contains("3 events would be appended after their orders"), "{dry}");
    let asked = program.run("dead requeue --reason unknown_voucher").expect(2).stderr;
    assert!(
        asked.contains("Put 2 letters back into stream.orders, and 3 events of these orders after them?"),
        "{asked}"
    );

    // One order is requeued by its id, the other one together with all remaining letters.
    let done = program.run(&format!("dead requeue {first} --yes --json")).expect(0).json();
    let moved: Vec<&Json> = done["first"].as_array().unwrap().iter().map(|ended| &ended["letter"]).collect();
    assert_eq!(moved, [&json!(first), &json!(refunding), &json!(refunded)], "{done:#}");
    assert_eq!((&done["letters"], &done["along"]), (&json!(3), &json!(2)), "{done:#}");
    let done = program.run("dead requeue --all --yes --json").expect(0).json();
    let moved: Vec<&Json> = done["first"].as_array().unwrap().iter().map(|ended| &ended["letter"]).collect();
    assert_eq!(moved, [&json!(second), &json!(paid), &json!(of_another)], "{done:#}");
    assert_eq!((&done["along"], &done["gone"]), (&json!(1), &json!(0)), "{done:#}");
    assert!(fixture.dead().await.is_empty());
    let bury = program.run("pending list --json").expect(0).json();
    assert_eq!(bury["entries"], json!([]));

    program.run("order event paid 1 --user 11 --voucher 77 --ref p --for 0s --yes").expect(1);
    settled(&fixture, "w2").await;
    assert_eq!((status_of(&fixture, 1).await, status_of(&fixture, 2).await), (Some(2), Some(2)));
    let outcomes: Vec<(i64, String, String)> = sqlx::query_as(
        "SELECT CAST(order_id AS SIGNED), event, outcome FROM tidegate_event ORDER BY order_id, step",
    )
    .fetch_all(&fixture.pool)
    .await
    .expect("MySQL answers");
    let outcomes: Vec<(i64, &str, &str)> =
        outcomes.iter().map(|(order, event, outcome)| (*order, &**event, &**outcome)).collect();
    let expected = [
        (1, "refunding", "not_paid"),
        (1, "refunded", "not_paid"),
        (1, "paid", "applied"),
        (2, "cancelled", "wrong_owner"),
        (2, "paid", "applied"),
    ];
    assert_eq!(outcomes, expected);
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn buried_events_end_where_the_streams_order_leads_however_they_were_buried() {
    let (fixture, program) = open().await;
    settled(&fixture, "first").await;
    let words = ["paid", "refunding", "refunded"];
    // There are three orders, with their events before, between and after the letters of the orders.
    let mut letters = Vec::new();
    for (order, at) in [(1, 3), (2, 1), (3, 0)] {
        for word in &words[..at] {
            letters.push(bury_event(&fixture, &program, word, order, 10 + order, word).await);
        }
        sell_unknown(&fixture, order, 10 + order, 1).await;
        settled(&fixture, "w").await;
        for word in &words[at..] {
            letters.push(bury_event(&fixture, &program, word, order, 10 + order, word).await);
        }
    }
    assert_eq!(letter_ids(&fixture).await.len(), 12);
    add_row_of_77(&fixture).await;
    let dropped = program.run("dead drop --all --yes --json").expect(1);
    is_why(&dropped, "holds_payment", 9);
    is_why(&dropped, "holds_order", 3);
    program.run("dead requeue --all --yes").expect(0);
    settled(&fixture, "w2").await;
    for order in 1..=3 {
        assert_eq!(status_of(&fixture, order).await, Some(6), "order {order}");
    }
    assert_eq!(fixture.mysql_stock(77).await, 100);
    assert_eq!(fixture.redis_stock(77).await, Some(100));
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_behind_an_order_leaves_its_events_and_the_line_that_is_shown_does_the_rest() {
    let (fixture, program, [first, _], [_, refunding, refunded]) = with_buried_events().await;
    add_row_of_77(&fixture).await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let through = Program::with_variables(&proxy.url_for(&fixture.redis), &fixture.mysql.url());
    // The call of the script that requeues the last event.
    let held = proxy.hold_when(format!("{refunded}\r\n$0\r\n"));
    let mut command = through.command(&["dead", "requeue", &first, "--yes"]);
    let child = spawned(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    held.reached().await.expect("it is on its way");
    proxy.cut().await;
    let run = Run::from(child.wait_with_output().expect("it ends")).expect(3);
    assert!(run.stdout.contains("2 letters requeued"), "{run:?}");
    assert!(run.stdout.contains(&refunding), "{run:?}");
    let told = program.run("order show 1").expect(0).stdout;
    assert!(told.contains(&format!("dead requeue {refunded}")), "{told}");
    let line = go_on(&run.stderr);
    assert_eq!(line, format!("tidegate dead requeue {refunded} --yes"));
    program.run(line.strip_prefix("tidegate ").expect("a command")).expect(0);
    assert_eq!(fixture.dead().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_order_can_only_be_dropped_and_leaves_nothing_that_is_wrong() {
    let (fixture, program) = open().await;
    fixture.admit(7, 70, 1, 1).await;
    settled(&fixture, "w").await;
    fixture.add(&[("userId", "nobody"), ("voucherId", "1"), ("id", "1")]).await;
    // A forged order has the id of a real one.
    fixture.add(&[("userId", "71"), ("voucherId", "1"), ("id", "7")]).await;
    sell_unknown(&fixture, 8, 80, 1).await;
    settled(&fixture, "w").await;
    program.run("dead requeue --reason bad_value --yes").expect(0);
    settled(&fixture, "w").await;
    let cancelled = program.run("dead cancel --all --yes --json").expect(1);
    is_why(&cancelled, "no_order", 1);
    is_why(&cancelled, "id_taken", 1);
    assert_eq!(cancelled.json()["letters"], 1);
    fixture.judge().await;
    program.run("dead drop --all --yes").expect(0);
    assert!(letter_ids(&fixture).await.is_empty());
    fixture.judge().await;
    assert_eq!(fixture.redis_stock(1).await, Some(99), "nothing was released");
    assert_eq!(fixture.live_orders().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_do_each_letter_once() {
    let (fixture, program) = open().await;
    for at in 0..300 {
        fixture.redis_says(&["SET", "seckill:stock:77", "1000"]).await;
        fixture.caller_log.note(at + 1, Wanted { user: at + 1, voucher: 77, quantity: 1, way: Way::Xadd });
        fixture
            .add(&[("userId", &(at + 1).to_string()), ("voucherId", "77"), ("id", &(at + 1).to_string())])
            .await;
    }
    settled(&fixture, "w").await;
    let both = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let children = [(); 3].map(|()| {
            let mut command = program.command(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let runs = children.map(|child| Run::from(child.wait_with_output().unwrap()).expect(0).json());
        // A command that comes when all is done finds nothing to do, and prints its empty plan.
        runs.iter()
            .filter(|run| run.get("what").is_some())
            .map(|run| run["letters"].as_u64().unwrap())
            .sum::<u64>()
    };
    let before = entries(&fixture, STREAM).await.len();
    assert_eq!(both("dead requeue --all --yes --json"), 300);
    assert_eq!(entries(&fixture, STREAM).await.len(), before + 300);
    settled(&fixture, "w").await;
    assert_eq!(both("dead cancel --all --yes --json"), 300);
    assert_eq!(fixture.redis_stock(77).await, Some(1300), "each unit once");
    fixture.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_can_be_stopped_killed_and_continued() {
    let (fixture, program) = open().await;
    let script = "for at = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'userId', at, 'voucherId', '77', 'id', at, \
                  'dead:entry', at .. '-1', 'dead:reason', 'unknown_voucher', 'dead:error', 'x', \
                  'dead:consumer', 'w-0', 'dead:deliveries', '1', 'dead:at_ms', '1718000000000') end return 1";
    fixture.redis_says(&["EVAL", script, "1", DEAD, "5000"]).await;
    program.run("dead requeue --user 1 --yes").expect(0);
    let proxy = Proxy::start(fixture.redis.port()).await.unwrap();
    let through = Program::with_flags(&[
        "--redis-url",
        &proxy.url_for(&fixture.redis),
        "--mysql-url",
        &fixture.mysql.url(),
    ]);

    let held = proxy.hold_when(fixture.sha(REQUEUE).await);
    let mut terminal = Terminal::start(&through.command(&["dead", "requeue", "--reason", "unknown_voucher"]));
    terminal.shows("Put 4999 letters back into stream.orders? [y/N]");
    terminal.types("y");
    held.reached().await.unwrap();
    terminal.shows("0/4,999");
    terminal.presses_control('c');
    terminal.shows("stopping after the step in progress");
    held.release();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    let rest = go_on(&shown);
    assert!(rest.contains(" dead requeue --reason unknown_voucher --from "), "{shown}");
    let left = letter_ids(&fixture).await.len();
    assert!((1..4999).contains(&left), "{left}");

    let users = async || -> Vec<u64> {
        let fields = entries(&fixture, STREAM).await.into_iter().map(|(_, fields)| fields);
        fields.map(|fields| String::from_utf8_lossy(&fields[0].1).parse().expect("a user")).collect()
    };
    assert!(users().await.is_sorted(), "what stood earlier stands earlier again");

    // The command is killed in the middle of a page: each letter is either requeued or still there.
    let held = proxy.hold_when(fixture.sha(REQUEUE).await);
    let mut child = through.command(&["dead", "requeue", "--all", "--yes"]).spawn().unwrap();
    held.reached().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    held.cut();
    let conserved = async || letter_ids(&fixture).await.len() + entries(&fixture, STREAM).await.len();
    assert_eq!(conserved().await, 5000);
    let log = program.run("log --json").expect(0).json();
    let outcomes: Vec<&str> =
        log.as_array().unwrap().iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "stopped", "began"], "{log}");

    pastes(&format!("{rest} --yes"), &[]).expect(0);
    assert_eq!((letter_ids(&fixture).await.len(), conserved().await), (0, 5000));
    assert_eq!(users().await.into_iter().collect::<BTreeSet<_>>().len(), 5000, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_found_by_reason_voucher_user_time_and_id_and_never_changed_unasked() {
    let (fixture, program) = open().await;
    for user in 1..=3 {
        sell_unknown(&fixture, user, user, 1).await;
    }
    fixture.add(&[("userId", "2"), ("voucherId", "1"), ("id", "x")]).await;
    fixture.add(&[("voucherId", "1")]).await;
    settled(&fixture, "w").await;
    fixture.call(&format!("XADD {DEAD} * who knows")).await;
    let ids = letter_ids(&fixture).await;
    let count =
        |flags: &str| program.run(&format!("dead list --json {flags}")).expect(0).json()["letters"].clone();
    for (flags, expected) in [
        ("--limit 2", 6),
        ("--reason bad_value", 1),
        ("--reason foreign", 1),
        ("--voucher 1", 2),
        ("--user 2", 2),
        ("--user 2 --voucher 77", 1),
        ("--from -1h", 6),
        ("--to -1h", 0),
        (&format!("--from {} --to {}", ids[1], ids[3]), 3),
    ] {
        assert_eq!(count(flags), expected, "{flags}");
    }
    let listed = program.run("dead list --limit 2").expect(0).stdout;
    assert!(listed.starts_with("stream.orders.dead: 6 letters\n"), "{listed}");
    assert!(listed.contains("and 4 older letters: --limit 6 shows all"), "{listed}");
    let shown: Vec<bool> = ids.iter().map(|id| listed.contains(id)).collect();
    assert_eq!(shown, [false, false, false, false, true, true], "the newest: {listed}");
    assert!(listed.find(&ids[5]) < listed.find(&ids[4]), "they come first: {listed}");
    let lines = |flags: &str| program.run(&format!("dead export{flags}")).expect(0).stdout.lines().count();
    assert_eq!((lines(""), lines(" --limit 2"), lines(&format!(" {}", ids[0]))), (6, 2, 1));

    let before = dump(&fixture).await;
    for line in
        ["dead requeue", "dead cancel --yes", "dead drop --limit 3 --yes", "dead requeue --all --user 2"]
    {
        program.run(line).expect(2);
    }
    for line in ["requeue --all", "cancel --voucher 77", "drop --reason bad_value"] {
        let unasked = program.run(&format!("dead {line}")).expect(2);
        assert!(unasked.stderr.contains("nothing was changed"), "{unasked:?}");
        program.run(&format!("dead {line} --dry-run")).expect(0);
        let mut terminal = Terminal::start(
            &program.command(&[&["dead"][..], &line.split(' ').collect::<Vec<_>>()].concat()),
        );
        terminal.shows("[y/N]");
        terminal.types("n");
        assert_eq!(terminal.ends().0, 1);
    }
    assert_eq!(dump(&fixture).await, before);
    assert!(program.run("log").expect(0).stdout.contains("The operator log is empty."));

    let limited = program.run("dead requeue --voucher 77 --limit 2 --yes --json").expect(0).json();
    let moved: Vec<&Json> = limited["first"].as_array().unwrap().iter().map(|note| &note["letter"]).collect();
    assert_eq!(moved, [&json!(ids[0]), &json!(ids[1])], "the oldest first");
    let foreign = program.run("dead requeue --reason foreign --yes --json").expect(1);
    is_why(&foreign, "foreign", 1);
    let missing = program.run(&format!("dead cancel {} 1-1 --yes --json", ids[2])).expect(1).json();
    assert_eq!((&missing["letters"], &missing["missing"]), (&json!(1), &json!(["1-1"])), "{missing}");
    fixture.judge_with_open(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_letters_there_is_nothing_to_do_and_a_key_of_another_type_is_told() {
    let (fixture, program) = open().await;
    for line in ["list", "export", "requeue --all", "cancel --all --yes", "drop --all --yes --json"] {
        program.run(&format!("dead {line}")).expect(0);
    }
    let none = program.run("dead requeue 1795175193179-0 --yes").expect(1);
    assert!(none.stdout.contains("not there: 1795175193179-0"), "{none:?}");
    fixture.call(&format!("SET {DEAD} x")).await;
    for line in
        ["list", "show 1-1", "export", "requeue --all --yes", "cancel --all --yes", "drop --all --yes"]
    {
        let run = program.run(&format!("dead {line}")).expect(3);
        assert!(run.stderr.contains("WRONGTYPE"), "{run:?}");
    }
    assert!(program.run("log").expect(0).stdout.contains("The operator log is empty."));
}

/// Redis has no memory, or a key of one voucher is broken. The letters stay and are reported, and can be cancelled
/// afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_stays_and_its_neighbours_go_on() {
    let (fixture, program) = open().await;
    sell_unknown(&fixture, 1, 1, 1).await;
    fixture.add(&[("userId", "2"), ("voucherId", "78"), ("id", "2")]).await;
    settled(&fixture, "w").await;
    fixture.redis_says(&["SET", "seckill:stock:78", "many"]).await;
    let partly = program.run("dead cancel --all --yes --json").expect(1);
    is_why(&partly, "failed", 1);
    assert_eq!((&partly.json()["letters"], fixture.redis_stock(77).await), (&json!(1), Some(100)));
    fixture.redis_says(&["SET", "seckill:stock:78", "5"]).await;
    program.run("dead cancel --all --yes --json").expect(0);
    assert_eq!(fixture.redis_stock(78).await, Some(6));
    fixture.judge().await;
    until("all is told", || async { letter_ids(&fixture).await.is_empty() }).await;
}

/// Redis fails after some letters of a page are done, and before the others are.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_outage_leaves_of_a_page_is_told_with_what_was_done_and_the_line_that_is_shown_does_the_rest()
{
    let (fixture, program) = open().await;
    // This loads the script into Redis, so that later calls are sent once.
    sell_unknown(&fixture, 7_699_999, 7_699_999, 1).await;
    settled(&fixture, "w").await;
    program.run("dead cancel --all --yes").expect(0);
    for (round, by_ids) in [(0, false), (1, true)] {
        let first = 7_700_000 + round * 1_000;
        for id in first..first + 50 {
            sell_unknown(&fixture, id, id, 1).await;
        }
        settled(&fixture, &format!("w{round}")).await;
        let buried = entries(&fixture, DEAD).await;
        let letters: Vec<&String> = buried.iter().map(|(id, _)| id).collect();
        let proxy = Proxy::start(fixture.redis.port()).await.unwrap();
        let mut flags = vec!["--redis-url".to_owned(), proxy.url_for(&fixture.redis)];
        flags.extend(["--set", "redis.command_timeout_ms=1000", "--set"].map(str::to_owned));
        flags.push(format!("mysql.url={}", fixture.mysql.url()));
        let through = Program::with_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>());

        // A call of the script has the order, the user and the units side by side. The earlier query to the journal
        // must not be held.
        let script_of = |letter: usize| {
            let (_, order) = buried[letter].1.iter().find(|(name, _)| name == b"id").expect("an order");
            format!("{0}\r\n$7\r\n{0}\r\n$1\r\n", String::from_utf8_lossy(order))
        };
        let held = proxy.hold_when(script_of(30));
        // Redis answers in order. When this reply has come, the command has all earlier replies of that connection,
        // also that of one of the first ten letters.
        let answered = proxy.hold_reply_when(script_of(10));
        let mut words = vec!["dead", "cancel", "--yes", "--json"];
        match by_ids {
            true => words.extend(letters.iter().map(|letter| letter.as_str())),
            false => words.extend(["--reason", "unknown_voucher"]),
        }
        let child = spawned(&mut through.command(&words));
        held.reached().await.unwrap();
        answered.reached().await.unwrap();
        proxy.cut().await;
        let failed = Run::from(child.wait_with_output().unwrap()).expect(3);
        let done = 50 - letter_ids(&fixture).await.len() as u64;
        let told = failed.json();
        let count = told["letters"].as_u64().unwrap();
        assert!((1..=done).contains(&count), "{done} are done: {failed:?}");
        assert!(told["error"].as_str().unwrap().starts_with("Redis: "), "{told}");

        proxy.pass();
        let line = go_on(&failed.stderr);
        assert_eq!(told["go_on"], line, "{failed:?}");
        assert!(line.starts_with("tidegate ") && line.contains("redis.command_timeout_ms=1000"), "{line}");
        for note in told["first"].as_array().unwrap() {
            assert!(!line.contains(note["letter"].as_str().unwrap()) || !by_ids, "{line}");
        }
        let rest = pastes(&line, &[]);
        assert_eq!(rest.json()["letters"], 50 - done, "{rest:?}");
        assert_eq!((letter_ids(&fixture).await.len(), fixture.redis_stock(77).await), (0, Some(100)));
        fixture.judge().await;
    }
    program.run("dead cancel --all --yes").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_the_last_page_leaves_nothing_to_go_on_with() {
    let (fixture, program) = open().await;
    sell_unknown(&fixture, 7_700_001, 1, 1).await;
    sell_unknown(&fixture, 7_700_002, 2, 1).await;
    settled(&fixture, "w").await;
    let letters = letter_ids(&fixture).await;
    let proxy = Proxy::start(fixture.redis.port()).await.unwrap();
    let through = Program::with_flags(&[
        "--redis-url",
        &proxy.url_for(&fixture.redis),
        "--mysql-url",
        &fixture.mysql.url(),
    ]);
    let requeue = fred::util::sha1_hash(include_str!("../../lua/requeue.lua"));
    for (words, step) in [
        (vec!["dead", "cancel", &letters[0], "--yes"], "EVALSHA"),
        (vec!["dead", "requeue", "--all", "--yes"], &requeue),
    ] {
        let held = proxy.hold_when(step);
        let mut child = spawned(&mut through.command(&words));
        held.reached().await.unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        interrupt(&child);
        let mut said = String::new();
        // A requeue warns before it stops.
        while !said.contains("stopping") && errors.read_line(&mut said).unwrap() > 0 {}
        assert!(said.contains("stopping after the step in progress"), "{said}");
        held.release();
        errors.read_to_string(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(!said.contains("with:"), "{words:?}: {said}");
    }
    assert!(letter_ids(&fixture).await.is_empty());

    // This is more than a pipe holds.
    let large = "x".repeat(300_000);
    let letter = fixture.redis_says(&["XADD", DEAD, "*", "note", &large]).await.as_string().unwrap();
    fixture.redis_says(&["DEL", STREAM]).await;
    let entry = fixture.redis_says(&["XADD", STREAM, "*", "note", &large]).await.as_string().unwrap();
    for words in [
        vec!["dead", "export", &letter],
        vec!["dead", "export"],
        vec!["export", "--from", &entry, "--to", &entry],
    ] {
        let mut child = spawned(&mut program.command(&words));
        let mut first = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        interrupt(&child);
        let run = Run::from(child.wait_with_output().unwrap()).expect(0);
        assert!(run.stdout.len() > large.len() && !run.stderr.contains("with:"), "{}", run.stderr);
    }
}

fn spawned(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, Signal::SIGINT).expect("it is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_how_many_would_die_again_and_what_repairs_them() {
    let (fixture, program) = open().await;
    let worker = fixture.worker("w").start();
    for order in 1..=3 {
        fixture.add_order(order, 1_000 + order, 999).await;
    }
    fixture.add(&[("userId", "1"), ("voucherId", "1"), ("id", "nothing")]).await;
    until("all are buried", || async { letter_ids(&fixture).await.len() == 4 }).await;
    let shown = program.run("voucher show --voucher 999").expect(1).stdout;
    for part in [
        "no store knows this voucher, but there are 3 dead letters for it. Their orders took no units in Redis",
        "tidegate dead requeue --reason unknown_voucher --voucher 999; then redis DECRBY seckill:stock:999 3",
    ] {
        assert!(shown.replace('\n', " ").contains(part), "{part}: {shown}");
    }

    let none = program.run("dead requeue --reason nix --dry-run").expect(0).stdout;
    assert!(
        none.contains("no letter has the reason nix; reasons and letters: bad_value 1, unknown_voucher 3"),
        "{none}"
    );
    let dry = program.run("dead requeue --all --dry-run").expect(0).stdout;
    assert!(dry.contains("3 letters would be buried again: MySQL has no row of voucher 999"), "{dry}");
    assert!(dry.contains("1 letter would be buried again: the letter holds no order"), "{dry}");
    program.run("voucher load --voucher 999 --stock 10").expect(0);
    let dry = program.run("dead requeue --reason unknown_voucher --dry-run --json").expect(0).json();
    assert_eq!((&dry["would"], &dry["again"]), (&json!(3), &json!([])), "{dry:#}");
    program.run("dead requeue --reason unknown_voucher --voucher 999 --yes").expect(0);
    until("they are written", || async { fixture.orders().await.len() == 3 }).await;
    fixture.call("DECRBY seckill:stock:999 3").await;
    assert_eq!((fixture.mysql_stock(999).await, fixture.redis_stock(999).await), (7, Some(7)));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_row_that_a_voucher_lacks_is_told_with_its_stock() {
    let (fixture, program) = open().await;
    fixture.call("SET seckill:stock:999 500").await;
    for order in 1..=3 {
        fixture.admit(order, 1_000 + order, 999, 1).await;
    }
    let worker = fixture.worker("w").start();
    until("all are buried", || async { letter_ids(&fixture).await.len() == 3 }).await;
    let shown = program.run("voucher show --voucher 999 --json").expect(0).json();
    let hint = shown["hints"][0].as_str().expect("a hint");
    assert!(
        hint.contains("there are 3 dead letters with orders for 3 units, which were taken in Redis"),
        "{hint}"
    );
    let insert = &hint[hint.find("INSERT").expect("a statement")..];
    let insert = insert.split(';').next().expect("a statement").to_owned();
    sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&fixture.pool).await.expect("the row is made");
    program.run("dead requeue --reason unknown_voucher --voucher 999 --yes").expect(0);
    until("they are written", || async { fixture.orders().await.len() == 3 }).await;
    assert_eq!((fixture.mysql_stock(999).await, fixture.redis_stock(999).await), (497, Some(497)));
    assert!(worker.stop().await.success());
    fixture.judge().await;
}
