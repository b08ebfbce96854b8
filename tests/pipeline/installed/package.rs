//! A test of the Debian package that `deb.sh` made, in a fresh Debian.

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use tempfile::TempDir;

use super::{SERVICE_USER, assert_confined, in_root, output};
use crate::{
    fixture::{Fixture, Worker},
    service::Manager,
};

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/deb-test.deb");
/// The units, each with the command of its service.
const UNITS: [(&str, &str); 2] = [("tidegate.service", "worker"), ("tidegate-gate.service", "gate")];

/// A fresh Debian with systemd, which does not run.
struct Debian {
    root: PathBuf,
    _folder: TempDir,
}

impl Debian {
    fn fresh() -> Self {
        let base = env::var("TIDEGATE_DEBIAN_ROOT").expect("`just deb-test` names a Debian");
        let folder = TempDir::new().expect("a folder");
        let root = folder.path().join("root");
        output(Command::new("cp").arg("--archive").arg(base).arg(&root));
        fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).expect("copied");
        Self { root, _folder: folder }
    }

    /// Runs a command line in this system, split at spaces.
    fn run(&self, line: &str) -> String {
        output(&mut self.command(line))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.root).args(line.split(' '));
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Starts the service of a unit as systemd would, with the installed configuration and with this socket.
    fn start(&self, unit: &str, fixture: &Fixture, socket: &str) -> Worker {
        let text = self.read(&format!("usr/lib/systemd/system/{unit}"));
        let values = |key: &'static str| text.lines().filter_map(move |line| line.strip_prefix(key));
        let secrets = values("EnvironmentFile=").map(|path| self.read(&path[1..])).collect::<String>();
        let pairs = values("Environment=").flat_map(|pairs| pairs.split(' ')).chain(secrets.lines());
        let mut plan = fixture.worker("w").set("GATE_LISTEN", "127.0.0.1:0");
        for (name, value) in
            pairs.filter(|line| !line.starts_with('#')).filter_map(|pair| pair.split_once('='))
        {
            plan = plan.variable(name, value);
        }
        let plan = plan.variable("NOTIFY_SOCKET", socket).variable("WATCHDOG_USEC", 400_000);
        let command = values("ExecStart=").next().expect("a command").split(' ').collect::<Vec<_>>();
        plan.start_by(&in_root(&self.root, SERVICE_USER, &command))
    }
}

/// Checks what the package put into the system, and that it neither starts nor enables a service.
fn assert_installed(debian: &Debian) {
    let package = debian.run("dpkg-query --show --showformat=${Depends}\n${Conffiles} tidegate");
    for wanted in
        ["libc6 (>=", "ca-certificates", "/etc/tidegate/tidegate.toml ", "/etc/tidegate/tidegate.env "]
    {
        assert!(package.contains(wanted), "no {wanted}: {package}");
    }
    for path in [
        "etc/ssl/certs/ca-certificates.crt",
        "usr/share/bash-completion/completions/tidegate",
        "usr/share/doc/tidegate/copyright",
        "usr/share/fish/vendor_completions.d/tidegate.fish",
        "usr/share/man/man1/tidegate-voucher-load.1.gz",
        "usr/share/man/man1/tidegate.1.gz",
        "usr/share/zsh/vendor-completions/_tidegate",
    ] {
        assert!(debian.root.join(path).metadata().is_ok_and(|file| file.len() > 100), "{path}");
    }
    let secrets = debian.root.join("etc/tidegate/tidegate.env").metadata().expect("a file");
    assert_eq!(secrets.permissions().mode() & 0o777, 0o600, "only root reads passwords");
    for (unit, _) in UNITS {
        let enabled = debian.command(&format!("systemctl is-enabled {unit}")).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&enabled.stdout), "disabled\n", "{unit}: {enabled:?}");
        let verified =
            debian.command(&format!("systemd-analyze verify --man=no {unit}")).output().expect("it runs");
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!said.contains("tidegate") && verified.status.success(), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the package and a Debian: just deb-test"]
async fn the_services_of_the_package_report_to_systemd_and_nothing_is_left_of_a_purged_package() {
    let (debian, fixture) = (Debian::fresh(), Fixture::open().await);
    fs::copy(PACKAGE, debian.root.join("tidegate.deb")).expect("the package is there");
    debian.run("apt-get update");
    debian.run("apt-get install --yes --no-install-recommends /tidegate.deb");
    assert_installed(&debian);

    let secrets =
        format!("TIDEGATE_REDIS_URL={}\nTIDEGATE_MYSQL_URL={}\n", fixture.redis.url(), fixture.mysql.url());
    fs::write(debian.root.join("etc/tidegate/tidegate.env"), secrets).expect("written");
    fixture.open_sale().await;
    for (unit, role) in UNITS {
        let socket = format!("/run/notify-{role}");
        let manager = Manager::at(debian.root.join(&socket[1..]));
        let service = debian.start(unit, &fixture, &socket);
        manager.is_told("READY=1").await;
        let command = fs::read_to_string(format!("/proc/{}/cmdline", service.pid())).expect("it runs");
        assert_eq!(command, format!("tidegate\0{role}\0"));
        manager.is_calmed(2).await;
        assert_confined(&service);
        assert!(service.stop().await.success());
        manager.is_told("STOPPING=1").await;
    }

    debian.run("apt-get purge --yes tidegate");
    let left = debian.run("find / -xdev -name *tidegate* -not -path /tidegate.deb -not -path /var/log/*");
    assert_eq!(left, "");
}
