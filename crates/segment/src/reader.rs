//! Reads a segment as a stream, and refuses everything that no [`Writer`](crate::Writer) writes.
//!
//! This file decides whether the bytes are a segment. It holds one value at a time, and no length of the input makes it reserve
//! memory before the bytes are there. The checksum stands at the end: the entries are proven when [`Reader::next`] returns
//! `None`, and not before.

use std::io::{self, BufReader, Read};

use crc_fast::{CrcAlgorithm, Digest};

use crate::history::RaftPlace;
use crate::order::{Order, OutOfOrder};
use crate::wire::Varint;
use crate::{
    AUTH_CHANGED, DELETE, END, Entry, FORMAT, HEADER, HEADER_1, Header, LEASE, MAGIC, MAX_VALUE, PUT, Record, SAMPLE,
    UNKNOWN,
};

/// Reason for which bytes are no segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The source could not be read.
    #[error("reading a segment: {0}")]
    Io(#[source] io::Error),
    /// The bytes end too early.
    #[error("the segment ends at byte {0}, before its end")]
    Cut(u64),
    /// Another file.
    #[error("this is no segment: it does not begin with HOLDFSEG")]
    Magic,
    /// A later format.
    #[error("the segment has format {0}, and this version reads formats up to {FORMAT}. Use a later version")]
    LaterFormat(u32),
    /// An impossible entry.
    #[error("the segment is damaged before byte {at}: {why}")]
    Malformed {
        /// Bytes read.
        at: u64,
        /// The damage.
        why: &'static str,
    },
    /// A missing change.
    #[error("the segment is damaged: {0}")]
    Order(#[from] OutOfOrder),
    /// Another checksum.
    #[error("the segment is damaged: its CRC32C is {found:08x}, and {recorded:08x} is recorded")]
    Checksum {
        /// Of the bytes.
        found: u32,
        /// At the segment's end.
        recorded: u32,
    },
}

/// A segment that is read.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: Input<R>,
    header: Header,
    order: Order,
    count: u64,
    /// Revision and time of the last sample.
    sampled: Option<(i64, i64)>,
    value: Vec<u8>,
    needs_sample: bool,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(from: R) -> Result<Self, SegmentError> {
        let mut input = Input { from: BufReader::new(from), crc: Digest::new(CrcAlgorithm::Crc32Iscsi), at: 0 };
        let mut bytes = [0; HEADER];
        input.fill(&mut bytes[..MAGIC.len()])?;
        if !bytes.starts_with(MAGIC) {
            return Err(SegmentError::Magic);
        }
        input.fill(&mut bytes[MAGIC.len()..12])?;
        let format = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if format > FORMAT {
            return Err(SegmentError::LaterFormat(format));
        }
        let header = match format {
            1 => {
                input.fill(&mut bytes[12..HEADER_1])?;
                Header::decode(&bytes[..HEADER_1])
            }
            FORMAT => {
                input.fill(&mut bytes[12..])?;
                Header::decode(&bytes)
            }
            _ => None,
        };
        let header = header.ok_or_else(|| input.malformed("the header is impossible"))?;
        let order = Order::after(header.first.saturating_sub(1));
        let needs_sample = format == 1 || header.last < header.first;
        Ok(Self { input, header, order, count: 0, sampled: None, value: Vec::new(), needs_sample, ended: false })
    }

    /// Returns the header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next entry; `None`: the segment ended, and its checksum is right.
    #[allow(clippy::should_implement_trait, reason = "an entry borrows its value from the reader")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, SegmentError> {
        if self.ended {
            return Ok(None);
        }
        let tag = self.input.byte()?;
        if tag == END {
            self.end()?;
            self.ended = true;
            return Ok(None);
        }
        self.count = self.count.saturating_add(1);
        match tag {
            PUT | DELETE => self.record(tag == DELETE).map(|record| Some(Entry::Record(record))),
            LEASE => {
                let (id, ttl) = (self.input.varint()?.cast_signed(), self.input.number()?);
                if id == 0 {
                    Err(self.input.malformed("a lease has the ID 0"))
                } else {
                    Ok(Some(Entry::Lease { id, ttl }))
                }
            }
            SAMPLE => {
                let (revision, at) = (self.input.number()?, self.input.number()?);
                let ordered = match self.sampled {
                    Some((before, before_at)) => before <= revision && before_at <= at,
                    None => self.header.first_at == at,
                };
                if !ordered || !self.is_known(revision) {
                    return Err(self.input.malformed("a sample is out of order"));
                }
                self.sampled = Some((revision, at));
                Ok(Some(Entry::Sample { revision, at }))
            }
            AUTH_CHANGED => {
                let revision = self.input.number()?;
                if !self.is_known(revision) {
                    return Err(self.input.malformed("a change of users is out of order"));
                }
                Ok(Some(Entry::AuthChanged { revision }))
            }
            _ => Err(self.input.malformed("an entry has an unknown kind")),
        }
    }

    /// Whether the revision is the segment's, or the one before, and was read already.
    fn is_known(&self, revision: i64) -> bool {
        self.header.first.saturating_sub(1) <= revision && revision <= self.order.main
    }

    fn record(&mut self, tombstone: bool) -> Result<Record<'_>, SegmentError> {
        let (main, sub) = (self.input.number()?, self.input.number()?);
        self.order.admit(main, sub)?;
        if main > self.header.last {
            return Err(self.input.malformed("a revision is beyond the last of the header"));
        }
        let length = self.input.varint()?;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= MAX_VALUE) else {
            return Err(self.input.malformed("a value is too long"));
        };
        self.input.value(length, &mut self.value)?;
        Ok(Record { main, sub, tombstone, value: &self.value })
    }

    /// Compares header, count and checksum, and that nothing follows.
    fn end(&mut self) -> Result<(), SegmentError> {
        if self.order.main != self.header.last {
            return Err(self.input.malformed("the last revision of the header is missing"));
        }
        let Header { first_at, last_at, .. } = self.header;
        let is_last = match self.sampled {
            Some((_, at)) => at == last_at,
            None => !self.needs_sample && first_at == last_at,
        };
        if !is_last {
            return Err(self.input.malformed("the last sample is not the header's"));
        }
        if self.input.varint()? != self.count {
            return Err(self.input.malformed("the number of entries is wrong"));
        }
        let found = self.input.checksum();
        let mut recorded = [0; 4];
        self.input.fill(&mut recorded)?;
        let recorded = u32::from_le_bytes(recorded);
        if found != recorded {
            return Err(SegmentError::Checksum { found, recorded });
        }
        match self.input.byte() {
            Err(SegmentError::Cut(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.input.malformed("bytes follow the end")),
        }
    }
}

