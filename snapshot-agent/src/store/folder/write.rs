//! Writes a file while the disk is kept busy.
//!
//! It decides when what is written goes to the disk. When a snapshot is complete it is durable, and what would wait for
//! that end waits all at once otherwise.

use std::io::{self, Write as _};

use bytes::Bytes;
use cap_std::fs::File;
use tokio::sync::mpsc;

/// The disk is handed what is written in steps of at least so much.
const SYNC_EVERY: usize = 32 << 20;

/// Writes everything and makes it durable; how much that was.
pub(super) fn all(mut file: File, mut received: mpsc::Receiver<Bytes>) -> io::Result<u64> {
    let (mut written, mut waiting) = (0, 0);
    let (to_sync, syncing) = std::sync::mpsc::sync_channel(0);
    let synced = file.try_clone()?;
    let syncer = std::thread::spawn(move || syncing.iter().try_for_each(|()| synced.sync_data()));
    while let Some(piece) = received.blocking_recv() {
        file.write_all(&piece)?;
        written += piece.len() as u64;
        waiting += piece.len();
        // An error of sending: the disk is busy with what came before, or broken, and that is told at the end.
        if waiting >= SYNC_EVERY && to_sync.try_send(()).is_ok() {
            waiting = 0;
        }
    }
    drop(to_sync);
    // An error of writing is told to one of those who ask, once (fsync(2)).
    syncer.join().map_err(|_| io::Error::other("the thread that syncs has panicked"))??;
    file.sync_all()?;
    Ok(written)
}
