//! Tests of `tidegate top` on a real terminal, with real servers and a real worker.

use std::{
    env, fs,
    process::{Command, Stdio},
    sync::{Arc, LazyLock},
    time::Duration,
};

use nix::sys::signal::Signal;
use sqlx::AssertSqlSafe;
use tempfile::NamedTempFile;
use tokio::time::sleep;

use crate::{
    fixture::{
        Fixture, program,
        rush::{PLENTY, SHORT},
        tokens::token_entry,
    },
    program::closed_port,
    screen::Screen,
    terminal::Terminal,
};

const TOKEN: &str = "0123456789abcdef-not-a-secret";

/// A file with the token, which ends with a line break as most files do.
static TOKEN_FILE: LazyLock<NamedTempFile> = LazyLock::new(|| {
    let file = NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), format!("{TOKEN}\n")).expect("the token is written");
    file
});

/// The command with the stores of a fixture. `admin` is the address of a worker on this machine.
fn top(fixture: &Fixture, admin: &str) -> Command {
    let mut command = program();
    command.args(["top", "--every", "300ms"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command.env("TIDEGATE_REDIS_URL", fixture.redis.url()).env("TIDEGATE_MYSQL_URL", fixture.mysql.url());
    command.env("TIDEGATE_ADMIN_LISTEN", admin).arg("--token-file").arg(TOKEN_FILE.path());
    command
}

/// The command as a user of `config/` that can change nothing.
async fn top_of_a_reader(fixture: &Fixture, admin: &str) -> Command {
    let redis = include_str!("../../config/redis-users.acl");
    let user = redis.lines().find_map(|line| line.strip_prefix("user tidegate-reader ")).expect("a user");
    fixture.call(&format!("ACL SETUSER tidegate-reader {user}")).await;
    let mysql = include_str!("../../config/mysql-users.sql");
    for line in mysql.lines().filter(|line| line.contains("'tidegate-reader'")) {
        let statement = line.replace("hmdp.", "tidegate.");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&fixture.pool).await.expect("the user is made");
    }
    let mut command = top(fixture, admin);
    let reader = "tidegate-reader:CHANGE-ME@";
    command.env("TIDEGATE_REDIS_URL", fixture.redis.url().replace("redis://", &format!("redis://{reader}")));
    command.env("TIDEGATE_MYSQL_URL", fixture.mysql.url().replace("tidegate@", reader));
    command
}

/// The words of the line that begins with this word; empty if there is no such line.
fn words<'a>(lines: &'a [String], beginning: &str) -> Vec<&'a str> {
    let line = lines.iter().find(|line| line.split_whitespace().next() == Some(beginning));
    line.map(|line| line.split_whitespace().collect()).unwrap_or_default()
}

/// The rate of the counter on that line.
fn rate(lines: &[String], counter: &str) -> Option<f64> {
    words(lines, counter).get(2)?.replace(',', "").parse().ok()
}

fn says(lines: &[String], text: &str) -> bool {
    lines.join(" ").contains(text)
}

