//! `tidegate top`: a live view on a terminal.

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
    env,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use jiff::Timestamp;
use tidegate_operations::SystemSettings;
use tokio::{sync::mpsc, time::interval};

use self::{draw::Paging, observations::Observations, overview::overview, screen::Screen, view::TopView};
use crate::{
    config::Settings,
    exit::{Exit, WrongUsage},
    times,
    signals::Signals,
};

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --every 5s

q or Ctrl-C quits. Rates are between the last two readings; a dash where there is none. Settled
entries are acknowledged: written, refused or buried. If a worker of this machine answers on
admin.listen, its lanes are shown as well. Dim text was read before a store went away. NO_COLOR
switches colours off. In a system with partitions it begins with all of them; Tab and Shift-Tab
turn to each of them and back, Esc to the beginning. For programs, and without a terminal: tidegate status --json";

/// How often the stores may be polled: often enough to be live, and no burden for them.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);
/// The clock, and for how long a store is away, are drawn anew between two polls.
const REDRAW: Duration = Duration::from_secs(1);
/// Polls that may wait until they are drawn.
const QUEUE: usize = 16;

/// What `tidegate top` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Between two readings: 200ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    every: Duration,
}

/// Shows what can be seen, until `q`, Ctrl-C or a signal.
///
/// # Errors
/// When there is no terminal, or it fails.
pub async fn run(settings: &Settings, args: &TopArgs) -> anyhow::Result<Exit> {
    if !has_terminal() {
        let hint = "top draws on a terminal, and there is none (over ssh, `ssh -t` makes one); without, use \
                    `tidegate status --json`";
        return Err(WrongUsage(hint.to_owned()).into());
    }
    let mut signals = Signals::listen()?;
    let of_partition = |system: &SystemSettings| {
        (system.partition().tag().unwrap_or_default().to_owned(), Observations::new(system, args.every))
    };
    let mut partitions: Vec<_> = settings.system.partitions().iter().map(of_partition).collect();
    let paging = if partitions.len() > 1 { Paging::Many } else { Paging::One };
    // The overview, then each partition.
    let mut page = 0;
    let (sender, mut results) = mpsc::channel(QUEUE);
    let mut polling = std::pin::pin!(polling::poll_all(settings, args.every, sender));
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
            // A terminal that is gone has no more keys.
            event = events.next() => match event.transpose().context("Failed to read keys")? {
                Some(event) if !quits(&event) => page = turned(&event, page, partitions.len() + 1),
                _ => return Ok(Exit::Ok),
            },
            _ = signals.next() => return Ok(Exit::Ok),
            Some((at, poll)) = results.recv() => partitions[at].1.record(poll),
            () = &mut polling => anyhow::bail!("polling has ended"),
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
        // A raw terminal makes no signal of it.
        KeyCode::Char('c' | 'C') => has_control,
        _ => false,
    };
    is_quit && key.kind == KeyEventKind::Press
}

/// The page that is shown after a key.
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
    if EVERY.contains(&every) { Ok(every) } else { Err("give 200ms to 1h".to_owned()) }
}
