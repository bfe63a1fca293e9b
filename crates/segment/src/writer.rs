//! Fills segments from the events of a watch.
//!
//! This file decides where a segment may end: only after a revision whose every event has arrived. The records of the newest
//! revision wait apart, because a transaction may be split over several answers of etcd. The caller decides when a segment
//! ends, and asks etcd for the leases that the writer names.

use std::collections::HashSet;
use std::mem;

use crate::order::{Order, OutOfOrder};
use crate::wire::{KeyValue, put_varint};
use crate::{AUTH_CHANGED, DELETE, END, FORMAT, HEADER, Header, LEASE, MAGIC, MAX_VALUE, PUT, SAMPLE, UNKNOWN};

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
}

/// A finished segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its header.
    pub header: Header,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// A segment that grows.
#[derive(Debug)]
pub struct Writer {
    /// Room for the header, then the entries of complete revisions.
    body: Vec<u8>,
    count: u64,
    /// The last complete main revision.
    complete: i64,
    /// First main revision of the segment.
    first: i64,
    /// Times of the first and the last sample.
    sampled: Option<(i64, i64)>,
    /// Leases of complete revisions.
    leases: HashSet<i64>,
    /// Leases of complete revisions for which there is no entry.
    unasked: Vec<i64>,
    open: Open,
    room: usize,
}

/// The records of the newest revision.
#[derive(Debug)]
struct Open {
    order: Order,
    records: Vec<u8>,
    count: u64,
    leases: Vec<i64>,
}

impl Writer {
    /// Begins the log after this main revision. `room`: expected length of a segment.
    pub fn after(revision: i64, room: usize) -> Self {
        Self {
            body: empty_body(room),
            count: 0,
            complete: revision,
            first: revision.saturating_add(1),
            sampled: None,
            leases: HashSet::new(),
            unasked: Vec::new(),
            open: Open::after(revision),
            room,
        }
    }

    /// Adds a put. A later main revision than the newest completes the newest.
    pub fn put(&mut self, kv: &KeyValue<'_>) -> Result<(), OutOfOrder> {
        self.begin(PUT, kv.mod_revision)?;
        put_varint(kv.encoded_len() as u64, &mut self.open.records);
        kv.encode(&mut self.open.records);
        if kv.lease != 0 {
            self.open.leases.push(kv.lease);
        }
        Ok(())
    }

    /// Adds a deletion. A later main revision than the newest completes the newest.
    pub fn delete(&mut self, main: i64, key: &[u8]) -> Result<(), OutOfOrder> {
        self.begin(DELETE, main)?;
        let kv = KeyValue { key, ..KeyValue::default() };
        put_varint(kv.encoded_len() as u64, &mut self.open.records);
        kv.encode(&mut self.open.records);
        Ok(())
    }

    fn begin(&mut self, tag: u8, main: i64) -> Result<(), OutOfOrder> {
        let newest = self.open.order;
        let sub = if newest.main == main { newest.sub.saturating_add(1) } else { 0 };
        self.open.order.admit(main, sub)?;
        if main > newest.main {
            self.close(newest.main);
        }
        self.open.records.push(tag);
        put_varint(main.cast_unsigned(), &mut self.open.records);
        put_varint(sub.cast_unsigned(), &mut self.open.records);
        self.open.count += 1;
        Ok(())
    }

    /// Moves the newest revision to the complete ones.
    fn close(&mut self, main: i64) {
        self.body.append(&mut self.open.records);
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
        self.open = Open::after(self.complete);
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
        self.entry(LEASE, [id.cast_unsigned(), ttl.max(0).cast_unsigned()]);
    }

    /// Notes the time, in milliseconds since 1970, at which the caller has received the complete revisions. A clock that was
    /// set back counts as a clock that stands still.
    pub fn sample(&mut self, at: i64) {
        let (first, at) = match self.sampled {
            Some((first, last)) => (first, at.max(last)),
            None => (at.max(0), at.max(0)),
        };
        self.sampled = Some((first, at));
        self.entry(SAMPLE, [self.complete.cast_unsigned(), at.cast_unsigned()]);
    }

    /// Notes that etcd's users or roles have changed.
    pub fn auth_changed(&mut self) {
        let revision = self.complete.cast_unsigned();
        self.body.push(AUTH_CHANGED);
        put_varint(revision, &mut self.body);
        self.count += 1;
    }

    fn entry(&mut self, tag: u8, numbers: [u64; 2]) {
        self.body.push(tag);
        for number in numbers {
            put_varint(number, &mut self.body);
        }
        self.count += 1;
    }

    /// Returns the last main revision of which every event has arrived.
    pub const fn last_complete(&self) -> i64 {
        self.complete
    }

    /// Returns the length of the segment, records of the newest revision included.
    pub const fn len(&self) -> usize {
        self.body.len() + self.open.records.len()
    }

    /// Whether the segment has no entry.
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.open.count == 0
    }

    /// Ends the segment after the last complete revision, and begins the next. `None`: the segment has no sample.
    pub fn cut(&mut self, origin: &Origin) -> Option<Segment> {
        let (first_at, last_at) = self.sampled.take()?;
        let header = Header {
            cluster_id: origin.cluster_id,
            member_id: origin.member_id,
            first: self.first,
            last: self.complete,
            first_at,
            last_at,
            compact_revision: origin.compact_revision,
            auth_revision: origin.auth_revision,
        };
        let mut bytes = mem::replace(&mut self.body, empty_body(self.room));
        bytes[..HEADER].copy_from_slice(&header.encode());
        bytes.push(END);
        put_varint(mem::take(&mut self.count), &mut bytes);
        let crc = crc_fast::crc32_iscsi(&bytes);
        bytes.extend(crc.to_le_bytes());
        self.first = self.complete.saturating_add(1);
        self.leases.clear();
        self.unasked.clear();
        Some(Segment { header, bytes })
    }
}

impl Open {
    const fn after(revision: i64) -> Self {
        Self { order: Order::after(revision), records: Vec::new(), count: 0, leases: Vec::new() }
    }
}

fn empty_body(room: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(room.clamp(HEADER, MAX_VALUE));
    body.resize(HEADER, 0);
    body
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers = [
            self.cluster_id,
            self.member_id,
            self.first.cast_unsigned(),
            self.last.cast_unsigned(),
            self.first_at.cast_unsigned(),
            self.last_at.cast_unsigned(),
            self.compact_revision.cast_unsigned(),
            self.auth_revision.unwrap_or(UNKNOWN).cast_unsigned(),
        ];
        for (place, number) in out[12..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }
}
