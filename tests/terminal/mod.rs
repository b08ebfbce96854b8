//! The program on a pseudo-terminal, as a person has it before them.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::process::Command;

use nix::sys::wait::WaitStatus;
use rexpect::{
    ReadUntil,
    session::{PtySession, spawn_command},
};

/// Longer than anything here takes on a busy machine; waiting ends as soon as the text is there.
const DEADLINE_MS: u64 = 60_000;

/// A program on a terminal of 40 lines and 120 columns. It is killed when dropped.
pub struct Terminal {
    session: PtySession,
}

impl Terminal {
    /// Starts it.
    pub fn start(command: &Command) -> Self {
        let mut sized = Command::new("sh");
        sized.args(["-c", "stty rows 40 cols 120 && exec \"$0\" \"$@\""]);
        sized.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => sized.env(name, value),
                None => sized.env_remove(name),
            };
        }
        let session = spawn_command(sized, Some(DEADLINE_MS)).expect("a terminal");
        Self { session }
    }

    /// Waits until it shows this; answers with what it showed before.
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> String {
        self.session.exp_string(text).unwrap_or_else(|error| panic!("{text:?} is not shown: {error}"))
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.session.send_line(line).expect("it listens");
    }

    /// Presses Ctrl and a letter.
    pub fn presses_control(&mut self, letter: char) {
        self.session.send_control(letter).expect("it listens");
        self.session.flush().expect("it listens");
    }

    /// Says yes to every question; answers as [`Terminal::ends`].
    pub fn says_yes(mut self) -> (i32, String) {
        let mut shown = String::new();
        loop {
            let found = self.session.exp_any(vec![ReadUntil::String("[y/N] ".into()), ReadUntil::EOF]);
            let (before, found) = found.expect("it asks or ends");
            shown += &before;
            shown += &found;
            if found != "[y/N] " {
                return self.ended(shown);
            }
            self.types("y");
        }
    }

    /// Waits for its end; answers with its exit code and with what it showed before.
    pub fn ends(mut self) -> (i32, String) {
        let shown = self.session.exp_eof().expect("it ends");
        self.ended(shown)
    }

    fn ended(self, shown: String) -> (i32, String) {
        match self.session.process().wait().expect("it is our child") {
            WaitStatus::Exited(_, code) => (code, shown),
            status => panic!("it ended with {status:?}: {shown}"),
        }
    }
}
