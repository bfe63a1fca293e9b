//! Reads the records of one segment of etcd's log, as a stream: a record may be as large as etcd's largest request.
//!
//! This file decides where a segment ends, and whether a bad record is what a crash leaves (torn) or damage (etcd:
//! server/storage/wal/decoder.go). etcd's writes reach the disk in sectors: a record that was cut off by a crash ends with the
//! file, or lacks a whole sector, and only in the last segment. The meaning of the records is `log.rs`'s.

use std::fs::File;
use std::io::{self, BufReader, Read as _};

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_gate::wal::Reader;

/// Kinds of records (etcd: server/storage/wal/wal.go).
pub(super) mod kind {
    pub(in crate::stopped) const METADATA: u64 = 1;
    pub(in crate::stopped) const ENTRY: u64 = 2;
    pub(in crate::stopped) const STATE: u64 = 3;
    pub(in crate::stopped) const CRC: u64 = 4;
    pub(in crate::stopped) const SNAPSHOT: u64 = 5;
}

/// Bytes of a frame before its record.
pub(super) const FRAME: u64 = 8;

/// A disk writes at least these bytes at once.
const SECTOR: u64 = 512;

/// Bytes of a record in which its fields begin: a kind, a checksum and a length are at most 33 bytes, and the numbers of an
/// entry or a state at most 33 bytes more.
const BEGINNING: usize = 128;

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// A valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u64,
    /// Running checksum after the record.
    pub(super) crc: u32,
    /// The first bytes of its data; all numbers that the log needs are there.
    pub(super) head: Vec<u8>,
}

/// Result of reading a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Record(Record),
    /// The segment ends.
    End,
    /// The rest was cut off by a crash.
    Torn,
    /// The record is damaged.
    Broken(&'static str),
}

/// An open segment.
pub(super) struct Segment {
    file: BufReader<File>,
    bytes: u64,
    /// End of the last valid record.
    at: u64,
    /// Running checksum of the data up to there, over all segments.
    crc: u32,
    /// Whether no segment follows.
    is_last: bool,
}

impl Segment {
    /// Begins a segment; `crc`: running checksum at the end of the segment before, 0 for the first.
    pub(super) fn new(file: File, crc: u32, is_last: bool) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file: BufReader::with_capacity(PIECE, file), bytes, at: 0, crc, is_last })
    }

    /// Returns the end of the last valid record.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Returns the running checksum there.
    pub(super) const fn crc(&self) -> u32 {
        self.crc
    }

    /// Reads the next record.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        let room = self.bytes - self.at;
        if room == 0 {
            return Ok(Next::End);
        }
        if room < FRAME {
            return Ok(self.cut("it ends within a record's length"));
        }
        let mut head = [0; 8];
        self.file.read_exact(&mut head)?;
        let head = u64::from_le_bytes(head);
        // Space that etcd has allocated and not written.
        if head == 0 {
            return Ok(Next::End);
        }
        let length = head & ((1 << 56) - 1);
        let padding = if head >> 63 == 1 { head >> 56 & 0x7 } else { 0 };
        let Some(end) = length.checked_add(padding).filter(|end| *end <= room - FRAME) else {
            return Ok(self.cut("a record goes on beyond the end"));
        };
        let mut body = Body::new(self.crc, self.at + FRAME, length);
        let mut piece = vec![0; PIECE.min(usize::try_from(end).unwrap_or(PIECE))];
        let mut remaining = end;
        while remaining > 0 {
            let take = piece.len().min(usize::try_from(remaining).unwrap_or(PIECE));
            let Some(piece) = piece.get_mut(..take) else { break };
            self.file.read_exact(piece)?;
            body.add(piece);
            remaining -= take as u64;
        }
        match body.record(self.crc) {
            Ok(record) => {
                self.crc = record.crc;
                self.at += FRAME + end;
                Ok(Next::Record(record))
            }
            Err(_) if self.is_last && body.lacks_a_sector() => Ok(Next::Torn),
            Err(what) => Ok(Next::Broken(what)),
        }
    }

    /// Whether bytes other than zero follow the end: an earlier, torn write left them.
    pub(super) fn has_leftovers(&mut self) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        loop {
            match self.file.read(&mut piece)? {
                0 => return Ok(false),
                got if piece.iter().take(got).any(|byte| *byte != 0) => return Ok(true),
                _ => {}
            }
        }
    }

    const fn cut(&self, what: &'static str) -> Next {
        if self.is_last { Next::Torn } else { Next::Broken(what) }
    }
}

