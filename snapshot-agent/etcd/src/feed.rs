//! A snapshot stream of etcd, handed to the steps that read it.
//!
//! Decides the size of the pieces, and that every step gets all of them. The steps decide the use of the bytes.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use holdfast_contract::error::Result;
use holdfast_io::pool::{Buffer, Pool};
use holdfast_io::progress::Progress;
use tokio::sync::mpsc::Sender;

/// Hands the whole stream to all steps. `false`: a step has ended early.
pub async fn feed_steps(
    mut stream: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    pool: &Pool,
    steps: &[Sender<Bytes>],
    progress: &Progress,
) -> Result<bool> {
    // Copies etcd's messages of 32 KiB together, which frees their own memory at once.
    let mut piece = pool.take();
    while let Some(message) = stream.next().await {
        let message = message?;
        progress.add(message.len());
        let mut rest = message.as_ref();
        while let Some(full) = piece.fill(&mut rest) {
            if !hand_on(full, steps).await {
                progress.ended();
                return Ok(false);
            }
        }
    }
    progress.ended();
    Ok(hand_on(piece, steps).await)
}

/// Gives the same bytes to all steps. `false`: a step has ended.
async fn hand_on(piece: Buffer, steps: &[Sender<Bytes>]) -> bool {
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
