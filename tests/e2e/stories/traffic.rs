//! A hundred new client connections a second through the client Service while snapshots run: none is refused.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::support::env::soak;
use crate::support::make;
use crate::support::probe::{Dialled, service};
use crate::support::world::World;

pub async fn tell(w: &World) -> Result<()> {
    w.create(make::cluster("busy", 3)).await?;
    w.step("three voters", w.wait_ready("busy", 3)).await?;
    w.step("64 MiB of data", w.probe_text(&["bulk", "--endpoint", &service("busy"), "--bytes", "64MiB"])).await?;

    let seconds: u64 = if soak() { 120 } else { 25 };
    let duration = format!("{seconds}s");
    let endpoint = service("busy");
    // Long timeouts: a machine that stands still for some seconds refuses no client.
    let clients = ["dial", "--endpoint", &endpoint, "--rate", "100", "--duration", &duration, "--timeout", "60s"];
    let dialling = w.probe::<Dialled>(&clients);
    let saving = async {
        for n in 0..seconds / 12 {
            let name = format!("during-{n}");
            w.create(make::snapshot(&name, "busy", json!({ "s3": make::s3() }))).await?;
            w.step("a snapshot under traffic", w.wait_complete(&name)).await?;
        }
        anyhow::Ok(())
    };
    let (dialled, saved) = tokio::join!(dialling, saving);
    saved?;
    let dialled = dialled?;
    ensure!(dialled.attempts == 100 * seconds, "not everybody dialled: {dialled:?}");
    // A client that gets etcd's error about an election was connected.
    let told: u64 = dialled.errors.iter().filter(|(why, _)| why.contains("etcdserver:")).map(|(_, times)| times).sum();
    ensure!(dialled.failed == told, "clients were refused: {dialled:?}");
    eprintln!("e2e: {}: {} connections, {} failed", w.story, dialled.attempts, dialled.failed);
    Ok(())
}
