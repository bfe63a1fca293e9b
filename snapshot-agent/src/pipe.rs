//! The way down: snapshot stream → proof → compression → encryption → hash of what is stored → upload, in one pass.
//!
//! It decides how much is in memory at a time, and that hashing and compressing never hold up the network: they have
//! threads of their own, so on two cores the stream runs at the speed of the slowest step and not of their sum.
//! It does not publish: whether the upload is completed is for the caller, after he has seen the proof.
//!
//! Budget, whatever the database's size (a test measures it): HTTP/2 windows 4 MiB (16 from afar), parts of an S3 upload 5 × 8 MiB,
//! queues between the steps 8 MiB, zstd at level 1 about 2 MiB; the rest up to 96 MiB is the program and its allocator.
//! The scan adds what it keeps of each page: about 5 MiB for a gigabyte of 8 KiB values, `scan_budget` at most.

use std::io::{self, Write};

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::contract::Compression;
use crate::crypt::{Recipients, Sealing};
use crate::error::{Error, Result, io_error, task_error};
use crate::pool::{Buffer, Pool};
use crate::progress::Progress;
use crate::scan::{self, ScanError, SnapshotScan};
use crate::spool::Spool;
use crate::store::Upload;
use crate::trailer::{self, Proven, TrailerError};

/// Pieces waiting for a step. Few: they only bridge the jitter between steps.
const PIECES: usize = 4;

/// zstd's fastest ordinary level; on etcd data as small as level 3.
const ZSTD_LEVEL: i32 = 1;

/// Memory for the summaries of the database's pages: room for about a million records in each gigabyte, and never more
/// than fits a Job's usual limit. A database of more and smaller ones is proven by its trailer alone, and that is told.
pub(crate) fn scan_budget(estimate: u64) -> usize {
    const BASE: u64 = 32 << 20;
    const MOST: u64 = 128 << 20;
    usize::try_from((BASE + estimate / 32).min(MOST)).unwrap_or(usize::MAX)
}

/// What went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Streamed {
    /// The database, proven by etcd's own hash.
    pub(crate) database: Proven,
    /// What is in it; the only error is that it did not fit the memory budget.
    pub(crate) scanned: std::result::Result<scan::Proven, ScanError>,
    /// Bytes that were stored.
    pub(crate) stored_bytes: u64,
    /// sha256 of the bytes that were stored.
    pub(crate) stored_sha256: [u8; 32],
    /// CRC64NVME of the same.
    pub(crate) stored_crc64: u64,
}

/// Sends a whole stream into an upload. Any error means: abort the upload.
pub(crate) async fn run(
    mut stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    compression: Compression,
    recipients: &Recipients,
    spool: Option<Spool>,
    upload: &mut Upload,
    progress: &Progress,
) -> Result<Streamed> {
    let pool = Pool::default();
    let (to_proof, proof_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_scan, scan_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_encoder, encoder_in) = mpsc::channel::<Bytes>(PIECES);
    let (to_store, store_in) = mpsc::channel::<Bytes>(PIECES);
    let steps = [to_proof, to_scan, to_encoder];
    let budget = scan_budget(progress.total());
    let proof = tokio::task::spawn_blocking(move || prove(proof_in));
    let scan = tokio::task::spawn_blocking(move || look(scan_in, budget));
    let outlet = Outlet::new(to_store, &pool);
    let recipients = recipients.clone();
    let encoder = tokio::task::spawn_blocking(move || encode(encoder_in, compression, &recipients, outlet));

    let feed = async {
        // etcd's messages of 32 KiB are copied together: their own memory is free again at once.
        let mut piece = pool.take();
        'stream: while let Some(message) = stream.next().await {
            let message = message?;
            progress.add(message.len());
            let mut rest = message.as_ref();
            while let Some(full) = piece.fill(&mut rest) {
                if !hand_on(full, &steps).await {
                    // A step has ended early; its own result says why.
                    break 'stream;
                }
            }
        }
        progress.ended();
        hand_on(piece, &steps).await;
        drop(steps);
        Ok(())
    };
    let (mut store_in, spooling) = match spool {
        None => (store_in, None),
        Some(spool) => {
            let (filling, draining) = spool.halves(pool.clone());
            let (to_upload, upload_in) = mpsc::channel::<Bytes>(PIECES);
            let fills = tokio::task::spawn_blocking(move || filling.run(store_in));
            let drains = tokio::task::spawn_blocking(move || draining.run(&to_upload));
            (upload_in, Some([fills, drains]))
        }
    };
    let store = async {
        while let Some(bytes) = store_in.recv().await {
            progress.outlast(upload.is_patient(), upload.write(bytes)).await?;
            progress.moved();
        }
        Ok(())
    };
    tokio::try_join!(feed, store)?;
    for half in spooling.into_iter().flatten() {
        // A spool that breaks cuts the stream short, and the trailer would be blamed.
        ended(half).await?.map_err(io_error("spooling the snapshot (--spool-dir)"))?;
    }
    // First, for where the end is missing both are wrong, and only this one says that trying again may help.
    let database = ended(proof).await??;
    let scanned = ended(scan).await??;
    let sent = ended(encoder)
        .await?
        .map_err(|error| Error::transient(format!("compressing or encrypting failed: {error}")))?;
    let Sent { bytes: stored_bytes, sha256: stored_sha256, crc64: stored_crc64 } = sent;
    Ok(Streamed { database, scanned, stored_bytes, stored_sha256, stored_crc64 })
}

