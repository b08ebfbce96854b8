//! The configuration, as an operator gives it to the real binary.

mod program;

use program::Program;
use tidegate_lab::RedisServer;

const COMMANDS: [&str; 7] =
    ["admit", "voucher load", "voucher show", "doctor", "status", "config", "completions"];

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
        "batch = 500 # default",
    ] {
        assert!(text.contains(line), "{line}\nis missing in {text}");
    }
    let json = program.run_with(&["config", "--json"], &variables).expect(0).json();
    assert_eq!(json["worker"]["lanes"]["value"], 3);
    assert_eq!(json["mysql"]["url"]["value"], "mysql://app:***@db/hmdp");
    assert_eq!(json["mysql"]["url"]["source"], "variable TIDEGATE_MYSQL_URL");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_reaches_the_log_however_much_is_logged() {
    let server = RedisServer::start().unwrap();
    let client = program::redis(&server.url()).await;
    program::call::<String>(&client, "ACL SETUSER app on >hunter2 ~* +@all").await;
    let redis = server.url().replace("redis://", "redis://app:hunter2@");
    let mysql = format!("mysql://root:hunter2@127.0.0.1:{}/hmdp", program::closed_port());
    for level in ["trace", "trace,fred=trace,sqlx=trace"] {
        for command in ["doctor", "status", "config"] {
            let args = ["--redis-url", &redis, "--mysql-url", &mysql, command];
            let run = Program::with_flags(&[]).run_with(&args, &[("RUST_LOG", level)]);
            assert!(!run.all().contains("hunter2"), "{command} at {level}: {}", run.all());
        }
    }
}

#[test]
fn every_command_has_examples_in_its_help() {
    let program = Program::with_flags(&[]);
    for command in COMMANDS {
        let help = program.run(&format!("{command} --help")).expect(0).stdout;
        assert!(help.contains(&format!("  tidegate {command}")), "{command}:\n{help}");
    }
    assert!(program.run("--help").expect(0).stdout.contains("Exit codes:"));
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
