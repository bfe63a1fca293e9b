//! Reads the IDs of a write-ahead log: the metadata record at the start of its first segment.
//!
//! Pure except for one read. The parser knows only the part of etcd's format that leads to the cluster ID and the member ID,
//! and returns an error for any unknown content. It does not read entries.
//!
//! A segment is a sequence of frames. A frame is a length (64 bits, little endian; the low 56 bits are the record's length,
//! and when the highest bit is set the three below bit 59 are its padding), then the record: protobuf
//! `{1: type, 2: crc, 3: data}`. A segment starts with a crc record (type 4) that continues the running CRC32C, then the
//! metadata (type 1): protobuf `{1: node ID, 2: cluster ID}`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The IDs in a log's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// etcd member ID.
    pub member_id: u64,
}

/// Reason for which a log's IDs are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// The bytes are no WAL, or a WAL whose start was cut or overwritten.
    #[error("the WAL's beginning cannot be read: {0}")]
    Format(&'static str),
    /// The checksum of the metadata is wrong.
    #[error("the WAL's metadata fails its checksum")]
    Checksum,
    /// The operating system could not read the WAL.
    #[error("the WAL cannot be read: {1}")]
    Io(io::ErrorKind, String),
}

const METADATA: u64 = 1;
const CRC: u64 = 4;

/// Metadata has about 20 bytes and is the second record; the parser does not read further.
const LOOK_AT: u64 = 4096;

/// Reads the metadata of the log in this folder (`member/wal`). `Ok(None)`: no segment exists.
pub fn metadata_of(folder: &Path) -> Result<Option<Metadata>, WalError> {
    let io = |error: io::Error| WalError::Io(error.kind(), error.to_string());
    let names = holdfast_io::files::names(folder).map_err(io)?.unwrap_or_default();
    // Segment names are `<sequence>-<first index>.wal` in fixed-width hex, so they sort by age.
    let Some(first) = names.iter().find(|name| name.strip_suffix(".wal").is_some()) else {
        return Ok(None);
    };
    let mut beginning = Vec::new();
    File::open(folder.join(first)).map_err(io)?.take(LOOK_AT).read_to_end(&mut beginning).map_err(io)?;
    parse(&beginning).map(Some)
}

/// Finds the metadata in the first bytes of a segment.
pub fn parse(segment: &[u8]) -> Result<Metadata, WalError> {
    let mut frames = Reader(segment);
    let mut crc = 0;
    loop {
        let record = frames.frame()?;
        let (kind, sum, data) = fields(record)?;
        if kind == CRC {
            crc = u32::try_from(sum).map_err(|_| WalError::Format("a checksum is too long"))?;
            continue;
        }
        if kind != METADATA {
            return Err(WalError::Format("the WAL does not begin with metadata"));
        }
        if u64::from(crc32c(crc, data)) != sum {
            return Err(WalError::Checksum);
        }
        let mut ids = Reader(data);
        let (mut member_id, mut cluster_id) = (None, None);
        while !ids.0.is_empty() {
            match ids.field()? {
                (1, Value::Number(id)) => member_id = Some(id),
                (2, Value::Number(id)) => cluster_id = Some(id),
                _ => {}
            }
        }
        return match (cluster_id, member_id) {
            (Some(cluster_id), Some(member_id)) if cluster_id != 0 && member_id != 0 => {
                Ok(Metadata { cluster_id, member_id })
            }
            _ => Err(WalError::Format("the metadata names no cluster or no member")),
        };
    }
}

/// Type, checksum and data of a record.
fn fields(record: &[u8]) -> Result<(u64, u64, &[u8]), WalError> {
    let (mut kind, mut sum, mut data) = (0, 0, &[][..]);
    let mut reader = Reader(record);
    while !reader.0.is_empty() {
        match reader.field()? {
            (1, Value::Number(number)) => kind = number,
            (2, Value::Number(number)) => sum = number,
            (3, Value::Bytes(bytes)) => data = bytes,
            _ => return Err(WalError::Format("a record has an unknown field")),
        }
    }
    Ok((kind, sum, data))
}

/// A protobuf value of the two kinds in this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// Bytes with their length before them.
    Bytes(&'a [u8]),
}

