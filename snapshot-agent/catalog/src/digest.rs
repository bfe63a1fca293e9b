//! Computes length and sha256 of a store's answer. Decides nothing.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use holdfast_contract::error::{Result, task_error};
use holdfast_io::sha256::Sha256;
use tokio::sync::mpsc;

/// Pieces waiting for the hash. Few, because the allocator still holds the upload's memory.
const PIECES: usize = 2;

/// Returns length and sha256 of a stream.
pub async fn digest(mut stream: impl Stream<Item = Result<Bytes>> + Unpin) -> Result<(u64, [u8; 32])> {
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
