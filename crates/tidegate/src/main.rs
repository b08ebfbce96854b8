//! The entry point of the `tidegate` binary: it parses the command line, loads the configuration, and runs one command.

mod cli;
mod command_line;
mod commands;
mod config;
mod entry_arg;
mod exit;
mod help;
mod invocation;
mod operator;
mod output;
mod partitions;
mod pending;
mod scope;
mod selection;
mod signals;
mod spans;
mod telemetry;
mod times;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
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
    scope::{SystemCommand, in_scope},
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
    // The commands that run until they are stopped have a frame of their own, because the frame of all others is the
    // sum of their needs.
    match &cli.command {
        Command::Worker(args) => commands::worker::run(settings, args).await,
        Command::Gate(args) => commands::gate::run(settings, args).await,
        command => Box::pin(run_once(command, &config)).await,
    }
}

/// Runs a command that ends by itself.
async fn run_once(command: &Command, config: &Config) -> anyhow::Result<Exit> {
    let (settings, system) = (&config.settings, &config.settings.system);
    match command {
        Command::Voucher(VoucherCommand::Load(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Publish(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Schedule(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Show(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Check(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Add(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Take(args)) => in_scope(args, system).await,
        Command::Voucher(VoucherCommand::Transfer(args)) => args.run(system).await,
        Command::Voucher(VoucherCommand::Delist(args)) => in_scope(args, system).await,
        Command::Campaign(CampaignCommand::Load(args)) => args.run(system).await,
        Command::Campaign(CampaignCommand::Show(args)) => args.run(system).await,
        Command::Limit(LimitCommand::Set(args)) => args.run(system).await,
        Command::Limit(LimitCommand::List(args)) => args.run(system).await,
        Command::Limit(LimitCommand::Remove(args)) => args.run(system).await,
        Command::Order(OrderCommand::Show(args)) => args.run(system).await,
        Command::Order(OrderCommand::Find(args)) => in_scope(args, system).await,
        Command::Order(OrderCommand::Wait(args)) => in_scope(args, system).await,
        Command::Order(OrderCommand::Event(args)) => args.run(system).await,
        Command::Order(OrderCommand::Count(args)) => in_scope(args, system).await,
        Command::Order(OrderCommand::ReleaseUnpaid(args)) => in_scope(args, system).await,
        Command::Partitions(PartitionsCommand::Change(args)) => args.run(system).await,
        Command::Partitions(PartitionsCommand::Show(args)) => in_scope(args, system).await,
        Command::Pending(PendingCommand::List(args)) => in_scope(args, system).await,
        Command::Pending(PendingCommand::Show(args)) => in_scope(args, system).await,
        Command::Pending(PendingCommand::Bury(args)) => in_scope(args, system).await,
        Command::Consumers(ConsumersCommand::List(args)) => in_scope(args, system).await,
        Command::Consumers(ConsumersCommand::Drain(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::List(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::Show(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::Requeue(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::Cancel(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::Drop(args)) => in_scope(args, system).await,
        Command::Dead(DeadCommand::Export(args)) => args.run(system).await,
        Command::Admit(args) => in_scope(args, system).await,
        Command::Status(args) => args.run(system).await,
        Command::Top(args) => commands::top::run(settings, args).await,
        Command::Doctor(args) => commands::doctor::run(settings, args).await,
        Command::Audit(args) => args.run(system).await,
        Command::Log(args) => args.run(system).await,
        Command::Export(args) => args.run(system).await,
        Command::Pause(args) => in_scope(args, system).await,
        Command::Resume(args) => in_scope(args, system).await,
        Command::Webhooks(args) => in_scope(args, system).await,
        Command::Prune(args) => in_scope(args, system).await,
        Command::Migrate(args) => args.run(system).await,
        Command::Reconcile(args) => in_scope(args, system).await,
        Command::Rebuild(args) => in_scope(args, system).await,
        Command::Replay(args) => in_scope(args, system).await,
        Command::Probe(args) => commands::probe::run(settings, args).await,
        Command::Config(args) => commands::config::run(config, args),
        Command::Worker(_) | Command::Gate(_) | Command::Completions(_) => unreachable!("not run once"),
    }
}
