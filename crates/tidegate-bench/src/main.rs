//! The program `tidegate-bench`: a demo and benchmarks of Tidegate on private servers.

#[cfg(feature = "bench")]
mod bench;
mod demo;
mod program;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// The demo and the benchmarks of Tidegate.
#[derive(Debug, Parser)]
#[command(name = "tidegate-bench", version)]
enum Command {
    Demo(demo::Demo),
    #[cfg(feature = "bench")]
    Bench(bench::Bench),
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BareHandler(bench::BareHandler),
}

fn main() -> Result<ExitCode> {
    match Command::parse() {
        Command::Demo(demo) => demo.run(),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => bench.run().map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "bench")]
        Command::BareHandler(handler) => handler.run().map(|()| ExitCode::SUCCESS),
    }
}
