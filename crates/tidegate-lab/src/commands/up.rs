//! The command `tidegate-lab up`: starts servers that keep running.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use tidegate_lab::{MysqlFlavour, MysqlServer, RedisFlavour, RedisServer};

use super::standing::{self, Standing};

/// Start a Redis and a MySQL that keep running, with their data in `.lab/` of this folder.
///
/// Prints the two lines that point Tidegate at them, and the two aliases that the runbook uses. Paste them, or run
/// `eval "$(tidegate-lab up)"`. TIDEGATE_LAB_REDIS and TIDEGATE_LAB_MYSQL select the programs, as for tests. Servers
/// that already run are left unchanged.
#[derive(Debug, Args)]
pub struct Up {
    /// Port of Redis [default: its previous port, or any free one]
    #[arg(long)]
    redis_port: Option<u16>,
    /// Port of MySQL [default: its previous port, or any free one]
    #[arg(long)]
    mysql_port: Option<u16>,
}

impl Up {
    pub fn run(self) -> Result<()> {
        let state = standing::state_folder()?;
        let redis = ensure(&state.join("redis"), "Redis", |folder, last_port| {
            let mut options = RedisServer::options().flavour(RedisFlavour::from_env()?).folder(folder);
            if let Some(port) = self.redis_port.or(last_port) {
                options = options.port(port);
            }
            let server = options.start()?;
            Ok((server.pid(), server.port(), server.url()))
        })?;
        let mysql = ensure(&state.join("mysql"), "MySQL", |folder, last_port| {
            let mut options = MysqlServer::options().flavour(MysqlFlavour::from_env()?).folder(folder);
            if let Some(port) = self.mysql_port.or(last_port) {
                options = options.port(port);
            }
            let server = options.start()?;
            Ok((server.pid(), server.port(), server.url()))
        })?;
        println!("export TIDEGATE_REDIS_URL='{}'", redis.url);
        println!("export TIDEGATE_MYSQL_URL='{}'", mysql.url);
        println!("alias redis='redis-cli -u {}'", redis.url);
        println!("alias mysql='{}'", mysql_client(&mysql.url)?);
        Ok(())
    }
}

/// The arguments for MySQL's own client, which does not accept a URL.
fn mysql_client(url: &str) -> Result<String> {
    let parts = || {
        let (user, rest) = url.strip_prefix("mysql://")?.split_once('@')?;
        let (address, database) = rest.split('?').next()?.split_once('/')?;
        let (host, port) = address.split_once(':')?;
        Some(format!("mysql -h {host} -P {port} -u {user} {database}"))
    };
    parts().with_context(|| format!("No client can be pointed at {url}"))
}

type Started = (Option<u32>, u16, String);

fn ensure(
    folder: &Path,
    name: &str,
    start: impl FnOnce(&Path, Option<u16>) -> Result<Started>,
) -> Result<Standing> {
    let last = Standing::read(folder)?;
    if let Some(running) = last.as_ref().filter(|last| last.is_running(folder)) {
        eprintln!("{name} runs already: {} (process {})", running.url, running.pid);
        return Ok(running.clone());
    }
    eprintln!("{name} is being started");
    let (pid, port, url) = start(folder, last.map(|last| last.port))?;
    let standing = Standing { pid: pid.context("A started server has a process")?, port, url };
    standing.write(folder)?;
    eprintln!("{name} started: {} (process {}, data in {})", standing.url, standing.pid, folder.display());
    Ok(standing)
}
