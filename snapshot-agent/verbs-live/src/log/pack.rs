//! Compresses and encrypts a segment, as snapshots are.
//!
//! This file decides the size of the pieces: each is a zstd frame (`format/pack.rs`).

use std::fs::File;
use std::io::{self, BufWriter, Write};

use holdfast_contract::Compression;
use holdfast_segment::{Body, Segment};

use holdfast_format::crypt::{Recipients, Sealing};
use holdfast_format::pack::Packing;

/// Length of a piece.
const PIECE: usize = 512 << 10;

/// Writes a packed segment.
pub(super) fn pack(segment: Segment<impl Body>, recipients: &Recipients, to: &mut File) -> io::Result<()> {
    let sealing = Sealing::new(recipients, BufWriter::new(to))?;
    let mut pieces = BufWriter::with_capacity(PIECE, Pieces(Packing::new(Compression::Zstd, sealing)?));
    segment.write_to(&mut pieces)?;
    let Pieces(packing) = pieces.into_inner().map_err(io::IntoInnerError::into_error)?;
    packing.finish()?.finish()?.flush()
}

/// Takes each write as a piece.
struct Pieces<W: Write>(Packing<W>);

impl<W: Write> Write for Pieces<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.write_all(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
