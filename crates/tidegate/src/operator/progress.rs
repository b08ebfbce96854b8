//! How far long work is: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::tell;

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left";

/// A bar on stderr, where that is a terminal. It shows once the total is known, and goes when the work ends.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Nothing shows yet.
    pub fn new() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Says how many there are to do, and of what: `entries`.
    pub fn expect(&self, total: u64, what: &'static str) {
        self.bar.set_length(total);
        self.bar.set_message(what);
        self.bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is right"));
        // Draws nothing where stderr is no terminal.
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.tick();
    }

    /// So many more are done.
    pub fn add(&self, done: u64) {
        self.bar.inc(done);
    }

    /// Writes a line to stderr, above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| tell(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
