//! The way that writes once: the snapshot goes straight to its place in the data directory, and is grafted there.
//!
//! It decides what has to agree before anything of it is used, and which failures are the graft's own: then etcdutl does
//! it all. Bytes that are not what was saved are never one of those, nor is a store or a volume in trouble; what becomes of
//! the small database always is, for it says nothing of the large one. What is grafted, `graft.rs` of the crate knows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::from_manifest::{Ends, Placed, WRITING};
use super::volume::{Staging, trouble};
use super::{RestoreRun, Source};
use crate::contract::{Engine, ExitClass};
use crate::error::{Error, task_error};
use crate::etcd::volume_identity::Restored;
use crate::graft::{Stock, Unfit};

/// Pages that are added, and the small database twice: more than that is in no bucket that is carried over.
pub(super) const ADDED: u64 = 16 << 20;

/// Why there is no grafted data directory.
pub(super) enum Failed {
    /// For a reason of the graft's own.
    Unfit(Unfit),
    /// As any restore fails.
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
    let (restored, bump, file, writeback) = match source {
        Source::Manifest(chosen) => {
            let placed = chosen.download(run, file, Ends::Bare).await?;
            let Placed { restored, bump, file, writeback } = placed;
            (restored, bump, file, writeback)
        }
        Source::File(chosen) => {
            let clone = file.try_clone().map_err(trouble("opening the database's file"))?;
            let (restored, bump) = chosen.download(run, (&path, clone)).await?;
            // Without etcd's sha256 at its end.
            file.set_len(chosen.db_bytes()).map_err(trouble(WRITING))?;
            (restored, bump, Arc::new(file), None)
        }
    };
    let stock = restore_small(run, staging, Arc::clone(&file), bump).await;
    // Whatever came of it: until then the file keeps its space, and etcdutl's way would miss it.
    if let Some(writeback) = writeback {
        off_thread(move || Ok(writeback.end().map_err(trouble("syncing the database"))?)).await?;
    }
    let stock = stock?;
    let scion = staging.small_database();
    off_thread(move || apply(&file, &stock, &scion)).await?;
    staging.adopt().map_err(|error| match error.class() {
        // etcdutl has not left what belongs beside a database.
        ExitClass::NotFound => Failed::Unfit(Unfit::new(error.message())),
        _ => Failed::Run(error),
    })?;
    Ok(restored)
}

/// Has etcdutl restore a small database that stands for the large one.
async fn restore_small(run: &RestoreRun<'_>, staging: &Staging, large: Arc<File>, bump: u64) -> Result<Stock, Failed> {
    let RestoreRun { source, etcdutl, initial, .. } = run;
    let db_bytes = source.db_bytes();
    let stock = off_thread(move || Ok(Stock::read(&*large, db_bytes)?)).await?;
    let small = staging.small(&stock.small()?)?;
    // The time of a large one: its syncs wait for what is still on the way to a slow disk.
    let made = etcdutl.restore(&small, &staging.small_data(), initial, db_bytes, bump, true).await;
    made.map_err(small_failed)?;
    Ok(stock)
}

/// The small database is of our own making: whatever etcdutl says of it, and however long it takes, nothing is known of the
/// large one by that.
fn small_failed(error: Error) -> Failed {
    match error.class() {
        // That would be no better: there is no room for less, or this etcdutl does not know what both are asked with.
        ExitClass::Full | ExitClass::Config => Failed::Run(error),
        _ => Failed::Unfit(Unfit::new(error.message())),
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failed> + Send + 'static) -> Result<T, Failed> {
    spawn_blocking(work).await.map_err(|error| Failed::Run(task_error(&error)))?
}

/// Writes the graft, and reads it again.
fn apply(file: &File, stock: &Stock, scion: &Path) -> Result<(), Failed> {
    let left = |error: io::Error| Unfit::new(format!("etcdutl has left no small database: {error}"));
    let scion = File::open(scion).map_err(left)?;
    let bytes = scion.metadata().map_err(left)?.len();
    let grafted = stock.graft(&scion, bytes)?;
    let write = || -> io::Result<u64> {
        for page in &grafted.pages {
            file.write_all_at(&page.bytes, grafted.offset(page))?;
        }
        // Before anything leads to them.
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
