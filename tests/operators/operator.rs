//! Tests of the common behaviour of all commands that change something: real servers, and a terminal for the operator.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::Stdio,
};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value as Json;
use tidegate_lab::{MysqlServer, Proxy, RedisServer};

use crate::{
    database::migrated_mysql,
    program::{Program, call, closed_port, go_on, redis},
    terminal::Terminal,
};

const NOWHERE: &str = "mysql://nobody@127.0.0.1:1/hmdp";
/// The time of entries that are old enough to be deleted, in Unix milliseconds: 2023.
const LONG_AGO: u64 = 1_700_000_000_000;

fn with_stores(redis_url: &str, mysql_url: &str) -> Program {
    Program::with_flags(&["--redis-url", redis_url, "--mysql-url", mysql_url])
}

/// A Redis whose stream holds this many old entries, which the group has acknowledged.
async fn redis_with_old_entries(count: u64) -> (RedisServer, Client) {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    let script =
        "for at = 1, ARGV[1] do redis.call('XADD', KEYS[1], ARGV[2] + at .. '-0', 'id', at) end return 1";
    let args = ["EVAL", script, "1", "stream.orders"];
    let (count, long_ago) = (count.to_string(), LONG_AGO.to_string());
    typed(&client, &[&args[..], &[&count, &long_ago]].concat()).await;
    typed(&client, &["XGROUP", "CREATE", "stream.orders", "g1", "$"]).await;
    (server, client)
}

/// Sends a command whose words may contain spaces.
async fn typed(client: &Client, words: &[&str]) -> Value {
    let command = CustomCommand::new(words[0], None, false);
    client.custom(command, words[1..].to_vec()).await.expect("Redis answers")
}

/// All data of Redis, byte for byte.
async fn dump(client: &Client) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for key in call::<Vec<String>>(client, "KEYS *").await {
        all.insert(key.clone(), typed(client, &["DUMP", &key]).await);
    }
    all
}

