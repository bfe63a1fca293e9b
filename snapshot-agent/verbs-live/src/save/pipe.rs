//! The pipeline of a save: snapshot stream → proof → compression → encryption → hash of the stored bytes → upload, in one pass.
//!
//! This file decides how much is in memory at a time, and that hashing and compressing never hold up the network: they have
//! their own threads, so on two cores the stream runs at the speed of the slowest step and not of the sum. This file does not
//! publish: the caller completes the upload after it has seen the proof. The caller gets the proof as soon as the stream has
//! ended, however long a store takes to empty a spool.
//!
//! Budget, for any size of the database (a test measures it): HTTP/2 windows 4 MiB (16 on slow links), parts of an S3 upload
//! 5 × 8 MiB, queues between the steps 8 MiB, one frame of zstd's 1 MiB; the rest up to 96 MiB is the program and its allocator.
//! The scan adds the facts it keeps of each page: about 5 MiB for a gigabyte of 8 KiB values, at most the limit in
//! `crates/io/src/memory.rs`.

use std::io::{self, Write};

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::Stream;
use holdfast_bbolt::scan::{self, ScanError};
use holdfast_contract::error::{Error, Result, io_error, of_etcd, task_error};
use holdfast_contract::{Compression, Origin};
use holdfast_io::memory::scan_budget;
use holdfast_io::pool::{Buffer, Pool};
use holdfast_io::progress::Progress;
use holdfast_io::sha256::Sha256;
use holdfast_io::spool::Spool;
use holdfast_store::Upload;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use holdfast_etcd::feed::feed_steps;
use holdfast_format::crypt::{Recipients, Sealing};
use holdfast_format::pack::Packing;
use holdfast_format::snapshot_scan::SnapshotScan;
use holdfast_format::trailer::{self, Proven, TrailerError};

/// Pieces waiting for a step. A few are enough: they only bridge the jitter between steps.
const PIECES: usize = 4;

/// The proof of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Streamed {
    /// The database, proven by etcd's own hash.
    pub(crate) database: Proven,
    /// The database's contents; the only error is an exceeded memory budget.
    pub(crate) scanned: std::result::Result<scan::Proven, ScanError>,
}

/// The stored bytes, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Bytes that were stored.
    pub(crate) bytes: u64,
    /// sha256 of the bytes that were stored.
    pub(crate) sha256: [u8; 32],
    /// CRC64NVME of the same bytes.
    pub(crate) crc64: u64,
}

/// Sends a whole stream into an upload. On any error the caller aborts the upload.
///
/// Sends the proof to `proven` when the stream has ended; the upload may still take long then. If this function sends no proof,
/// it returns an error.
pub(crate) async fn run(
    stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    compression: Compression,
    recipients: &Recipients,
    spool: Option<Spool>,
    upload: &mut Upload,
    progress: &Progress,
    proven: oneshot::Sender<Streamed>,
) -> Result<Sent> {
    let pool = Pool::default();
    let (to_proof, proof_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_scan, scan_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_encoder, encoder_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_store, store_in) = mpsc::channel::<Bytes>(PIECES);
    let steps = [to_proof, to_scan, to_encoder];
    let budget = scan_budget(progress.total());
    let proof = tokio::task::spawn_blocking(move || prove(proof_in));
    let scan = tokio::task::spawn_blocking(move || scan_pages(scan_in, budget));
    let outlet = Outlet::new(to_store, &pool);
    let recipients = recipients.clone();
    let encoder = tokio::task::spawn_blocking(move || encode(encoder_in, compression, &recipients, outlet));

    let proving = async {
        let whole = feed_steps(stream, &pool, &steps, progress).await?;
        // The ends of the queues end the steps.
        drop(steps);
        let (database, scanned) = (ended(proof).await?, ended(scan).await?);
        // When another step cuts the stream short, these two have no result, and the other step returns the reason.
        if whole {
            // First: of a truncated stream both fail, and only this error is transient.
            let database = database?;
            let scanned = scanned?;
            // A dropped receiver has an error of its own.
            let _heard = proven.send(Streamed { database, scanned });
        }
        Ok(whole)
    };
    let (mut store_in, fills, drains) = match spool {
        None => (store_in, None, None),
        Some(spool) => {
            let (filling, draining) = spool.halves(pool.clone());
            let (to_upload, upload_in) = mpsc::channel::<Bytes>(PIECES);
            let fills = tokio::task::spawn_blocking(move || filling.run(store_in));
            let drains = tokio::task::spawn_blocking(move || draining.run(&to_upload));
            (upload_in, Some(fills), Some(drains))
        }
    };
    let store = async {
        while let Some(bytes) = store_in.recv().await {
            progress.outlast(upload.is_patient(), upload.write(bytes)).await?;
            progress.moved();
        }
        Ok(())
    };
    let sending = async {
        // Before the encoder, which also fails when one of these fails.
        tokio::try_join!(store, spooled(fills), spooled(drains))?;
        let sent = ended(encoder).await?;
        sent.map_err(|error| {
            Error::transient(format!("compressing or encrypting failed: {error}")).with_origin(Origin::Own)
        })
    };
    let (whole, sent) = tokio::try_join!(proving, sending)?;
    // No step that could name the reason has failed.
    if whole { Ok(sent) } else { Err(Error::transient("the stream was not read to its end; nothing was published")) }
}

