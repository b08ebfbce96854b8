//! Tests of the configuration, as an operator gives it to the real binary.

use tidegate_lab::RedisServer;

use crate::{
    fixture::Fixture,
    program::{Program, call, closed_port, redis},
};

#[test]
fn all_mistakes_end_every_command_at_once_with_code_2() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[worker]\nlanes = 0\nbach = 1\n").unwrap();
    let path = file.path().to_str().unwrap();
    let variables = [("TIDEGATE_REDIS_URL", "http://:hunter2@host"), ("TIDEGATE_WORKR_BATCH", "1")];
    let program = Program::with_flags(&[]);
    for command in ["config", "doctor", "status", "worker"] {
        let run =
            program.run_with(&["--config", path, command, "--set", "log.format=xml"], &variables).expect(2);
        for problem in [
            format!("file {path}: worker.lanes = 0 must be within"),
            format!("file {path}: worker.bach is no setting; did you mean worker.batch?"),
            "variable TIDEGATE_REDIS_URL: redis.url must begin with redis://".to_owned(),
            "variable TIDEGATE_WORKR_BATCH: is no setting; did you mean TIDEGATE_WORKER_BATCH?".to_owned(),
            "flag --set: log.format = \"xml\" must be one of auto, text, json".to_owned(),
        ] {
            assert!(run.stderr.contains(&problem), "{problem}\nis missing in {}", run.stderr);
        }
        assert!(run.stderr.contains("5 problems") && !run.all().contains("hunter2"), "{run:?}");
    }
}

