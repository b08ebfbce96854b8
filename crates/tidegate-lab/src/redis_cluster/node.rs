//! One node of a cluster, and the commands to query it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::flavour::RedisFlavour;
use crate::ports::ReservedPort;
use crate::redis_server::RedisServer;

/// The timeout for an answer of a node.
const PATIENCE: Duration = Duration::from_secs(2);

/// One node. It keeps its port, its data and its name across restarts.
#[derive(Debug)]
pub struct RedisNode {
    server: RedisServer,
    bus: ReservedPort,
    id: String,
}

impl RedisNode {
    pub(super) fn start(args: impl Iterator<Item = String>) -> Result<Self> {
        let bus = ReservedPort::any()?;
        let own = [
            ("--cluster-enabled", "yes".to_owned()),
            ("--cluster-config-file", "nodes.conf".to_owned()),
            ("--cluster-port", bus.number.to_string()),
        ];
        let own = own.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        // The program is set explicitly, so that an external server is never used.
        let options = RedisServer::options().flavour(RedisFlavour::from_env()?);
        let server = options.args(own.chain(args)).start()?;
        let id = says(server.port(), &["CLUSTER", "MYID"])?;
        Ok(Self { server, bus, id })
    }

    /// The name of the node in the cluster.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The port of the node for clients.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The port of the node for other nodes.
    pub fn bus_port(&self) -> u16 {
        self.bus.number
    }

    /// The URL of this node alone: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The server of this node.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Whether its process exists, frozen or not.
    pub fn is_running(&self) -> bool {
        self.server.pid().is_some()
    }

    /// The answer to a command, as text: an array as lines, a null as an empty text.
    ///
    /// # Errors
    /// When the node does not answer within two seconds, or answers with an error.
    pub fn says(&self, command: &[&str]) -> Result<String> {
        says(self.port(), command)
    }

    /// The name of its master, by the node itself; None if the node is a master.
    pub fn master_id(&self) -> Option<String> {
        let nodes = self.says(&["CLUSTER", "NODES"]).ok()?;
        let own = nodes.lines().find(|line| line.contains("myself"))?;
        own.split(' ').nth(3).filter(|id| *id != "-").map(str::to_owned)
    }

    /// The number of nodes whose addresses it knows, including itself.
    pub(super) fn knows(&self) -> usize {
        let nodes = self.says(&["CLUSTER", "NODES"]).unwrap_or_default();
        nodes.lines().filter(|line| !line.contains("handshake") && !line.contains("noaddr")).count()
    }

    /// The name of the master of a slot, by this node.
    pub(super) fn owner(&self, slot: u16) -> Option<String> {
        let nodes = self.says(&["CLUSTER", "NODES"]).ok()?;
        let has_it = |line: &&str| {
            let ranges = line.split(' ').skip(8).filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
            });
            line.contains("master") && ranges.into_iter().any(|range| range.contains(&slot))
        };
        nodes.lines().find(has_it)?.split(' ').next().map(str::to_owned)
    }
}

/// Sends a command, and reads the answer.
fn says(port: u16, command: &[&str]) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    read_reply(&mut BufReader::new(stream)).with_context(|| format!("{port}: {}", command.join(" ")))
}

fn read_reply(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).context("an empty answer")?;
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => bail!("{rest}"),
        "$" if rest == "-1" => Ok(String::new()),
        "$" => {
            let mut text = vec![0; rest.parse::<usize>()? + 2];
            reader.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "*" => {
            let count: i64 = rest.parse()?;
            let parts: Result<Vec<String>> = (0..count).map(|_| read_reply(reader)).collect();
            Ok(parts?.join("\n"))
        }
        _ => bail!("an answer that cannot be read: {line}"),
    }
}
