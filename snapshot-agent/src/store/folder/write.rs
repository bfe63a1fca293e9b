//! Writes one file, and says that it is done when all of it is durable.

use std::io::{self, Write as _};

use bytes::Bytes;
use cap_std::fs::File;
use tokio::sync::mpsc;

use crate::writeback::Writeback;

/// Writes everything and makes it durable; how much that was.
pub(super) fn all(mut file: File, mut received: mpsc::Receiver<Bytes>) -> io::Result<u64> {
    let mut written = 0;
    let synced = file.try_clone()?;
    let mut writeback = Writeback::begin(move || synced.sync_data());
    while let Some(piece) = received.blocking_recv() {
        file.write_all(&piece)?;
        written += piece.len() as u64;
        writeback.wrote(piece.len());
    }
    writeback.end()?;
    file.sync_all()?;
    Ok(written)
}