async fn ended<T>(step: JoinHandle<T>) -> Result<T> {
    step.await.map_err(|error| task_error(&error))
}

/// Gives the same bytes to all steps. `false`: one of them has ended.
async fn hand_on(piece: Buffer, steps: &[mpsc::Sender<Bytes>]) -> bool {
    let bytes = piece.freeze();
    if bytes.is_empty() {
        return true;
    }
    for step in steps {
        if step.send(bytes.clone()).await.is_err() {
            return false;
        }
    }
    true
}

fn prove(mut pieces: mpsc::Receiver<Bytes>) -> Result<Proven> {
    let mut hasher = trailer::Hasher::default();
    while let Some(piece) = pieces.blocking_recv() {
        hasher.update(&piece);
    }
    hasher.finish().map_err(|error| {
        let message = format!("{error}; nothing was published");
        match error {
            // A member that was stopped in the middle may end its stream as if all were well.
            TrailerError::Empty(_) | TrailerError::Cut(_) => Error::transient(message),
            TrailerError::Mismatch(_) => Error::corrupt(message),
        }
    })
}

/// Reads the database's pages as they go by. Running out of memory is no fault of the database.
fn look(
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
    let mut encoder = Encoder::new(compression, Sealing::new(recipients, outlet)?)?;
    while let Some(piece) = pieces.blocking_recv() {
        encoder.write_all(&piece)?;
    }
    encoder.finish()
}

/// One of the compressions, in front of the encryption and the outlet.
enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Sealing<Outlet>>),
    Gzip(GzEncoder<Sealing<Outlet>>),
    None(Sealing<Outlet>),
}

impl Encoder {
    fn new(compression: Compression, outlet: Sealing<Outlet>) -> io::Result<Self> {
        Ok(match compression {
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(outlet, ZSTD_LEVEL)?;
                // So that `zstd -t` alone says something about an object.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Compression::Gzip => Self::Gzip(GzEncoder::new(outlet, flate2::Compression::fast())),
            Compression::None => Self::None(outlet),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::None(outlet) => outlet.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<Sent> {
        match self {
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::None(outlet) => outlet,
        }
        .finish()?
        .finish()
    }
}

/// Counts and hashes what is stored, and sends it on in pieces.
struct Outlet {
    to_store: mpsc::Sender<Bytes>,
    piece: Buffer,
    hash: Sha256,
    crc: crc_fast::Digest,
    bytes: u64,
}

/// What went out.
struct Sent {
    bytes: u64,
    sha256: [u8; 32],
    crc64: u64,
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
        Ok(Sent { bytes: self.bytes, sha256: self.hash.finalize().into(), crc64: self.crc.finalize() })
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
