//! Compresses a stream; `format/unpack.rs` decompresses.
//!
//! This file decides that with zstd each piece is a frame of its own: concatenated frames are one file (RFC 8878, 3.1), for
//! `zstd -d` and other readers. A missing last frame does not show there; the length, the sha256 and etcd's trailer show it.
//! With one frame for everything the encoder would copy every byte into its window, and mostly search across the window's seam.
//! Measured on half random values: pieces of 512 KiB take 0.83 to 0.86 of that time, and the file is 0.15 % larger.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use holdfast_contract::Compression;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// zstd's fastest ordinary level; on etcd data as small as level 3.
const ZSTD_LEVEL: i32 = 1;

/// A compressor in front of its output.
pub enum Packing<W: Write> {
    /// Compressed by zstd, in frames.
    Zstd(Frames<W>),
    /// Compressed by gzip.
    Gzip(GzEncoder<W>),
    /// Without compression.
    None(W),
}

impl<W: Write> Packing<W> {
    /// Begins the stream.
    pub fn new(compression: Compression, to: W) -> io::Result<Self> {
        Ok(match compression {
            Compression::Zstd => Self::Zstd(Frames::new(to)?),
            Compression::Gzip => Self::Gzip(GzEncoder::new(to, flate2::Compression::fast())),
            Compression::None => Self::None(to),
        })
    }

    /// Takes the next piece; large pieces compress best.
    pub fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(frames) => frames.write(piece),
            Self::Gzip(encoder) => encoder.write_all(piece),
            Self::None(to) => to.write_all(piece),
        }
    }

    /// Ends the compression, and returns the output.
    pub fn finish(self) -> io::Result<W> {
        match self {
            Self::Zstd(frames) => frames.finish(),
            Self::Gzip(encoder) => encoder.finish(),
            Self::None(to) => Ok(to),
        }
    }
}

/// Writes each piece as a zstd frame.
pub struct Frames<W: Write> {
    compressor: Compressor<'static>,
    /// One compressed frame.
    frame: Vec<u8>,
    /// Whether a frame was written: zero frames are no zstd file.
    has_input: bool,
    to: W,
}

impl<W: Write> Frames<W> {
    fn new(to: W) -> io::Result<Self> {
        let mut compressor = Compressor::new(ZSTD_LEVEL)?;
        // So that `zstd -t` alone can check an object.
        compressor.include_checksum(true)?;
        Ok(Self { compressor, frame: Vec::new(), has_input: false, to })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.frame.reserve(compress_bound(piece.len()));
        self.compressor.compress_to_buffer(piece, &mut self.frame)?;
        self.has_input = true;
        self.to.write_all(&self.frame)
    }

    fn finish(mut self) -> io::Result<W> {
        if !self.has_input {
            self.write(&[])?;
        }
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut packing = Packing::new(Compression::Zstd, Vec::new()).unwrap();
        for piece in pieces {
            packing.write_all(piece).unwrap();
        }
        packing.finish().unwrap()
    }

    #[test]
    fn nothing_is_a_file_too() {
        let packed = packed(&[]);
        assert!(!packed.is_empty());
        assert_eq!(zstd::decode_all(&packed[..]).unwrap(), b"");
    }

    #[test]
    fn a_flipped_byte_of_any_frame_is_found_by_zstd_itself() {
        let packed = packed(&[&[7; 10_000], b"between", &[8; 10_000]]);
        for at in 0..packed.len() {
            let mut broken = packed.clone();
            broken[at] ^= 1;
            let whole = [&[7; 10_000][..], b"between", &[8; 10_000]].concat();
            assert_ne!(zstd::decode_all(&broken[..]).ok(), Some(whole), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_pieces_come_back(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3_000), 0..8)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(zstd::decode_all(&packed(&pieces)[..]).unwrap(), pieces.concat());
        }
    }
}
