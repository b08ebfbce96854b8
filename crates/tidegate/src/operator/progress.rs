//! How far long work is: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressDrawTarget, ProgressStyle};

use tidegate_compare::Progress;

use crate::output::print_note;

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left";

/// A bar on stderr, where that is a terminal. It shows once the total is known, and goes when the work ends.
#[derive(Debug)]
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
}

impl ProgressBar {
    /// Nothing shows yet.
    pub fn new() -> Self {
        Self { bar: indicatif::ProgressBar::hidden() }
    }
}

impl Progress for ProgressBar {
    /// Says how many there are to do, and of what: `entries`.
    fn expect(&self, total: u64, what: &'static str) {
        self.bar.set_position(0);
        self.bar.set_length(total);
        self.bar.set_message(what);
        self.bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is right"));
        // Draws nothing where stderr is no terminal.
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.tick();
    }

    /// So many more are done.
    fn add(&self, done: u64) {
        self.bar.inc(done);
    }

    /// Writes a line to stderr, above the bar.
    fn say(&self, line: &str) {
        self.bar.suspend(|| print_note(line));
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
