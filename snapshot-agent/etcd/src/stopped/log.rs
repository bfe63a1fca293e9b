//! Reads the whole log of a stopped member: term, vote and commit index, and the entries that etcd would find at its next start.
//!
//! This file decides which entries count (etcd: server/storage/wal/wal.go, `ReadAll`): a later entry replaces an earlier one of
//! its index and all that follow, and a snapshot that another member sent replaces the log before it. It holds a number for
//! each term, and no entry. Damage before the log's end makes all of its numbers unknown.

use std::fs::File;
use std::io;
use std::path::Path;

use holdfast_contract::LogEnd;
use holdfast_gate::wal::{Metadata, Reader, Value};
use holdfast_io::files;
use holdfast_io::progress::Progress;

use super::segment::{Next, Record, Segment, kind};

/// etcd's HardState: what a member must not forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term that the member has seen.
    pub term: u64,
    /// The member that got its vote in this term; 0: none.
    pub vote: u64,
    /// Index up to which the member knows entries as committed.
    pub commit: u64,
}

/// A segment's file and its valid bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the file.
    pub name: String,
    /// Bytes up to the end of its last valid record.
    pub bytes: u64,
}

/// A log without damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// IDs of cluster and member.
    pub ids: Metadata,
    /// The newest HardState, if any was written.
    pub state: Option<HardState>,
    /// Index of the last entry, or of the snapshot if no entry follows it; 0: neither exists.
    pub last_index: u64,
    /// Term of the last entry; `None`: the log does not show it.
    pub last_term: Option<u64>,
    /// Index of the snapshot from which etcd would start once the whole log is committed; `None`: the log names none.
    pub snapshot_index: Option<u64>,
    /// State of the end.
    pub end: LogEnd,
    /// The segments, the oldest first.
    pub parts: Vec<Part>,
    /// Running checksum at the end.
    pub crc: u32,
}

impl Log {
    /// Returns the bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Returns the number of entries that the member did not know as committed.
    pub fn beyond_commit(&self) -> u64 {
        self.last_index - self.state.map_or(0, |state| state.commit).min(self.last_index)
    }
}

/// Reason for which a log has no numbers.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The folder has no segment.
    #[error("there is no log")]
    Missing,
    /// The log is damaged before its end. The IDs, if they could be read.
    #[error("{why}")]
    Damaged {
        /// IDs of cluster and member.
        ids: Option<Metadata>,
        /// Place and kind of the damage.
        why: String,
    },
    /// The operating system could not read the log.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the total size of the segments, for progress.
pub fn size(folder: &Path) -> io::Result<u64> {
    let names = files::names(folder)?.unwrap_or_default();
    let segments = names.iter().filter(|name| name.ends_with(SUFFIX));
    segments.map(|name| Ok(folder.join(name).metadata()?.len())).sum()
}

/// Reads the log in this folder.
pub fn read(folder: &Path, progress: &Progress) -> Result<Log, LogError> {
    let names = files::names(folder)?.unwrap_or_default();
    // Their names are numbers of a fixed width, so they sort by age.
    let names: Vec<_> = names.into_iter().filter(|name| name.ends_with(SUFFIX)).collect();
    let first = names.first().ok_or(LogError::Missing)?;
    let mut track = Track::default();
    let (_, index) = number(first).ok_or_else(|| track.damaged(first, 0, "its name is not that of a segment"))?;
    // The segment's name says which entry comes next; the entries before it were in segments that etcd has removed.
    track.start = index.saturating_sub(1);
    track.last = track.start;
    let mut end = LogEnd::Whole;
    let (mut parts, mut crc) = (Vec::with_capacity(names.len()), 0);
    for (at, name) in names.iter().enumerate() {
        let follows = match at.checked_sub(1).and_then(|before| number(names.get(before)?)) {
            Some((before, _)) => number(name).is_some_and(|(sequence, _)| Some(sequence) == before.checked_add(1)),
            None => true,
        };
        if !follows {
            return Err(track.damaged(name, 0, "the segment before it is missing"));
        }
        let is_last = at + 1 == names.len();
        let mut segment = Segment::new(File::open(folder.join(name))?, crc, is_last)?;
        loop {
            let before = segment.at();
            match segment.next()? {
                Next::Record(record) => {
                    track.take(&record).map_err(|what| track.damaged(name, before, what))?;
                    progress.add(usize::try_from(segment.at() - before).unwrap_or(0));
                }
                Next::Broken(what) => return Err(track.damaged(name, before, what)),
                Next::Torn => {
                    end = LogEnd::Torn;
                    break;
                }
                Next::End => {
                    if is_last && segment.has_leftovers()? {
                        end = LogEnd::Torn;
                    }
                    break;
                }
            }
        }
        crc = segment.crc();
        parts.push(Part { name: name.clone(), bytes: segment.at() });
    }
    track.finish(end, parts, crc)
}

const SUFFIX: &str = ".wal";

