//! Segments on their way into a restore, and the nearest points of one that fails.
//!
//! This file decides which bytes are the segment that a name promises, and the words for points. `point.rs` chooses the segments.

use bytes::Bytes;
use holdfast_contract::error::{Error, Result};
use holdfast_contract::hex_id;
use holdfast_contract::layout::SegmentName;
use holdfast_segment::Reader;

use crate::catalog::log::read::{open, unreadable};
use crate::format::crypt::Identities;

/// The remedy where the log is damaged.
pub(super) const ANOTHER: &str = "Restore another point: at.revision (by hand: --at-revision)";

/// Returns the nearest points for a person.
pub(super) fn nearest(revisions: &[i64]) -> String {
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
