//! An initialised data folder for each version of MySQL and MariaDB. It is made once per machine and copied for each
//! server, because making one takes seconds, and copying it a fraction of one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::data_folder;
use crate::flavour::{MysqlFlavour, Program};
use crate::mysql_settings::{base_settings, with_path};

/// A part of the template's name. Raise it when the content of a template changes.
const REVISION: u32 = 2;

/// The set-up statements, one a line, as the start-up files of both servers require.
const SETUP: &str = "\
FLUSH PRIVILEGES;
CREATE DATABASE tidegate CHARACTER SET utf8mb4;
CREATE USER tidegate@'%';
GRANT ALL PRIVILEGES ON *.* TO tidegate@'%' WITH GRANT OPTION;
";

/// Fills the folder `data`, which must not exist.
pub(crate) fn copy_to(data: &Path, flavour: MysqlFlavour, program: &Program) -> Result<()> {
    copy(&of_server(flavour, program)?, data)
}

/// The data folder of a server that was never started.
fn of_server(flavour: MysqlFlavour, program: &Program) -> Result<PathBuf> {
    made_once(&version(program)?, |part| initialise(part, flavour, program))
}

/// Copies like [`copy_to`], for a special kind of server: `finish` is called once per machine with a copy of the plain
/// data folder, and turns it into this template.
pub(crate) fn copy_finished_to(
    data: &Path,
    (flavour, program): (MysqlFlavour, &Program),
    kind: &str,
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let template = made_once(&format!("{kind}-{}", version(program)?), |part| {
        copy(&of_server(flavour, program)?, part)?;
        finish(part)
    })?;
    copy(&template, data)
}

fn copy(template: &Path, data: &Path) -> Result<()> {
    // An interrupted copy must not be mistaken for a data folder.
    let part = data.with_added_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).context("Failed to remove a half-made copy")?;
    }
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--reflink=auto"]).arg(template).arg(&part);
    run(copy)?;
    fs::rename(part, data).context("Failed to put a data folder in place")
}

fn made_once(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let templates = data_folder::root()?.join("templates");
    fs::create_dir_all(&templates).context("Failed to create the folder of templates")?;
    let template = templates.join(format!("{name}-r{REVISION}"));
    // Two processes may need the same template: the second one waits here, and then finds it.
    let lock =
        File::create(template.with_added_extension("lock")).context("Failed to create a template's lock")?;
    lock.lock().context("Failed to lock a template")?;
    if !template.exists() {
        let part = template.with_added_extension("part");
        if part.exists() {
            fs::remove_dir_all(&part).context("Failed to remove a half-made template")?;
        }
        make(&part)?;
        fs::rename(&part, &template).context("Failed to put a template in place")?;
    }
    Ok(template)
}

/// Turns `mysqld Ver 9.7.0-1 for Linux ...` into a file name.
fn version(program: &Program) -> Result<String> {
    let mut command = call(program);
    command.arg("--no-defaults").arg("--version");
    let output = run(command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().skip_while(|word| *word != "Ver").skip(1).take(1);
    let version: String = words.collect();
    if version.is_empty() {
        bail!("Failed to read a version from {text:?}");
    }
    let kind = if text.contains("MariaDB") { "mariadb" } else { "mysql" };
    Ok(format!("{kind}-{}", version.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_")))
}

fn initialise(data: &Path, flavour: MysqlFlavour, program: &Program) -> Result<()> {
    let setup = data.with_added_extension("sql");
    fs::write(&setup, SETUP).context("Failed to write the set-up statements")?;
    match flavour {
        MysqlFlavour::MariaDb => {
            let mut install = call(&Program::of_system("mariadb-install-db")?);
            install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
            install.arg(with_path("--datadir=", data)).arg(with_path("--extra-file=", &setup));
            // A redo log of the default size would be two thirds of each copy.
            install.arg("--innodb-log-file-size=32M").args(owner());
            run(install)?;
        }
        MysqlFlavour::MariaDb11 => {
            // The tree's mariadb-install-db would start programs without the loader of the tree.
            let mut sql = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
            let share = program.root.join("usr/share/mariadb");
            for part in ["system_tables", "performance_tables", "system_tables_data", "sys_schema"] {
                let file = share.join(format!("mariadb_{part}.sql"));
                sql += &fs::read_to_string(&file)
                    .with_context(|| format!("Failed to read {}", file.display()))?;
            }
            fs::write(&setup, sql + SETUP).context("Failed to write the statements of a new server")?;
            fs::create_dir_all(data).context("Failed to create the data folder")?;
            let mut bootstrap = call(program);
            bootstrap.args(base_settings(flavour, &program.root, data)).arg("--bootstrap");
            bootstrap.arg("--max-allowed-packet=8M").stdin(fs::File::open(&setup)?);
            run(bootstrap)?;
        }
        MysqlFlavour::Mysql => {
            let mut initialize = call(program);
            initialize.args(base_settings(flavour, &program.root, data));
            initialize.arg("--initialize-insecure").arg(with_path("--init-file=", &setup));
            run(initialize)?;
            // This file is the identity of a server; each copy must create its own.
            fs::remove_file(data.join("auto.cnf")).context("Failed to remove the template's identity")?;
        }
    }
    fs::remove_file(setup).context("Failed to remove the set-up statements")
}

fn owner() -> Option<&'static str> {
    nix::unistd::Uid::effective().is_root().then_some("--user=root")
}

fn call(program: &Program) -> Command {
    let mut words = program.words.iter();
    let mut command = Command::new(words.next().map_or_else(OsString::new, Clone::clone));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("Failed to start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {said}", output.status);
    }
    Ok(output)
}
