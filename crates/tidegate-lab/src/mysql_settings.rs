//! The arguments of a MariaDB or MySQL of the lab, and the layout of its folder.

use std::ffi::OsString;
use std::path::Path;

use crate::flavour::{MysqlFlavour, Program};

/// The subfolder with the data of a server.
pub(crate) const DATA: &str = "data";
/// The subfolder for temporary files. A MariaDB that starts deletes all temporary tables in its folder: a shared folder
/// would break other servers.
pub(crate) const TMP: &str = "tmp";

/// The command of a server with this folder, as durable as in production.
pub(crate) fn server_words(
    flavour: MysqlFlavour,
    program: &Program,
    folder: &Path,
    port: u16,
) -> Vec<OsString> {
    let mut words = program.words.clone();
    words.extend(base_settings(flavour, &program.root, &folder.join(DATA)));
    words.push(with_path("--tmpdir=", &folder.join(TMP)));
    words.push(format!("--port={port}").into());
    words.extend(durability(flavour).iter().map(OsString::from));
    words
}

/// The settings of every start of this program, including that of the template.
pub(crate) fn base_settings(flavour: MysqlFlavour, root: &Path, data: &Path) -> Vec<OsString> {
    // --no-defaults counts only as the first argument. The socket's name is relative to the data folder, because a full
    // path could exceed the limit of 107 bytes.
    let mut settings: Vec<OsString> = [
        "--no-defaults",
        "--bind-address=127.0.0.1",
        "--socket=server.sock",
        "--pid-file=server.pid",
        "--skip-name-resolve",
        "--character-set-server=utf8mb4",
        "--innodb-buffer-pool-size=64M",
    ]
    .map(OsString::from)
    .into();
    settings.push(with_path("--datadir=", data));
    if nix::unistd::Uid::effective().is_root() {
        settings.push("--user=root".into());
    }
    match flavour {
        MysqlFlavour::MariaDb => settings.push("--innodb-log-file-size=32M".into()),
        MysqlFlavour::MariaDb11 => {
            settings.push("--innodb-log-file-size=32M".into());
            settings.push(with_path("--basedir=", &root.join("usr")));
            settings.push(with_path("--lc-messages-dir=", &root.join("usr/share/mariadb")));
        }
        MysqlFlavour::Mysql => {
            settings.push(with_path("--basedir=", &root.join("usr")));
            settings.extend(
                [
                    "--innodb-redo-log-capacity=32M",
                    "--secure-file-priv=",
                    "--mysqlx=OFF",
                    // It costs hundreds of megabytes, and several servers run at the same time.
                    "--performance-schema=OFF",
                ]
                .map(OsString::from),
            );
        }
    }
    settings
}

fn durability(flavour: MysqlFlavour) -> &'static [&'static str] {
    match flavour {
        MysqlFlavour::MariaDb | MysqlFlavour::MariaDb11 => {
            &["--innodb-flush-log-at-trx-commit=1", "--max-connections=500"]
        }
        MysqlFlavour::Mysql => &[
            "--innodb-flush-log-at-trx-commit=1",
            "--max-connections=500",
            "--server-id=1",
            "--log-bin=binlog",
            "--sync-binlog=1",
        ],
    }
}

pub(crate) fn with_path(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(path);
    word
}