impl Header {
    /// Returns `None` for numbers that no writer writes.
    fn decode(bytes: &[u8]) -> Option<Self> {
        // Facts that format 1 lacks are unknown.
        let mut numbers = [UNKNOWN.cast_unsigned(); 12];
        for (number, place) in numbers.iter_mut().zip(bytes.get(12..)?.chunks_exact(8)) {
            *number = u64::from_le_bytes(*place.first_chunk()?);
        }
        let [cluster_id, member_id, rest @ ..] = numbers;
        let [first, last, first_at, last_at, compact_revision, auth_revision, before, raft @ ..] =
            rest.map(u64::cast_signed);
        let [revision, applied, committed] = raft;
        let before = if before == UNKNOWN { None } else { Some(u32::try_from(before).ok()?) };
        let raft = match revision {
            UNKNOWN => None,
            _ if revision >= 0 && applied >= 0 && committed >= 0 => Some(RaftPlace { revision, applied, committed }),
            _ => return None,
        };
        let possible = first > 0
            && first.checked_sub(1)? <= last
            && 0 <= first_at
            && first_at <= last_at
            && compact_revision >= 0
            && auth_revision >= UNKNOWN;
        let auth_revision = (auth_revision != UNKNOWN).then_some(auth_revision);
        possible.then_some(Self {
            cluster_id,
            member_id,
            first,
            last,
            first_at,
            last_at,
            compact_revision,
            auth_revision,
            before,
            raft,
        })
    }
}

/// The bytes, and their checksum.
#[derive(Debug)]
struct Input<R: Read> {
    from: BufReader<R>,
    crc: Digest,
    at: u64,
}

impl<R: Read> Input<R> {
    fn malformed(&self, why: &'static str) -> SegmentError {
        SegmentError::Malformed { at: self.at, why }
    }

    /// Fills the place to its end.
    fn fill(&mut self, place: &mut [u8]) -> Result<(), SegmentError> {
        self.from.read_exact(place).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SegmentError::Cut(self.at),
            _ => SegmentError::Io(error),
        })?;
        self.crc.update(place);
        self.at = self.at.saturating_add(place.len() as u64);
        Ok(())
    }

    /// Reads a value; the memory grows with the bytes that are there.
    fn value(&mut self, length: usize, into: &mut Vec<u8>) -> Result<(), SegmentError> {
        into.clear();
        let read = (&mut self.from).take(length as u64).read_to_end(into).map_err(SegmentError::Io)?;
        self.crc.update(into);
        self.at = self.at.saturating_add(read as u64);
        if read == length { Ok(()) } else { Err(SegmentError::Cut(self.at)) }
    }

    fn byte(&mut self) -> Result<u8, SegmentError> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64, SegmentError> {
        let mut varint = Varint::default();
        loop {
            let byte = self.byte()?;
            match varint.push(byte) {
                None => return Err(self.malformed("a number is too long")),
                Some(Some(number)) => return Ok(number),
                Some(None) => {}
            }
        }
    }

    /// Reads a number that is not negative.
    fn number(&mut self) -> Result<i64, SegmentError> {
        let number = self.varint()?;
        i64::try_from(number).map_err(|_| self.malformed("a number is too large"))
    }

    #[expect(clippy::cast_possible_truncation, reason = "this checksum has 32 bits")]
    fn checksum(&self) -> u32 {
        self.crc.finalize() as u32
    }
}
