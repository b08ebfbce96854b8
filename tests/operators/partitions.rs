//! Tests of a system with partitions on one Redis server: every command covers all partitions, and names them if that
//! matters.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use fred::interfaces::{HashesInterface, KeysInterface, LuaInterface, StreamsInterface};
use serde_json::{Value as Json, json};

use crate::{
    fixture::{Fixture, until},
    program::Program,
    terminal::Terminal,
};

pub const TAGS: &str = "3,1,0";

/// The program for a system with these partitions.
pub fn program(fixture: &Fixture, tags: &str) -> Program {
    let set = format!("stream.partitions={tags}");
    Program::with_flags(&[
        "--redis-url",
        &fixture.redis.url(),
        "--mysql-url",
        &fixture.mysql.url(),
        "--set",
        &set,
    ])
}

/// The output for each partition of a command that writes JSON.
pub fn by_partition(stdout: &str) -> Vec<(String, Json)> {
    let named = |json: Json| Some((json["partition"].as_str()?.to_owned(), json));
    all_json(stdout).into_iter().filter_map(named).collect()
}

/// The output for all partitions together.
fn of_all(stdout: &str) -> Json {
    let last = all_json(stdout).pop().expect("JSON");
    assert!(last.get("all_partitions").is_some(), "{last}");
    last
}

fn all_json(stdout: &str) -> Vec<Json> {
    serde_json::Deserializer::from_str(stdout).into_iter::<Json>().map(|json| json.expect("JSON")).collect()
}

