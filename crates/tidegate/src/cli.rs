//! The command line.

#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};

use crate::{
    commands::{
        admit::AdmitArgs,
        audit::AuditArgs,
        campaign::{load::CampaignLoadArgs, show::CampaignShowArgs},
        completions::CompletionsArgs,
        config::ConfigCommandArgs,
        consumers_drain::ConsumersDrainArgs,
        consumers_list::ConsumersListArgs,
        dead::{
            cancel::DeadCancelArgs, drop::DeadDropArgs, export::DeadExportArgs, list::DeadListArgs,
            requeue::DeadRequeueArgs, show::DeadShowArgs,
        },
        doctor::DoctorArgs,
        export::ExportArgs,
        gate::GateArgs,
        limit::{list::LimitListArgs, remove::LimitRemoveArgs, set::LimitSetArgs},
        log::LogArgs,
        migrate::MigrateArgs,
        order_count::OrderCountArgs,
        order_event::OrderEventArgs,
        order_find::OrderFindArgs,
        order_release_unpaid::OrderReleaseUnpaidArgs,
        order_show::OrderShowArgs,
        order_wait::OrderWaitArgs,
        partitions_change::PartitionsChangeArgs,
        partitions_show::PartitionsShowArgs,
        pause::PauseArgs,
        pending_bury::PendingBuryArgs,
        pending_list::PendingListArgs,
        pending_show::PendingShowArgs,
        probe::ProbeArgs,
        prune::PruneArgs,
        rebuild::RebuildArgs,
        reconcile::ReconcileArgs,
        replay::ReplayArgs,
        resume::ResumeArgs,
        status::StatusArgs,
        top::TopArgs,
        voucher_check::VoucherCheckArgs,
        voucher_delist::VoucherDelistArgs,
        voucher_load::VoucherLoadArgs,
        voucher_show::VoucherShowArgs,
        voucher_stock::{StockAddArgs, StockTakeArgs, StockTransferArgs},
        worker::WorkerArgs,
    },
    config::ConfigArgs,
    exit::{EXIT_CODES_HELP, FailureOutput},
};

/// Turns orders admitted in Redis into MySQL orders: at least once from the stream, exactly once in MySQL
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES_HELP, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Flags that change the configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// The roles of the program, in the order of its help; `help.rs` names the groups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put a voucher on sale, change its stock, look at it, or end its sale
    #[command(subcommand)]
    Voucher(VoucherCommand),
    /// Sell vouchers under common limits, each in a region of its own
    #[command(subcommand)]
    Campaign(CampaignCommand),
    /// Set, list or take away limits: who may buy how much in which time
    #[command(subcommand)]
    Limit(LimitCommand),
    /// Admit one order, as a producer does
    Admit(AdmitArgs),
    /// Show, find and count orders, or record an event such as a payment
    #[command(subcommand)]
    Order(OrderCommand),
    /// Show how far the stream is behind
    Status(StatusArgs),
    /// Watch the stream, consumers, lanes and stocks live on a terminal
    Top(TopArgs),
    /// Check both stores and say what to do about what is wrong
    Doctor(DoctorArgs),
    /// Count every order on both sides: is one lost, doubled or oversold?
    Audit(AuditArgs),
    /// Show who changed what with which command
    Log(LogArgs),
    /// Write entries of the stream as lines of JSON, for replay --file
    Export(ExportArgs),
    /// Stop the gate, for one voucher or for all, or the workers
    Pause(PauseArgs),
    /// Resume sales or workers that were paused, or let unpaid orders expire again after a store went back in time
    Resume(ResumeArgs),
    /// Delete old entries of the stream, refusals, events and dead letters that no order needs any more
    Prune(PruneArgs),
    /// Create or take over the MySQL tables
    Migrate(MigrateArgs),
    /// Look at the partitions, or change their list
    #[command(subcommand)]
    Partitions(PartitionsCommand),
    /// Compare each order on both sides while the sale goes on: what differs?
    Reconcile(ReconcileArgs),
    /// Fill Redis from MySQL, the stream and the dead letters, where it is empty or older
    Rebuild(RebuildArgs),
    /// Run entries of the stream or of a file again: what is there already stays as it is
    Replay(ReplayArgs),
    /// Look at entries that were read and not acknowledged, or bury them
    #[command(subcommand)]
    Pending(PendingCommand),
    /// List the consumers of the stream, hand over what dead ones hold, or remove them
    #[command(subcommand)]
    Consumers(ConsumersCommand),
    /// Look at the dead letters, put them back, release their orders, or delete them
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Write the stream's orders to MySQL until told to stop
    Worker(WorkerArgs),
    /// Admit orders over HTTP, for applications without a Redis client, until told to stop
    Gate(GateArgs),
    /// Ask the worker of this machine or container whether it is alive, or ready
    Probe(ProbeArgs),
    /// Print the configuration in effect, passwords hidden
    Config(ConfigCommandArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// What can be done with a voucher.
#[derive(Debug, Subcommand)]
pub enum VoucherCommand {
    /// Put a voucher on sale: its MySQL row, then its Redis keys
    Load(VoucherLoadArgs),
    /// Show what both sides hold of a voucher
    Show(VoucherShowArgs),
    /// Check whether a caller would be admitted now, and if not, by which rule
    Check(VoucherCheckArgs),
    /// Add units to a voucher on sale, on both sides
    Add(StockAddArgs),
    /// Take units from a voucher on sale, on both sides
    Take(StockTakeArgs),
    /// Move units from one region of a campaign to another, on both sides
    Transfer(StockTransferArgs),
    /// End the sale of a voucher for good, on both sides, or remove its keys afterwards
    Delist(VoucherDelistArgs),
}

/// What can be done with campaigns.
#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Put the regions of a campaign on sale
    Load(CampaignLoadArgs),
    /// Show what both sides hold of its regions, and its limits
    Show(CampaignShowArgs),
}

