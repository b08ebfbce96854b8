//! Nodes of Galera: MariaDB with Debian's provider.
//!
//! All nodes begin with the same data and the state of a former cluster, as after a power failure. So they find each
//! other at once, and none has to copy the data of another.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::NODES;
use crate::data_folder::{self, DataFolder};
use crate::data_template;
use crate::flavour::{MysqlFlavour, Program};
use crate::mysql_server::greets;
use crate::mysql_settings::{DATA, TMP, base_settings, server_words, with_path};
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

const PROVIDERS: [&str; 2] = ["usr/lib/galera/libgalera_smm.so", "usr/lib64/galera-4/libgalera_smm.so"];
const STARTER: &str = include_str!("wsrep-node.sh");
const SST: &str = "/usr/bin/wsrep_sst_rsync";

/// The ports of a node besides the one for clients.
#[derive(Debug)]
pub(super) struct Ports {
    pub group: ReservedPort,
    pub increments: ReservedPort,
    pub copies: ReservedPort,
}

impl Ports {
    pub fn reserve() -> Result<Self> {
        let any = ReservedPort::any;
        Ok(Self { group: any()?, increments: any()?, copies: any()? })
    }
}

/// Starts node `at`. Returns when it accepts clients, which happens once the cluster has formed.
pub(super) fn start(at: usize, clients: ReservedPort, ports: &[Ports]) -> Result<PrivateServer> {
    let flavour = MysqlFlavour::MariaDb;
    let program = flavour.program()?;
    let folder = DataFolder::temporary("galera-")?;
    let data = folder.path().join(DATA);
    data_template::copy_finished_to(&data, (flavour, &program), "galera", |data| found(data, &program))?;
    fs::create_dir_all(folder.path().join(TMP)).context("Failed to create a folder for temporary files")?;
    fs::write(data.join("gvwstate.dat"), memory_of_the_cluster(at))
        .context("Failed to write the state of a cluster")?;
    let starter = folder.path().join("wsrep-node.sh");
    fs::write(&starter, STARTER).context("Failed to write the script that starts a node")?;

    let mut words: Vec<OsString> = vec!["env".into()];
    words.push(format!("PATH={}:{}", sst_folder()?.display(), env::var("PATH").unwrap_or_default()).into());
    words.extend(["sh".into(), starter.into(), data.join("grastate.dat").into()]);
    words.extend(server_words(flavour, &program, folder.path(), clients.number));
    words.extend(replication(&program)?);
    let own = &ports[at];
    let peers: Vec<String> = ports.iter().map(|peer| format!("127.0.0.1:{}", peer.group.number)).collect();
    words.extend(
        [
            // Every cluster here has the same template, and so the same state UUID.
            format!("--wsrep-cluster-name=lab-{}", ports[0].group.number),
            format!("--wsrep-cluster-address=gcomm://{}", peers.join(",")),
            format!("--wsrep-node-name=node{at}"),
            format!("--wsrep-node-address={}", peers[at]),
            format!("--wsrep-sst-method={}", sst_method()),
            format!("--wsrep-sst-receive-address=127.0.0.1:{}", own.copies.number),
            format!("--wsrep-provider-options={}", provider_options(own)),
        ]
        .map(OsString::from),
    );
    PrivateServer::start(words, clients, folder, greets)
}

/// The options of the provider. With them, a cluster notices a silent node after two seconds, instead of five to
/// fifteen.
fn provider_options(ports: &Ports) -> String {
    let (group, increments) = (ports.group.number, ports.increments.number);
    format!(
        "base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};\
         ist.recv_addr=127.0.0.1:{increments};gcache.size=64M;\
         evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;evs.suspect_timeout=PT2S;\
         evs.inactive_timeout=PT4S;evs.install_timeout=PT4S;gmcast.peer_timeout=PT2S;gmcast.time_wait=PT1S"
    )
}

fn replication(program: &Program) -> Result<Vec<OsString>> {
    let provider = PROVIDERS.iter().map(|path| program.root.join(path)).find(|path| path.is_file());
    let provider = provider.context("Galera is not installed (galera-4); run `just servers`")?;
    let settings = ["--wsrep-on=ON", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"];
    let mut words: Vec<OsString> = settings.map(OsString::from).into();
    words.push(with_path("--wsrep-provider=", &provider));
    Ok(words)
}

/// Turns a data folder into that of the founder of a cluster, after a clean shutdown.
fn found(data: &Path, program: &Program) -> Result<()> {
    let (clients, ports) = (ReservedPort::any()?, Ports::reserve()?);
    let folder = DataFolder::temporary("galera-template-")?;
    let mut words = program.words.clone();
    words.extend(base_settings(MysqlFlavour::MariaDb, &program.root, data));
    words.push(with_path("--tmpdir=", folder.path()));
    words.push(format!("--port={}", clients.number).into());
    words.extend(replication(program)?);
    words.push("--wsrep-new-cluster".into());
    words.push("--wsrep-cluster-address=gcomm://".into());
    words.push(format!("--wsrep-provider-options={}", provider_options(&ports)).into());
    PrivateServer::start(words, clients, folder, greets)?.shutdown()?;
    for file in ["galera.cache", "gvwstate.dat"] {
        let path = data.join(file);
        if path.exists() {
            fs::remove_file(path).context("Failed to remove a file of the template's founder")?;
        }
    }
    Ok(())
}

fn memory_of_the_cluster(at: usize) -> String {
    let uuid = |node: usize| format!("0000000{}-0000-11e1-8000-000000000000", node + 1);
    let members: String = (0..NODES).map(|node| format!("member: {} 0\n", uuid(node))).collect();
    format!("my_uuid: {}\n#vwbeg\nview_id: 3 {} 3\nbootstrap: 0\n{members}#vwend\n", uuid(at), uuid(0))
}

/// The method that sends all data to a node that has missed too much: rsync. An rsync server that root starts writes as
/// another user by default. The script of the package does not change that, because no node of the package runs as
/// root.
fn sst_method() -> &'static str {
    if nix::unistd::Uid::effective().is_root() { "rsync_as_root" } else { "rsync" }
}

/// The folder with the script of [`sst_method`].
fn sst_folder() -> Result<PathBuf> {
    let folder = data_folder::root()?.join("galera");
    fs::create_dir_all(&folder).context("Failed to create a folder for scripts of Galera")?;
    let script = fs::read_to_string(SST).with_context(|| format!("Failed to read {SST}"))?;
    let as_root = script.replace("\nuse chroot = no\n", "\nuid = 0\ngid = 0\nuse chroot = no\n");
    let common =
        fs::read_to_string("/usr/bin/wsrep_sst_common").context("Failed to read wsrep_sst_common")?;
    for (name, text) in [("wsrep_sst_rsync_as_root", as_root), ("wsrep_sst_common", common)] {
        // Another process may be running the existing script.
        let part = tempfile::NamedTempFile::new_in(&folder).context("Failed to write a script of Galera")?;
        fs::write(&part, text).context("Failed to write a script of Galera")?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o755))
            .context("Failed to make it a program")?;
        part.persist(folder.join(name)).context("Failed to put a script of Galera in place")?;
    }
    Ok(folder)
}
