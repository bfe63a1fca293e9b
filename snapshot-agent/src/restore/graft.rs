//! The way that writes once: the snapshot goes straight to its place in the data directory, and is grafted there.
//!
//! It decides what has to agree before anything of it is used, and which failures are the graft's own: then etcdutl does
//! it all. Bytes that are not what was saved are never one of those, nor is a store or a volume in trouble. What is
//! grafted, `graft.rs` of the crate knows.
//!
//! The page scan runs beside the download. The disk is kept busy meanwhile: etcdutl and the last sync would wait for all
//! of it otherwise.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::volume::Staging;
use super::{BESIDE_DATABASE, Chosen, Job, Source, contents};
use crate::contract::ExitClass;
use crate::error::{Error, io_error, task_error};
use crate::graft::{Stock, Unfit};
use crate::identity::Restored;
use crate::pipe::scan_budget;
use crate::scan::{Options, Proven, Reader, ScanError, SnapshotScan};
use crate::store::Store;
use crate::unpack::Sink;
use crate::verify::unsound;
use crate::writeback::Writeback;

/// Pages that are added, and the small database twice: more than that is in no bucket that is carried over.
const ADDED: u64 = 16 << 20;

/// Pieces waiting to be written.
const PIECES: usize = 4;

/// What is being done, for an error.
const WRITING: &str = "writing the snapshot";

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
pub(super) async fn rebuild(job: &Job<'_>) -> Result<(Staging, Restored), Failed> {
    let Job { request, volume, store, source, etcdutl, .. } = job;
    let staging = volume.stage()?;
    let db_bytes = source.db_bytes();
    volume.check_space(db_bytes.saturating_add(ADDED).saturating_add(BESIDE_DATABASE))?;
    let (path, file) = staging.database()?;
    let (restored, file, writeback) = match source {
        Source::Ours(chosen) => {
            let (file, options) = (Arc::new(file), chosen.stored.scan_options());
            let placing = Placing::begin(&file, db_bytes, options);
            let (mut restored, placing) = chosen.fetch(store, placing, request).await?;
            let Placing { placed, failed, .. } = placing;
            let placed = placed.await.map_err(|error| task_error(&error))?;
            let Placed { scanned, writeback } = placed.ok_or_else(|| io_error(WRITING)(why(&failed)))?;
            let proven = prove(chosen, store, scanned, &file).await?;
            if restored.came_along.is_none() {
                contents::found(request, &mut restored, proven.as_ref(), &file)?;
            }
            (restored, file, Some(writeback))
        }
        Source::Raw(raw) => {
            let clone = file.try_clone().map_err(io_error("opening the database's file"))?;
            let restored = raw.fetch(store, (&path, clone), request, etcdutl.version()).await?;
            // Without etcd's sha256 at its end.
            file.set_len(db_bytes).map_err(io_error(WRITING))?;
            (restored, Arc::new(file), None)
        }
    };
    let stock = scion(job, &staging, Arc::clone(&file)).await;
    // Whatever came of it: until then the file keeps its space, and etcdutl's way would miss it.
    if let Some(writeback) = writeback {
        off_thread(move || Ok(writeback.end().map_err(io_error("syncing the database"))?)).await?;
    }
    let stock = stock?;
    let scion = staging.small_database();
    off_thread(move || apply(&file, &stock, &scion)).await?;
    staging.adopt()?;
    Ok((staging, restored))
}

/// Has etcdutl restore a small database that stands for the large one.
async fn scion(job: &Job<'_>, staging: &Staging, large: Arc<File>) -> Result<Stock, Failed> {
    let Job { request, source, etcdutl, initial, .. } = job;
    let db_bytes = source.db_bytes();
    let stock = off_thread(move || Ok(Stock::read(&*large, db_bytes)?)).await?;
    let small = staging.small(&stock.small()?)?;
    // The time of a large one: its syncs wait for what is still on the way to a slow disk.
    let made = etcdutl.restore(&small, &staging.small_data(), initial, db_bytes, request.revision_bump, true).await;
    made.map_err(|error| match error.class() {
        // The small database is of our own making.
        ExitClass::Corrupt => Failed::Unfit(Unfit::new(error.message())),
        _ => Failed::Run(error),
    })?;
    Ok(stock)
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failed> + Send + 'static) -> Result<T, Failed> {
    spawn_blocking(work).await.map_err(|error| Failed::Run(task_error(&error)))?
}

