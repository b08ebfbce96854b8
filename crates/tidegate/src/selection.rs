//! The flags that leave entries out.

pub mod letters;

use clap::Args;
use tidegate_operations::selection::EntryFilter;
use tidegate_orders::{UserId, VoucherId};

use crate::command_line::CommandLine;

/// Flags that leave entries out.
#[derive(Args, Clone, Copy, Debug)]
pub struct OnlyArgs {
    /// Only entries of this voucher
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Only entries of this user
    #[arg(long, value_name = "ID")]
    pub user: Option<UserId>,
}

impl OnlyArgs {
    /// What they choose.
    pub fn filter(self) -> EntryFilter {
        EntryFilter { voucher: self.voucher, user: self.user }
    }
}

/// `command` with the flags that choose the same.
pub fn typed(EntryFilter { voucher, user }: EntryFilter, command: CommandLine) -> CommandLine {
    command.flag("--voucher", voucher).flag("--user", user)
}