/// Checks the exit code, and that the terminal is restored for the shell.
#[track_caller]
fn assert_released(terminal: Terminal, code: i32) -> String {
    let (ended, mut terminal) = terminal.leaves();
    assert!(terminal.is_cooked(), "the terminal is raw");
    let screen = terminal.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{}", screen.contents());
    assert_eq!(ended, code, "{}", screen.contents());
    screen.contents()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_rows_show_rates_under_load_lanes_stocks_and_a_dead_letter_as_it_appears() {
    let fixture = Arc::new(Fixture::with_own_mysql().await);
    fixture.open_sale().await;
    let admin = format!("127.0.0.1:{}", closed_port());
    let worker = fixture.worker("w").set("WORKER_LANES", 2).set("ADMIN_LISTEN", &admin);
    let worker = worker.set("TOKENS", token_entry("top", "read", TOKEN)).start();
    let load = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move {
            for id in 1_000.. {
                fixture.admit(id, id, PLENTY, 1).await;
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let mut terminal = Terminal::start_sized(&top_of_a_reader(&fixture, &admin).await, 20, 80);
    let lines = terminal.draws("rates, lanes and stocks", |lines| {
        let is_fast = |counter| rate(lines, counter).is_some_and(|rate| rate > 0.0);
        is_fast("added")
            && is_fast("settled")
            && says(lines, "worker w writes ")
            && ["w-0", "w-1"].iter().all(|lane| words(lines, lane).len() >= 7)
            && words(lines, &SHORT.to_string()).get(2) == Some(&"12")
            && words(lines, &PLENTY.to_string()).get(1).is_some_and(|stock| stock.starts_with("99,"))
    });
    // At most one order is added every 5 ms, and a busy machine may read late.
    assert!(rate(&lines, "added").is_some_and(|rate| rate < 400.0), "{lines:#?}");
    assert!(lines.len() <= 20 && lines[0].contains("stream.orders / g1"), "{lines:#?}");
    assert!(lines[0].contains("Redis ok") && lines[0].contains("MySQL ok"), "{lines:#?}");
    assert_eq!(words(&lines, "w-0")[4], "alive", "{lines:#?}");
    let stocks = words(&lines, &PLENTY.to_string());
    assert!(stocks[2].starts_with("99,"), "{lines:#?}");
    assert_eq!(words(&lines, "dead")[2], "0", "{lines:#?}");

    fixture.add_poison().await;
    terminal.draws("two dead letters", |lines| {
        words(lines, "dead").get(2) == Some(&"2") && says(lines, "ago: 1 bad_value, 1 ~")
    });
    assert!(fixture.tidegate(&["pause", "--voucher", &SHORT.to_string(), "--yes"]).status.success());
    terminal.draws("a pause", |lines| words(lines, &SHORT.to_string()).last() == Some(&"paused"));

    assert!(fixture.tidegate(&["pause", "--workers", "--as", "alice", "--yes"]).status.success());
    terminal.draws("who paused the workers", |lines| says(lines, "the workers are paused by alice"));
    assert!(fixture.tidegate(&["resume", "--workers", "--yes"]).status.success());
    terminal.draws("that they go on", |lines| !says(lines, "the workers are paused"));

    load.abort();
    assert!(worker.stop().await.success());
    terminal.draws("a worker that is gone", |lines| says(lines, "worker w is away since"));
    terminal.draws("that nobody works on what is on sale", |lines| {
        says(lines, "no worker is alive, and")
            && says(lines, "voucher 1 is on sale: start one with tidegate worker")
    });
    terminal.draws("rest", |lines| rate(lines, "added") == Some(0.0) && rate(lines, "settled") == Some(0.0));
    terminal.presses('q');
    assert_released(terminal, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_go_and_come_back_and_the_view_stays() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.load(PLENTY, 100).await;
    fixture.redis.kill9().expect("Redis is there");
    let mut terminal = Terminal::start_sized(&top(&fixture, "off"), 20, 80);
    let lines = terminal.draws("that Redis is away, and MySQL is not", |lines| {
        says(lines, "Redis is away since") && says(lines, "MySQL ok")
    });
    assert!(says(&lines, "Connection refused"), "{lines:#?}");
    fixture.redis.restart().expect("Redis starts");
    terminal.draws("that Redis is there", |lines| says(lines, "Redis ok") && !says(lines, "away"));
    terminal.draws("the stock of both", |lines| words(lines, "1") == ["1", "100", "100", "0", "on"]);

    // A stopped Redis refuses nothing and answers nothing.
    fixture.redis.stop().expect("Redis is there");
    terminal.draws("that Redis is away again", |lines| says(lines, "Redis away"));
    fixture.mysql.kill9().expect("MySQL is there");
    let lines = terminal.draws("that both are away", |lines| says(lines, "MySQL is away since"));
    assert_eq!(words(&lines, "1"), ["1", "100", "100", "0", "on"], "what was seen stays: {lines:#?}");

    terminal.resize(10, 40);
    terminal.draws("ten rows", |lines| lines.len() == 10 && says(&lines[9..], "q quits"));
    terminal.resize(60, 200);
    terminal.draws("sixty rows", |lines| lines.len() == 60 && says(&lines[59..], "q quits"));

    fixture.mysql.restart().expect("MySQL starts");
    fixture.redis.cont().expect("Redis is there");
    terminal.draws("that both are there", |lines| {
        says(lines, "Redis ok") && says(lines, "MySQL ok") && !says(lines, "away")
    });
    terminal.presses_control('c');
    assert_released(terminal, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_store_it_draws_all_the_same_and_without_colours_if_told_so() {
    let nowhere = format!("127.0.0.1:{}", closed_port());
    for no_color in [None, Some("1")] {
        let mut command = program();
        command.arg("top").env("TERM", "xterm").env("TIDEGATE_ADMIN_LISTEN", "off");
        command.env("TIDEGATE_REDIS_URL", format!("redis://{nowhere}"));
        command.env("TIDEGATE_MYSQL_URL", format!("mysql://root@{nowhere}/shop"));
        // Log lines would damage the picture.
        command.env("RUST_LOG", "trace");
        match no_color {
            Some(value) => command.env("NO_COLOR", value),
            None => command.env_remove("NO_COLOR"),
        };
        let mut terminal = Terminal::start_sized(&command, 20, 80);
        let lines = terminal.draws("both away", |lines| {
            says(lines, "Redis is away since") && says(lines, "MySQL is away since")
        });
        assert!(lines[0].starts_with("tidegate top") && says(&lines, "not known yet"), "{lines:#?}");
        assert!(says(&lines, "Connection refused"), "{lines:#?}");
        let screen = terminal.screen();
        let cells = (0..20).flat_map(|row| (0..80).map(move |column| (row, column)));
        let colours = cells.filter(|(row, column)| {
            screen.cell(*row, *column).expect("a cell").fgcolor() != vt100::Color::Default
        });
        assert_eq!(colours.count() > 0, no_color.is_none());
        terminal.signal(Signal::SIGTERM);
        assert_released(terminal, 0);
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let mut command = program();
    command.arg("top").stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("tidegate status --json") && output.stdout.is_empty(), "{error}");

    let mut dumb = program();
    dumb.arg("top").env("TERM", "dumb");
    let (code, shown) = Terminal::start(&dumb).ends();
    assert!(code == 2 && shown.contains("tidegate status --json"), "{code}: {shown}");

    for every in ["0s", "100ms", "2h", "soon"] {
        let output = program().args(["top", "--every", every]).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{every}");
    }
}

/// The variable that makes the process panic while it draws.
const BREAKS: &str = "BREAKS_WHILE_IT_DRAWS";

#[test]
fn a_panic_gives_the_terminal_back() {
    if env::var_os(BREAKS).is_some() {
        let mut screen = Screen::open().expect("a terminal");
        screen.hide_cursor().expect("a terminal");
        panic!("broken on purpose");
    }
    let mut itself = Command::new(env::current_exe().expect("this program"));
    itself.args(["--exact", "top::a_panic_gives_the_terminal_back", "--nocapture"]);
    itself.env(BREAKS, "1").env("TERM", "xterm");
    let shown = assert_released(Terminal::start(&itself), 101);
    assert!(shown.contains("broken on purpose"), "it is told where it can be read: {shown}");
}
