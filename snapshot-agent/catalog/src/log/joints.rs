//! Whether the segments of a log are of one history. Two etcds with one cluster ID make different revisions with the same
//! numbers, when one of them was restored in place.
//!
//! This file decides which facts contradict each other: two checksums of one revision, and a raft with fewer entries than at an
//! earlier revision. The callers decide what follows.

use std::collections::BTreeMap;

use holdfast_segment::Header;

/// The facts of the segments so far.
#[derive(Debug, Default)]
pub struct Joints {
    /// Checksum of each revision that a later segment may hold too.
    sums: BTreeMap<i64, u32>,
    /// Revisions of reads, each with the least number of entries of raft without a revision there: both rise.
    least: BTreeMap<i64, i64>,
}

/// A contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// Two segments hold different changes of this revision.
    Changes(i64),
    /// After this revision raft has fewer entries than before it.
    Raft(i64),
}

impl Joints {
    /// Adds the place of raft at a snapshot.
    pub fn add_least(&mut self, revision: i64, least: i64) {
        let before = self.least.range(..=revision).next_back().map(|(_, least)| *least);
        if before.is_none_or(|before| before < least) {
            self.least.retain(|at, other| *at < revision || *other > least);
            self.least.insert(revision, least);
        }
    }

    /// Compares the header of the next segment.
    pub fn open(&mut self, header: &Header) -> Result<(), Fork> {
        let after = header.first.saturating_sub(1);
        if let (Some(before), Some(sum)) = (header.before, self.sums.get(&after))
            && before != *sum
        {
            return Err(Fork::Changes(after));
        }
        let Some(raft) = header.raft else { return Ok(()) };
        // At the same revision entries without a revision may have come in between.
        let before = self.least.range(..raft.revision).next_back();
        if before.is_some_and(|(_, least)| !raft.may_follow(*least)) {
            return Err(Fork::Raft(after));
        }
        self.add_least(raft.revision, raft.least());
        Ok(())
    }

    /// Adds the checksum of a revision.
    pub fn add(&mut self, revision: i64, sum: u32) -> Result<(), Fork> {
        match self.sums.insert(revision, sum) {
            Some(before) if before != sum => Err(Fork::Changes(revision)),
            Some(_) | None => Ok(()),
        }
    }

    /// Drops the checksums of earlier revisions, which no later segment holds.
    pub fn forget_before(&mut self, revision: i64) {
        self.sums = self.sums.split_off(&revision);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_segment::RaftPlace;

    use super::*;

    fn header(first: i64, before: Option<u32>, raft: Option<(i64, i64)>) -> Header {
        let raft = raft.map(|(revision, applied)| RaftPlace { revision, applied, committed: applied });
        Header {
            cluster_id: 1,
            member_id: 1,
            first,
            last: first,
            first_at: 0,
            last_at: 0,
            compact_revision: 0,
            auth_revision: None,
            before,
            raft,
        }
    }

    #[test]
    fn another_change_of_one_revision_is_a_fork() {
        let mut joints = Joints::default();
        joints.open(&header(2, None, None)).unwrap();
        joints.add(2, 22).unwrap();
        joints.add(3, 33).unwrap();
        joints.open(&header(4, Some(33), None)).unwrap();
        joints.open(&header(3, Some(22), None)).unwrap();
        assert_eq!(joints.add(3, 33), Ok(()), "a twin");
        assert_eq!(joints.open(&header(4, Some(34), None)), Err(Fork::Changes(3)));
        assert_eq!(joints.add(3, 34), Err(Fork::Changes(3)));
        joints.forget_before(4);
        assert_eq!(joints.open(&header(4, Some(99), None)), Ok(()), "unknown");
    }

    #[test]
    fn a_raft_that_begins_again_is_a_fork() {
        let mut joints = Joints::default();
        joints.add_least(21, 3);
        joints.open(&header(22, None, Some((23, 27)))).unwrap();
        joints.open(&header(24, None, Some((40, 50)))).unwrap();
        assert_eq!(joints.open(&header(30, None, Some((40, 49)))), Ok(()), "another archiver, a moment before");
        assert_eq!(joints.open(&header(41, None, Some((60, 45)))), Err(Fork::Raft(40)));
        assert_eq!(joints.open(&header(22, None, Some((24, 9)))), Err(Fork::Raft(21)), "in any order");
        let mut of_snapshot = Joints::default();
        of_snapshot.add_least(21, 3);
        assert_eq!(of_snapshot.open(&header(22, None, Some((80, 60)))), Err(Fork::Raft(21)));
    }
}
