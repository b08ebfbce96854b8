//! Runs the real binary, and talks to its stores behind its back.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::process::{Command, Output};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand, FromValue, Value, config::Config},
};

/// The binary with the stores of one test.
pub struct Program {
    flags: Vec<String>,
}

/// How a run of it ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    /// With these flags before each command.
    pub fn with_flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().map(ToString::to_string).collect() }
    }

    /// Runs a command line, split at spaces.
    pub fn run(&self, line: &str) -> Run {
        self.run_with(&line.split(' ').collect::<Vec<_>>(), &[])
    }

    /// Runs a command with variables.
    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        let output = self.command(args).envs(variables.iter().copied()).output();
        output.expect("the binary runs").into()
    }

    /// A command that is not started yet; variables of the tests' own surroundings are hidden from it.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.args(&self.flags).args(args);
        command
    }
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
    /// Its stdout as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"))
    }

    /// That it ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// All that it wrote.
    pub fn all(&self) -> String {
        [self.stdout.as_str(), self.stderr.as_str()].concat()
    }
}

/// A Redis connection of the test's own.
pub async fn redis(url: &str) -> Client {
    let client = Client::new(Config::from_url(url).expect("a URL"), None, None, None);
    client.init().await.expect("Redis answers");
    client
}

/// One command, split at spaces.
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