#[test]
fn config_prints_what_is_in_effect_and_where_it_came_from() {
    let program = Program::with_flags(&["--set", "worker.lanes=3"]);
    let variables = [("TIDEGATE_MYSQL_URL", "mysql://app:hunter2@db/hmdp"), ("TIDEGATE_WORKER_LANES", "9")];
    let text = program.run_with(&["config", "--redis-url", "redis://cache"], &variables).expect(0).stdout;
    for line in [
        "url = \"redis://cache\" # flag --redis-url",
        "url = \"mysql://app:***@db/hmdp\" # variable TIDEGATE_MYSQL_URL",
        "lanes = 3 # flag --set",
        "batch = 1000 # default",
    ] {
        assert!(text.contains(line), "{line}\nis missing in {text}");
    }
    let json = program.run_with(&["config", "--json"], &variables).expect(0).json();
    assert_eq!(json["worker"]["lanes"]["value"], 3);
    assert_eq!(json["mysql"]["url"]["value"], "mysql://app:***@db/hmdp");
    assert_eq!(json["mysql"]["url"]["source"], "variable TIDEGATE_MYSQL_URL");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_works_with_the_urls_of_its_stores_in_files() {
    let fixture = Fixture::open().await;
    fixture.redis_says(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all"]).await;
    let dir = tempfile::TempDir::new().expect("a folder");
    let [redis, mysql] = ["redis-url", "mysql-url"].map(|name| dir.path().join(name).display().to_string());
    let url = fixture.redis.url().replace("redis://", "redis://app:hunter2@");
    std::fs::write(&redis, format!("{url}\n")).expect("it is written");
    std::fs::write(&mysql, format!("{}\n", fixture.mysql.url())).expect("it is written");
    let program = Program::with_flags(&["--set", &format!("mysql.url_file={mysql}")]);
    let variables = [("TIDEGATE_REDIS_URL_FILE", redis.as_str())];
    let load = ["voucher", "load", "--voucher", "7", "--stock", "5"];
    program.run_with(&load, &variables).expect(0);
    assert!(fixture.redis_says(&["GET", "seckill:stock:7"]).await.as_str().is_some_and(|left| left == "5"));
    let config = program.run_with(&["config"], &variables).expect(0).stdout;
    assert!(config.contains(&format!("# variable TIDEGATE_REDIS_URL_FILE ({redis})")), "{config}");
    assert!(config.contains("redis://app:***@") && !config.contains("hunter2"), "{config}");

    std::fs::remove_file(&mysql).expect("it is there");
    let run = program.run_with(&load, &variables).expect(2);
    let problem = format!("flag --set: mysql.url_file = {mysql:?} cannot be read: No such file or directory");
    assert!(run.stderr.contains(&problem), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_reaches_the_log_however_much_is_logged() {
    let server = RedisServer::start().unwrap();
    let client = redis(&server.url()).await;
    call::<String>(&client, "ACL SETUSER app on >hunter2 ~* +@all").await;
    let redis = server.url().replace("redis://", "redis://app:hunter2@");
    let mysql = format!("mysql://root:hunter2@127.0.0.1:{}/hmdp", closed_port());
    for level in ["trace", "trace,fred=trace,sqlx=trace"] {
        for command in ["doctor", "status", "config", "migrate"] {
            let args = ["--redis-url", &redis, "--mysql-url", &mysql, command];
            let run = Program::with_flags(&[]).run_with(&args, &[("RUST_LOG", level)]);
            assert!(!run.all().contains("hunter2"), "{command} at {level}: {}", run.all());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_reaches_the_log_of_a_worker_or_a_migration_however_much_is_logged() {
    let fixture = Fixture::bare_with_own_mysql().await;
    fixture.redis_says(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "+@all"]).await;
    let batch_trace =
        "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'hunter2'; GRANT ALL ON *.* TO app@'127.0.0.1'";
    sqlx::raw_sql(batch_trace).execute(&fixture.pool).await.expect("the account is made");
    let redis = fixture.redis.url().replace("redis://", "redis://app:hunter2@");
    let mysql = fixture.mysql.url();
    let (_, address) = mysql.split_once('@').expect("a URL with a user");
    let mysql = format!("mysql://app:hunter2@{address}");
    let urls = ["--redis-url", &redis, "--mysql-url", &mysql];
    let level = "trace,fred=trace,sqlx=trace";

    let run = Program::with_flags(&urls).run_with(&["migrate"], &[("RUST_LOG", level)]).expect(0);
    assert!(!run.all().contains("hunter2"), "{}", run.all());

    fixture.load(1, 10).await;
    let plan = fixture.worker("w").set("REDIS_URL", &redis).set("MYSQL_URL", &mysql).set("LOG_LEVEL", level);
    let worker = plan.start();
    fixture.add_order(1, 1, 1).await;
    fixture.settled().await;
    // The worker loses its connections to both stores, and connects again.
    fixture.redis_says(&["CLIENT", "KILL", "USER", "app"]).await;
    fixture.add_order(2, 2, 1).await;
    fixture.settled().await;
    let log = worker.log();
    assert!(worker.stop().await.success());
    assert!(log.contains("worker started") && log.contains("fred"), "much is logged:\n{log}");
    assert!(!log.contains("hunter2"), "{log}");

    // A worker with a wrong password does not log it either.
    let (redis, mysql) = (redis.replace("hunter2", "hunter3"), mysql.replace("hunter2", "hunter3"));
    for (redis, mysql, told) in
        [(&redis, &fixture.mysql.url(), "WRONGPASS"), (&fixture.redis.url(), &mysql, "denied")]
    {
        let plan =
            fixture.worker("x").set("REDIS_URL", redis).set("MYSQL_URL", mysql).set("LOG_LEVEL", level);
        let worker = plan.start();
        worker.says(told).await;
        assert!(!worker.log().contains("hunter3"), "{}", worker.log());
    }
}

#[test]
fn every_command_has_examples_in_its_help() {
    let program = Program::with_flags(&[]);
    let commands = all_commands(&program, "");
    for known in ["worker", "voucher load", "pause", "resume", "migrate", "audit", "completions"] {
        assert!(commands.iter().any(|command| command == known), "{known} is not listed: {commands:?}");
    }
    for command in commands {
        let help = program.run(&format!("{command} --help")).expect(0).stdout;
        let examples = help.split("\nExamples:\n").nth(1).unwrap_or_else(|| panic!("{command}: no examples"));
        assert!(examples.starts_with(&format!("  tidegate {command}")), "{command}:\n{help}");
    }
    assert!(program.run("--help").expect(0).stdout.contains("Exit codes:"));
}

/// All commands below `above`, from its help. A command with subcommands is replaced by them.
fn all_commands(program: &Program, above: &str) -> Vec<String> {
    let help = program.run(format!("{above} --help").trim()).expect(0).stdout;
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return vec![above.to_owned()] };
    let lines = listed.lines().take_while(|line| !line.is_empty());
    // Lines that continue a description are indented further.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    names.flat_map(|name| all_commands(program, format!("{above} {name}").trim())).collect()
}

#[test]
fn completions_exist_for_every_shell() {
    let program = Program::with_flags(&[]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(
            program.run(&format!("completions {shell}")).expect(0).stdout.contains("tidegate"),
            "{shell}"
        );
    }
}
