//! The terminal: taken over at the start, and restored at the end.

use std::{
    io,
    ops::{Deref, DerefMut},
    thread,
};

use ratatui::DefaultTerminal;

/// The terminal while the live view uses it: in raw mode, on the alternate screen. Afterwards the terminal is restored,
/// even after an error or a panic.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Puts the terminal into raw mode, on the alternate screen.
    ///
    /// # Errors
    /// When the terminal cannot be set up. In this case, it is restored.
    pub fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // In a panic, the hook has restored the terminal. A second time would move the cursor, and overwrite the
        // message of the panic.
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
