//! Test of `config/redis-users.acl`: a master and a replica behind a Sentinel load it as its header describes.

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;
use tidegate_lab::{RedisSentinel, RedisServer};

use crate::{fixture::until, tree::Tree};

const PASSWORD: &str = "CHANGE-ME";

/// A Redis with an ACL file.
struct Server {
    redis: RedisServer,
    aclfile: PathBuf,
    _folder: TempDir,
}

impl Server {
    /// Starts a server with an empty ACL file, so every client may connect.
    fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().expect("a folder");
        let aclfile = folder.path().join("users.acl");
        fs::write(&aclfile, "").expect("written");
        let options = RedisServer::options().args(args).args(["--aclfile".into(), aclfile.clone()]);
        Self { redis: options.start().expect("a Redis"), aclfile, _folder: folder }
    }

    /// Loads the file as its header describes.
    fn load(&self) {
        let header = Tree::root().join("config/redis-users.acl");
        let text = fs::read_to_string(&header).expect("the users");
        let typed = text.lines().find_map(|line| line.strip_prefix("#     ")).expect("a command to type");
        let typed = typed.replace("redis-users.acl", &header.display().to_string());
        let typed = typed.replace("/etc/redis/users.acl", &self.aclfile.display().to_string());
        let done = Command::new("sh").args(["-c", &typed]).status().expect("sh runs");
        assert!(done.success(), "{typed}");
        assert_eq!(self.says(None, "ACL LOAD"), "OK");
    }

    fn says(&self, user: Option<&str>, words: &str) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.redis.port().to_string(), "--no-auth-warning"]);
        if let Some(user) = user {
            command.args(["--user", user, "--pass", PASSWORD]);
        }
        let output = command.args(words.split(' ')).output().expect("redis-cli runs");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    fn is_master(&self) -> bool {
        self.says(Some("tidegate-sentinel"), "ROLE").starts_with("master")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_of_redis_are_loaded_as_their_file_says_and_nobody_else_gets_in() {
    let as_replica = ["--masteruser", "tidegate-replica", "--masterauth", PASSWORD];
    let master = Server::start(&as_replica);
    let port = master.redis.port().to_string();
    let replica = Server::start(&[&["--replicaof", "127.0.0.1", &port][..], &as_replica].concat());
    assert_eq!(master.says(None, "PING"), "PONG");
    for server in [&master, &replica] {
        server.load();
        assert!(server.says(None, "PING").contains("NOAUTH"), "{}", server.says(None, "PING"));
        assert!(server.says(Some("default"), "PING").contains("WRONGPASS"));
    }
    let users = include_str!("../../../config/redis-users.acl").lines();
    let users: Vec<&str> = users.filter_map(|line| line.strip_prefix("user ")?.split(' ').next()).collect();
    assert!(users.len() >= 10, "{users:?}");
    for user in users.into_iter().filter(|user| *user != "default") {
        assert_eq!(master.says(Some(user), "PING"), "PONG", "{user}");
        assert!(master.says(Some(user), "FLUSHALL").contains("NOPERM"), "{user}");
    }
    let exporter = Some("tidegate-exporter");
    until("the replica follows", || async {
        master.says(exporter, "INFO replication").contains("state=online")
    })
    .await;
    for line in ["INFO server", "CONFIG GET maxmemory", "SLOWLOG LEN", "LATENCY LATEST"] {
        assert!(!master.says(exporter, line).contains("NOPERM"), "{line}");
    }

    let sentinel = RedisSentinel::watch_as(&master.redis, "tidegate-sentinel", PASSWORD).expect("a Sentinel");
    let asks = |words: &str| {
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &sentinel.port().to_string()]).args(words.split(' ')).output();
        String::from_utf8_lossy(&output.expect("redis-cli runs").stdout).into_owned()
    };
    let followed = replica.redis.port().to_string();
    until("the Sentinel knows the replica", || async { asks("SENTINEL REPLICAS shop").contains(&followed) })
        .await;
    master.redis.kill9().expect("the master is killed");
    until("the replica is the master", || async { replica.is_master() }).await;
}