/// Reads `<sequence>-<first index>.wal`.
fn number(name: &str) -> Option<(u64, u64)> {
    let (sequence, index) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    Some((u64::from_str_radix(sequence, 16).ok()?, u64::from_str_radix(index, 16).ok()?))
}

/// The log up to a record.
#[derive(Default)]
struct Track {
    ids: Option<Metadata>,
    state: Option<HardState>,
    /// The log begins after this index.
    start: u64,
    /// Term of the entry at `start`, where a snapshot names it.
    start_term: Option<u64>,
    /// Each term of the entries, with the first index in it, in rising order.
    terms: Vec<(u64, u64)>,
    last: u64,
    /// Index of each snapshot, in the order of the records.
    snapshots: Vec<u64>,
}

impl Track {
    /// Takes a record; an error names the damage.
    fn take(&mut self, record: &Record) -> Result<(), &'static str> {
        let numbers = numbers(&record.head);
        let [one, two, three] = numbers;
        match record.kind {
            kind::CRC => {}
            kind::METADATA => {
                let (member_id, cluster_id) = one.zip(two).ok_or("its metadata name no cluster or no member")?;
                let ids = Metadata { cluster_id, member_id };
                if self.ids.is_some_and(|before| before != ids) {
                    return Err("its metadata are those of another member");
                }
                self.ids = Some(ids);
            }
            kind::STATE => {
                let [term, vote, commit] = numbers.map(Option::unwrap_or_default);
                self.state = Some(HardState { term, vote, commit });
            }
            // An entry begins with its kind, then come term and index.
            kind::ENTRY => {
                let index = three.filter(|index| *index > 0).ok_or("an entry has no index")?;
                self.entry(index, two.unwrap_or_default())?;
            }
            kind::SNAPSHOT => self.snapshot(one.unwrap_or_default(), two.unwrap_or_default()),
            _ => return Err("a record is of an unknown kind"),
        }
        Ok(())
    }

    fn entry(&mut self, index: u64, term: u64) -> Result<(), &'static str> {
        if index <= self.start {
            // etcd reads nothing before the snapshot from which it starts.
            if self.start_term.is_some() {
                return Ok(());
            }
            (self.start, self.last) = (index - 1, index - 1);
            self.terms.clear();
        }
        if index - 1 > self.last {
            return Err("entries are missing before an entry");
        }
        while self.terms.last().is_some_and(|(first, _)| *first >= index) {
            self.terms.pop();
        }
        if self.terms.last().is_none_or(|(_, newest)| *newest != term) {
            self.terms.push((index, term));
        }
        self.last = index;
        Ok(())
    }

    fn snapshot(&mut self, index: u64, term: u64) {
        self.snapshots.push(index);
        // Of the log's own entries, or of entries before the first segment.
        if index <= self.start || index <= self.last && self.term_at(index) == Some(term) {
            return;
        }
        // The leader has sent it, because this member was too far behind. etcd counts it once the member has written that it
        // knows the index as committed. It counts here without that: the snapshot holds nothing but committed entries, and its
        // files were written before this record.
        (self.start, self.start_term, self.last) = (index, Some(term), index);
        self.terms.clear();
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        let after = self.terms.partition_point(|(first, _)| *first <= index);
        match after.checked_sub(1) {
            Some(at) => self.terms.get(at).map(|(_, term)| *term),
            None => self.start_term.filter(|_| index == self.start),
        }
    }

    fn damaged(&self, name: &str, at: u64, what: &str) -> LogError {
        LogError::Damaged { ids: self.ids, why: format!("segment {name}, byte {at}: {what}") }
    }

    fn finish(self, end: LogEnd, parts: Vec<Part>, crc: u32) -> Result<Log, LogError> {
        let damaged = |why: String| LogError::Damaged { ids: self.ids, why };
        let ids = self.ids.ok_or_else(|| damaged("no segment names the member".to_owned()))?;
        if let Some(HardState { commit, .. }) = self.state
            && commit > self.last
        {
            return Err(damaged(format!("the log ends at index {}, and index {commit} was committed", self.last)));
        }
        let last_term = self.term_at(self.last);
        let snapshot_index = self.snapshots.iter().rev().find(|index| **index <= self.last).copied();
        let snapshot_index = snapshot_index.filter(|index| *index > 0);
        Ok(Log { ids, state: self.state, last_index: self.last, last_term, snapshot_index, end, parts, crc })
    }
}

/// Returns the numbers in the fields 1, 2 and 3 of a message, of which only the first bytes may be there.
fn numbers(head: &[u8]) -> [Option<u64>; 3] {
    let mut found = [None; 3];
    let mut reader = Reader(head);
    while let Ok((field, value)) = reader.field() {
        let place = usize::try_from(field).ok().and_then(|field| found.get_mut(field.checked_sub(1)?));
        if let (Value::Number(number), Some(place)) = (value, place) {
            *place = Some(number);
        }
    }
    found
}

#[cfg(test)]
mod tests;
