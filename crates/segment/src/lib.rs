//! A segment: a run of an etcd's revisions without a hole, and the facts that a merge of these revisions needs.
//!
//! This file decides the format's parts and limits. It knows no etcd server and no store, and does no I/O of its own: the agent
//! fills a [`Writer`] from a watch, and a merge reads with a [`Reader`] whose memory is bounded by one value.
//!
//! ```text
//! header   magic "HOLDFSEG", format, cluster ID, member ID, first and last revision, first and last time,
//!          compact revision, auth revision, checksum of the revision before, and where raft stood: its revision, an applied
//!          and a committed index: little endian, 108 bytes (format 1: 76, up to the auth revision)
//! entries  a tag, then varints:
//!          1 put      main, sub, length, value     the value as etcd's bucket `key` holds it: mvccpb.KeyValue
//!          2 delete   main, sub, length, value     KeyValue with the key alone
//!          3 lease    ID, granted seconds          after the first record that names the lease
//!          4 sample   revision, time               the writer had every revision up to this one at this time
//!          5 auth     revision                     users or roles changed before the next revision, or shortly after
//! end      tag 0, number of entries, CRC32C of everything before
//! ```
//!
//! The main revisions begin at the header's first, end at its last, and are dense, as etcd's are: each is the one before plus
//! one. The records of one revision count their sub-revisions from 0. A segment without records has a first revision that is
//! one above its last, and its samples say that nothing happened. A segment without samples is of a writer that lags behind the
//! cluster: its times are that of the last sample before.
//!
//! Revisions with the same numbers exist in another history too, after etcd was restored in place. Two facts of the header show
//! that two segments are of one history: the checksum of the last revision before the segment ([`RevisionSum`]), and the place
//! of raft ([`RaftPlace`]).

mod body;
mod history;
mod order;
mod reader;
mod wire;
mod writer;

pub use body::Body;
pub use history::{RaftPlace, RevisionSum};
pub use order::OutOfOrder;
pub use reader::{Reader, SegmentError};
pub use wire::{KeyValue, key_of, put_number, put_varint};
pub use writer::{Origin, Segment, Writer};

/// The format that this version writes, and the latest that it reads.
pub const FORMAT: u32 = 2;

/// Maximum length of a record's value. etcd's own limit of a request is 1.5 MiB, and etcd warns from 10 MiB on.
pub const MAX_VALUE: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"HOLDFSEG";

/// Length of the header, and of the header of format 1.
const HEADER: usize = HEADER_1 + 8 * 4;
const HEADER_1: usize = 8 + 4 + 8 * 8;

const END: u8 = 0;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const LEASE: u8 = 3;
const SAMPLE: u8 = 4;
const AUTH_CHANGED: u8 = 5;

/// Value of an unknown auth revision, checksum or raft's revision in the header.
const UNKNOWN: i64 = -1;

/// The facts at the beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// etcd cluster ID: revisions of two clusters have nothing in common.
    pub cluster_id: u64,
    /// Member ID of the watched member.
    pub member_id: u64,
    /// First main revision.
    pub first: i64,
    /// Last main revision; `first - 1`: the segment has no records.
    pub last: i64,
    /// Time of the first sample, in milliseconds since 1970. Without a sample: of the last sample before the segment.
    pub first_at: i64,
    /// Time of the last sample, in milliseconds since 1970. Without a sample: of the last sample before the segment.
    pub last_at: i64,
    /// The latest compact revision that the writer has seen; 0: none.
    pub compact_revision: i64,
    /// Revision of etcd's users and roles at the end of the segment; `None`: the writer may not or could not ask.
    pub auth_revision: Option<i64>,
    /// Checksum of the last revision before the segment, as the watch brought it; `None`: unknown.
    pub before: Option<u32>,
    /// The place of etcd's raft at the end of the segment; `None`: unknown.
    pub raft: Option<RaftPlace>,
}

/// One change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Main revision: one for each transaction.
    pub main: i64,
    /// Sub-revision: the place of the change in its transaction.
    pub sub: i64,
    /// Whether the change deletes the key.
    pub tombstone: bool,
    /// The value in etcd's bucket `key`.
    pub value: &'a [u8],
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A change of a key.
    Record(Record<'a>),
    /// A lease that a record of this segment names.
    Lease {
        /// ID of the lease.
        id: i64,
        /// Granted time to live in seconds; 0: the lease had ended before the writer asked.
        ttl: i64,
    },
    /// etcd's newest revision at this time, by a read that a quorum confirmed.
    Sample {
        /// Main revision, of this segment or the last one before.
        revision: i64,
        /// Milliseconds since 1970.
        at: i64,
    },
    /// etcd's users or roles are no longer those of the revisions before.
    AuthChanged {
        /// Last complete main revision when the writer noticed the change.
        revision: i64,
    },
}

#[cfg(test)]
mod tests;
