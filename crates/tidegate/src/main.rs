//! Tidegate's one binary: parses, configures, and hands over to one role.

mod cli;
mod command_line;
mod commands;
mod config;
mod exit;
mod help;
mod invocation;
mod moment;
mod operator;
mod output;
mod pending;
mod selection;
mod signals;
mod telemetry;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};

use crate::{
    cli::{
        Cli, Command, ConsumersCommand, DeadCommand, ExpirationsCommand, OrderCommand, OrdersCommand,
        PendingCommand, VoucherCommand,
    },
    config::Config,
    exit::Exit,
    invocation::Invocation,
};

#[tokio::main]
async fn main() -> ExitCode {
    let command = help::filled(Cli::command());
    let matches = command.clone().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let program = env::args().next().unwrap_or_else(|| "tidegate".to_owned());
    Invocation::new(program, &cli.config, &command, &matches).make_current();
    let failure_output = cli.command.failure_output();
    exit::finish(run(cli).await, failure_output)
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
    match &cli.command {
        Command::Worker(args) => commands::worker::run(settings, args).await,
        Command::Admit(args) => commands::admit::run(settings.system.only()?, args).await,
        Command::Voucher(VoucherCommand::Load(args)) => {
            commands::voucher_load::run(settings.system.only()?, args).await
        }
        Command::Voucher(VoucherCommand::Add(args)) => {
            commands::voucher_restock::add(settings.system.only()?, args).await
        }
        Command::Voucher(VoucherCommand::Take(args)) => {
            commands::voucher_restock::take(settings.system.only()?, args).await
        }
        Command::Voucher(VoucherCommand::Show(args)) => {
            commands::voucher_show::run(settings.system.only()?, args).await
        }
        Command::Voucher(VoucherCommand::Delist(args)) => {
            commands::voucher_delist::run(settings.system.only()?, args).await
        }
        Command::Voucher(VoucherCommand::RemoveKeys(args)) => {
            commands::voucher_remove_keys::run(settings.system.only()?, args).await
        }
        Command::Pause(args) => commands::pause::run(settings.system.only()?, args).await,
        Command::Resume(args) => commands::resume::run(settings.system.only()?, args).await,
        Command::Migrate(args) => commands::migrate::run(settings.system.only()?, args).await,
        Command::Doctor(args) => commands::doctor::run(settings.system.only()?, args).await,
        Command::Status(args) => commands::status::run(settings.system.only()?, args).await,
        Command::Top(args) => commands::top::run(settings, args).await,
        Command::Audit(args) => commands::audit::run(settings.system.only()?, args).await,
        Command::Reconcile(args) => commands::reconcile::run(settings.system.only()?, args).await,
        Command::Rebuild(args) => commands::rebuild::run(settings.system.only()?, args).await,
        Command::Replay(args) => commands::replay::run(settings.system.only()?, args).await,
        Command::Export(args) => commands::export::run(settings.system.only()?, args).await,
        Command::Trim(args) => commands::trim::run(settings.system.only()?, args).await,
        Command::Purge(args) => commands::purge::run(settings.system.only()?, args).await,
        Command::Pending(PendingCommand::List(args)) => {
            commands::pending_list::run(settings.system.only()?, args).await
        }
        Command::Pending(PendingCommand::Show(args)) => {
            commands::pending_show::run(settings.system.only()?, args).await
        }
        Command::Pending(PendingCommand::Claim(args)) => {
            commands::pending_claim::run(settings.system.only()?, args).await
        }
        Command::Pending(PendingCommand::Bury(args)) => {
            commands::pending_bury::run(settings.system.only()?, args).await
        }
        Command::Consumers(ConsumersCommand::List(args)) => {
            commands::consumers_list::run(settings.system.only()?, args).await
        }
        Command::Consumers(ConsumersCommand::Remove(args)) => {
            commands::consumers_remove::run(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Show(args)) => {
            commands::order_show::run(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Find(args)) => {
            commands::order_find::run(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Wait(args)) => {
            commands::order_wait::run(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Pay(args)) => {
            commands::order_event::pay(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Cancel(args)) => {
            commands::order_event::cancel(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Use(args)) => {
            commands::order_event::note_use(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Refund(args)) => {
            commands::order_event::refund(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::Refunded(args)) => {
            commands::order_event::refunded(settings.system.only()?, args).await
        }
        Command::Order(OrderCommand::RefundFailed(args)) => {
            commands::order_event::refund_failed(settings.system.only()?, args).await
        }
        Command::Orders(OrdersCommand::ReleaseUnpaid(args)) => {
            commands::orders_release_unpaid::run(settings.system.only()?, args).await
        }
        Command::Expirations(ExpirationsCommand::Show(args)) => {
            commands::expirations_show::run(settings.system.only()?, args).await
        }
        Command::Expirations(ExpirationsCommand::Resume(args)) => {
            commands::expirations_resume::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::List(args)) => {
            commands::dead::list::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::Show(args)) => {
            commands::dead::show::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::Requeue(args)) => {
            commands::dead::requeue::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::Cancel(args)) => {
            commands::dead::cancel::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::Drop(args)) => {
            commands::dead::drop::run(settings.system.only()?, args).await
        }
        Command::Dead(DeadCommand::Export(args)) => {
            commands::dead::export::run(settings.system.only()?, args).await
        }
        Command::Log(args) => commands::log::run(settings.system.only()?, args).await,
        Command::Probe(args) => commands::probe::run(settings, args).await,
        Command::Config(args) => commands::config::run(&config, args),
        Command::Completions(args) => commands::completions::run(args, &mut Cli::command()),
    }
}
