//! `tidegate top`: a live view on a terminal.

mod draw;
mod facts;
mod grid;
mod looks;
mod screen;
#[cfg(test)]
mod tests;
mod view;
mod wording;
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
use tokio::{sync::mpsc, time::interval};

use self::{facts::Facts, looks::News, screen::Screen, view::View};
use crate::{
    config::Settings,
    exit::{Exit, WrongUsage},
    moment,
    signals::Signals,
};

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --every 5s

q or Ctrl-C quits. Per second: between the last two looks; a dash where it cannot be known. Settled entries are
acknowledged: written, refused or buried. Where a worker of this machine answers on admin.listen, its lanes are shown,
too. What is dim was seen before a store went away. NO_COLOR switches colours off. For programs, and without a
terminal: tidegate status --json";

/// How often one may look: often enough to be live, and no burden for the stores.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(3600);
/// The clock, and for how long a store is away, go on between two looks.
const REDRAW: Duration = Duration::from_secs(1);
/// Looks that may wait until they are drawn.
const WAITING_NEWS: usize = 16;

/// What `tidegate top` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Between two looks: 200ms to 1h
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
    let mut facts = Facts::new(settings, args.every);
    let (sender, mut news) = mpsc::channel(WAITING_NEWS);
    let mut looks = std::pin::pin!(looks::go_on(settings, args.every, sender));
    let mut screen = Screen::open().context("Failed to draw on the terminal")?;
    let mut events = EventStream::new();
    let mut clock = interval(REDRAW);
    loop {
        let view = View::new(&facts, Instant::now(), Timestamp::now());
        screen.draw(|frame| draw::draw(frame, &view)).context("Failed to draw on the terminal")?;
        tokio::select! {
            // A terminal that is gone has no more keys.
            event = events.next() => match event.transpose().context("Failed to read keys")? {
                Some(event) if !quits(&event) => {}
                _ => return Ok(Exit::Ok),
            },
            _ = signals.next() => return Ok(Exit::Ok),
            Some(news) = news.recv() => hear(&mut facts, news),
            () = &mut looks => anyhow::bail!("nobody looks any more"),
            _ = clock.tick() => {}
        }
    }
}

fn hear(facts: &mut Facts, news: News) {
    match news {
        News::Redis(look) => facts.redis.hear(*look),
        News::MySql(look) => facts.mysql.hear(look),
        News::Worker(look) => facts.worker.hear(look),
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

fn parse_every(text: &str) -> Result<Duration, String> {
    let every = moment::parse_span(text)?;
    if EVERY.contains(&every) { Ok(every) } else { Err("give 200ms to 1h".to_owned()) }
}
