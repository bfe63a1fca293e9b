//! Reads a stored object back and compares it with what was sent.
//!
//! It decides nothing but equality: a store that keeps something else than it was given is found out before a manifest
//! calls it a snapshot.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::error::{Error, Result, task_error};
use crate::layout::Key;
use crate::progress::Progress;
use crate::store::{Ahead, Store};

/// Pieces waiting to be hashed. Few: what the upload has used is still with the allocator.
const PIECES: usize = 2;

/// Fails unless the store gives these bytes back.
pub(crate) async fn compare(store: &Store, key: &Key, bytes: u64, sha256: [u8; 32], stall: Duration) -> Result<()> {
    let stat = store.stat(key).await?;
    let progress = Progress::new("reading back", bytes);
    let stream = store.read(key, &stat, Ahead::LITTLE, &progress);
    let found = progress.watch(stall, digest(stream)).await?;
    if found == (bytes, sha256) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{}: the store gives back {} bytes with sha256 {}, it was given {bytes} with {}; nothing was published",
        store.uri(key),
        found.0,
        hex::encode(found.1),
        hex::encode(sha256)
    )))
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
        (total, <[u8; 32]>::from(hash.finalize()))
    });
    while let Some(piece) = stream.next().await {
        if to_hash.send(piece?).await.is_err() {
            break;
        }
    }
    drop(to_hash);
    hashing.await.map_err(|error| task_error(&error))
}
