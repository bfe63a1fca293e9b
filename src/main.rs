//! The one binary: starts what every part needs, hands over, and turns the outcome into an exit code.

use std::process::ExitCode;

use clap::Parser;
use holdfast::cli::{Cli, Command};
use holdfast::manifests;

/// musl's own allocator is several times slower under threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Manifests(flags) => print!("{}", manifests::yaml(&manifests::objects(&flags.into())?)?),
        Command::Version => println!("holdfast {}", env!("CARGO_PKG_VERSION")),
    }
    Ok(0)
}
