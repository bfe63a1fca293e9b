//! The way down: snapshot stream → proof → compression → hash of what is stored → upload, in one pass.
//!
//! It decides how much is in memory at a time, and that hashing and compressing never hold up the network: they have
//! threads of their own, so on two cores the stream runs at the speed of the slowest step and not of their sum.
//! It does not publish: whether the upload is completed is for the caller, after he has seen the proof.
//!
//! Budget, whatever the database's size (a test measures it): HTTP/2 windows 16 MiB, parts of an S3 upload 4 × 16 MiB,
//! queues between the steps at most 6 MiB, zstd at level 1 about 2 MiB.

use std::io::{self, Write};

use bytes::{Bytes, BytesMut};
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::contract::Compression;
use crate::error::{Error, Result, task_error};
use crate::progress::Progress;
use crate::store::Upload;
use crate::trailer::{self, Proven, TrailerError};

/// etcd sends 32 KiB at a time: waking a thread for each would cost more than hashing it.
const BATCH: usize = 512 << 10;

/// Batches waiting for a step. Few: they only bridge the jitter between steps.
const BATCHES: usize = 4;

/// Compressed pieces: as large as a batch, so that a part is made of few.
const PIECE: usize = 512 << 10;

/// zstd's fastest ordinary level; on etcd data as small as level 3.
const ZSTD_LEVEL: i32 = 1;

/// What went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Streamed {
    /// The database, proven by etcd's own hash.
    pub(crate) database: Proven,
    /// Bytes that were stored.
    pub(crate) stored_bytes: u64,
    /// sha256 of the bytes that were stored.
    pub(crate) stored_sha256: [u8; 32],
}

/// Sends a whole stream into an upload. Any error means: abort the upload.
pub(crate) async fn run(
    mut stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    compression: Compression,
    upload: &mut Upload,
    progress: &Progress,
) -> Result<Streamed> {
    let (to_proof, proof_in) = mpsc::channel::<Vec<Bytes>>(BATCHES);
    let (to_encoder, encoder_in) = mpsc::channel::<Vec<Bytes>>(BATCHES);
    let (to_store, mut store_in) = mpsc::channel::<Bytes>(BATCHES);
    let proof = tokio::task::spawn_blocking(move || prove(proof_in));
    let encoder = tokio::task::spawn_blocking(move || encode(encoder_in, compression, to_store));

    let feed = async {
        let mut batch = Batch::default();
        while let Some(bytes) = stream.next().await {
            let bytes = bytes?;
            progress.add(bytes.len());
            batch.push(bytes);
            if batch.bytes >= BATCH && !batch.send(&to_proof, &to_encoder).await {
                // A step has ended early; its own result says why.
                break;
            }
        }
        batch.send(&to_proof, &to_encoder).await;
        drop((to_proof, to_encoder));
        Ok(())
    };
    let store = async {
        while let Some(bytes) = store_in.recv().await {
            upload.write(bytes).await?;
        }
        Ok(())
    };
    tokio::try_join!(feed, store)?;
    let database = ended(proof).await??;
    let (stored_bytes, stored_sha256) =
        ended(encoder).await?.map_err(|error| Error::transient(format!("compressing failed: {error}")))?;
    Ok(Streamed { database, stored_bytes, stored_sha256 })
}

async fn ended<T>(step: JoinHandle<T>) -> Result<T> {
    step.await.map_err(|error| task_error(&error))
}

/// Small messages on their way together.
#[derive(Default)]
struct Batch {
    messages: Vec<Bytes>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.messages.push(bytes);
    }

    /// Hands the same bytes to both steps. `false`: one of them has ended.
    async fn send(&mut self, proof: &mpsc::Sender<Vec<Bytes>>, encoder: &mpsc::Sender<Vec<Bytes>>) -> bool {
        let batch = std::mem::take(self).messages;
        batch.is_empty() || (proof.send(batch.clone()).await.is_ok() && encoder.send(batch).await.is_ok())
    }
}

fn prove(mut batches: mpsc::Receiver<Vec<Bytes>>) -> Result<Proven> {
    let mut hasher = trailer::Hasher::default();
    while let Some(batch) = batches.blocking_recv() {
        for bytes in &batch {
            hasher.update(bytes);
        }
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

fn encode(
    mut batches: mpsc::Receiver<Vec<Bytes>>,
    compression: Compression,
    to_store: mpsc::Sender<Bytes>,
) -> io::Result<(u64, [u8; 32])> {
    let mut encoder = Encoder::new(compression, Outlet::new(to_store))?;
    while let Some(batch) = batches.blocking_recv() {
        for bytes in &batch {
            encoder.write_all(bytes)?;
        }
    }
    encoder.finish()
}

/// One of the compressions, in front of the outlet.
enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Outlet>),
    Gzip(GzEncoder<Outlet>),
    None(Outlet),
}

impl Encoder {
    fn new(compression: Compression, outlet: Outlet) -> io::Result<Self> {
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
            // Copied once: parts made of etcd's small messages would keep the allocator from giving memory back.
            Self::None(outlet) => outlet.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<(u64, [u8; 32])> {
        match self {
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::None(outlet) => outlet,
        }
        .finish()
    }
}

/// Counts and hashes what is stored, and sends it on in pieces.
struct Outlet {
    to_store: mpsc::Sender<Bytes>,
    piece: BytesMut,
    hash: Sha256,
    bytes: u64,
}

impl Outlet {
    fn new(to_store: mpsc::Sender<Bytes>) -> Self {
        Self { to_store, piece: BytesMut::with_capacity(PIECE), hash: Sha256::new(), bytes: 0 }
    }

    fn finish(mut self) -> io::Result<(u64, [u8; 32])> {
        self.flush()?;
        Ok((self.bytes, self.hash.finalize().into()))
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(bytes.get(..taken).unwrap_or(bytes));
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.piece, BytesMut::with_capacity(PIECE)).freeze();
        self.hash.update(&full);
        self.bytes += full.len() as u64;
        self.to_store.blocking_send(full).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
