//! Computes how far the revision rises (I10).
//!
//! This file decides the value for etcdutl, so that the revision rises by the requested value, wherever etcdutl counts from. It
//! refuses a revision that etcd cannot continue from: revisions have 63 bits, and beyond them the revision would be negative.

use holdfast_bbolt::graft::{self, Reached};
use holdfast_bbolt::scan::{Proven, ReadAt};
use holdfast_contract::error::{Error, Result};

/// Highest first revision of a restored database; the rest of the range is for later writes. At a million revisions a second
/// etcd would need a hundred thousand years to get there, so a higher revision was not written by etcd.
const MOST: u64 = 1 << 62;

/// Returns the bump for etcdutl. `found`: the proof of the database; without it, the needed values are read from the file.
pub(super) fn for_etcdutl(asked: u64, found: Option<&Proven>, file: impl ReadAt, db_bytes: u64) -> Result<u64> {
    // The revision stays.
    if asked == 0 {
        return Ok(0);
    }
    let reached = match found {
        Some(found) => Reached { last_record: found.last_record, compact_revision: found.compact_revision },
        None => graft::reached(file, db_bytes).map_err(|why| {
            Error::config(format!(
                "the agent cannot read the snapshot's last revision ({why}), and the whole database does not fit the \
                 agent's memory. Give the agent more memory, or use revisionBump: 0 (--revision-bump=0)"
            ))
        })?,
    };
    moved_on(asked, reached)
}

/// Computes the bump. etcdutl counts from the last record (etcdutl/snapshot/v3_snapshot.go: unsafeGetLatestRevision), and a
/// member starts at the compaction if that is later (server/storage/mvcc/kvstore.go: restore).
fn moved_on(asked: u64, Reached { last_record, compact_revision }: Reached) -> Result<u64> {
    let [counted_from, compacted] = [last_record, compact_revision].map(Option::unwrap_or_default);
    let revision = counted_from.max(compacted);
    let Some(room) = MOST.checked_sub(revision.unsigned_abs()) else {
        return Err(Error::corrupt(format!(
            "the snapshot's last record has revision {counted_from}, and the snapshot is compacted at {compacted}: no \
             etcd counts that far, and no restore can raise this revision. Restore another snapshot. If the revision \
             is right, revisionBump: 0 (--revision-bump=0) keeps the revision"
        )));
    };
    if asked > room {
        return Err(Error::config(format!(
            "revisionBump: {asked} (--revision-bump={asked}) is too much for revision {revision}: etcd's revisions \
             have 63 bits, and half of the range is reserved for later writes. Use at most {room}"
        )));
    }
    Ok(asked + revision.abs_diff(counted_from))
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    /// Old etcd versions lose a tombstone when they compact at it, and still continue from the compaction.
    #[test]
    fn the_revision_moves_on_by_what_is_asked_for_wherever_etcdutl_counts_from() {
        for (last_record, compact_revision, moved) in [
            (Some(50), None, 1000),
            (Some(50), Some(40), 1000),
            (Some(50), Some(50), 1000),
            (Some(10), Some(2_000_000), 1000 + 1_999_990),
            (None, Some(2_000_000), 1000 + 2_000_000),
            // A database without writes starts at revision 1.
            (None, None, 1000),
        ] {
            let found = Proven { last_record, compact_revision, ..Proven::empty() };
            let bump = |asked| for_etcdutl(asked, Some(&found), &b""[..], 0);
            assert_eq!(bump(1000), Ok(moved), "{found:?}");
            assert_eq!(bump(0), Ok(0), "it is to stay");
        }
    }

    #[test]
    fn what_etcd_could_not_count_on_from_is_refused() {
        let most = i64::MAX / 2 + 1;
        for (last_record, compact_revision, asked, ends) in [
            (Some(most), None, 1, Err(ExitClass::Config)),
            (Some(most - 1), None, 1, Ok(1)),
            (Some(5), Some(most - 1), 1, Ok(u64::try_from(most).unwrap() - 5)),
            (Some(5), Some(most - 1), 2, Err(ExitClass::Config)),
            (Some(5), None, u64::MAX, Err(ExitClass::Config)),
            (None, None, MOST, Ok(MOST)),
            (None, None, MOST + 1, Err(ExitClass::Config)),
            (Some(5), Some(most + 1), 1, Err(ExitClass::Corrupt)),
            (Some(i64::MAX), None, 1_000_000_000, Err(ExitClass::Corrupt)),
            (Some(5), Some(i64::MAX), 1_000_000_000, Err(ExitClass::Corrupt)),
            (None, Some(i64::MAX), u64::MAX, Err(ExitClass::Corrupt)),
            (Some(5), Some(i64::MAX), 0, Ok(0)),
        ] {
            let found = Proven { last_record, compact_revision, ..Proven::empty() };
            let bump = for_etcdutl(asked, Some(&found), &b""[..], 0);
            assert_eq!(bump.clone().map_err(|error| error.class()), ends, "{found:?}, {asked}");
            if let Err(error) = bump {
                for word in ["revisionBump: ", "--revision-bump="] {
                    assert!(error.message().contains(word), "no {word:?} in {error}");
                }
            }
        }
    }

    #[test]
    fn what_nothing_is_known_of_is_not_moved_on_by_a_guess() {
        let unknown = for_etcdutl(1000, None, &[0_u8; 9000][..], 9000).unwrap_err();
        assert!(unknown.class() == ExitClass::Config && unknown.message().contains("revisionBump: 0"), "{unknown}");
        assert_eq!(for_etcdutl(0, None, &[0_u8; 9000][..], 9000), Ok(0));
    }
}
