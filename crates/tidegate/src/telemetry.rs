//! The log on stderr: text on a terminal, JSON otherwise. Data on stdout stays clean.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    config::{LogFormat, LogSettings},
    exit::WrongUsage,
};

/// The filter for the clients' own warnings (slow statements, reconnects), which are not log lines of Tidegate. The
/// code that handles an outage logs it twice, at its start and at its end; the code that refuses a server logs that.
const QUIET: &str = "sqlx=error,sqlx_core::pool=off,fred=off";

/// Starts the log with these settings. If the variable RUST_LOG is set, it overrides the setting `log.level`.
///
/// # Errors
/// When RUST_LOG is no filter.
pub fn init(settings: &LogSettings) -> anyhow::Result<()> {
    let rust_log = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let level = rust_log.unwrap_or_else(|| settings.level.clone());
    let filter = EnvFilter::try_new(format!("{QUIET},{level}"))
        .map_err(|error| WrongUsage(format!("the variable RUST_LOG is no valid log filter: {error}")))?;
    let registry = tracing_subscriber::registry().with(filter);
    let started = if is_json(settings.format) {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
    } else {
        let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        registry.with(fmt::layer().with_ansi(ansi).with_writer(io::stderr)).try_init()
    };
    started.context("Failed to start the log")
}

fn is_json(format: LogFormat) -> bool {
    match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    }
}