/// The unread bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    const SHORT: WalError = WalError::Format("the WAL ends too early");

    fn take(&mut self, length: usize) -> Result<&'a [u8], WalError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn frame(&mut self) -> Result<&'a [u8], WalError> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or(Self::SHORT)?;
        self.0 = rest;
        let head = u64::from_le_bytes(*head);
        // Preallocated space is zero: a length of zero is the log's end.
        let length = usize::try_from(head & ((1 << 56) - 1)).map_err(|_| Self::SHORT)?;
        let padding = if head >> 63 == 1 { usize::try_from((head >> 56) & 0x7).unwrap_or(0) } else { 0 };
        if length == 0 {
            return Err(Self::SHORT);
        }
        let record = self.take(length)?;
        self.take(padding)?;
        Ok(record)
    }

    /// Takes a number.
    pub fn varint(&mut self) -> Result<u64, WalError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.take(1)?.first().copied().unwrap_or(0));
            let bits = byte & 0x7f;
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WalError::Format("a number is too long"))
    }

    /// Takes a field: its number, and its value.
    pub fn field(&mut self) -> Result<(u64, Value<'a>), WalError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Self::SHORT)?;
                Value::Bytes(self.take(length)?)
            }
            _ => return Err(WalError::Format("a field is of an unknown kind")),
        };
        Ok((tag >> 3, value))
    }
}

/// CRC-32C, continued from `crc`, bit by bit: it covers about twenty bytes.
fn crc32c(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn varint(mut number: u64, out: &mut Vec<u8>) {
        while number >= 0x80 {
            out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        out.push(u8::try_from(number).unwrap());
    }

    fn record(kind: u64, sum: u32, data: Option<&[u8]>) -> Vec<u8> {
        let mut record = vec![0x08];
        varint(kind, &mut record);
        record.push(0x10);
        varint(u64::from(sum), &mut record);
        if let Some(data) = data {
            record.push(0x1a);
            varint(data.len() as u64, &mut record);
            record.extend_from_slice(data);
        }
        let padding = (8 - record.len() % 8) % 8;
        let mut head = record.len() as u64;
        if padding != 0 {
            head |= (0x80 | padding as u64) << 56;
        }
        let mut frame = head.to_le_bytes().to_vec();
        frame.append(&mut record);
        frame.resize(frame.len() + padding, 0);
        frame
    }

    fn segment(before: u32, member_id: u64, cluster_id: u64) -> Vec<u8> {
        let mut data = vec![0x08];
        varint(member_id, &mut data);
        data.push(0x10);
        varint(cluster_id, &mut data);
        let mut segment = record(CRC, before, None);
        segment.extend(record(METADATA, crc32c(before, &data), Some(&data)));
        segment
    }

    #[test]
    fn the_checksum_is_castagnoli() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }

    #[test]
    fn empty_and_preallocated_logs_say_nothing() {
        assert_eq!(parse(&[]), Err(Reader::SHORT));
        assert_eq!(parse(&[0; 4096]), Err(Reader::SHORT));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(metadata_of(folder.path()), Ok(None));
        assert_eq!(metadata_of(&folder.path().join("none")), Ok(None));
        std::fs::write(folder.path().join("0.tmp"), "x").unwrap();
        assert_eq!(metadata_of(folder.path()), Ok(None), "a preallocated file is no segment");
    }

    #[test]
    fn the_oldest_segment_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("0000000000000001-0000000000000009.wal"), segment(7, 1, 2)).unwrap();
        std::fs::write(folder.path().join("0000000000000002-0000000000000019.wal"), "torn").unwrap();
        assert_eq!(metadata_of(folder.path()), Ok(Some(Metadata { cluster_id: 2, member_id: 1 })));
    }

    proptest! {
        #[test]
        fn what_etcd_writes_is_read(before: u32, member_id in 1u64.., cluster_id in 1u64..) {
            prop_assert_eq!(parse(&segment(before, member_id, cluster_id)), Ok(Metadata { cluster_id, member_id }));
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_flipped_bit_never_gives_other_ids(before: u32, id in 1u64.., at: prop::sample::Index, bit in 0u32..8) {
            let good = segment(before, id, id);
            let mut bytes = good.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(found) = parse(&bytes) {
                prop_assert_eq!(found, Metadata { cluster_id: id, member_id: id });
            }
        }

        #[test]
        fn a_cut_is_an_error(before: u32, id in 1u64.., to: prop::sample::Index) {
            let bytes = segment(before, id, id);
            let record_end = bytes.len() - 7;
            let cut = to.index(record_end);
            prop_assert!(parse(&bytes[..cut]).is_err());
        }
    }
}
