//! The program on a pseudo-terminal, as an operator sees it.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    num::NonZeroU16,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::{signal::Signal, wait::WaitStatus};
use rexpect::{
    ReadUntil,
    session::{PtySession, spawn_command},
};

/// Longer than any step takes on a busy machine. Waiting ends as soon as the text appears.
const DEADLINE_MS: u64 = 60_000;

/// The time after which an unchanged picture counts as complete.
const DRAWN: Duration = Duration::from_millis(60);

/// A program on a terminal. It is killed when dropped.
pub struct Terminal {
    session: PtySession,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a program on a terminal of 40 lines and 120 columns.
    pub fn start(command: &Command) -> Self {
        Self::start_sized(command, 40, 120)
    }

    /// Starts a program on a terminal of this size.
    pub fn start_sized(command: &Command, rows: u16, columns: u16) -> Self {
        let mut sized = Command::new("sh");
        sized.args(["-c", &format!("stty rows {rows} cols {columns} && exec \"$0\" \"$@\"")]);
        sized.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => sized.env(name, value),
                None => sized.env_remove(name),
            };
        }
        let session = spawn_command(sized, Some(DEADLINE_MS)).expect("a terminal");
        Self { session, screen: vt100::Parser::new(size(rows), size(columns), 0) }
    }

    /// Waits until the terminal shows this text, and returns the text before it.
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> String {
        self.session.exp_string(text).unwrap_or_else(|error| panic!("{text:?} is not shown: {error}"))
    }

    /// The current screen, for programs that draw.
    pub fn screen(&mut self) -> &vt100::Screen {
        while let Some(byte) = self.session.try_read() {
            // The session returns every byte as a character of its own.
            self.screen.process(&[u8::try_from(byte).expect("a byte")]);
        }
        self.screen.screen()
    }

    /// Waits until the screen shows what is wanted, and a moment longer, because the picture may be incomplete. Returns
    /// its lines.
    #[track_caller]
    pub fn draws(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let began = Instant::now();
        let (mut last, mut since) = (Vec::new(), began);
        loop {
            let text = self.screen().contents();
            let lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
            if lines != last {
                (last, since) = (lines.clone(), Instant::now());
            }
            if is_so(&lines) && since.elapsed() >= DRAWN {
                return lines;
            }
            let is_late = began.elapsed() > Duration::from_millis(DEADLINE_MS);
            assert!(!is_late, "the screen does not show {what}: {lines:#?}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        self.session.send_line(line).expect("it listens");
    }

    /// Presses a key.
    pub fn presses(&mut self, key: char) {
        self.session.send(&key.to_string()).expect("it listens");
        self.session.flush().expect("it listens");
    }

    /// Presses Ctrl and a letter.
    pub fn presses_control(&mut self, letter: char) {
        self.session.send_control(letter).expect("it listens");
        self.session.flush().expect("it listens");
    }

    /// Answers yes to every question. Returns the same values as [`Terminal::ends`].
    pub fn says_yes(mut self) -> (i32, String) {
        let mut shown = String::new();
        loop {
            let found = self.session.exp_any(vec![ReadUntil::String("[y/N] ".into()), ReadUntil::EOF]);
            let (before, found) = found.expect("it asks or ends");
            shown += &before;
            shown += &found;
            if found != "[y/N] " {
                return (self.code(&shown), shown);
            }
            self.types("y");
        }
    }

    /// Sends a signal to the program.
    pub fn signal(&mut self, signal: Signal) {
        self.session.process_mut().signal(signal).expect("it is our child");
    }

    /// Changes the size of the window.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.stty(&["rows", &rows.to_string(), "cols", &columns.to_string()]);
        self.screen.set_size(size(rows), size(columns));
    }

    /// Whether the terminal is in line mode, as a shell expects it.
    pub fn is_cooked(&self) -> bool {
        self.stty(&["-a"]).split_whitespace().any(|word| word == "icanon")
    }

    /// Waits for the end of the program. Returns its exit code and the text before.
    pub fn ends(mut self) -> (i32, String) {
        let shown = self.session.exp_eof().expect("it ends");
        (self.code(&shown), shown)
    }

    /// Waits for the end of the program by a signal. Returns the signal and the text before.
    pub fn ends_by_signal(mut self) -> (Signal, String) {
        let shown = self.session.exp_eof().expect("it ends");
        match self.session.process().wait() {
            Ok(WaitStatus::Signaled(_, signal, _)) => (signal, shown),
            status => panic!("{status:?} is no signal: {shown}"),
        }
    }

    /// Waits for the end of the program. Returns its exit code and the terminal.
    pub fn leaves(mut self) -> (i32, Self) {
        let shown = self.session.exp_eof().expect("it ends");
        let bytes: Vec<u8> = shown.chars().map(|byte| u8::try_from(byte).expect("a byte")).collect();
        self.screen.process(&bytes);
        (self.code(&shown), self)
    }

    fn code(&self, shown: &str) -> i32 {
        match self.session.process().wait().expect("it is our child") {
            WaitStatus::Exited(_, code) => code,
            status => panic!("it ended with {status:?}: {shown}"),
        }
    }

    fn stty(&self, args: &[&str]) -> String {
        let terminal = self.session.process().get_file_handle().expect("a terminal");
        let output = Command::new("stty").args(args).stdin(Stdio::from(terminal)).output();
        let output = output.expect("stty runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a size")
}
