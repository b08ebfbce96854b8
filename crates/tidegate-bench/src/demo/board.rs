//! The display of the demo while it runs: bars on a terminal, lines otherwise.

use std::{
    cell::Cell,
    io::{IsTerminal, stdout},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::rush::Sales;

const LINE_EVERY: Duration = Duration::from_secs(2);

pub struct Board {
    began: Instant,
    bars: Option<Bars>,
    last_line: Cell<Instant>,
    is_sold_out: Cell<bool>,
}

/// The numbers of orders in MySQL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// All orders that were written.
    pub written: u64,
    pub unpaid: u64,
    pub paid: u64,
}

struct Bars {
    all: MultiProgress,
    clicks: ProgressBar,
    written: ProgressBar,
    paid: ProgressBar,
}

impl Board {
    pub fn new(clicks: u32, vouchers: u32) -> Self {
        let bars = stdout().is_terminal().then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{prefix:<22} {wide_bar} {human_pos:>8} / {human_len}")
                .expect("the template is right");
            let bar = |prefix: &'static str, length: u32| {
                all.add(ProgressBar::new(length.into()).with_style(style.clone()).with_prefix(prefix))
            };
            Bars {
                clicks: bar("clicks", clicks),
                written: bar("orders in MySQL", vouchers),
                paid: bar("paid", vouchers),
                all: all.clone(),
            }
        });
        Self {
            began: Instant::now(),
            bars,
            last_line: Cell::new(Instant::now()),
            is_sold_out: Cell::new(false),
        }
    }

    /// Prints a message above the bars.
    pub fn say(&self, what: &str) {
        let line = format!("{:>6.1} s  {what}", self.began.elapsed().as_secs_f64());
        match &self.bars {
            Some(bars) => bars.all.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    pub fn show(&self, sales: &Sales, Progress { written, unpaid, paid }: Progress) {
        let (clicks, admitted) = (u64::from(sales.clicks()), sales.admitted_count() as u64);
        if let Some(bars) = &self.bars {
            bars.clicks.set_position(clicks);
            // There may be more orders than units, because units of cancelled and expired orders are sold again.
            bars.written.set_length(written.max(bars.written.length().unwrap_or_default()));
            bars.written.set_position(written);
            bars.paid.set_position(paid);
        } else if self.last_line.get().elapsed() >= LINE_EVERY {
            self.last_line.set(Instant::now());
            self.say(&format!(
                "{clicks} clicks, {admitted} admitted; {written} orders in MySQL, {paid} paid, {unpaid} unpaid"
            ));
        }
        if sales.is_sold_out() && !self.is_sold_out.replace(true) {
            self.say("all sold; the other buyers keep clicking, and get units that are cancelled or not paid in time");
        }
    }

    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            bars.clicks.abandon();
            bars.written.abandon();
            bars.paid.abandon();
        }
    }
}
