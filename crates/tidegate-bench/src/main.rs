//! `tidegate-bench`: shows what the program does and measures how fast it is, on private servers.

mod bench;
mod demo;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// The demo and the benchmarks of Tidegate.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version)]
enum Command {
    Demo(demo::Demo),
    Bench(bench::Bench),
}

fn main() -> Result<ExitCode> {
    match Command::parse() {
        Command::Demo(demo) => return demo.run(),
        Command::Bench(bench) => bench.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
