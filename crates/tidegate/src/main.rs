//! Tidegate's one binary: parses, configures, and hands over to one role.

mod cli;
mod command_line;
mod commands;
mod config;
mod entry_arg;
mod exit;
mod help;
mod invocation;
mod moment;
mod operator;
mod output;
mod partitions;
mod pending;
mod selection;
mod signals;
mod telemetry;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
    slice,
};

use clap::{CommandFactory, FromArgMatches};
use tokio::runtime::Runtime;

use crate::{
    cli::{
        CampaignCommand, Cli, Command, ConsumersCommand, DeadCommand, LimitCommand, OrderCommand,
        PartitionsCommand, PendingCommand, VoucherCommand,
    },
    config::Config,
    exit::Exit,
    invocation::Invocation,
    partitions::{over_all, over_any, place_of},
};

fn main() -> ExitCode {
    let command = help::grouped(help::filled(Cli::command()));
    let matches = command.clone().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let program = env::args().next().unwrap_or_else(|| "tidegate".to_owned());
    Invocation::new(program, &cli.config, &command, &matches).make_current();
    let failure_output = cli.command.failure_output();
    let runtime = Runtime::new().expect("the system has threads for the runtime");
    let code = exit::finish(runtime.block_on(run(cli)), failure_output);
    exit::shut_down(runtime);
    code
}

async fn run(cli: Cli) -> anyhow::Result<Exit> {
    if let Command::Completions(args) = &cli.command {
        return commands::completions::run(args, &mut Cli::command());
    }
    let config = Config::load(&cli.config, env::vars_os())?;
    let settings = &config.settings;
    if !(cli.command.is_drawn() && io::stderr().is_terminal()) {
        telemetry::init(&settings.log)?;
    }
    // Those that stay have a frame of their own: that of all the others is the sum of what each of them needs.
    match &cli.command {
        Command::Worker(args) => commands::worker::run(settings, args).await,
        Command::Gate(args) => commands::gate::run(settings, args).await,
        command => Box::pin(run_once(command, &config)).await,
    }
}