/// Whether what is in the database is what its manifest says. Its sha256 has been compared.
async fn prove(
    chosen: &Chosen,
    store: &Store,
    scanned: Result<Proven, ScanError>,
    file: &Arc<File>,
) -> Result<Option<Proven>, Failed> {
    let stored = &chosen.stored;
    let db_bytes = stored.manifest.db_bytes;
    let proven = match scanned {
        Err(ScanError::OverBudget { .. }) => {
            let file = Arc::clone(file);
            let read =
                move || Ok(Reader::open(&*file, db_bytes, scan_budget(db_bytes)).and_then(|mut r| r.prove(None)));
            off_thread(read).await?
        }
        scanned => scanned,
    };
    match proven {
        Ok(found) => {
            stored.structure_agrees(store, &found)?;
            stored.hash_agrees(store, &found)?;
            Ok(Some(found))
        }
        // As etcdutl's way has it: the bytes are those that were saved, and that is what is known.
        Err(error @ ScanError::OverBudget { .. }) => {
            tracing::warn!(%error, "the structure is not proven again");
            Ok(None)
        }
        Err(error) => Err(Failed::Run(unsound(&store.uri(&stored.data), &error))),
    }
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
    let bytes = write().map_err(io_error("writing the graft"))?;
    grafted.check(stock, file, bytes)?;
    tracing::info!(pages = grafted.pages.len(), db_bytes = grafted.bytes(), "grafted");
    Ok(())
}

/// Takes a snapshot to its place, while its pages are looked at and the disk writes; whoever gives it hashes meanwhile.
struct Placing {
    /// Until there is no more.
    to_place: Option<mpsc::Sender<Bytes>>,
    /// `None`: it has failed.
    placed: JoinHandle<Option<Placed>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

/// All of it is in its place, and some of it perhaps not yet on the disk.
struct Placed {
    scanned: Result<Proven, ScanError>,
    writeback: Writeback,
}

impl Placing {
    fn begin(file: &Arc<File>, db_bytes: u64, options: Options) -> Self {
        let (to_place, pieces) = mpsc::channel(PIECES);
        let failed: Arc<Mutex<Option<io::Error>>> = Arc::default();
        let (writing, failing) = (Arc::clone(file), Arc::clone(&failed));
        let placed = spawn_blocking(move || match place(&writing, db_bytes, options, pieces) {
            Ok(placed) => Some(placed),
            Err(error) => {
                failing.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                None
            }
        });
        Self { to_place: Some(to_place), placed, failed }
    }
}

impl Sink for Placing {
    fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        let to_place = self.to_place.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        to_place.blocking_send(bytes.clone()).map_err(|_| why(&self.failed))
    }

    /// What is not yet in its place, and on the disk, goes there while the rest goes on.
    fn end(&mut self) -> io::Result<()> {
        self.to_place = None;
        Ok(())
    }
}

/// Why nothing more was written.
fn why(failed: &Mutex<Option<io::Error>>) -> io::Error {
    let error = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    error.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
}

/// Writes and scans until there is no more, and cuts off etcd's sha256.
fn place(file: &Arc<File>, db_bytes: u64, options: Options, mut pieces: mpsc::Receiver<Bytes>) -> io::Result<Placed> {
    let (mut writing, syncing) = (&**file, Arc::clone(file));
    let mut writeback = Writeback::begin(move || syncing.sync_data());
    let mut scan = SnapshotScan::new(options);
    while let Some(piece) = pieces.blocking_recv() {
        writing.write_all(&piece)?;
        writeback.wrote(piece.len());
        scan.push(&piece);
    }
    file.set_len(db_bytes)?;
    writeback.hurry();
    Ok(Placed { scanned: scan.finish(), writeback })
}
