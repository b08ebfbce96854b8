//! Asking before something is changed.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;

use crate::exit::WrongUsage;
use tidegate_operations::text::printable_lines;

/// Shows what would be done and asks, on stderr: stdout is for data. Everything but `y` and `yes` is a no.
///
/// # Errors
/// When there is no terminal: a script must not hang on a question that nobody sees.
pub fn ask(plan: &str, question: &str) -> anyhow::Result<bool> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let message = format!(
            "{question} There is no terminal to ask on, so nothing was changed: look with --dry-run, then say --yes"
        );
        return Err(WrongUsage(message).into());
    }
    write!(stderr, "{} [y/N] ", printable_lines(&format!("{plan}\n{question}"))).context("Failed to ask")?;
    stderr.flush().context("Failed to ask")?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).context("Failed to read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