/// Runs a command that ends by itself.
async fn run_once(command: &Command, config: &Config) -> anyhow::Result<Exit> {
    let settings = &config.settings;
    let system = &settings.system;
    match command {
        Command::Admit(args) => commands::admit::run(system.of_voucher(args.voucher)?, args).await,
        Command::Voucher(VoucherCommand::Load(args)) => {
            commands::voucher_load::run(system.of_voucher(args.voucher)?, args).await
        }
        Command::Voucher(VoucherCommand::Add(args)) => {
            commands::voucher_stock::add(system.of_voucher(args.voucher)?, args).await
        }
        Command::Voucher(VoucherCommand::Take(args)) => {
            commands::voucher_stock::take(system.of_voucher(args.voucher)?, args).await
        }
        Command::Voucher(VoucherCommand::Transfer(args)) => {
            commands::voucher_stock::transfer(system, args).await
        }
        Command::Voucher(VoucherCommand::Show(args)) => {
            commands::voucher_show::run(system.of_voucher(args.voucher)?, args).await
        }
        Command::Voucher(VoucherCommand::Check(args)) => {
            commands::voucher_check::run(system.of_voucher(args.voucher)?, args).await
        }
        Command::Voucher(VoucherCommand::Delist(args)) => {
            commands::voucher_delist::run(system.of_voucher(args.voucher)?, args).await
        }
        Command::Campaign(CampaignCommand::Load(args)) => commands::campaign::load::run(system, args).await,
        Command::Campaign(CampaignCommand::Show(args)) => commands::campaign::show::run(system, args).await,
        Command::Limit(LimitCommand::Set(args)) => commands::limit::set::run(system, args).await,
        Command::Limit(LimitCommand::List(args)) => commands::limit::list::run(system, args).await,
        Command::Limit(LimitCommand::Remove(args)) => commands::limit::remove::run(system, args).await,
        Command::Pause(args) => {
            over_any(&system.chosen(args.voucher)?, async |system| commands::pause::run(system, args).await)
                .await
        }
        Command::Resume(args) => {
            over_all(&system.chosen(args.voucher)?, async |system| commands::resume::run(system, args).await)
                .await
        }
        Command::Migrate(args) => commands::migrate::run(system, args).await,
        Command::Doctor(args) => commands::doctor::run(system, args).await,
        Command::Status(args) => commands::status::run(system, args).await,
        Command::Top(args) => commands::top::run(settings, args).await,
        Command::Audit(args) => commands::audit::run(&system.chosen(args.voucher)?, args).await,
        Command::Reconcile(args) => {
            over_all(system, async |system| commands::reconcile::run(system, args).await).await
        }
        Command::Rebuild(args) => {
            over_all(&system.chosen(args.voucher)?, async |system| commands::rebuild::run(system, args).await)
                .await
        }
        Command::Replay(args) => {
            over_all(system, async |system| commands::replay::run(system, args).await).await
        }
        Command::Export(args) => commands::export::run(system, args).await,
        Command::Prune(args) => {
            over_all(system, async |system| commands::prune::run(system, args).await).await
        }
        Command::Pending(PendingCommand::List(args)) => {
            over_all(system, async |system| commands::pending_list::run(system, args).await).await
        }
        Command::Pending(PendingCommand::Show(args)) => {
            let chosen = entry_arg::partition_of(slice::from_ref(&args.entry), system)?;
            over_all(&chosen, async |system| commands::pending_show::run(system, args).await).await
        }
        Command::Pending(PendingCommand::Bury(args)) => {
            let chosen = entry_arg::partition_of(&args.entries, system)?;
            over_all(&chosen, async |system| commands::pending_bury::run(system, args).await).await
        }
        Command::Consumers(ConsumersCommand::List(args)) => {
            over_all(system, async |system| commands::consumers_list::run(system, args).await).await
        }
        Command::Consumers(ConsumersCommand::Drain(args)) => {
            over_all(system, async |system| commands::consumers_drain::run(system, args).await).await
        }
        Command::Order(OrderCommand::Show(args)) => commands::order_show::run(system, args).await,
        Command::Order(OrderCommand::Find(args)) => {
            over_any(system, async |system| commands::order_find::run(system, args).await).await
        }
        Command::Order(OrderCommand::Wait(args)) => {
            place_of(system, args.order, args.voucher)
                .await?
                .conclude(async |system| commands::order_wait::run(system, args).await)
                .await
        }
        Command::Order(OrderCommand::Event(args)) => commands::order_event::run(system, args).await,
        Command::Order(OrderCommand::Count(args)) => {
            over_all(&system.chosen(args.voucher)?, async |system| {
                commands::order_count::run(system, args).await
            })
            .await
        }
        Command::Order(OrderCommand::ReleaseUnpaid(args)) => {
            commands::order_release_unpaid::run(system.of_voucher(args.voucher)?, args).await
        }
        Command::Dead(DeadCommand::List(args)) => {
            over_all(system, async |system| commands::dead::list::run(system, args).await).await
        }
        Command::Dead(DeadCommand::Show(args)) => {
            let chosen = entry_arg::partition_of(slice::from_ref(&args.letter), system)?;
            over_all(&chosen, async |system| commands::dead::show::run(system, args).await).await
        }
        Command::Dead(DeadCommand::Requeue(args)) => {
            let chosen = entry_arg::partition_of(&args.selection.letters, system)?;
            over_all(&chosen, async |system| commands::dead::requeue::run(system, args).await).await
        }
        Command::Dead(DeadCommand::Cancel(args)) => {
            let chosen = entry_arg::partition_of(&args.selection.letters, system)?;
            over_all(&chosen, async |system| commands::dead::cancel::run(system, args).await).await
        }
        Command::Dead(DeadCommand::Drop(args)) => {
            let chosen = entry_arg::partition_of(&args.selection.letters, system)?;
            over_all(&chosen, async |system| commands::dead::drop::run(system, args).await).await
        }
        Command::Dead(DeadCommand::Export(args)) => {
            let chosen = entry_arg::partition_of(&args.selection.letters, system)?;
            commands::dead::export::run(&chosen, args).await
        }
        Command::Partitions(PartitionsCommand::Change(args)) => {
            commands::partitions_change::run(system, args).await
        }
        Command::Partitions(PartitionsCommand::Show(args)) => {
            over_all(system, async |system| commands::partitions_show::run(system, args).await).await
        }
        Command::Log(args) => commands::log::run(system, args).await,
        Command::Probe(args) => commands::probe::run(settings, args).await,
        Command::Config(args) => commands::config::run(config, args),
        Command::Worker(_) | Command::Gate(_) | Command::Completions(_) => unreachable!("not run once"),
    }
}
