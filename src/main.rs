//! The one binary: starts what every part needs, hands over, and turns the outcome into an exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use holdfast::cli::{Agent, Cli, Command, LogFormat};
use holdfast::manifests::jobs::To;
use holdfast::{agent, manifests, operator};

/// musl's own allocator is several times slower under threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    // Before anything opens a connection. It can only fail where it was done before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    let outcome = match log(&cli) {
        Ok(()) => run(cli.command).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log(cli: &Cli) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&cli.log_level)
        .with_context(|| format!("--log-level {:?} is not understood; write for example info", cli.log_level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Json => lines.json().init(),
        LogFormat::Text => lines.init(),
    }
    Ok(())
}

async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Operator(flags) => operator::run(flags.into()).await.map(|()| 0),
        Command::Manifests(flags) => show(&manifests::yaml(&manifests::objects(&flags.into())?)?),
        Command::Jobs(flags) => {
            let wanted = flags.to.map_or(To::ALL.to_vec(), |to| vec![to]);
            let samples: Result<Vec<_>, _> =
                wanted.into_iter().map(|to| manifests::jobs::sample(to, &flags.image)).collect();
            show(&samples?.join("---\n"))
        }
        Command::Version => show(concat!("holdfast ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Agent(Agent::Save(request)) => Ok(agent::save(*request).await),
        Command::Agent(Agent::Restore(request)) => Ok(agent::restore(*request).await),
        Command::Gate(request) => Ok(agent::gate(*request).await),
        Command::Install(flags) => Ok(agent::install(&flags.to).await),
    }
}

/// Prints; a reader that has seen enough (`| head`) is no error.
fn show(text: &str) -> anyhow::Result<u8> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(0),
    }
}
