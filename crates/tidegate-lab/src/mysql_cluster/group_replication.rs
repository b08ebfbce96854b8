//! Members of a group replication: MySQL 9 with its plugin.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};

use crate::data_folder::DataFolder;
use crate::data_template;
use crate::flavour::MysqlFlavour;
use crate::mysql_server::greets;
use crate::mysql_settings::{DATA, TMP, server_words, with_path};
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

/// The statements that make this server the first member of its group.
pub(super) const FOUND: &str = "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION; \
                                SET GLOBAL group_replication_bootstrap_group = OFF";
/// The account with which a member copies missed changes from another.
pub(super) const RECOVERY: &str = "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'tidegate', SOURCE_PASSWORD = '' \
                                   FOR CHANNEL 'group_replication_recovery'";
pub(super) const JOIN: &str = "START GROUP_REPLICATION";

/// Starts a server that is ready to join; it is member `at`, and `groups` are the ports of all.
pub(super) fn start(
    at: usize,
    clients: ReservedPort,
    groups: &[ReservedPort],
    has_one_primary: bool,
) -> Result<PrivateServer> {
    let flavour = MysqlFlavour::Mysql;
    let program = flavour.program()?;
    let folder = DataFolder::temporary("group-replication-")?;
    data_template::copy_to(&folder.path().join(DATA), flavour, &program)?;
    fs::create_dir_all(folder.path().join(TMP)).context("Failed to create a folder for temporary files")?;
    let peers: Vec<String> = groups.iter().map(|peer| format!("127.0.0.1:{}", peer.number)).collect();
    let on = |is_on: bool| if is_on { "ON" } else { "OFF" };
    let mut words = server_words(flavour, &program, folder.path(), clients.number);
    words.push(with_path("--plugin-dir=", &program.root.join("usr/lib/mysql/plugin")));
    words.extend(
        [
            // The tables of the performance schema hold the list of members.
            "--performance-schema=ON",
            "--performance-schema-instrument=%=OFF",
            "--performance-schema-instrument=statement/%=OFF",
            "--plugin-load-add=group_replication.so",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--report-host=127.0.0.1",
            "--group-replication-start-on-boot=OFF",
            "--group-replication-ip-allowlist=127.0.0.0/8",
            "--group-replication-recovery-get-public-key=ON",
            "--group-replication-recovery-reconnect-interval=1",
            // A silent member is suspected after five seconds, which is not configurable, and then expelled at once.
            "--group-replication-member-expel-timeout=0",
            "--group-replication-unreachable-majority-timeout=2",
        ]
        .map(OsString::from),
    );
    words.extend(
        [
            format!("--server-id={}", at + 1),
            format!("--report-port={}", clients.number),
            // Ports are below 65,536, so the port can be the end of the group's name.
            format!("--group-replication-group-name=6b1f6a52-0000-4000-8000-{:012}", groups[0].number),
            format!("--group-replication-local-address={}", peers[at]),
            format!("--group-replication-group-seeds={}", peers.join(",")),
            format!("--group-replication-single-primary-mode={}", on(has_one_primary)),
            format!("--group-replication-enforce-update-everywhere-checks={}", on(!has_one_primary)),
        ]
        .map(OsString::from),
    );
    PrivateServer::start(words, clients, folder, greets)
}
