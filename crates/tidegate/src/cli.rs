//! The commands of the program, as clap parses them.

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
        voucher_publish::VoucherPublishArgs,
        voucher_schedule::VoucherScheduleArgs,
        voucher_show::VoucherShowArgs,
        voucher_stock::{StockAddArgs, StockTakeArgs, StockTransferArgs},
        webhooks::WebhooksArgs,
        worker::WorkerArgs,
    },
    config::ConfigArgs,
    exit::{EXIT_CODES_HELP, FailureOutput},
};

/// Writes the orders that Redis admits to MySQL: entries are delivered at least once, each order is written exactly
/// once
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = tidegate_worker::VERSION.as_str(), after_help = EXIT_CODES_HELP, arg_required_else_help = true)]
pub struct Cli {
    /// The command that the user typed.
    #[command(subcommand)]
    pub command: Command,
    /// The flags that change the configuration for this command.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// The commands of the program, in the order of `tidegate --help`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Put a voucher on sale, show it, change its stock, or end its sale
    #[command(subcommand)]
    Voucher(VoucherCommand),
    /// Sell the vouchers of several regions under shared limits
    #[command(subcommand)]
    Campaign(CampaignCommand),
    /// Set, list or remove limits on how much a buyer may order within a time, such as a day
    #[command(subcommand)]
    Limit(LimitCommand),
    /// Place one order, as a producer does
    Admit(AdmitArgs),
    /// Show, find and count orders, or record events such as payments
    #[command(subcommand)]
    Order(OrderCommand),
    /// Show the backlog of the workers, the consumers, and the stocks
    Status(StatusArgs),
    /// Watch the stream, its consumers, the workers, and the stocks live on a terminal
    Top(TopArgs),
    /// Check the servers and the settings, and show how to fix each problem
    Doctor(DoctorArgs),
    /// Check in Redis and MySQL that no order is lost, duplicated or oversold
    Audit(AuditArgs),
    /// Show which operator ran which command
    Log(LogArgs),
    /// Write entries of the stream as JSON lines, for tidegate replay --file
    Export(ExportArgs),
    /// Pause the sale of one voucher or of all vouchers, or pause the workers
    Pause(PauseArgs),
    /// Resume paused sales or workers, or let unpaid orders expire again after Redis or MySQL lost data
    Resume(ResumeArgs),
    /// Show the webhooks, pause or resume one, or send results again
    Webhooks(WebhooksArgs),
    /// Delete old stream entries, refused orders, events of orders, and dead letters that are not needed any more
    Prune(PruneArgs),
    /// Create the MySQL tables, or upgrade the ones that exist
    Migrate(MigrateArgs),
    /// Show the partitions, or change their list
    #[command(subcommand)]
    Partitions(PartitionsCommand),
    /// Compare the orders in Redis with the orders in MySQL, also during a sale, and repair differences on request
    Reconcile(ReconcileArgs),
    /// Restore the data of vouchers in Redis from MySQL, the stream and the dead letters
    Rebuild(RebuildArgs),
    /// Process entries of the stream or of a file again; orders that are in MySQL stay unchanged
    Replay(ReplayArgs),
    /// Show entries that were read and not acknowledged, or move them to the dead letters
    #[command(subcommand)]
    Pending(PendingCommand),
    /// List the consumers of the stream, hand over the entries of dead consumers, or remove these consumers
    #[command(subcommand)]
    Consumers(ConsumersCommand),
    /// Show dead letters, requeue them, cancel their orders, or delete them
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Write the orders of the stream to MySQL, until a signal stops the process
    Worker(WorkerArgs),
    /// Admit orders over HTTP for applications without a Redis client, until a signal stops the process
    Gate(GateArgs),
    /// Check whether the worker or the gate on this machine or in this container is alive or ready
    Probe(ProbeArgs),
    /// Print the effective configuration, with passwords hidden
    Config(ConfigCommandArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// The commands for one voucher.
#[derive(Debug, Subcommand)]
pub enum VoucherCommand {
    /// Put a voucher on sale: create its MySQL row, then its Redis keys
    Load(VoucherLoadArgs),
    /// Put a voucher with its begin and end into MySQL, for workers that load it before its begin
    Publish(VoucherPublishArgs),
    /// Change when a sale begins or ends, in MySQL and Redis, also while it is on
    Schedule(VoucherScheduleArgs),
    /// Show the stock, times and orders of a voucher in Redis and in MySQL
    Show(VoucherShowArgs),
    /// Check whether a user would be admitted now, or which rule refuses the order
    Check(VoucherCheckArgs),
    /// Add units to a voucher that is on sale, in MySQL and Redis
    Add(StockAddArgs),
    /// Take units from a voucher that is on sale, in MySQL and Redis
    Take(StockTakeArgs),
    /// Move units from one region of a campaign to another, in MySQL and Redis
    Transfer(StockTransferArgs),
    /// End the sale of a voucher forever, in MySQL and Redis, or remove the Redis keys of an ended sale
    Delist(VoucherDelistArgs),
}

/// The commands for campaigns of several regions.
#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Put the regions of a campaign on sale
    Load(CampaignLoadArgs),
    /// Show the regions of a campaign in Redis and MySQL, and its limits
    Show(CampaignShowArgs),
}

/// The commands for buying limits.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Set a limit: how much a buyer may order within a time, such as a day
    Set(LimitSetArgs),
    /// List the limits of a voucher or a campaign
    List(LimitListArgs),
    /// Remove a limit and its counters
    Remove(LimitRemoveArgs),
}

