//! The flags that select entries of a voucher or a user.

pub mod letters;

use clap::Args;
use tidegate_operations::selection::EntryFilter;
use tidegate_orders::{UserId, VoucherId};

use crate::command_line::CommandLine;

/// The flags that select entries by their voucher or their user.
#[derive(Args, Clone, Copy, Debug)]
pub struct OnlyArgs {
    /// Select only entries of this voucher
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Select only entries of this user
    #[arg(long, value_name = "ID")]
    pub user: Option<UserId>,
}

impl OnlyArgs {
    /// The filter that these flags describe.
    pub fn filter(self) -> EntryFilter {
        EntryFilter { voucher: self.voucher, user: self.user }
    }
}

/// Adds to `command` the flags that select entries like this filter.
pub fn typed(EntryFilter { voucher, user }: EntryFilter, command: CommandLine) -> CommandLine {
    command.flag("--voucher", voucher).flag("--user", user)
}
