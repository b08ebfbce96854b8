//! Tidegate's one binary: parses, configures, and hands over to one role.

mod admin;
mod beside;
mod cli;
mod command_line;
mod commands;
mod config;
mod connect;
mod exit;
mod fleet_pause;
mod handover;
mod help;
mod metrics;
mod moment;
mod operator;
mod output;
mod pending;
mod replay;
mod roster;
mod selection;
mod service;
mod signals;
mod status;
mod telemetry;
mod trace;
mod worker;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};

use crate::{
    cli::{Cli, Command, ConsumersCommand, DeadCommand, OrderCommand, PendingCommand, VoucherCommand},
    config::Config,
    exit::Exit,
};

#[tokio::main]
async fn main() -> ExitCode {
    let matches = help::filled(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let voice = cli.command.voice();
    exit::finish(run(cli).await, voice)
}

async fn run(cli: Cli) -> anyhow::Result<Exit> {
    if let Command::Completions(args) = &cli.command {
        return commands::completions::run(args);
    }
    let config = Config::load(&cli.config, env::vars_os())?;
    let settings = &config.settings;
    if !(cli.command.is_drawn() && io::stderr().is_terminal()) {
        telemetry::init(&settings.log)?;
    }
    match &cli.command {
        Command::Worker(args) => commands::worker::run(settings, args).await,
        Command::Admit(args) => commands::admit::run(settings, args).await,
        Command::Voucher(VoucherCommand::Load(args)) => commands::voucher_load::run(settings, args).await,
        Command::Voucher(VoucherCommand::Add(args)) => commands::voucher_restock::add(settings, args).await,
        Command::Voucher(VoucherCommand::Take(args)) => commands::voucher_restock::take(settings, args).await,
        Command::Voucher(VoucherCommand::Show(args)) => commands::voucher_show::run(settings, args).await,
        Command::Pause(args) => commands::pause::run(settings, args).await,
        Command::Resume(args) => commands::resume::run(settings, args).await,
        Command::Migrate(args) => commands::migrate::run(settings, args).await,
        Command::Doctor(args) => commands::doctor::run(settings, args).await,
        Command::Status(args) => commands::status::run(settings, args).await,
        Command::Top(args) => commands::top::run(settings, args).await,
        Command::Audit(args) => commands::audit::run(settings, args).await,
        Command::Replay(args) => commands::replay::run(settings, args).await,
        Command::Export(args) => commands::export::run(settings, args).await,
        Command::Trim(args) => commands::trim::run(settings, args).await,
        Command::Pending(PendingCommand::List(args)) => commands::pending_list::run(settings, args).await,
        Command::Pending(PendingCommand::Show(args)) => commands::pending_show::run(settings, args).await,
        Command::Pending(PendingCommand::Claim(args)) => commands::pending_claim::run(settings, args).await,
        Command::Pending(PendingCommand::Bury(args)) => commands::pending_bury::run(settings, args).await,
        Command::Consumers(ConsumersCommand::List(args)) => {
            commands::consumers_list::run(settings, args).await
        }
        Command::Consumers(ConsumersCommand::Remove(args)) => {
            commands::consumers_remove::run(settings, args).await
        }
        Command::Order(OrderCommand::Show(args)) => commands::order_show::run(settings, args).await,
        Command::Order(OrderCommand::Find(args)) => commands::order_find::run(settings, args).await,
        Command::Dead(DeadCommand::List(args)) => commands::dead::list::run(settings, args).await,
        Command::Dead(DeadCommand::Show(args)) => commands::dead::show::run(settings, args).await,
        Command::Dead(DeadCommand::Requeue(args)) => commands::dead::requeue::run(settings, args).await,
        Command::Dead(DeadCommand::Cancel(args)) => commands::dead::cancel::run(settings, args).await,
        Command::Dead(DeadCommand::Drop(args)) => commands::dead::drop::run(settings, args).await,
        Command::Dead(DeadCommand::Export(args)) => commands::dead::export::run(settings, args).await,
        Command::Log(args) => commands::log::run(settings, args).await,
        Command::Probe(args) => commands::probe::run(settings, args).await,
        Command::Config(args) => commands::config::run(&config, args),
        Command::Completions(args) => commands::completions::run(args),
    }
}
