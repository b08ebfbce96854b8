//! The progress of long work: a bar on a terminal, nothing elsewhere.

use indicatif::{ProgressDrawTarget, ProgressStyle};

use tidegate_compare::Progress;

use crate::output::print_note;

const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left";

/// A progress bar on stderr if stderr is a terminal. It appears when the total is known, and disappears when the work
/// ends.
#[derive(Debug)]
pub struct ProgressBar {
    bar: indicatif::ProgressBar,
}

impl ProgressBar {
    /// Creates a progress bar that is still hidden.
    pub fn new() -> Self {
        Self { bar: indicatif::ProgressBar::hidden() }
    }
}

impl Progress for ProgressBar {
    /// Sets how many items there are to do, and what they are, such as `entries`.
    fn expect(&self, total: u64, what: &'static str) {
        self.bar.set_position(0);
        self.bar.set_length(total);
        self.bar.set_message(what);
        self.bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is right"));
        // This draws nothing if stderr is no terminal.
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar.tick();
    }

    /// Adds to the number of items that are done.
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
