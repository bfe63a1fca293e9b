//! The one binary: initializes the common parts, runs the command, and returns the exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use holdfast::cli::{Agent, Cli, Command, Snapshot, Upgrade};
use holdfast::{agent, logs};
use holdfast_contract::BuildInfo;
use holdfast_io::private::make_private;
use holdfast_manifests as manifests;
use holdfast_operator::Config;
use holdfast_plugin::{end, snapshot, upgrade};
use tokio::runtime::Builder;

/// musl's own allocator is several times slower under threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The commit of a release, from the compiler's environment (`tests/bin/release`). Other builds have none, and so the same
/// sources give the same image.
const COMMIT: Option<&str> = option_env!("HOLDFAST_COMMIT");

/// Returns the build of this program.
fn build_info() -> BuildInfo {
    BuildInfo::from_compiler(COMMIT, std::env::consts::ARCH)
}

fn main() -> ExitCode {
    // Before the first connection. Fails only if a provider is already installed, which is harmless.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let matches = line().get_matches();
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Agent(Agent::Run(flags)) = cli.command {
        cli.command = flags.command().unwrap_or_else(|error| error.exit());
    }
    // Before the first thread: all threads share one umask.
    if let Command::Agent(agent) = &cli.command {
        make_private(agent.is_for_group());
    }
    let for_a_person = !matches!(cli.command, Command::Operator(_));
    let outcome = logs::start(cli.log_format, &cli.log_level, for_a_person).and_then(|()| {
        let runtime = runtime(&cli.command).enable_all().build()?;
        let outcome = runtime.block_on(run(cli.command));
        // A thread that waits for a disk or a mount may wait for ever, and must not delay the exit.
        runtime.shutdown_background();
        outcome
    });
    outcome.map_or_else(
        |error| {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}

/// Returns the definition of the command line. kubectl starts a plugin under a name of its own, which the help shows.
fn line() -> clap::Command {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = program.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or_default();
    let line = Cli::command();
    if name.starts_with("kubectl-holdfast") { line.bin_name("kubectl holdfast") } else { line }
}

/// Stack of a thread of the operator: the future of a pass holds a dozen objects while it is built, and without optimisation
/// several copies of each. Only what is used takes memory.
const THREAD_STACK: usize = 8 << 20;

/// The operator handles many objects at once. The agent handles a single request: hashing and compressing have their own
/// threads, and copying bytes between two sockets is fastest on one thread. Measured: a save takes 6% less time, and needs 10
/// to 40 MiB less memory.
fn runtime(command: &Command) -> Builder {
    match command {
        Command::Agent(_) | Command::Gate(_) | Command::Install(_) => Builder::new_current_thread(),
        _ => {
            let mut threads = Builder::new_multi_thread();
            threads.thread_stack_size(THREAD_STACK);
            threads
        }
    }
}

async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Manifests(flags) => show(&manifests::yaml(&manifests::objects(&flags.into())?)?),
        Command::Jobs(flags) => show(&manifests::jobs::samples(flags.only, &flags.image)),
        Command::Snapshot(Snapshot::Create(flags)) => snapshot::create((*flags).request()).await,
        Command::Upgrade(Upgrade::Plan(flags)) => upgrade::plan(flags.into()).await,
        Command::Snapshot(Snapshot::Existing(verb)) => Ok(end::code(holdfast_plugin::snapshots::run(verb).await)),
        Command::Plugin(verb) => Ok(holdfast_plugin::run(verb, Cli::command(), build_info()).await),
        Command::Operator(flags) => {
            let config = Config::try_from(*flags).map_err(anyhow::Error::msg)?;
            let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            holdfast_operator::run(config.in_domain_of(&resolv_conf), build_info()).await.map(|()| 0)
        }
        // Replaced by the requested command, before the first thread.
        Command::Agent(Agent::Run(_)) => Err(anyhow::anyhow!("there is no request")),
        Command::Agent(Agent::Save(request)) => agent::save(*request).await,
        Command::Agent(Agent::Inspect(request)) => Ok(agent::inspect(*request).await),
        Command::Agent(Agent::Restore(request)) => Ok(agent::restore(*request).await),
        Command::Agent(Agent::Latest(request)) => Ok(agent::latest(*request).await),
        Command::Agent(Agent::Recall(request)) => Ok(agent::recall(*request).await),
        Command::Agent(Agent::List(request)) => agent::list(*request).await,
        Command::Agent(Agent::Prune(request)) => agent::prune(*request).await,
        Command::Agent(Agent::Remove(request)) => agent::remove(*request).await,
        Command::Agent(Agent::Verify(request)) => agent::verify(*request).await,
        Command::Agent(Agent::Contents(request)) => agent::contents(*request).await,
        Command::Agent(Agent::Copy(request)) => agent::copy(*request).await,
        Command::Agent(Agent::RenderRestore(flags)) => agent::render_restore(*flags).await,
        Command::Agent(Agent::CompareMembers(request)) => agent::compare_members(*request).await,
        Command::Agent(Agent::Defrag(request)) => agent::defrag(*request).await,
        Command::Agent(Agent::Survey(request)) => Ok(agent::survey(*request).await),
        Command::Agent(Agent::Undelete(request)) => agent::undelete(*request).await,
        Command::Agent(Agent::Compact(request)) => agent::compact(*request).await,
        Command::Agent(Agent::Log(verb)) => agent::log(*verb).await,
        Command::Agent(Agent::Probe(request)) => agent::probe(*request).await,
        Command::Gate(request) => Ok(agent::gate(*request).await),
        Command::Install(flags) => match (&flags.to, &flags.etcd_to) {
            (Some(path), _) => Ok(agent::install(path).await),
            (None, Some(folder)) => Ok(agent::install_etcd(folder).await),
            (None, None) => Ok(end::code(holdfast_plugin::install::run(*flags).await)),
        },
    }
}

/// Prints a text; a reader that closes the pipe (`| head`) is no error.
fn show(text: &str) -> anyhow::Result<u8> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(0),
    }
}
