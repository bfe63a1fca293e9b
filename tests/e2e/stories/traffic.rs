//! A hundred new client connections a second through the client Service while snapshots run: not one is refused.

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
    let clients = ["dial", "--endpoint", &endpoint, "--rate", "100", "--duration", &duration];
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
    ensure!(dialled.attempts >= 50 * seconds, "the machine was too busy to dial: {dialled:?}");
    ensure!(dialled.failed == 0, "clients were refused: {dialled:?}");
    eprintln!("e2e: {}: {} connections, {} failed", w.story, dialled.attempts, dialled.failed);
    Ok(())
}
