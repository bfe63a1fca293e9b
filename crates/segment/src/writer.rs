//! Fills segments from the events of a watch.
//!
//! This file decides where a segment may end: only after a revision whose every event has arrived. The records of the newest
//! revision wait apart, because a transaction may be split over several answers of etcd. The caller decides when a segment
//! ends and where its entries wait, and asks etcd for the leases that the writer names.

use std::collections::HashSet;
use std::io::{self, Write};
use std::mem;

use crc_fast::{CrcAlgorithm, Digest};

use crate::history::{RaftPlace, RevisionSum};
use crate::order::{Order, OutOfOrder};
use crate::wire::{KeyValue, put_varint};
use crate::{AUTH_CHANGED, Body, DELETE, END, FORMAT, HEADER, Header, LEASE, MAGIC, PUT, SAMPLE, UNKNOWN};

/// The source of a segment, for its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// etcd cluster ID.
    pub cluster_id: u64,
    /// Member ID of the watched member.
    pub member_id: u64,
    /// The latest compact revision that the caller has seen; 0: none.
    pub compact_revision: i64,
    /// Revision of etcd's users and roles, if known.
    pub auth_revision: Option<i64>,
    /// The place of etcd's raft, if known.
    pub raft: Option<RaftPlace>,
}

/// A finished segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<B = Vec<u8>> {
    /// Its header.
    pub header: Header,
    /// Checksum of its last revision, or of the one before a segment without records; `None`: unknown.
    pub last_sum: Option<u32>,
    /// Whether the segment has a sample.
    pub is_timed: bool,
    entries: B,
    count: u64,
}

/// A segment that grows.
#[derive(Debug)]
pub struct Writer<B = Vec<u8>> {
    /// The entries of complete revisions.
    entries: B,
    count: u64,
    /// The last complete main revision, and its checksum.
    complete: i64,
    complete_sum: Option<u32>,
    /// First main revision of the segment, and the checksum of the one before.
    first: i64,
    before: Option<u32>,
    /// Times of the first and the last sample.
    sampled: Option<(i64, i64)>,
    /// Time of the last sample of earlier segments.
    earlier: i64,
    /// Leases of complete revisions.
    leases: HashSet<i64>,
    /// Leases of complete revisions for which there is no entry.
    unasked: Vec<i64>,
    open: Open<B>,
}

/// The records of the newest revision.
#[derive(Debug)]
struct Open<B> {
    order: Order,
    records: B,
    count: u64,
    leases: Vec<i64>,
    sum: RevisionSum,
}

impl<B: Body> Writer<B> {
    /// Begins the log after this main revision. `known_at`: time, in milliseconds since 1970, of the last sample before.
    /// `entries`: an empty run for the entries.
    pub fn after(revision: i64, known_at: i64, entries: B) -> Self {
        Self {
            open: Open::after(revision, entries.empty()),
            entries,
            count: 0,
            complete: revision,
            complete_sum: None,
            first: revision.saturating_add(1),
            before: None,
            sampled: None,
            earlier: known_at.max(0),
            leases: HashSet::new(),
            unasked: Vec::new(),
        }
    }

    /// Adds a put. A later main revision than the newest completes the newest.
    pub fn put(&mut self, kv: &KeyValue<'_>) -> Result<(), OutOfOrder> {
        self.add(PUT, kv.mod_revision, kv)?;
        // A revision gives one lease to many keys.
        if kv.lease != 0 && self.open.leases.last() != Some(&kv.lease) {
            self.open.leases.push(kv.lease);
        }
        Ok(())
    }

    /// Adds a deletion. A later main revision than the newest completes the newest.
    pub fn delete(&mut self, main: i64, key: &[u8]) -> Result<(), OutOfOrder> {
        self.add(DELETE, main, &KeyValue { key, ..KeyValue::default() })
    }

    fn add(&mut self, tag: u8, main: i64, kv: &KeyValue<'_>) -> Result<(), OutOfOrder> {
        let newest = self.open.order;
        let sub = if newest.main == main { newest.sub.saturating_add(1) } else { 0 };
        self.open.order.admit(main, sub)?;
        if main > newest.main {
            self.close(newest.main);
        }
        let mut record = vec![tag];
        put_varint(main.cast_unsigned(), &mut record);
        put_varint(sub.cast_unsigned(), &mut record);
        put_varint(kv.encoded_len() as u64, &mut record);
        let value = record.len();
        kv.encode(&mut record);
        self.open.sum.add(tag == DELETE, record.get(value..).unwrap_or_default());
        self.open.records.add_bytes(&record);
        self.open.count += 1;
        Ok(())
    }

    /// Moves the newest revision to the complete ones.
    fn close(&mut self, main: i64) {
        if self.open.count > 0 {
            let empty = self.open.records.empty();
            self.entries.take_in(mem::replace(&mut self.open.records, empty));
            self.complete_sum = Some(self.open.sum.take());
        }
        self.count += mem::take(&mut self.open.count);
        self.complete = main;
        for lease in self.open.leases.drain(..) {
            if self.leases.insert(lease) {
                self.unasked.push(lease);
            }
        }
    }

    /// Notes that etcd has sent every event up to this revision. A later event of a complete revision is an error.
    pub fn complete(&mut self, revision: i64) {
        let newest = self.open.order.main;
        if newest <= revision {
            self.close(newest);
            self.open.order = Order::after(newest);
        }
    }

