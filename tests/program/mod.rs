//! Helpers to run the real binary, and to use its stores directly.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, FromValue, Value, config::Config},
};

/// The binary with the stores of one test.
pub struct Program {
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    /// The program with these flags before each command.
    pub fn with_flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(ToString::to_string).collect(), variables: Vec::new() }
    }

    /// The program with stores that variables name, so that shown command lines need not name them.
    pub fn with_variables(redis_url: &str, mysql_url: &str) -> Self {
        let variables = [("TIDEGATE_REDIS_URL", redis_url), ("TIDEGATE_MYSQL_URL", mysql_url)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { flags: Vec::new(), variables }
    }

    /// Runs a command line, split at spaces.
    pub fn run(&self, line: &str) -> Run {
        self.run_with(&line.split(' ').collect::<Vec<_>>(), &[])
    }

    /// Runs a command with these variables.
    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        let output = self.command(args).envs(variables.iter().copied()).output();
        output.expect("the binary runs").into()
    }

    /// A command that is not started yet. It does not see the variables of the tests.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        // The program has this name if it is in a folder of PATH.
        command.arg0("tidegate").args(&self.flags).args(args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The command line that the output proposes to continue with.
#[track_caller]
pub fn go_on(shown: &str) -> String {
    let mut lines = shown.lines();
    lines
        .find(|line| line.to_lowercase().contains("go on with:"))
        .unwrap_or_else(|| panic!("no hint: {shown}"));
    lines.next().unwrap_or_else(|| panic!("no line: {shown}")).trim().to_owned()
}

/// Runs a line in a shell that has these variables and finds the program in its PATH.
pub fn pastes(line: &str, variables: &[(&str, &str)]) -> Run {
    let folder = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("PATH", path).envs(variables.iter().copied()).stdin(Stdio::null());
    shell.output().expect("the shell runs").into()
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self {
            code: output.status.code().expect("ended by itself"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Run {
    /// The JSON on stdout. If there are several lines, no key may appear twice, because parsers differ in the value
    /// that they keep.
    pub fn json(&self) -> serde_json::Value {
        let json: serde_json::Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"));
        if self.stdout.lines().count() > 1 {
            let members = |line: &&str| line.contains("\": ");
            let pretty = serde_json::to_string_pretty(&json).expect("JSON");
            let [printed, read] = [&self.stdout, &pretty].map(|text| text.lines().filter(members).count());
            assert_eq!(printed, read, "a member stands twice: {self:#?}");
        }
        json
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// The whole output.
    pub fn all(&self) -> String {
        [self.stdout.as_str(), self.stderr.as_str()].concat()
    }
}

/// A connection to Redis for a test.
pub async fn redis(url: &str) -> Client {
    let client = Client::new(Config::from_url(url).expect("a URL"), None, None, None);
    client.init().await.expect("Redis answers");
    client
}

/// Sends one command, split at spaces.
pub async fn call<T: FromValue>(client: &Client, line: &str) -> T {
    let mut words = line.split(' ').map(str::to_owned);
    let command = CustomCommand::new(words.next().expect("a command"), ClusterHash::Random, false);
    let reply: Value = client.custom(command, words.collect::<Vec<_>>()).await.expect(line);
    reply.convert().expect(line)
}

/// A port of this host on which nothing listens.
pub fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
