//! `tidegate-lab`: servers to play with, next to the code.

mod commands;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use commands::{bench, demo, down, up};

/// Private Redis and MySQL servers for trying Tidegate out.
#[derive(Debug, Parser)]
#[command(name = "tidegate-lab", version)]
enum Command {
    Up(up::Up),
    Down(down::Down),
    Demo(demo::Demo),
    Bench(bench::Bench),
}

fn main() -> Result<ExitCode> {
    match Command::parse() {
        Command::Up(up) => up.run()?,
        Command::Down(down) => down.run()?,
        Command::Demo(demo) => return demo.run(),
        Command::Bench(bench) => bench.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
