//! Tests of the lab's servers.

mod polling;
mod redis_call;

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use polling::eventually;
use redis_call::call;
use sqlx::{Connection, Executor, MySqlConnection};
use tidegate_lab::{MysqlServer, RedisServer};

#[test]
fn a_killed_redis_comes_back_with_its_data() {
    let redis = RedisServer::options().args(["--appendfsync", "always"]).start().unwrap();
    call(redis.port(), "SET voucher 7");

    redis.kill9().unwrap();
    redis.restart().unwrap();
    assert_eq!(call(redis.port(), "GET voucher"), "$1\r\n7\r\n");

    redis.restart().unwrap();
    assert_eq!(call(redis.port(), "GET voucher"), "$1\r\n7\r\n", "a restart without a kill");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mysql_comes_back_with_its_data() {
    let mysql = MysqlServer::start().unwrap();
    let mut client = MySqlConnection::connect(&mysql.url()).await.unwrap();
    client.execute("CREATE TABLE kept (id BIGINT PRIMARY KEY)").await.unwrap();
    client.execute("INSERT INTO kept VALUES (9007199254740993)").await.unwrap();

    mysql.kill9().unwrap();
    mysql.restart().unwrap();
    assert_eq!(kept_id(&mysql).await, 9_007_199_254_740_993);

    mysql.shutdown().unwrap();
    mysql.restart().unwrap();
    assert_eq!(kept_id(&mysql).await, 9_007_199_254_740_993);
}

async fn kept_id(mysql: &MysqlServer) -> i64 {
    let mut client = MySqlConnection::connect(&mysql.url()).await.unwrap();
    sqlx::query_scalar("SELECT id FROM kept").fetch_one(&mut client).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_mysql_can_serve_many_databases() {
    let mysql = MysqlServer::start().unwrap();
    let url = mysql.create_database("another").unwrap();
    let mut client = MySqlConnection::connect(&url).await.unwrap();
    let name: String = sqlx::query_scalar("SELECT DATABASE()").fetch_one(&mut client).await.unwrap();
    assert_eq!(name, "another");
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_is_as_durable_as_in_production() {
    let mysql = MysqlServer::start().unwrap();
    let mut client = MySqlConnection::connect(&mysql.url()).await.unwrap();
    let flush: i64 = sqlx::query_scalar("SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED)")
        .fetch_one(&mut client)
        .await
        .unwrap();
    assert_eq!(flush, 1);
}

#[test]
fn redis_is_as_durable_as_in_production() {
    let redis = RedisServer::start().unwrap();
    assert!(call(redis.port(), "CONFIG GET appendonly").contains("yes"));
    assert!(call(redis.port(), "CONFIG GET appendfsync").contains("everysec"));
    assert!(call(redis.port(), "CONFIG GET maxmemory-policy").contains("noeviction"));
    assert!(call(redis.port(), "CONFIG GET save").ends_with("$0\r\n\r\n"));
}

#[test]
fn a_stopped_server_goes_on_where_it_was() {
    let redis = RedisServer::start().unwrap();
    let pid = redis.pid().unwrap();
    redis.stop().unwrap();
    eventually("the server is stopped", || state_of(pid) == Some('T'));
    redis.cont().unwrap();
    assert_eq!(call(redis.port(), "PING"), "+PONG\r\n");
}

#[test]
fn a_full_disk_stops_writes_until_there_is_room() {
    let redis = RedisServer::start().unwrap();
    redis.fill_disk().unwrap();
    eventually("it refuses writes", || call(redis.port(), "SET voucher 7").starts_with("-MISCONF"));
    redis.free_disk().unwrap();
    eventually("it takes writes again", || call(redis.port(), "SET voucher 8") == "+OK\r\n");
}

#[test]
fn arguments_of_a_test_win() {
    let redis = RedisServer::options().args(["--maxmemory", "10mb"]).start().unwrap();
    assert!(call(redis.port(), "CONFIG GET maxmemory").contains("10485760"));
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let (redis, mysql) = (RedisServer::start().unwrap(), MysqlServer::start().unwrap());
    let pids = [redis.pid().unwrap(), mysql.pid().unwrap()];
    let folders = [redis.folder().unwrap().to_owned(), mysql.folder().unwrap().to_owned()];
    drop((redis, mysql));
    assert_eq!(pids.map(state_of), [None, None]);
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[test]
fn servers_die_with_an_owner_that_had_no_chance() {
    let mut owner = rerun("an_owner").stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .find(|line| line.contains("owned:"))
        .expect("the owner says what it owns");
    let mut words = line.split("owned:").nth(1).unwrap().split_whitespace().map(str::to_owned);
    let [redis, mysql, folder] = std::array::from_fn(|_| words.next().unwrap());
    let pids = [redis.parse::<u32>().unwrap(), mysql.parse().unwrap()];
    assert!(pids.iter().all(|pid| state_of(*pid).is_some()));

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("both servers are gone", || {
        pids.iter().all(|pid| state_of(*pid).is_none_or(|state| state == 'Z'))
    });

    let _next = RedisServer::start().unwrap();
    assert!(!Path::new(&folder).exists(), "the next one sweeps up");
}

/// Not a test by itself: the process that the test above kills.
#[test]
fn an_owner() {
    if is_rerun() {
        let (redis, mysql) = (RedisServer::start().unwrap(), MysqlServer::start().unwrap());
        println!(
            "owned: {} {} {}",
            redis.pid().unwrap(),
            mysql.pid().unwrap(),
            mysql.folder().unwrap().display()
        );
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_missing_program_is_told_with_its_remedy() {
    let missing = rerun("a_start").env("PATH", "/nowhere").env_remove("TIDEGATE_LAB_REDIS").output().unwrap();
    assert!(
        said(&missing).contains("redis-server is not installed; run `just servers`"),
        "{}",
        said(&missing)
    );

    let missing = rerun("a_start")
        .env("TIDEGATE_MATRIX_DIR", "/nowhere")
        .env("TIDEGATE_LAB_REDIS", "valkey9")
        .output()
        .unwrap();
    assert!(said(&missing).contains("/nowhere/usr/bin/valkey-server does not exist; run `just matrix`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_server_is_left_as_it_was() {
    let (redis, mysql) = (RedisServer::start().unwrap(), MysqlServer::start().unwrap());
    let guest = || {
        let mut guest = rerun("a_guest");
        guest.env("TIDEGATE_LAB_REDIS_URL", redis.url()).env("TIDEGATE_LAB_MYSQL_URL", mysql.url());
        guest.output().unwrap()
    };

    let output = guest();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(call(redis.port(), "DBSIZE"), ":0\r\n");
    let mut client = MySqlConnection::connect(&mysql.url()).await.unwrap();
    let guests: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name LIKE 'tidegate\\_%'",
    )
    .fetch_all(&mut client)
    .await
    .unwrap();
    assert_eq!(guests, [""; 0]);

    call(redis.port(), "SET precious 1");
    assert!(said(&guest()).contains("has 1 keys. A test flushes its database, so it must be empty"));
    assert_eq!(call(redis.port(), "GET precious"), "$1\r\n1\r\n");
}

/// Not a test by itself: run by the test above with the URLs of servers that are not the lab's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest() {
    if is_rerun() {
        let (redis, mysql) = (RedisServer::start().unwrap(), MysqlServer::start().unwrap());
        call(redis.port(), "SET a 1");
        let mut client = MySqlConnection::connect(&mysql.url()).await.unwrap();
        client.execute("CREATE TABLE a (id BIGINT PRIMARY KEY)").await.unwrap();
        assert!(redis.kill9().unwrap_err().to_string().contains("is not ours"));
        assert!(mysql.restart().unwrap_err().to_string().contains("is not ours"));
    }
}

#[test]
fn a_server_that_cannot_start_shows_its_log() {
    let error = RedisServer::options().args(["--maxmemory", "plenty"]).start().unwrap_err();
    assert!(error.to_string().contains("argument must be a memory value"), "{error:#}");
}

/// Not a test by itself: run by the test above in a poorer environment.
#[test]
fn a_start() {
    if is_rerun() {
        RedisServer::start().unwrap();
    }
}

#[test]
fn many_servers_start_side_by_side() {
    let start = || (RedisServer::start().unwrap(), MysqlServer::start().unwrap());
    let pairs: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|started| started.join().unwrap()).collect()
    });
    let ports: BTreeSet<u16> = pairs.iter().flat_map(|(redis, mysql)| [redis.port(), mysql.port()]).collect();
    assert_eq!(ports.len(), 8, "each has a port of its own");
    for port in ports {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}

/// This test program once more, with one of its tests.
fn rerun(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("TIDEGATE_LAB_RERUN", "1");
    command
}

fn is_rerun() -> bool {
    env::var_os("TIDEGATE_LAB_RERUN").is_some()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// The letter in /proc, or None when there is no such process.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}
