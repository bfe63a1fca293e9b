//! Reads the segments of a log.
//!
//! This file decides the order of unpacking, and the class of a damage. One segment is in memory at a time; its entries are
//! not.

use std::io::{BufReader, Cursor, Read};

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_layout::{Folder, SegmentName};
use holdfast_segment::{Reader, SegmentError};
use holdfast_store::Store;

use holdfast_format::crypt::{Identities, Opening};

/// Maximum size of a stored segment. A segment is longer than `--segment-mib` if one transaction is.
pub const MAX_STORED: u64 = 1 << 30;

/// Reads the stored bytes of a segment.
pub async fn fetch(store: &Store, log: &Folder, name: &SegmentName) -> Result<Bytes> {
    let key = name.key(log).map_err(|error| holdfast_store::layout(&error))?;
    store.get_small(&key, MAX_STORED).await
}

/// Opens the stored bytes of a segment. `identities`: of an encrypted segment.
pub fn open(stored: Bytes, identities: Option<&Identities>) -> Result<Reader<impl Read>, SegmentError> {
    let opened = Opening::new(identities, Cursor::new(stored)).map_err(|error| SegmentError::Io(error.into()))?;
    let unpacked = zstd::stream::read::Decoder::with_buffer(BufReader::new(opened)).map_err(SegmentError::Io)?;
    Reader::new(unpacked)
}

/// Returns the error of a segment that cannot be read.
pub fn unreadable(uri: &str, error: &SegmentError) -> Error {
    match error {
        SegmentError::LaterFormat(_) => Error::config(format!("{uri}: {error}")),
        // The bytes are in memory: an I/O error is one of zstd or age.
        _ => Error::corrupt(format!("{uri}: {error}")),
    }
}
