//! What the demo shows while it runs: bars on a terminal, lines otherwise.

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
    all_written: Cell<bool>,
    vouchers: u64,
}

struct Bars {
    all: MultiProgress,
    clicks: ProgressBar,
    admitted: ProgressBar,
    written: ProgressBar,
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
                admitted: bar("admitted by Redis", vouchers),
                written: bar("orders in MySQL", vouchers),
                all: all.clone(),
            }
        });
        Self {
            began: Instant::now(),
            bars,
            last_line: Cell::new(Instant::now()),
            all_written: Cell::new(false),
            vouchers: vouchers.into(),
        }
    }

    /// Says something beside the bars.
    pub fn say(&self, what: &str) {
        let line = format!("{:>6.1} s  {what}", self.began.elapsed().as_secs_f64());
        match &self.bars {
            Some(bars) => bars.all.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    pub fn show(&self, sales: &Sales, written: u64) {
        let (clicks, admitted) = (u64::from(sales.clicks()), sales.admitted_count() as u64);
        if let Some(bars) = &self.bars {
            bars.clicks.set_position(clicks);
            bars.admitted.set_position(admitted);
            bars.written.set_position(written);
        } else if !self.all_written.get() && self.last_line.get().elapsed() >= LINE_EVERY {
            self.last_line.set(Instant::now());
            self.say(&format!("{clicks} clicks, {admitted} admitted, {written} orders in MySQL"));
            if written == self.vouchers {
                self.all_written.set(true);
                self.say("all sold and written; the others go on clicking, and are told so");
            }
        }
    }

    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            bars.clicks.abandon();
            bars.admitted.abandon();
            bars.written.abandon();
        }
    }
}