/// Waits for one half of a spool, if there is a spool. A failing half cuts the stream short; its error is the reason.
async fn spooled(half: Option<JoinHandle<io::Result<()>>>) -> Result<()> {
    match half {
        None => Ok(()),
        Some(half) => ended(half).await?.map_err(io_error("spooling the snapshot (--spool-dir)")),
    }
}

async fn ended<T>(step: JoinHandle<T>) -> Result<T> {
    step.await.map_err(|error| task_error(&error))
}

fn prove(mut pieces: mpsc::Receiver<Bytes>) -> Result<Proven> {
    let mut hasher = trailer::Hasher::default();
    while let Some(piece) = pieces.blocking_recv() {
        hasher.update(&piece);
    }
    hasher.finish().map_err(|error| {
        let message = format!("{error}; nothing was published");
        match error {
            // A member that is stopped in the middle may end its stream without an error.
            TrailerError::Empty(_) | TrailerError::Cut(_) => of_etcd(Error::transient(message)),
            TrailerError::Mismatch(_) => Error::corrupt(message),
        }
    })
}

/// Scans the database's pages from the stream. An exceeded memory budget is no damage of the database.
fn scan_pages(
    mut pieces: mpsc::Receiver<Bytes>,
    budget_bytes: usize,
) -> Result<std::result::Result<scan::Proven, ScanError>> {
    let mut scan = SnapshotScan::new(scan::Options { compact_revision: None, budget_bytes });
    while let Some(piece) = pieces.blocking_recv() {
        scan.push(&piece);
    }
    match scan.finish() {
        Err(error) if !matches!(error, ScanError::OverBudget { .. }) => {
            Err(Error::corrupt(format!("the snapshot is no sound database: {error}; nothing was published")))
        }
        scanned => Ok(scanned),
    }
}

fn encode(
    mut pieces: mpsc::Receiver<Bytes>,
    compression: Compression,
    recipients: &Recipients,
    outlet: Outlet,
) -> io::Result<Sent> {
    let mut packing = Packing::new(compression, Sealing::new(recipients, outlet)?)?;
    while let Some(piece) = pieces.blocking_recv() {
        packing.write_all(&piece)?;
    }
    packing.finish()?.finish()?.finish()
}

/// Counts and hashes the stored bytes, and sends them on in pieces.
struct Outlet {
    to_store: mpsc::Sender<Bytes>,
    piece: Buffer,
    hash: Sha256,
    crc: crc_fast::Digest,
    bytes: u64,
}

impl Outlet {
    fn new(to_store: mpsc::Sender<Bytes>, pool: &Pool) -> Self {
        let (hash, crc) = (Sha256::new(), crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme));
        Self { to_store, piece: pool.take(), hash, crc, bytes: 0 }
    }

    fn send(&mut self, piece: Buffer) -> io::Result<()> {
        let piece = piece.freeze();
        self.hash.update(&piece);
        self.crc.update(&piece);
        self.bytes += piece.len() as u64;
        self.to_store.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> io::Result<Sent> {
        self.flush()?;
        Ok(Sent { bytes: self.bytes, sha256: self.hash.finalize(), crc64: self.crc.finalize() })
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(full) = self.piece.fill(&mut rest) {
            self.send(full)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let filled = self.piece.take();
        self.send(filled)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    /// A spool fails in the middle: the error blames neither the member nor the encoder.
    #[tokio::test]
    async fn a_spool_that_breaks_says_so_itself() {
        let folder = tempfile::tempdir().unwrap();
        let piece = Bytes::from(vec![7; 1 << 20]);
        // Far more than the queues between the steps hold.
        let stream = stream::iter((0..64).map(|_| Ok(piece.clone())));
        let (proven, streamed) = oneshot::channel();
        let recipients = Recipients::parse(&[]).unwrap();
        let path = folder.path().join("read-only");
        std::fs::write(&path, "").unwrap();
        let spool = Spool::over(std::fs::File::open(path).unwrap(), 1 << 20);
        let mut upload = Upload::Nowhere;
        let progress = Progress::silent();
        let sent = run(stream, Compression::None, &recipients, Some(spool), &mut upload, &progress, proven).await;
        let error = sent.unwrap_err();
        assert!(error.message().contains("--spool-dir"), "{error}");
        assert!(streamed.await.is_err(), "there is nothing to ask the members for");
    }
}
