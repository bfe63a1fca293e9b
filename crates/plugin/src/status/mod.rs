//! `status [CLUSTER] [--watch]`: one cluster with its members, conditions, backups and next steps; or a list of all clusters.
//!
//! Decides flags and the redraw. The way is `observe` → `facts` → `render`; nothing here asks a Pod.

use std::time::Duration;

use clap::Args;
use holdfast_api::EtcdCluster;
use holdfast_io::clock;

use super::access::{Access, Only, Session};
use super::end::{DONE, print};
use super::screen::{Output, Screen};
use holdfast_manifests::names::object;

pub mod facts;
pub mod identity;
pub mod list;
pub mod next;
pub mod observe;
pub mod render;
pub mod runbook;
pub mod timeline;

#[cfg(test)]
mod tests;

/// Interval of looks with `--watch`.
const LOOK: Duration = Duration::from_secs(2);

/// Flags of `status`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct StatusFlags {
    /// `EtcdCluster`. Default: a list of all clusters of the namespace.
    #[arg(value_parser = object)]
    pub cluster: Option<String>,
    /// Clusters of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "cluster")]
    pub all_namespaces: bool,
    /// Show each change until Ctrl-C.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// Shows the state, once or at each change.
pub async fn run(flags: StatusFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    if !flags.watch {
        print(&draw(&session, &flags, flags.output.screen()).await?)?;
        return Ok(DONE);
    }
    // A wrong name ends the command; later looks may fail while the API server is away.
    let mut text = draw(&session, &flags, flags.output.screen()).await?;
    let mut shown = String::new();
    loop {
        let screen = flags.output.screen();
        if text != shown {
            // The cursor goes home, and the rest of the screen is cleared.
            let before = if screen.is_terminal { "\x1b[H\x1b[2J\x1b[3J" } else { "" };
            let after = if screen.is_terminal { "" } else { "\n" };
            print(&format!("{before}{text}{after}"))?;
            shown.clone_from(&text);
        }
        tokio::time::sleep(LOOK).await;
        text = draw(&session, &flags, screen).await.unwrap_or_else(|error| format!("error: {error:#}\n"));
    }
}

async fn draw(session: &Session, flags: &StatusFlags, screen: Screen) -> anyhow::Result<String> {
    let Some(name) = &flags.cluster else { return list(session, flags, screen).await };
    let objects = observe::observe(session, name).await?;
    let facts = observe::facts(&objects, clock::now());
    Ok(match flags.output.encoded(&facts)? {
        Some(text) => text,
        None => render::render(&facts, screen),
    })
}

async fn list(session: &Session, flags: &StatusFlags, screen: Screen) -> anyhow::Result<String> {
    let only = Only { everywhere: flags.all_namespaces, ..Only::default() };
    let rows = list::rows(&session.list::<EtcdCluster>(only).await?);
    if let Some(text) = flags.output.encoded(&rows)? {
        return Ok(text);
    }
    if rows.is_empty() {
        let place = if flags.all_namespaces { "any namespace".to_owned() } else { session.namespace.clone() };
        return Ok(format!("There is no EtcdCluster in {place}: README.md#a-first-cluster has one to apply.\n"));
    }
    Ok(list::render(&rows, clock::now(), screen))
}