/// A record that is being read.
struct Body {
    beginning: Vec<u8>,
    /// Bytes of the record, without its padding.
    length: u64,
    got: u64,
    fields: Option<Fields>,
    digest: Digest,
    /// Place in the file, and whether the sector that ends there has only zeros so far.
    place: u64,
    is_zero: bool,
    lacks: bool,
}

/// The fields of a record before its data.
#[derive(Clone, Copy)]
struct Fields {
    kind: u64,
    sum: u32,
    /// Where its data begin in the record.
    data: u64,
}

impl Body {
    fn new(crc: u32, place: u64, length: u64) -> Self {
        // The register of CRC-32C holds the complement of the sum.
        let digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        Self { beginning: Vec::new(), length, got: 0, fields: None, digest, place, is_zero: true, lacks: false }
    }

    /// Takes the next bytes.
    fn add(&mut self, piece: &[u8]) {
        self.note_zeros(piece);
        let own = usize::try_from(self.length - self.got).map_or(piece.len(), |own| own.min(piece.len()));
        let piece = piece.get(..own).unwrap_or_default();
        // The first piece holds the whole beginning.
        if self.got == 0 {
            self.beginning = piece.get(..BEGINNING.min(own)).unwrap_or_default().to_vec();
            self.fields = fields(&self.beginning, self.length);
        }
        if let Some(fields) = self.fields {
            let from = usize::try_from(fields.data.saturating_sub(self.got)).unwrap_or(usize::MAX);
            self.digest.update(piece.get(from.min(own)..).unwrap_or_default());
        }
        self.got += own as u64;
    }

    fn note_zeros(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let to_end = usize::try_from(SECTOR - self.place % SECTOR).unwrap_or(piece.len());
            let (sector, rest) = piece.split_at(to_end.min(piece.len()));
            self.is_zero &= sector.iter().all(|byte| *byte == 0);
            self.place += sector.len() as u64;
            if self.place.is_multiple_of(SECTOR) {
                self.lacks |= self.is_zero;
                self.is_zero = true;
            }
            piece = rest;
        }
    }

    /// Whether a sector, or the part of one that the record has, was never written.
    const fn lacks_a_sector(&self) -> bool {
        self.lacks || !self.place.is_multiple_of(SECTOR) && self.is_zero
    }

    fn record(&self, before: u32) -> Result<Record, &'static str> {
        let fields = self.fields.ok_or("a record cannot be read")?;
        // CRC-32C has 32 bits.
        let crc = u32::try_from(self.digest.finalize()).unwrap_or_default();
        let Fields { kind, sum, data } = fields;
        let head = usize::try_from(data).ok().and_then(|data| self.beginning.get(data..)).unwrap_or_default().to_vec();
        if kind == kind::CRC {
            // The start of a segment repeats the sum at the end of the one before; 0: nothing is before.
            return if before == 0 || sum == before {
                Ok(Record { kind, crc: sum, head })
            } else {
                Err("it does not continue the segment before")
            };
        }
        if crc == sum { Ok(Record { kind, crc, head }) } else { Err("a record fails its checksum") }
    }
}

/// Reads kind, checksum and the place of the data, in the order in which etcd writes them.
fn fields(beginning: &[u8], length: u64) -> Option<Fields> {
    let mut reader = Reader(beginning);
    let (mut kind, mut sum) = (0, 0);
    while !reader.0.is_empty() {
        match reader.varint().ok()? {
            0x08 => kind = reader.varint().ok()?,
            0x10 => sum = u32::try_from(reader.varint().ok()?).ok()?,
            0x1a => {
                let bytes = reader.varint().ok()?;
                let data = (beginning.len() - reader.0.len()) as u64;
                return (data.checked_add(bytes)? == length).then_some(Fields { kind, sum, data });
            }
            _ => return None,
        }
    }
    // A record without data.
    (beginning.len() as u64 == length).then_some(Fields { kind, sum, data: length })
}