/// The log entries of a command, newest last: outcome and counts.
fn logged(program: &Program, command: &str) -> Vec<(String, Json)> {
    let log = program.run("log --last 1000 --json").expect(0).json();
    let lines = log.as_array().expect("an array").iter().filter(|line| line["command"] == command);
    lines.map(|line| (line["outcome"].as_str().unwrap_or("?").to_owned(), line["counts"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_asked_on_a_terminal_and_only_a_yes_changes_something() {
    let (server, client) = redis_with_old_entries(1000).await;
    let program = with_stores(&server.url(), NOWHERE);
    let before = dump(&client).await;

    for no in ["n", "", "yess"] {
        let mut terminal = Terminal::start(&program.command(&["prune", "stream"]));
        let shown = terminal.shows("Delete up to 999 entries of stream.orders? [y/N]");
        assert!(shown.contains("999 of 1000 entries can be deleted: they are old enough"), "{shown}");
        terminal.types(no);
        let (code, shown) = terminal.ends();
        assert_eq!(code, 1, "{no:?}: {shown}");
        assert!(shown.contains("Nothing was changed."), "{shown}");
    }
    let mut terminal = Terminal::start(&program.command(&["prune", "stream"]));
    terminal.shows("[y/N]");
    terminal.presses_control('c');
    let (signal, shown) = terminal.ends_by_signal();
    assert_eq!(signal, Signal::SIGINT, "130, as shells say it: {shown}");
    assert_eq!(dump(&client).await, before);

    let mut terminal = Terminal::start(&program.command(&["prune", "stream", "--as", "alice"]));
    terminal.shows("[y/N]");
    terminal.types("y");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("900 entries deleted, 100 entries left"), "{shown}");
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 100);

    let log = program.run("log --json").expect(0).json();
    assert_eq!(log.as_array().unwrap().len(), 1, "{log}");
    let line = &log[0];
    assert_eq!((&line["command"], &line["arguments"]), (&"prune".into(), &"stream --as alice".into()));
    assert_eq!((&line["who"], &line["outcome"]), (&"alice".into(), &"done".into()));
    assert_eq!(line["counts"], serde_json::json!({ "deleted": 900 }));
    assert_eq!(call::<u64>(&client, "XLEN tidegate:log").await, 2, "one when it began, one when it ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_and_without_yes_nothing_is_changed_and_the_error_says_so() {
    let (server, client) = redis_with_old_entries(1000).await;
    let program = with_stores(&server.url(), NOWHERE);
    let before = dump(&client).await;
    for line in ["prune stream", "prune stream --json", "prune stream --older-than 1h"] {
        let run = program.run(line).expect(2);
        assert!(run.stderr.contains("--yes") && run.stderr.contains("nothing was changed"), "{run:?}");
        assert!(run.stdout.is_empty(), "{run:?}");
    }
    assert_eq!(dump(&client).await, before, "no line in the log either");

    let done = program.run("prune stream --yes --json").expect(0).json();
    assert_eq!((&done["deleted"], &done["length"]), (&900.into(), &100.into()), "{done}");
    let again = program.run("prune stream --json --dry-run").expect(0).json();
    assert_eq!(again["entries"], 99, "whole nodes go: {again}");
    let none = program.run("prune stream --older-than 7000d --dry-run").expect(0).stdout;
    for part in [
        "of 100 entries, none can be deleted",
        "the oldest entry is of 2023-",
        "are old enough",
        "Nothing was changed.",
    ] {
        assert!(none.contains(part), "{part}: {none}");
    }
    // The remaining nodes of the stream are too young as a whole: nothing is deleted, and the log line shows no count.
    program.run("prune stream --yes").expect(0);
    let log = program.run("log").expect(0).stdout;
    assert!(log.contains("900 deleted") && !log.contains(" 0 deleted"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing() {
    let (server, client) = redis_with_old_entries(1000).await;
    let program = with_stores(&server.url(), migrated_mysql().await);
    program.run("voucher load --voucher 301 --stock 3").expect(0);
    program.run("voucher load --voucher 302 --stock 3").expect(0);
    program.run("pause --voucher 302 --yes").expect(0);
    let before = dump(&client).await;
    let shown = program.run("voucher show --voucher 303 --json").json();

    for (line, told) in [
        ("prune stream", "999 of 1000"),
        ("prune stream --yes", "999 of 1000"),
        ("voucher load --voucher 303 --stock 5", "would be loaded with 5 units"),
        ("pause --voucher 301", "would be paused"),
        ("resume --voucher 302", "would be resumed"),
    ] {
        let run = program.run(&format!("{line} --dry-run")).expect(0);
        assert!(run.stdout.contains(told), "{line}: {run:?}");
        assert!(run.stdout.contains("Nothing was changed (dry run)."), "{line}: {run:?}");
        assert!(program.run(&format!("{line} --dry-run --json")).expect(0).json().is_object());
    }
    assert_eq!(dump(&client).await, before);
    assert_eq!(program.run("voucher show --voucher 303 --json").json(), shown, "MySQL, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_stream_says_which_group_holds_it_back_and_deletes_nothing_that_is_needed() {
    let (server, client) = redis_with_old_entries(1000).await;
    let program = with_stores(&server.url(), NOWHERE);
    let at = |number: u64| format!("{}-0", LONG_AGO + number);
    call::<Value>(&client, &format!("XGROUP CREATE stream.orders slow {}", at(700))).await;
    let unread = program.run("prune stream --dry-run --json").expect(0).json();
    assert_eq!((&unread["entries"], &unread["length"]), (&699.into(), &1000.into()), "{unread}");
    assert_eq!(unread["held_by"]["group"], "slow", "{unread}");
    assert_eq!((&unread["held_by"]["id"], &unread["held_by"]["why"]), (&at(700).into(), &"unread".into()));
    let told = program.run("prune stream --dry-run").expect(0);
    assert!(told.all().contains(&format!("group slow needs all entries after {}", at(700))), "{told:?}");

    // One entry is pending in another group.
    call::<Value>(&client, &format!("XGROUP CREATE stream.orders held {}", at(349))).await;
    call::<Value>(&client, "XREADGROUP GROUP held c COUNT 1 STREAMS stream.orders >").await;
    let pending = program.run("prune stream --dry-run").expect(0);
    assert!(pending.stdout.contains("349 of 1000"), "{pending:?}");
    assert!(pending.stdout.contains(&format!("group held needs all entries from {} on, because", at(350))));

    program.run("prune stream --yes").expect(0);
    let first: Vec<Value> = call(&client, &format!("XRANGE stream.orders {0} {0}", at(350))).await;
    assert_eq!(first.len(), 1, "what is pending is there");
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 700);

    call::<Value>(&client, "XGROUP DESTROY stream.orders held").await;
    for group in ["slow", "g1"] {
        call::<Value>(&client, &format!("XGROUP DESTROY stream.orders {group}")).await;
    }
    let nobody = program.run("prune stream").expect(0);
    assert!(nobody.stdout.contains("without a consumer group, it is unknown which entries"), "{nobody:?}");
    let never = program.run("prune stream --set stream.retention_ms=0").expect(2);
    assert!(never.stderr.contains("--older-than"), "{never:?}");
    program.run("prune stream --set stream.retention_ms=0 --older-than 9d --dry-run").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_shows_how_far_it_is_and_ctrl_c_ends_it_after_the_step_in_progress() {
    let (server, client) = redis_with_old_entries(25_000).await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let through = with_stores(&proxy.url_for(&server), NOWHERE);
    let program = with_stores(&server.url(), NOWHERE);
    // This loads the scripts, so that the first request with EVALSHA is a step of the work.
    program.run("prune stream --yes --older-than 9000d").expect(0);
    call::<String>(&client, "CONFIG RESETSTAT").await;
    let held = proxy.hold_when("EVALSHA");

    let mut terminal = Terminal::start(&through.command(&["prune", "stream", "--yes"]));
    held.reached().await.unwrap();
    terminal.shows("0/25,000");
    let stats: String = call(&client, "INFO commandstats").await;
    let reads = stats.lines().find_map(|line| line.strip_prefix("cmdstat_xrange:calls=")?.split(',').next());
    let reads = reads.expect("it reads").parse::<u64>().expect("a number");
    assert!(reads < 10, "nobody reads how many of 25 pages are old: {reads}");
    terminal.presses_control('c');
    terminal.shows("stopping after the step in progress");
    held.release();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("10000 entries deleted, 15000 entries left"), "{shown}");
    assert!(go_on(&shown).ends_with(" prune stream --yes"), "{shown}");
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 15_000);

    program.run("prune stream --yes").expect(0);
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 100);
    let deleted = |count: u64| serde_json::json!({ "deleted": count });
    let expected = [("stopped".to_owned(), deleted(10_000)), ("done".to_owned(), deleted(14_900))];
    assert_eq!(logged(&program, "prune"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_killed_is_seen_in_the_log_and_one_that_failed_says_why() {
    let (server, _client) = redis_with_old_entries(1000).await;
    let proxy = Proxy::start(server.port()).await.unwrap();
    let (program, through) =
        (with_stores(&server.url(), NOWHERE), with_stores(&proxy.url_for(&server), NOWHERE));
    let held = proxy.hold_when("EVALSHA");
    let mut command = through.command(&["prune", "stream", "--yes"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    held.reached().await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(logged(&program, "prune"), [("began".to_owned(), Json::Null)]);

    // A second signal does not wait for the step. The command still writes its log line, because Redis answers other
    // requests.
    let held = proxy.hold_when("EVALSHA");
    let mut terminal = Terminal::start(&through.command(&["prune", "stream", "--yes"]));
    held.reached().await.unwrap();
    terminal.presses_control('c');
    terminal.shows("a second signal stops at once");
    terminal.presses_control('c');
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("the interrupted step may or may not be done"), "{shown}");
    assert!(go_on(&shown).ends_with(" prune stream --yes"), "{shown}");
    let log = program.run("log").expect(0);
    assert!(log.stdout.contains("stopped: a second SIGINT stopped the command at once"), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_is_no_reason_to_leave_the_work_undone() {
    let (server, client) = redis_with_old_entries(1000).await;
    call::<Value>(&client, "SET tidegate:log x").await;
    let program = with_stores(&server.url(), NOWHERE);
    let run = program.run("prune stream --yes").expect(0);
    assert!(
        run.stderr.contains("a log line of this command is missing") && run.stderr.contains("WRONGTYPE"),
        "{run:?}"
    );
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 100);

    // A command that makes room also works without free memory.
    let (server, client) = redis_with_old_entries(1000).await;
    call::<String>(&client, "CONFIG SET maxmemory 500kb").await;
    let run = with_stores(&server.url(), NOWHERE).run("prune stream --yes").expect(0);
    assert!(run.stderr.contains("OOM command not allowed"), "{run:?}");
    assert_eq!(call::<u64>(&client, "XLEN stream.orders").await, 100);

    let mysql = MysqlServer::shared().unwrap();
    let away = format!("redis://127.0.0.1:{}", closed_port());
    let run = with_stores(&away, &mysql.url()).run("migrate").expect(0);
    assert!(run.stderr.contains("`tidegate log` will not show this command"), "{run:?}");
    assert!(run.stdout.contains("the schema is up to date"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_leaves_a_line_and_what_changes_nothing_leaves_none() {
    let (server, mysql) = (RedisServer::start().unwrap(), MysqlServer::shared().unwrap());
    let program = with_stores(&server.url(), &mysql.url());
    for line in [
        "migrate",
        "migrate",
        "voucher load --voucher 7 --stock 5",
        "pause --voucher 7 --yes",
        "pause --voucher 7 --yes",
        "resume --voucher 7 --yes",
        "admit --voucher 7 --user 1",
        "prune stream",
    ] {
        program.run(line).expect(0);
    }
    program.run("voucher load --voucher 7 --stock 5").expect(1);
    program.run("pause --voucher 8 --yes").expect(1);
    let log = program.run("log --json").expect(0).json();
    let line = |line: &Json| {
        format!("{} {}", line["command"].as_str().unwrap(), line["arguments"].as_str().unwrap())
    };
    let lines: Vec<String> = log.as_array().unwrap().iter().map(line).collect();
    let expected = [
        "migrate ",
        "voucher load --voucher 7 --stock 5",
        "pause --voucher 7 --yes",
        "resume --voucher 7 --yes",
    ];
    assert_eq!(lines, expected);
    assert!(log[0]["who"].as_str().unwrap().contains('@'), "{log}");
    // In an empty database, no column of another program needs a default.
    let steps = tidegate_orders::schema::all_steps().filter(|change| !change.what.starts_with("give "));
    assert_eq!(log[0]["counts"]["steps"], steps.count(), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_lost_by_loading_is_asked_about() {
    let server = RedisServer::start().unwrap();
    let program = with_stores(&server.url(), migrated_mysql().await);
    let load = ["voucher", "load", "--voucher", "320", "--stock", "5", "--end"];
    let run = |args: &[&str], end: &str| program.run_with(&[&load[..], &[end], args].concat(), &[]);
    run(&[], "2037-01-01T00:00:00Z").expect(0);
    call::<String>(&redis(&server.url()).await, "FLUSHDB").await;
    // MySQL has the voucher, with another end of its sale.
    let asked = run(&[], "2036-01-01T00:00:00Z").expect(2);
    assert!(asked.stderr.contains("Load voucher 320 anyway?"), "{asked:?}");
    let dry = run(&["--dry-run"], "2036-01-01T00:00:00Z").expect(0);
    assert!(dry.stdout.contains("over a different begin or end of the sale in MySQL"), "{dry:?}");
    run(&["--yes"], "2036-01-01T00:00:00Z").expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_can_be_cut_at_a_number_or_a_time_and_followed() {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    let program = with_stores(&server.url(), NOWHERE);
    assert!(program.run("log").expect(0).stdout.contains("The operator log is empty."));
    let line = |at: u64, fields: &str| format!("XADD tidegate:log {at} who bob command {fields}");
    for (at, fields) in [
        (LONG_AGO, "migrate arguments - outcome began"),
        (LONG_AGO + 1, "prune arguments stream outcome began"),
        (
            LONG_AGO + 60_000,
            "prune arguments stream outcome done began 1700000000001-0 counts {\"deleted\":3}",
        ),
    ] {
        call::<String>(&client, &line(at, fields)).await;
    }
    let count =
        |flags: &str| program.run(&format!("log --json {flags}")).expect(0).json().as_array().unwrap().len();
    assert_eq!((count("--last 9"), count("--last 1"), count("--since 2023-11-14T22:13:21Z")), (2, 1, 1));
    assert_eq!((count("--since -1h"), count("--since 1700000000000-0")), (0, 2));
    program.run("log --since yesterday").expect(2);
    let table = program.run("log").expect(0);
    assert!(table.stdout.contains("2023-11-14T22:14:20Z") && table.stdout.contains("3 deleted"), "{table:?}");

    let mut command = program.command(&["log", "--follow", "--last", "1", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Json { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["outcome"], "done");
    call::<String>(
        &client,
        "XADD tidegate:log * who eve\u{1b}[2J command prune arguments stream outcome failed",
    )
    .await;
    assert_eq!(next()["outcome"], "failed");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGINT as i32), "130, as shells say it");
    let table = program.run("log").expect(0);
    assert!(!table.stdout.contains('\u{1b}'), "the terminal is not steered by it: {table:?}");
}
