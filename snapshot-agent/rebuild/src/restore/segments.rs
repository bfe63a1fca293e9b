//! Segments on their way into a restore, and the nearest points of one that fails.
//!
//! This file decides which bytes are the segment that a name promises, and the words for points. `point.rs` chooses the segments.

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::hex_id;
use holdfast_layout::{Folder, SegmentName};
use holdfast_segment::Reader;
use holdfast_store::Store;

use holdfast_catalog::log::bases::Base;
use holdfast_catalog::log::cover::Cover;
use holdfast_catalog::log::read::{open, unreadable};
use holdfast_catalog::proof;
use holdfast_format::crypt::Identities;

/// The remedy where the log is damaged.
pub(super) const ANOTHER: &str = "Restore another point: at.revision (by hand: --at-revision)";

/// Returns the points next to a revision that snapshots and log reach: one at or before it, and the next snapshot. A snapshot that
/// failed a verification reaches none.
pub(super) async fn points_near(store: &Store, cover: &Cover, bases: &[Base], revision: i64) -> Result<Vec<i64>> {
    let mut points = vec![];
    for side in sides(cover, bases, revision) {
        for (point, key) in side.into_iter().take(MOST_ASKED) {
            let folder = Folder::parse("key", key).map_err(|error| holdfast_store::layout(&error))?;
            if proof::standing_failure(store, &folder).await?.is_none() {
                points.push(point);
                break;
            }
        }
    }
    Ok(points)
}

/// Returns the points at or before a revision, and those after it, the nearest first, each with the key of its snapshot.
fn sides<'a>(cover: &Cover, bases: &'a [Base], revision: i64) -> [Vec<(i64, &'a str)>; 2] {
    let reach = |base: &Base| cover.range_after(base.revision).map_or(base.revision, |range| range.last).min(revision);
    let (before, after): (Vec<&Base>, Vec<&Base>) = bases.iter().partition(|base| base.revision <= revision);
    let mut before: Vec<_> = before.into_iter().map(|base| (reach(base), base.key.as_str())).collect();
    let mut after: Vec<_> = after.into_iter().map(|base| (base.revision, base.key.as_str())).collect();
    before.sort_by_key(|(point, _)| std::cmp::Reverse(*point));
    after.sort_unstable();
    [before, after]
}

/// Snapshots on each side whose verifications are read for a message.
const MOST_ASKED: usize = 32;

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
            let points: Vec<i64> =
                sides(&cover, &bases, revision).iter().filter_map(|side| Some(side.first()?.0)).collect();
            assert_eq!(points, near, "{revision}");
        }
        assert!(nearest(&[]).starts_with("Save a snapshot"));
    }
}
