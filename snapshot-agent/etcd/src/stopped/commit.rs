//! Writes to the copy of a survivor's log that all of its entries are committed.
//!
//! This file decides the record and its place, and nothing about the data. etcd's `--force-new-cluster` drops the entries after
//! the index that the member knows as committed (etcd: server/etcdserver/bootstrap.go, `CommitedEntries`). A member learns
//! that index late: the leader of the lost majority may have committed and acknowledged such an entry.
//!
//! Raft allows the record. A member with this log, and with the newest term of all that are left, wins an election among them.
//! As leader it commits an entry of its own term, and with it every entry before (Raft, 5.4.2); none of its entries is ever
//! taken back. The members that could have elected another leader are lost. An entry that no client got an answer to may be
//! committed too, as after every election.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_segment::put_varint;

use super::log::{HardState, Log};
use super::segment::kind;

/// Returns the HardState that commits the whole log.
pub fn state(log: &Log) -> HardState {
    let before = log.state.unwrap_or_default();
    let last_term = log.last_term.unwrap_or_default();
    // etcd writes entries before the HardState of their term: a crash between both leaves entries of a newer term, in which no
    // vote is known.
    let vote = if last_term > before.term { 0 } else { before.vote };
    HardState { term: before.term.max(last_term), vote, commit: log.last_index }
}

/// Appends this state to the last segment in the folder, durably. A torn end is cut off first, as etcd does at a start (etcd:
/// server/storage/wal/repair.go).
pub fn append(folder: &Path, log: &Log, state: HardState) -> io::Result<()> {
    let last = log.parts.last().ok_or(io::ErrorKind::NotFound)?;
    let file = OpenOptions::new().write(true).open(folder.join(&last.name))?;
    file.set_len(last.bytes)?;
    file.write_all_at(&frame(log.crc, state), last.bytes)?;
    file.sync_all()
}

/// Encodes the record in its frame (etcd: server/storage/wal/encoder.go): the length, with the padding to eight bytes in its
/// highest byte, then the record.
fn frame(crc: u32, HardState { term, vote, commit }: HardState) -> Vec<u8> {
    let mut data = Vec::new();
    for (field, number) in [(1_u64, term), (2, vote), (3, commit)] {
        put_varint(field << 3, &mut data);
        put_varint(number, &mut data);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(&data);
    let mut record = Vec::new();
    for number in [0x08, kind::STATE, 0x10, digest.finalize(), 0x1a, data.len() as u64] {
        put_varint(number, &mut record);
    }
    record.extend_from_slice(&data);
    let padding = record.len().wrapping_neg() % 8;
    let mut head = record.len() as u64;
    if padding > 0 {
        head |= (0x80 | padding as u64) << 56;
    }
    let mut frame = head.to_le_bytes().to_vec();
    frame.append(&mut record);
    frame.resize(frame.len() + padding, 0);
    frame
}
