//! The command `tidegate top`: a live view on a terminal.

mod alerts;
mod draw;
mod format;
mod grid;
mod observations;
mod overview;
mod polling;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod worker_page;

use std::{
    env, fs,
    io::{self, IsTerminal},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use jiff::Timestamp;
use secrecy::SecretString;
use tidegate_operations::SystemSettings;
use tokio::{sync::mpsc, time::interval};

use self::{draw::Paging, observations::Observations, overview::overview, screen::Screen, view::TopView};
use crate::{
    config::Settings,
    exit::{Exit, WrongUsage},
    signals::Signals,
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --every 5s

Press q or Ctrl-C to quit. A rate is computed from the last two readings; a dash means that no rate is known. Settled
entries are acknowledged: written, refused or moved to the dead letters. If a worker of this machine answers on
admin.listen, its loops (lanes) are shown. Dim text is old data. NO_COLOR switches colours off.

In a system with partitions, the first page shows all partitions. Tab and Shift-Tab move through the partitions, Esc
returns to the first page. In programs, and without a terminal, use tidegate status --json";

/// The range of the polling interval: short enough to be live, and long enough not to burden the stores.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);
/// The interval between redraws of the clock and of outage durations, between two polls.
const REDRAW: Duration = Duration::from_secs(1);
/// The most poll results that may wait to be drawn.
const QUEUE: usize = 16;

/// The arguments of `tidegate top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// The time between two readings: 200ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    every: Duration,
    /// A file with a token that the worker accepts, with the scope `read`; omit this if the worker has no tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TopArgs {
    /// Reads the token for the worker of this machine from its file.
    fn token(&self) -> anyhow::Result<Option<SecretString>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let token = fs::read_to_string(path);
        let token = token.with_context(|| format!("Failed to read the token in {}", path.display()))?;
        Ok(Some(token.trim().into()))
    }
}

/// Shows the live view of the command `tidegate top` until `q`, Ctrl-C or a signal.
///
/// # Errors
/// When there is no terminal, or drawing on it fails.
pub async fn run(settings: &Settings, args: &TopArgs) -> anyhow::Result<Exit> {
    if !has_terminal() {
        let hint = "tidegate top needs a terminal (over ssh, use `ssh -t`). Without a terminal, use \
                    `tidegate status --json`";
        return Err(WrongUsage(hint.to_owned()).into());
    }
    let token = args.token()?;
    let mut signals = Signals::listen()?;
    let of_partition = |system: &SystemSettings| {
        (system.partition().tag().unwrap_or_default().to_owned(), Observations::new(system, args.every))
    };
    let mut partitions: Vec<_> = settings.system.partitions().iter().map(of_partition).collect();
    let paging = if partitions.len() > 1 { Paging::Many } else { Paging::One };
    // The overview is page 0, then each partition has a page.
    let mut page = 0;
    let (sender, mut results) = mpsc::channel(QUEUE);
    let mut polling = std::pin::pin!(polling::poll_all(settings, (args.every, token), sender));
    let mut screen = Screen::open().context("Failed to draw on the terminal")?;
    let mut events = EventStream::new();
    let mut clock = interval(REDRAW);
    loop {
        let (now, time) = (Instant::now(), Timestamp::now());
        let view = match (paging, page) {
            (Paging::One, _) => TopView::new(&partitions[0].1, now, time),
            (Paging::Many, 0) => overview(&partitions, now, time),
            (Paging::Many, page) => TopView::new(&partitions[page - 1].1, now, time),
        };
        screen.draw(|frame| draw::draw(frame, &view, paging)).context("Failed to draw on the terminal")?;
        tokio::select! {
            // A terminal that is gone sends no more keys.
            event = events.next() => match event.transpose().context("Failed to read keys")? {
                Some(event) if !quits(&event) => page = turned(&event, page, partitions.len() + 1),
                _ => return Ok(Exit::Ok),
            },
            _ = signals.next() => return Ok(Exit::Ok),
            Some((at, poll)) = results.recv() => partitions[at].1.record(poll),
            () = &mut polling => anyhow::bail!("the polling of the stores has ended unexpectedly"),
            _ = clock.tick() => {}
        }
    }
}

fn has_terminal() -> bool {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let is_quit = match key.code {
        KeyCode::Char('q' | 'Q') => !has_control,
        // A terminal in raw mode does not turn this key into a signal.
        KeyCode::Char('c' | 'C') => has_control,
        _ => false,
    };
    is_quit && key.kind == KeyEventKind::Press
}

/// The page to show after a key.
fn turned(event: &Event, page: usize, pages: usize) -> usize {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Press => page,
        Event::Key(key) => match key.code {
            KeyCode::Tab | KeyCode::Right | KeyCode::Down => (page + 1) % pages,
            KeyCode::BackTab | KeyCode::Left | KeyCode::Up => (page + pages - 1) % pages,
            KeyCode::Esc | KeyCode::Home => 0,
            _ => page,
        },
        _ => page,
    }
}

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = times::parse_span(text)?;
    if EVERY.contains(&every) { Ok(every) } else { Err("give a time from 200ms to 1h".to_owned()) }
}