pub async fn all_are_settled(program: &Program) {
    until("every entry is handled", || async {
        by_partition(&program.run("status --json").expect(0).stdout)
            .iter()
            .all(|(_, own)| own["stream"]["pending"] == 0 && own["stream"]["undelivered"] == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_over_partitions_is_seen_and_changed_as_a_whole() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    let worker = fixture.worker("w").set("STREAM_PARTITIONS", TAGS).start();
    let mut orders = Vec::new();
    for voucher in 1..=6 {
        program.run(&format!("voucher load --voucher {voucher} --stock 10")).expect(0);
        let admitted = program.run(&format!("admit --voucher {voucher} --user {voucher} --json")).expect(0);
        orders.push((voucher, admitted.json()["order"].as_str().expect("an id").to_owned()));
        program.run(&format!("admit --voucher {voucher} --user {voucher}")).expect(1);
    }
    all_are_settled(&program).await;
    let tag = |voucher: usize| ["3", "1", "0"][voucher % 3];
    for (voucher, order) in &orders {
        let key = format!("{{{}}}:seckill:stock:{voucher}", tag(*voucher));
        assert_eq!(fixture.client.get::<i64, _>(&key).await.expect("a stock"), 9);
        let low_bits = order.parse::<i64>().expect("a number") & 63;
        assert_eq!(low_bits, (*voucher % 3) as i64, "64 n + i: {order}");
        program.run(&format!("order show {order}")).expect(0);
        program.run(&format!("order wait {order}")).expect(0);
    }
    assert_eq!(fixture.orders().await.len(), 6);

    fixture.judge_partitions(TAGS).await;
    let audit = program.run("audit").expect(0);
    assert_eq!(audit.stdout.matches("It holds").count(), 3, "{audit:#?}");
    let end = audit.stdout.trim_end().lines().next_back().expect("a verdict");
    assert_eq!(
        end,
        "All 3 partitions hold: 6 admitted orders that Redis knows, no order lost or doubled, no unit oversold."
    );
    let whole = of_all(&program.run("audit --json").expect(0).stdout);
    assert!(whole["holds"] == true && whole["admitted"] == 6 && whole["unknown"] == json!([]), "{whole}");
    let status = program.run("status").expect(0);
    assert!(status.stdout.contains("all 3 partitions"), "{status:#?}");
    for tag in ["3", "1", "0"] {
        assert!(audit.stdout.contains(&format!("Partition {{{tag}}}:")), "{audit:#?}");
        let own = program.run(&format!("audit --partition {tag}")).expect(0);
        assert_eq!(own.stdout.matches("It holds").count(), 1, "{own:#?}");
    }
    for command in [
        "status",
        "reconcile",
        "pending list",
        "dead list",
        "consumers list",
        "log",
        "prune stream --dry-run",
        "resume --expirations --dry-run",
        "reconcile --repair --yes",
        "order find --user 4",
        "voucher show --voucher 4",
        "replay --from -1h --to now --yes",
    ] {
        let run = program.run(command);
        assert_eq!(run.code, 0, "{command}: {run:#?}");
    }
    let lines = program.run("export --from -1h --to now").expect(0).stdout;
    let exported: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ids = |of: &str| {
        exported.iter().map(|line| line[of].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    let (entries, tags) = (ids("entry"), ids("partition"));
    assert!(entries.is_sorted() && entries.len() == 6, "merged by time: {entries:?}");
    assert_eq!(tags, ["1", "0", "3", "1", "0", "3"], "each with its partition");
    let file = fixture.file("orders.jsonl", &lines);
    let again = program.run(&format!("replay --file {} --yes", file.display())).expect(0);
    assert_eq!(again.stdout.matches("2 already there, 0 created").count(), 3, "each ran its own: {again:#?}");
    // With a voucher, the command reads only the partition of that voucher.
    let shown = program.run("audit --voucher 4").expect(0);
    assert!(shown.stdout.contains("{1}") && !shown.stdout.contains("{3}"), "{shown:#?}");
    let wrong = program.run("audit --voucher 4 --partition 3").expect(2);
    assert!(wrong.stderr.contains("voucher 4 belongs to the partition 1"), "{wrong:#?}");

    let (_, order) = &orders[3];
    program.run(&format!("order event paid {order} --user 4 --ref p4 --yes")).expect(0);
    let others = orders.iter().filter(|(voucher, _)| *voucher != 4);
    let paid: String = others.map(|(voucher, order)| format!("{order},p{voucher}\n")).collect();
    let unknown = fixture.file("unknown.csv", &format!("{paid}77,p77\n"));
    let refused = program.run(&format!("order event paid --file {} --yes", unknown.display())).expect(1);
    assert!(refused.stdout.contains("MySQL does not know the order"), "{refused:#?}");
    assert_eq!(
        refused.stdout.matches("order 77:").count(),
        1,
        "said once, and nothing was appended: {refused:#?}"
    );
    let paid = fixture.file("paid.csv", &paid);
    let sent = program.run(&format!("order event paid --file {} --yes", paid.display())).expect(0);
    for tag in ["3", "1", "0"] {
        assert!(sent.stdout.contains(&format!("Partition {{{tag}}}:")), "{sent:#?}");
    }
    let paid = sqlx::query_scalar("SELECT COUNT(*) FROM tb_voucher_order WHERE status = 2");
    let paid: i64 = paid.fetch_one(&fixture.pool).await.expect("MySQL answers");
    assert_eq!(paid, 6);
    program.run("pause --yes").expect(0);
    program.run("admit --voucher 5 --user 50").expect(1);
    program.run("resume --yes").expect(0);
    program.run("admit --voucher 5 --user 50").expect(0);
    all_are_settled(&program).await;
    fixture.judge_partitions(TAGS).await;
    assert!(worker.stop().await.success());

    // One entry is not read, and one order is lost: the sum has both, and the verdict names the partitions.
    let fields = [("id", "77"), ("userId", "8"), ("voucherId", "4")];
    fixture
        .client
        .xadd::<String, _, _, _, _>("{1}:stream.orders", false, None, "*", fields.to_vec())
        .await
        .expect("added");
    let whole = of_all(&program.run("status --json").expect(1).stdout);
    assert_eq!((&whole["stream"]["undelivered"], &whole["stream"]["dead_letters"]), (&json!(1), &json!(0)));
    let note = r#"{"action":"admit","from":9,"to":8,"change":-1,"by":"9","timestamp":1718000000000}"#;
    fixture.client.hset::<(), _, _>("{0}:seckill:journal:5", ("78", note)).await.expect("noted");
    let audit = program.run("audit").expect(1);
    let verdict = audit.stdout.split("All 3 partitions: ").nth(1).expect("a verdict of all");
    assert!(verdict.starts_with("it does NOT hold:") && verdict.contains("- {0}: "), "{audit:#?}");
    assert!(!verdict.contains("{1}") && !verdict.contains("{3}"), "{audit:#?}");
    assert_eq!(of_all(&program.run("audit --json").expect(1).stdout)["holds"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_do_in_any_partition_is_followed_in_one_log() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    program.run("voucher load --voucher 9 --stock 10").expect(0);
    let mut log =
        program.command(&["log", "--follow", "--json"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(log.stdout.take().expect("a pipe")).lines();
    // Of commands that ended before the first reading, only the end is printed.
    lines.next().expect("a line").expect("text");
    for (voucher, tag) in [(4, "1"), (3, "3"), (5, "0")] {
        program.run(&format!("voucher load --voucher {voucher} --stock 10")).expect(0);
        for outcome in ["began", "done"] {
            let line = lines.next().expect("a line").expect("text");
            let line: Json = serde_json::from_str(&line).expect("JSON in a line");
            assert_eq!((&line["partition"], &line["outcome"]), (&json!(tag), &json!(outcome)), "{line}");
        }
    }
    log.kill().and_then(|()| log.wait()).expect("it ends");
    let shown = program.command(&["log", "--follow"]).stdout(Stdio::piped()).spawn();
    let mut shown = shown.expect("it starts");
    let first = BufReader::new(shown.stdout.take().expect("a pipe")).lines().next().expect("a line");
    assert!(first.expect("text").starts_with('{'), "each line with its partition");
    shown.kill().and_then(|()| shown.wait()).expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_all_partitions_is_asked_once_and_each_answers_in_one_line() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    let paused = || async {
        let keys = ["{3}:tidegate:pause", "{1}:tidegate:pause", "{0}:tidegate:pause"].map(str::to_owned);
        fixture.client.exists::<u64, _>(keys.to_vec()).await.expect("Redis answers")
    };
    for (answer, code, expected) in [("n", 1, 0), ("y", 0, 3)] {
        let mut terminal = Terminal::start(&program.command(&["pause", "--workers"]));
        let shown = terminal.shows("Pause all workers? [y/N]");
        assert!(shown.contains("Partitions {3}, {1}, {0}:"), "{shown}");
        terminal.types(answer);
        let (ended, shown) = terminal.ends();
        assert_eq!((ended, paused().await), (code, expected), "{shown}");
        assert!(!shown.contains("[y/N]"), "asked a second time: {shown}");
        assert_eq!(shown.matches("Nothing was changed.").count(), 1 - usize::from(answer == "y"), "{shown}");
    }
    // The partitions have different plans.
    for voucher in [4, 7, 5] {
        program.run(&format!("voucher load --voucher {voucher} --stock 10")).expect(0);
    }
    let mut terminal = Terminal::start(&program.command(&["pause"]));
    let shown = terminal.shows("Make all these changes, in 2 partitions? [y/N]");
    assert!(
        shown.contains("2 sales would be paused: 4, 7") && shown.contains("1 sale would be paused: 5"),
        "{shown}"
    );
    terminal.types("y");
    assert_eq!(terminal.ends().0, 0);
    let refused = program.run("resume --workers").expect(2);
    assert_eq!(refused.stderr.matches("There is no terminal for the answer").count(), 1, "{refused:#?}");
    assert_eq!(paused().await, 3);

    for line in ["status --json", "doctor --json", "resume --workers --yes --json"] {
        let run = program.run(line);
        let lines: Vec<Json> =
            run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON in a line")).collect();
        let tags: Vec<&str> = lines.iter().filter_map(|line| line["partition"].as_str()).collect();
        assert_eq!(tags, ["3", "1", "0"], "{line}: {run:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_begins_with_all_partitions_and_turns_to_each() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    program.run("voucher load --voucher 4 --stock 17").expect(0);
    program.run("admit --voucher 4 --user 1").expect(0);
    let mut top = program.command(&["top", "--every", "300ms"]);
    top.env("TERM", "xterm-256color").env("TIDEGATE_ADMIN_LISTEN", "off");
    let mut terminal = Terminal::start_sized(&top, 24, 100);
    let line = |lines: &[String], beginning: &str| -> Vec<String> {
        let line = lines.iter().rev().find(|line| line.starts_with(beginning));
        line.map(|line| line.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
    };
    let lines = terminal.draws("all partitions and their sum", |lines| {
        line(lines, "{1}").get(1).is_some_and(|unread| unread == "1")
            && line(lines, "{3}").last().is_some_and(|mysql| mysql == "ok")
            && line(lines, "{0}").last().is_some_and(|mysql| mysql == "ok")
    });
    assert!(lines[0].starts_with("tidegate top  3 partitions"), "{lines:#?}");
    assert_eq!(line(&lines, "all together")[2], "1", "{lines:#?}");
    // Two presses lead to the second partition of the list.
    terminal.presses('\t');
    terminal.presses('\t');
    let lines =
        terminal.draws("the stock of its voucher", |lines| line(lines, "4") == ["4", "16", "17", "1", "on"]);
    assert!(lines[0].contains("{1}:stream.orders"), "{lines:#?}");
    terminal.presses('\t');
    terminal.presses('\t');
    terminal.draws("all partitions again", |lines| lines[0].contains("3 partitions"));
    terminal.presses('q');
    assert_eq!(terminal.ends().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_voucher_that_belongs_elsewhere_is_buried_and_said_where_it_belongs() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    program.run("voucher load --voucher 4 --stock 10").expect(0);
    let worker = fixture.worker("w").set("STREAM_PARTITIONS", TAGS).start();
    let fields = [("id", "77"), ("userId", "8"), ("voucherId", "4")];
    let entry: String =
        fixture.client.xadd("{3}:stream.orders", false, None, "*", fields.to_vec()).await.expect("added");
    until("it is buried", || async {
        fixture.client.xlen::<u64, _>("{3}:stream.orders.dead").await.expect("Redis answers") == 1
    })
    .await;
    let list = program.run("dead list --json").expect(0);
    let letters = by_partition(&list.stdout);
    let (_, own) = letters.iter().find(|(tag, _)| tag == "3").expect("of partition 3");
    assert!(own.to_string().contains("wrong_partition"), "{own}");
    let list = program.run("dead list").expect(0);
    assert!(list.stdout.contains("belongs to partition {1}, but this partition is {3}"), "{list:#?}");

    // The runbook's way: the entry is added to the right stream, and the letter is deleted once the order is written.
    fixture
        .client
        .xadd::<String, _, _, _, _>("{1}:stream.orders", false, None, "*", fields.to_vec())
        .await
        .expect("added");
    until("it is written", || async { fixture.orders().await.len() == 1 }).await;
    let ids: Vec<(String, std::collections::HashMap<String, String>)> =
        fixture.client.xrange("{3}:stream.orders.dead", "-", "+", None).await.expect("letters");
    let exported = program.run(&format!("dead export 3/{}", ids[0].0)).expect(0);
    assert_eq!(exported.stdout.lines().count(), 1, "{exported:#?}");
    program.run(&format!("dead drop 3/{} --yes", ids[0].0)).expect(0);
    assert_eq!(fixture.client.xlen::<u64, _>("{3}:stream.orders.dead").await.expect("Redis answers"), 0);
    assert!(!entry.is_empty());
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flooded_partition_keeps_no_quiet_one_waiting() {
    const PARTITIONS: i64 = 16;
    let tags: Vec<String> = (0..PARTITIONS).map(|tag| tag.to_string()).collect();
    let fixture = Fixture::open().await;
    let program = program(&fixture, &tags.join(","));
    for voucher in 1..=PARTITIONS {
        program.run(&format!("voucher load --voucher {voucher} --stock 1000000")).expect(0);
    }
    // Voucher 16 belongs to partition 0.
    let flood = "for at = 1, 20000 do
        local order = ARGV[1] + at
        redis.call('XADD', KEYS[1], '*', 'id', order, 'userId', order, 'voucherId', 16)
    end";
    for begin in 0..10 {
        let begin = 1_000_000 + begin * 20_000;
        fixture
            .client
            .eval::<Option<i64>, _, _, _>(flood, "{0}:stream.orders", begin)
            .await
            .expect("entries are added");
    }
    let worker = fixture.worker("w").set("STREAM_PARTITIONS", tags.join(",")).set("WORKER_LANES", 1).start();
    until("the flood is being written", || async { 1_000_000 - fixture.mysql_stock(16).await > 1_000 }).await;
    let mut longest = Duration::ZERO;
    for voucher in 1..PARTITIONS {
        let begun = Instant::now();
        let stream = format!("{{{voucher}}}:stream.orders");
        let id = voucher.to_string();
        let fields = vec![("id", id.as_str()), ("userId", id.as_str()), ("voucherId", id.as_str())];
        let _id: String = fixture.client.xadd(&stream, false, None, "*", fields).await.expect("added");
        until("it is written", || async { fixture.mysql_stock(voucher).await == 999_999 }).await;
        longest = longest.max(begun.elapsed());
    }
    let left = 200_000 - (1_000_000 - fixture.mysql_stock(16).await);
    eprintln!("longest wait of a quiet partition: {longest:?}; {left} of 200000 left in the flooded one");
    assert!(left > 0, "the flood was over: nothing was shown");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_id_names_another_partition_is_found_where_it_is() {
    let fixture = Fixture::open().await;
    let program = program(&fixture, TAGS);
    // These ids are a producer's own: voucher 1 belongs to partition 1, and the low bits of the ids give 0, 2 and 63.
    let orders = [6_400, 6_402, 6_463];
    program.run("voucher load --voucher 1 --stock 10").expect(0);
    for order in orders {
        program.run(&format!("admit --voucher 1 --user {order} --order {order}")).expect(0);
    }
    for order in orders {
        let shown = program.run(&format!("order show {order}")).expect(0);
        assert!(shown.stdout.contains("voucher 1: admitted"), "{shown:#?}");
        assert!(!shown.all().contains("never admitted"), "{shown:#?}");
        let json = program.run(&format!("order show {order} --json")).expect(0).json();
        assert_eq!(json["fate"]["is"], "undelivered", "{json:#}");
    }
    let unknown = program.run("order show 6404").expect(1);
    assert!(unknown.all().contains("none of the 3 partitions"), "{unknown:#?}");
    // A partition that is away may have the order.
    let key = "{0}:stream.orders.dead";
    fixture.redis_says(&["SET", key, "no stream"]).await;
    let unsure = program.run("order show 6405").expect(3);
    assert!(unsure.all().contains("{0}"), "{unsure:#?}");
    program.run("order show 6400").expect(0);
}