    /// Drops the records of the newest revision, for a watch that begins again after the last complete one.
    pub fn drop_incomplete(&mut self) {
        self.open = Open::after(self.complete, self.entries.empty());
    }

    /// Notes the checksum of the last complete revision, of which this writer has no record.
    pub fn set_sum(&mut self, sum: Option<u32>) {
        self.complete_sum = sum;
        if self.first > self.complete {
            self.before = sum;
        }
    }

    /// Returns the checksum of the last complete revision; `None`: unknown.
    pub const fn last_sum(&self) -> Option<u32> {
        self.complete_sum
    }

    /// Returns the leases that complete revisions name and that the caller has not been given yet.
    pub fn take_leases(&mut self) -> Vec<i64> {
        mem::take(&mut self.unasked)
    }

    /// Takes leases back whose granted seconds the caller could not ask for.
    pub fn return_leases(&mut self, leases: Vec<i64>) {
        self.unasked.extend(leases);
    }

    /// Adds a lease with its granted seconds; 0: the lease has ended.
    pub fn lease(&mut self, id: i64, ttl: i64) {
        self.entry(LEASE, &[id.cast_unsigned(), ttl.max(0).cast_unsigned()]);
    }

    /// Notes that etcd's newest revision was this one, which is complete, at a time in milliseconds since 1970. A clock that
    /// was set back counts as a clock that stands still.
    pub fn sample(&mut self, revision: i64, at: i64) {
        let revision = revision.clamp(self.first.saturating_sub(1), self.complete);
        let (first, at) = match self.sampled {
            Some((first, last)) => (first, at.max(last)),
            None => (at.max(0), at.max(0)),
        };
        self.sampled = Some((first, at));
        self.entry(SAMPLE, &[revision.cast_unsigned(), at.cast_unsigned()]);
    }

    /// Notes that etcd's users or roles have changed.
    pub fn auth_changed(&mut self) {
        self.entry(AUTH_CHANGED, &[self.complete.cast_unsigned()]);
    }

    fn entry(&mut self, tag: u8, numbers: &[u64]) {
        let mut entry = vec![tag];
        for number in numbers {
            put_varint(*number, &mut entry);
        }
        self.entries.add_bytes(&entry);
        self.count += 1;
    }

    /// Returns the last main revision of which every event has arrived.
    pub const fn last_complete(&self) -> i64 {
        self.complete
    }

    /// Returns the length of the entries of complete revisions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the segment has no entry.
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.open.count == 0
    }

    /// Ends the segment after the last complete revision, and begins the next. `None`: the segment has neither a revision nor a
    /// sample.
    pub fn cut(&mut self, origin: &Origin) -> Option<Segment<B>> {
        let is_timed = self.sampled.is_some();
        if !is_timed && self.first > self.complete {
            return None;
        }
        let (first_at, last_at) = self.sampled.take().unwrap_or((self.earlier, self.earlier));
        self.earlier = last_at;
        let header = Header {
            cluster_id: origin.cluster_id,
            member_id: origin.member_id,
            first: self.first,
            last: self.complete,
            first_at,
            last_at,
            compact_revision: origin.compact_revision,
            auth_revision: origin.auth_revision,
            before: self.before,
            raft: origin.raft,
        };
        let empty = self.entries.empty();
        let entries = mem::replace(&mut self.entries, empty);
        self.first = self.complete.saturating_add(1);
        self.before = self.complete_sum;
        self.leases.clear();
        self.unasked.clear();
        Some(Segment { header, last_sum: self.complete_sum, is_timed, entries, count: mem::take(&mut self.count) })
    }
}

impl<B: Body> Open<B> {
    fn after(revision: i64, records: B) -> Self {
        Self { order: Order::after(revision), records, count: 0, leases: Vec::new(), sum: RevisionSum::default() }
    }
}

impl<B: Body> Segment<B> {
    /// Writes the segment.
    pub fn write_to(self, out: &mut impl Write) -> io::Result<()> {
        let mut out = Summed { out, crc: Digest::new(CrcAlgorithm::Crc32Iscsi) };
        out.write_all(&self.header.encode())?;
        self.entries.write_to(&mut out)?;
        let mut end = vec![END];
        put_varint(self.count, &mut end);
        out.write_all(&end)?;
        #[expect(clippy::cast_possible_truncation, reason = "this checksum has 32 bits")]
        let crc = out.crc.finalize() as u32;
        out.out.write_all(&crc.to_le_bytes())
    }
}

/// Bytes on their way out, and their checksum.
struct Summed<'a, W> {
    out: &'a mut W,
    crc: Digest,
}

impl<W: Write> Write for Summed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let raft = self.raft.unwrap_or(RaftPlace { revision: UNKNOWN, applied: 0, committed: 0 });
        let numbers = [
            self.cluster_id,
            self.member_id,
            self.first.cast_unsigned(),
            self.last.cast_unsigned(),
            self.first_at.cast_unsigned(),
            self.last_at.cast_unsigned(),
            self.compact_revision.cast_unsigned(),
            self.auth_revision.unwrap_or(UNKNOWN).cast_unsigned(),
            self.before.map_or(UNKNOWN, i64::from).cast_unsigned(),
            raft.revision.cast_unsigned(),
            raft.applied.cast_unsigned(),
            raft.committed.cast_unsigned(),
        ];
        for (place, number) in out[12..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }
}
