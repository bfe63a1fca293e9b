//! Reads a stored object back and compares it with what was sent.
//!
//! It decides nothing but equality: a store that keeps something else than it was given is found out before a manifest
//! calls it a snapshot. Against damage a checksum of 64 bits is as good as a long hash, and costs a tenth; against a store
//! that means to deceive neither helps here: it may give back one thing now and another one later, and for that the
//! manifest has a sha256.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::error::{Error, Result, task_error};
use crate::layout::Key;
use crate::progress::Progress;
use crate::sha256::Sha256;
use crate::store::{Ahead, Store};

/// Pieces waiting to be hashed. Few: what the upload has used is still with the allocator.
const PIECES: usize = 2;

/// What is known of the bytes that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// Worked out while they were sent.
    Crc64(u64),
    /// What their manifest says.
    Sha256([u8; 32]),
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc64(crc) => write!(f, "CRC64NVME {crc:016x}"),
            Self::Sha256(sha256) => write!(f, "sha256 {}", hex::encode(sha256)),
        }
    }
}

/// Fails unless the store gives these bytes back.
pub(crate) async fn compare(store: &Store, key: &Key, bytes: u64, sum: Sum, stall: Duration) -> Result<()> {
    store.forget(key).await?;
    let stat = store.stat(key).await?;
    let progress = Progress::new("reading back", bytes);
    let stream = store.read(key, &stat, Ahead::LITTLE, &progress);
    let found = match sum {
        Sum::Crc64(_) => progress.watch(stall, crc64(stream)).await?,
        Sum::Sha256(_) => {
            let (bytes, sha256) = progress.watch(stall, digest(stream)).await?;
            (bytes, Sum::Sha256(sha256))
        }
    };
    if found == (bytes, sum) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{}: the store gives back {} bytes with {}, it was given {bytes} with {sum}; nothing was published",
        store.uri(key),
        found.0,
        found.1,
    )))
}

/// Length and checksum of a stream. It is faster than what brings the bytes, so it needs no thread of its own.
async fn crc64(mut stream: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<(u64, Sum)> {
    let (mut crc, mut total) = (crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme), 0_u64);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        crc.update(&piece);
        total += piece.len() as u64;
    }
    Ok((total, Sum::Crc64(crc.finalize())))
}

/// Length and sha256 of a stream.
pub(crate) async fn digest(mut stream: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<(u64, [u8; 32])> {
    let (to_hash, mut received) = mpsc::channel::<Bytes>(PIECES);
    let hashing = tokio::task::spawn_blocking(move || {
        let (mut hash, mut total) = (Sha256::new(), 0_u64);
        while let Some(piece) = received.blocking_recv() {
            hash.update(&piece);
            total += piece.len() as u64;
        }
        (total, hash.finalize())
    });
    while let Some(piece) = stream.next().await {
        if to_hash.send(piece?).await.is_err() {
            break;
        }
    }
    drop(to_hash);
    hashing.await.map_err(|error| task_error(&error))
}
