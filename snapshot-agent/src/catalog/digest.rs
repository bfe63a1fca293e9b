//! Length and sha256 of what a store returns. It decides nothing.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use crate::error::{Result, task_error};
use crate::util::sha256::Sha256;

/// Pieces waiting to be hashed. Few: what the upload has used is still with the allocator.
const PIECES: usize = 2;

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
