//! Tests of the gate's pause for one voucher or all, and of the common behaviour of these commands.

use std::process::Stdio;

use tidegate_lab::Proxy;

use super::program;
use crate::{
    fixture::{Fixture, stock_key, until},
    program::{Program, Run, go_on, pastes},
    terminal::Terminal,
};

/// The gate's answer to a new user.
fn asks(program: &Program, voucher: i64, user: i64) -> String {
    let run = program.run(&format!("admit --voucher {voucher} --user {user} --json"));
    run.json()["outcome"].as_str().expect("a word").to_owned()
}

/// The reply of the script.
async fn reply(fixture: &Fixture, voucher: i64, order: &str) -> i64 {
    let keys = ["stock", "order", "voucher", "journal"].map(|name| format!("seckill:{name}:{voucher}"));
    let script = include_str!("../../../lua/admit.lua");
    let voucher = voucher.to_string();
    let mut words = vec!["EVAL", script, "5"];
    words.extend(keys.iter().map(String::as_str));
    words.extend(["stream.orders", order, order, voucher.as_str(), "1", ""]);
    fixture.redis_says(&words).await.as_i64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_of_one_voucher_refuses_with_7_while_it_is_paused_and_admits_after() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    fixture.load(7, 100).await;
    fixture.load(8, 100).await;
    let paused = program.run("pause --voucher 7 --yes").expect(0);
    assert!(paused.stdout.contains("voucher 7: its sale is paused"), "{paused:?}");
    assert_eq!((reply(&fixture, 7, "1").await, reply(&fixture, 8, "2").await), (7, 0));
    assert_eq!(program.run("pause --voucher 7 --json").expect(0).json()["outcome"], "paused_before");
    assert_eq!(program.run("pause --voucher 9 --json").expect(1).json()["outcome"], "no_stock");
    let shown = program.run("status --json").expect(1).json();
    let paused = |voucher: &str| {
        let vouchers = shown["vouchers"].as_array().expect("vouchers");
        vouchers.iter().find(|one| one["voucher"] == voucher).expect("it is shown")["paused"].clone()
    };
    assert_eq!((paused("7"), paused("8")), (true.into(), false.into()));

    program.run("resume --voucher 7 --yes").expect(0);
    assert_eq!(reply(&fixture, 7, "1").await, 0);
    assert_eq!(program.run("resume --voucher 7 --json").expect(0).json()["outcome"], "not_paused");
    assert_eq!(program.run("resume --voucher 9 --json").expect(1).json()["outcome"], "no_stock");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_sales_are_paused_and_go_on_but_for_those_that_were_paused_by_name() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    assert_eq!(
        program.run("pause --json").expect(1).json()["running"],
        serde_json::json!([]),
        "nothing is on sale"
    );
    // There are more vouchers than one step of the command pauses.
    for voucher in 1..=250 {
        fixture.redis_says(&["SET", &stock_key(voucher), "10"]).await;
    }
    program
        .run("limit set --voucher 250 --name sale --subject user --window sale --orders 9 --yes")
        .expect(0);
    program.run("pause --voucher 8 --yes").expect(0);
    let planned = program.run("pause --dry-run").expect(0);
    assert!(
        planned.stdout.contains("249 sales would be paused: 1, 2, 3, 4, 5, 6, 7, 9, 10, 11 and 239 more"),
        "{planned:?}"
    );
    assert!(planned.stdout.contains("1 sale already paused: 8"), "{planned:?}");
    assert_eq!(asks(&program, 7, 1), "admitted");
    let done = program.run("pause --yes --json").expect(0).json();
    assert_eq!(done["vouchers"].as_array().map(Vec::len), Some(249), "{done}");
    assert_eq!((&done["vouchers"][0], &done["paused_before"][0]), (&"1".into(), &"8".into()), "{done}");
    for voucher in [1, 7, 8, 250] {
        assert_eq!(asks(&program, voucher, 2), "paused", "{voucher}");
    }
    program.run("pause").expect(0);
    // One of the paused sales gets a pause of its own, with another reason.
    program.run("pause --voucher 9 --yes").expect(0);

    let planned = program.run("resume --dry-run").expect(0);
    assert!(planned.stdout.contains("248 sales would be resumed"), "{planned:?}");
    let resumed = program.run("resume --yes --json").expect(0).json();
    assert_eq!(resumed["vouchers"].as_array().map(Vec::len), Some(248), "{resumed}");
    assert_eq!(resumed["stay_paused"], serde_json::json!(["8", "9"]), "{resumed}");
    for (voucher, expected) in
        [(1, "admitted"), (7, "admitted"), (8, "paused"), (9, "paused"), (250, "admitted")]
    {
        assert_eq!(asks(&program, voucher, 3), expected, "{voucher}");
    }
    let left = program.run("resume").expect(1);
    assert!(left.stdout.contains("vouchers that stay paused") && left.stdout.contains("8, 9"), "{left:?}");
    program.run("resume --workers").expect(0);
    for voucher in [8, 9] {
        program.run(&format!("resume --voucher {voucher} --yes")).expect(0);
    }
    program.run("resume").expect(0);
    let log = program.run("log --last 100 --json").expect(0).json();
    let all = log.as_array().expect("lines").iter().find(|line| line["command"] == "resume").expect("a line");
    assert_eq!(all["counts"], serde_json::json!({ "workers": false, "vouchers": 248, "failed": 0 }), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_cannot_be_paused_is_named_and_leaves_the_others_alone() {
    let fixture = Fixture::open().await;
    for voucher in 1..=3 {
        fixture.redis_says(&["SET", &stock_key(voucher), "10"]).await;
    }
    fixture.call("SET seckill:voucher:2 text").await;
    let done = program(&fixture).run("pause --yes").expect(1);
    assert!(done.stdout.contains("2 sales paused: 1, 3"), "{done:?}");
    assert!(
        done.stdout.contains("voucher 2: Redis refused: ") && done.stdout.contains("WRONGTYPE"),
        "{done:?}"
    );
    let log = program(&fixture).run("log --json").expect(0).json();
    assert_eq!((&log[0]["outcome"], &log[0]["counts"]["failed"]), (&"refused".into(), &1.into()), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_a_missing_terminal_change_nothing() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    fixture.load(7, 100).await;
    let lines = ["pause", "pause --voucher 7", "pause --workers", "pause --workers --for 10m --reason x"];
    let keys = || async { fixture.call("KEYS *").await.into_array().len() };
    for line in lines {
        let refused = program.run(line).expect(2);
        assert!(refused.stderr.contains("--yes") && refused.stdout.is_empty(), "{refused:?}");
        let dry = program.run(&format!("{line} --dry-run")).expect(0);
        assert!(dry.stdout.contains("Nothing was changed (dry run)."), "{dry:?}");
        assert!(program.run(&format!("{line} --dry-run --json")).expect(0).json().is_object());
        assert_eq!(keys().await, 1, "only the stock: no line in the log either");
    }
    for line in ["pause --yes", "pause --workers --yes"] {
        program.run(line).expect(0);
    }
    let before = fixture.call("GET tidegate:pause").await;
    for line in ["resume", "resume --workers", "resume --voucher 7"] {
        program.run(line).expect(2);
        program.run(&format!("{line} --dry-run")).expect(0);
    }
    assert_eq!(asks(&program, 7, 1), "paused");
    assert_eq!(fixture.call("GET tidegate:pause").await, before);

    for wrong in [
        "pause --voucher 7 --workers",
        "pause --for 10m",
        "pause --workers --for 0s",
        "pause --workers --for 400d",
        "pause --workers --for soon",
        "resume --workers --voucher 7",
    ] {
        program.run(&format!("{wrong} --yes")).expect(2);
    }
    let mut terminal = Terminal::start(&program.command(&["resume"]));
    let shown = terminal.shows("Resume 1 sale? [y/N]");
    assert!(
        shown.contains("the workers stay paused, by") && shown.contains("1 sale would be resumed: 7"),
        "{shown}"
    );
    terminal.types("n");
    assert_eq!(terminal.ends().0, 1);
    assert_eq!(asks(&program, 7, 1), "paused");
    let mut terminal = Terminal::start(&program.command(&["resume"]));
    terminal.shows("[y/N]");
    terminal.types("y");
    let (code, shown) = terminal.ends();
    assert!(code == 0 && shown.contains("1 sale goes on: 7"), "{code}: {shown}");
    assert_eq!(
        fixture.call("GET tidegate:pause").await,
        before,
        "the pair of `pause --workers` is `resume --workers`"
    );
    let resumed = program.run("resume --workers --yes").expect(0);
    assert!(resumed.stdout.contains("the workers start to read again within a second"), "{resumed:?}");
    assert_eq!(asks(&program, 7, 1), "admitted");
}

/// Redis fails after some vouchers of a step are changed, and before the others are.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_all_sales_that_loses_redis_half_way_tells_which_are_paused() {
    let fixture = Fixture::open().await;
    for voucher in 1..=60 {
        fixture.redis_says(&["SET", &format!("seckill:stock:{voucher}"), "5"]).await;
    }
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let (url, mysql_url) = (proxy.url_for(&fixture.redis), fixture.mysql.url());
    let flags = ["--redis-url", &url, "--mysql-url", &mysql_url, "--set", "redis.command_timeout_ms=1000"];
    let through = Program::with_flags(&flags);
    for (line, script) in [
        ("pause --reason its-late --yes --json", include_str!("../../../lua/pause.lua")),
        ("resume --yes --json", include_str!("../../../lua/resume.lua")),
    ] {
        let paused = async || {
            let status = program(&fixture).run("pause --dry-run --json").json();
            status["paused_before"].as_array().map_or(0, Vec::len)
        };
        let before = paused().await;
        let held = proxy.hold_when(fred::util::sha1_hash(script));
        let mut command = through.command(&line.split(' ').collect::<Vec<_>>());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        held.reached().await.expect("it comes to the first");
        // The other connection continues.
        until("half of them are changed", || async { paused().await.abs_diff(before) >= 30 }).await;
        proxy.cut().await;
        let failed = Run::from(child.wait_with_output().expect("it ends")).expect(3);
        let changed = failed.json()["vouchers"].as_array().map_or(0, Vec::len);
        assert!(changed > 0 && changed <= paused().await.abs_diff(before), "{failed:?}");
        proxy.pass();
        let rest = pastes(&go_on(&failed.stderr), &[]).expect(0);
        assert!(go_on(&failed.stderr).ends_with(line), "{failed:?}");
        assert!(rest.json()["vouchers"].as_array().is_some_and(|rest| !rest.is_empty()), "{rest:?}");
        assert_eq!(paused().await.abs_diff(before), 60);
    }
}
