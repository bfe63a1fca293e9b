//! Segments on their way into a restore, and the nearest points of one that fails.
//!
//! This file decides which bytes are the segment that a name promises, and the words for points. `point.rs` chooses the segments.

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::hex_id;
use holdfast_layout::SegmentName;
use holdfast_segment::Reader;

use crate::catalog::log::bases::Base;
use crate::catalog::log::cover::Cover;
use crate::catalog::log::read::{open, unreadable};
use crate::format::crypt::Identities;

/// The remedy where the log is damaged.
pub(super) const ANOTHER: &str = "Restore another point: at.revision (by hand: --at-revision)";

/// Returns the points next to a revision that snapshots and log reach: one at or before it, and the next snapshot.
pub(super) fn points_near(cover: &Cover, bases: &[Base], revision: i64) -> Vec<i64> {
    let reach = |base: &Base| cover.range_after(base.revision).map_or(base.revision, |range| range.last).min(revision);
    let before = bases.iter().filter(|base| base.revision <= revision).map(reach).max();
    let after = bases.iter().map(|base| base.revision).filter(|base| *base > revision).min();
    before.into_iter().chain(after).collect()
}

/// Returns the nearest points for a person.
pub(super) fn nearest(revisions: &[i64]) -> String {
    if revisions.is_empty() {
        return "Save a snapshot, or name another lineage (latest.lineage, by hand --key)".to_owned();
    }
    let named: Vec<String> = revisions.iter().map(|revision| format!("revision {revision}")).collect();
    let are = if revisions.len() == 1 { "point is" } else { "points are" };
    format!("The nearest {are} {} (at.revision, by hand --at-revision)", named.join(" and "))
}

/// Opens a segment, and checks that it is of the log's etcd cluster and holds the revisions of its name.
pub(super) fn open_segment(
    uri: &str,
    (name, cluster_id): (&SegmentName, u64),
    stored: Bytes,
    identities: Option<&Identities>,
) -> Result<Reader<impl std::io::Read>> {
    let reader = open(stored, identities.filter(|_| name.encrypted)).map_err(|error| unreadable(uri, &error))?;
    let header = reader.header();
    if header.cluster_id != cluster_id {
        return Err(Error::unclear(format!(
            "{uri} is of the etcd cluster {}, and the log is of {}: two clusters have written to one place. Move the \
             segments of one cluster away",
            hex_id(header.cluster_id),
            hex_id(cluster_id)
        )));
    }
    if (header.first, header.last) != (name.first, name.last) {
        return Err(Error::corrupt(format!(
            "{uri} holds the revisions {} to {}, and its name says others. {ANOTHER}",
            header.first, header.last
        )));
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_nearest_points_are_reached_by_a_snapshot() {
        let base = |revision| Base {
            key: format!("s{revision}"),
            revision,
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: Timestamp::UNIX_EPOCH,
            least: 0,
        };
        let segment = |first, last| SegmentName {
            first,
            last,
            at: Timestamp::from_second(last).unwrap(),
            run8: "a".to_owned(),
            encrypted: false,
            tail: None,
        };
        // A log from the first revision on, snapshots at 7 and 40, and a hole from 21 to 30.
        let cover = Cover::join(vec![segment(2, 20), segment(31, 60)], &[]);
        let bases = [base(7), base(40)];
        for (revision, near) in [
            (1, vec![7]),
            (6, vec![7]),
            (15, vec![15, 40]),
            (25, vec![20, 40]),
            (33, vec![20, 40]),
            (50, vec![50]),
            (90, vec![60]),
        ] {
            assert_eq!(points_near(&cover, &bases, revision), near, "{revision}");
        }
        assert!(nearest(&points_near(&cover, &[], 5)).starts_with("Save a snapshot"));
    }
}