/// The commands for orders and their events.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// Show all data of an order in both stores, its state, and what to do next
    Show(OrderShowArgs),
    /// Find the orders of a user or a voucher, in every state
    Find(OrderFindArgs),
    /// Wait until an order is written or paid, and print its state
    Wait(OrderWaitArgs),
    /// Append an event to orders: paid, cancelled, used or refunded
    Event(OrderEventArgs),
    /// Count orders by day or hour, and compare the counts with the number of order ids that were created
    Count(OrderCountArgs),
    /// Cancel the overdue unpaid orders of a voucher, so that their units are on sale again
    ReleaseUnpaid(OrderReleaseUnpaidArgs),
}

/// The commands for pending entries.
#[derive(Debug, Subcommand)]
pub enum PendingCommand {
    /// List pending entries: their consumer, their idle time, and their orders
    List(PendingListArgs),
    /// Show one pending entry with all its fields
    Show(PendingShowArgs),
    /// Move entries to the dead letters, so that no worker writes them to MySQL
    Bury(PendingBuryArgs),
}

/// The commands for consumers of the stream.
#[derive(Debug, Subcommand)]
pub enum ConsumersCommand {
    /// List the consumers: the process and the number of pending entries of each consumer
    List(ConsumersListArgs),
    /// Hand the entries of dead consumers to living workers now; with --remove, then remove the dead consumers
    Drain(ConsumersDrainArgs),
}

/// The commands for the partitions of a system.
#[derive(Debug, Subcommand)]
pub enum PartitionsCommand {
    /// Change the list of partitions while all sales are paused
    Change(PartitionsChangeArgs),
    /// Show each partition, and whether all partitions store the same list of partitions
    Show(PartitionsShowArgs),
}

/// The commands for dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// Count dead letters by reason and voucher, and list the newest
    List(DeadListArgs),
    /// Show one dead letter with its reason, history and fields
    Show(DeadShowArgs),
    /// Put dead letters back into the stream, with their history
    Requeue(DeadRequeueArgs),
    /// Cancel the orders of dead letters: their units are on sale again, and their users may order again
    Cancel(DeadCancelArgs),
    /// Delete dead letters whose orders have no units to release
    Drop(DeadDropArgs),
    /// Write dead letters as JSON lines
    Export(DeadExportArgs),
}

impl Command {
    /// The output for a failure of the command: the log of a service, or stderr for the person who typed the command.
    pub fn failure_output(&self) -> FailureOutput {
        match self {
            Self::Worker(_) | Self::Gate(_) => FailureOutput::Log,
            _ => FailureOutput::Person,
        }
    }

    /// Whether the command draws on the whole terminal, so that log lines would damage the view.
    pub fn is_drawn(&self) -> bool {
        matches!(self, Self::Top(_))
    }
}
