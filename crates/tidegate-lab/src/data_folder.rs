//! The data folders of servers. Each temporary one is locked by its owner, and removed when the owner is gone.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The folder with all data of the labs of this user.
pub(crate) fn root() -> Result<PathBuf> {
    let root = env::temp_dir().join(format!("tidegate-lab-{}", nix::unistd::Uid::current()));
    fs::create_dir_all(&root).with_context(|| format!("Failed to create {}", root.display()))?;
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("{} is not ours", root.display()))?;
    Ok(root)
}

/// The folder of one server: its data, its log.
#[derive(Debug)]
pub(crate) enum DataFolder {
    /// A temporary folder, which is removed when dropped.
    Temporary { folder: TempDir, _owner: File },
    /// A folder that belongs to the caller.
    Kept(PathBuf),
}

impl DataFolder {
    pub fn temporary(name: &str) -> Result<Self> {
        let servers = root()?.join("servers");
        fs::create_dir_all(&servers).context("Failed to create the folder of servers")?;
        // Between creating and locking a folder, no other process may remove it.
        let gate =
            File::create(servers.with_extension("lock")).context("Failed to create the gate's lock")?;
        gate.lock().context("Failed to lock the gate")?;
        sweep(&servers);
        let folder = tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(&servers)
            .context("Failed to create a folder")?;
        let owner =
            File::create(folder.path().join("owner.lock")).context("Failed to create the owner's lock")?;
        owner.lock().context("Failed to take the owner's lock")?;
        Ok(Self::Temporary { folder, _owner: owner })
    }

    pub fn kept(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("Failed to create {}", folder.display()))?;
        Ok(Self::Kept(folder.canonicalize().context("Failed to resolve the server's folder")?))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Temporary { folder, .. } => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// Removes the folders of processes that could not clean up. Their servers died with them. If a folder cannot be
/// removed now, the next process removes it.
fn sweep(servers: &Path) {
    for folder in fs::read_dir(servers).into_iter().flatten().flatten() {
        let abandoned =
            File::open(folder.path().join("owner.lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if abandoned {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}
