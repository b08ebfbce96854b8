//! `tidegate-lab up`

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use tidegate_lab::{MysqlFlavour, MysqlServer, RedisFlavour, RedisServer};

use super::standing::{self, Standing};

/// Start a Redis and a MySQL that stay, with their data in `.lab/` of this folder.
///
/// Prints the two lines that point Tidegate at them, and the two aliases that the runbook types; paste them, or
/// `eval "$(tidegate-lab up)"`. Which programs is a matter of TIDEGATE_LAB_REDIS and TIDEGATE_LAB_MYSQL, as for tests.
/// What runs already is left as it is.
#[derive(Debug, Args)]
pub struct Up {
    /// Redis' port [default: the one it had, or any free one]
    #[arg(long)]
    redis_port: Option<u16>,
    /// MySQL's port [default: the one it had, or any free one]
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

/// MySQL's own client does not take a URL.
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
