//! Compresses and encrypts a segment, as snapshots are.
//!
//! This file decides the size of the pieces: each is a zstd frame (`format/pack.rs`).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use holdfast_contract::Compression;

use crate::format::crypt::{Recipients, Sealing};
use crate::format::pack::Packing;

/// Length of a piece.
const PIECE: usize = 512 << 10;

/// Writes a packed segment.
pub(super) fn pack(segment: &[u8], recipients: &Recipients, to: &mut File) -> io::Result<()> {
    let sealing = Sealing::new(recipients, BufWriter::new(to))?;
    let mut packing = Packing::new(Compression::Zstd, sealing)?;
    for piece in segment.chunks(PIECE) {
        packing.write_all(piece)?;
    }
    packing.finish()?.finish()?.flush()
}
