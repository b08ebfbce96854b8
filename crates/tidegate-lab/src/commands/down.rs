//! The command `tidegate-lab down`: stops the servers of this folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use super::standing::{self, Standing};

/// Stop the servers that `up` has started in this folder, and remove their data.
#[derive(Debug, Args)]
pub struct Down {
    /// Keep the data in `.lab/`; the next `up` uses it again, on the same ports
    #[arg(long)]
    keep_data: bool,
}

impl Down {
    pub fn run(self) -> Result<()> {
        let state = standing::state_folder()?;
        for (folder, name) in [(state.join("redis"), "Redis"), (state.join("mysql"), "MySQL")] {
            self.end(&folder, name)?;
        }
        // This succeeds only if nothing else is in the folder.
        let _ = fs::remove_dir(state);
        Ok(())
    }

    fn end(&self, folder: &Path, name: &str) -> Result<()> {
        match Standing::read(folder)? {
            Some(running) if running.is_running(folder) => {
                running.end(folder)?;
                eprintln!("{name} stopped (process {})", running.pid);
            }
            _ => eprintln!("{name} does not run"),
        }
        if folder.exists() && !self.keep_data {
            fs::remove_dir_all(folder).with_context(|| format!("Failed to remove {}", folder.display()))?;
            eprintln!("{name}'s data removed ({})", folder.display());
        }
        Ok(())
    }
}
