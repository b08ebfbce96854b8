//! The program `tidegate-lab`: private servers for development.

mod commands;

use anyhow::Result;
use clap::Parser;

use commands::{down, up};

/// Private Redis and MySQL servers for trying Tidegate out.
#[derive(Debug, Parser)]
#[command(name = "tidegate-lab", version)]
enum Command {
    Up(up::Up),
    Down(down::Down),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Up(up) => up.run(),
        Command::Down(down) => down.run(),
    }
}
