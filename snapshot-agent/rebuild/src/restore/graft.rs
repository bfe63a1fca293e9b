//! The engine that writes once: downloads the snapshot directly into the data directory and grafts it there.
//!
//! This file decides which checks come before the data is used, and which failures are the graft's own, where etcdutl takes
//! over. Damaged bytes and errors of the store or the volume are never the graft's own. A failure on the small database always
//! is, because the small database proves nothing about the large one. The crate's `graft.rs` decides which pages are written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use holdfast_bbolt::graft::{Stock, Unfit};
use holdfast_contract::error::{Error, task_error};
use holdfast_contract::{Engine, ExitClass};
use tokio::task::spawn_blocking;

use super::from_manifest::{Ends, Placed, WRITING};
use super::replay::continue_snapshot;
use super::volume::{Staging, trouble};
use super::{RestoreRun, Source};
use holdfast_gate::volume_identity::Restored;

/// Bound for the added pages and two copies of the small database: the buckets that the graft carries over hold less.
pub(super) const ADDED: u64 = 16 << 20;

/// Reason for which no grafted data directory exists.
pub(super) enum Failed {
    /// A failure of the graft itself.
    Unfit(Unfit),
    /// A failure of any restore.
    Run(Error),
}

impl From<Unfit> for Failed {
    fn from(why: Unfit) -> Self {
        Self::Unfit(why)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Run(error)
    }
}

/// Makes the data directory in the staging folder.
pub(super) async fn rebuild(run: &RestoreRun<'_>) -> Result<(Staging, Restored), Failed> {
    let staging = run.stage(Engine::Graft)?;
    match rebuild_in(run, &staging).await {
        Ok(restored) => Ok((staging, restored)),
        Err(Failed::Run(error)) => Err(Failed::Run(run.ran_out(Engine::Graft, error))),
        Err(unfit @ Failed::Unfit(_)) => Err(unfit),
    }
}

async fn rebuild_in(run: &RestoreRun<'_>, staging: &Staging) -> Result<Restored, Failed> {
    let source = &run.source;
    let (path, file) = staging.database()?;
    let Placed { restored, bump, db_bytes, file, writeback } = match source {
        Source::Manifest(chosen) => {
            let placed = chosen.download(run, file, Ends::Bare).await?;
            continue_snapshot(run, Engine::Graft, &path, placed).await?
        }
        Source::File(chosen) => {
            let clone = file.try_clone().map_err(trouble("opening the database's file"))?;
            let (restored, bump) = chosen.download(run, (&path, clone)).await?;
            // Cuts off etcd's sha256.
            file.set_len(chosen.db_bytes()).map_err(trouble(WRITING))?;
            Placed { restored, bump, db_bytes: chosen.db_bytes(), file: Arc::new(file), writeback: None }
        }
        Source::Volume(survivor) => {
            drop(file);
            let (restored, bump, file) = survivor.place(run, staging, &path).await?;
            Placed { bump, db_bytes: restored.db_bytes, restored, file: Arc::new(file), writeback: None }
        }
    };
    let stock = restore_small(run, staging, (Arc::clone(&file), db_bytes), bump).await;
    // After a failure too: until the write-back ends the file keeps its space, which the restore with etcdutl needs.
    if let Some(writeback) = writeback {
        off_thread(move || Ok(writeback.end().map_err(trouble("syncing the database"))?)).await?;
    }
    let stock = stock?;
    let scion = staging.small_database();
    off_thread(move || apply(&file, &stock, &scion)).await?;
    staging.adopt().map_err(|error| match error.class() {
        // etcdutl did not write the files that belong beside a database.
        ExitClass::NotFound => Failed::Unfit(Unfit::new(error.message())),
        _ => Failed::Run(error),
    })?;
    Ok(restored)
}

/// Restores with etcdutl a small database that stands for the large one.
async fn restore_small(
    run: &RestoreRun<'_>,
    staging: &Staging,
    (large, db_bytes): (Arc<File>, u64),
    bump: u64,
) -> Result<Stock, Failed> {
    let RestoreRun { etcdutl, initial, .. } = run;
    let stock = off_thread(move || Ok(Stock::read(&*large, db_bytes)?)).await?;
    let small = staging.small(&stock.small()?)?;
    // With the timeout of a large database: etcdutl's syncs wait for pages that are still on the way to a slow disk.
    let made = etcdutl.restore(&small, &staging.small_data(), initial, db_bytes, bump, true).await;
    made.map_err(small_failed)?;
    Ok(stock)
}

/// Classifies an error of etcdutl. The agent made the small database, so the error proves nothing about the large one.
fn small_failed(error: Error) -> Failed {
    match error.class() {
        // The restore with etcdutl would fail as well: it needs even more space, or the same unknown flags.
        ExitClass::Full | ExitClass::Config => Failed::Run(error),
        _ => Failed::Unfit(Unfit::new(error.message())),
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failed> + Send + 'static) -> Result<T, Failed> {
    spawn_blocking(work).await.map_err(|error| Failed::Run(task_error(&error)))?
}

/// Writes the graft, and reads it again.
fn apply(file: &File, stock: &Stock, scion: &Path) -> Result<(), Failed> {
    let unusable = |error: io::Error| Unfit::new(format!("etcdutl has left no small database: {error}"));
    let scion = File::open(scion).map_err(unusable)?;
    let bytes = scion.metadata().map_err(unusable)?.len();
    let grafted = stock.graft(&scion, bytes)?;
    let write = || -> io::Result<u64> {
        for page in &grafted.pages {
            file.write_all_at(&page.bytes, grafted.offset(page))?;
        }
        // Before a page refers to them.
        file.sync_data()?;
        for page in &grafted.metas {
            file.write_all_at(&page.bytes, grafted.offset(page))?;
        }
        file.sync_all()?;
        Ok(file.metadata()?.len())
    };
    let bytes = write().map_err(trouble("writing the graft"))?;
    grafted.check(stock, file, bytes)?;
    tracing::info!(pages = grafted.pages.len(), db_bytes = grafted.bytes(), "grafted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_etcdutl_could_not_do_either_ends_the_restore() {
        for class in ExitClass::ALL {
            let ends = matches!(class, ExitClass::Full | ExitClass::Config);
            let failed = small_failed(Error::new(class, "it had a bad day"));
            assert_eq!(matches!(failed, Failed::Run(_)), ends, "{class:?}");
        }
    }
}
