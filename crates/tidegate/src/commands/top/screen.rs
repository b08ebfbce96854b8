//! The terminal, taken and released.

use std::{
    io,
    ops::{Deref, DerefMut},
    thread,
};

use ratatui::DefaultTerminal;

/// A terminal in raw mode, on a screen of its own. However it ends (dropped by an error, or by a panic, for which
/// ratatui sets a hook), the person finds the terminal as it was.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// When the terminal refuses; it is released then.
    pub fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // In a panic the hook has done so. A second time would move the cursor, and what is told of it be written over.
        if !thread::panicking() {
            ratatui::restore();
        }
    }
}

impl Deref for Screen {
    type Target = DefaultTerminal;

    fn deref(&self) -> &DefaultTerminal {
        &self.terminal
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }
}