/// What can be done with limits.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Let nobody buy more than this
    Set(LimitSetArgs),
    /// List the limits of a voucher or a campaign
    List(LimitListArgs),
    /// Take a limit away
    Remove(LimitRemoveArgs),
}

/// What can be asked of orders, and said of them.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// Tell one order's whole story: where it is, its fate, and what can be done
    Show(OrderShowArgs),
    /// Find the orders of a user or a voucher, wherever they are
    Find(OrderFindArgs),
    /// Wait until an order is written, or paid, and say what became of it
    Wait(OrderWaitArgs),
    /// Append an event to orders: paid, cancelled, used or refunded
    Event(OrderEventArgs),
    /// Count orders by day or hour, beside the ids that were given out
    Count(OrderCountArgs),
    /// End the unpaid orders of a voucher that are too old: their units are on sale again
    ReleaseUnpaid(OrderReleaseUnpaidArgs),
}

/// What can be done with pending entries.
#[derive(Debug, Subcommand)]
pub enum PendingCommand {
    /// List them: who holds them, for how long, and what is in them
    List(PendingListArgs),
    /// Show one, whole
    Show(PendingShowArgs),
    /// Move entries that shall not be written to the dead letters
    Bury(PendingBuryArgs),
}

/// What can be done with consumers.
#[derive(Debug, Subcommand)]
pub enum ConsumersCommand {
    /// List them: who lives, and what each holds
    List(ConsumersListArgs),
    /// Hand the entries of dead consumers to living workers now; with --remove, remove the consumers afterwards
    Drain(ConsumersDrainArgs),
}

/// What can be done with the partitions of a system.
#[derive(Debug, Subcommand)]
pub enum PartitionsCommand {
    /// Give the system another list of partitions, in a quiet hour
    Change(PartitionsChangeArgs),
    /// Show each, and whether they agree on their list
    Show(PartitionsShowArgs),
}

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// Count them by reason and voucher, and list the newest
    List(DeadListArgs),
    /// Show all that a letter holds
    Show(DeadShowArgs),
    /// Put letters back into the stream, with their history
    Requeue(DeadRequeueArgs),
    /// Cancel the orders of dead letters: release their units and users
    Cancel(DeadCancelArgs),
    /// Delete letters of which nothing can be released
    Drop(DeadDropArgs),
    /// Write letters as lines of JSON
    Export(DeadExportArgs),
}

impl Command {
    /// Who hears of a failure: the log of a service, or the person who typed the command.
    pub fn failure_output(&self) -> FailureOutput {
        match self {
            Self::Worker(_) | Self::Gate(_) => FailureOutput::Log,
            _ => FailureOutput::Person,
        }
    }

    /// Whether it draws on the whole terminal: log lines would tear the picture.
    pub fn is_drawn(&self) -> bool {
        matches!(self, Self::Top(_))
    }
}
