//! Whose snapshot a manifest records: the schedule's own, or one that nothing here removes (I25).
//!
//! Decides by the manifest alone. Whether its data is whole, and whether anybody holds it, is found out by the reader.

use super::entry::Untouched;
use crate::format::manifest::Manifest;

/// The kind of an origin that is the last snapshot of a deleted cluster.
const FINAL: &str = "final";

/// Whose snapshots are judged.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// UID of the `EtcdCluster`: the folder's name has eight characters of it, which prove nothing.
    pub cluster_uid: &'a str,
    /// UID of the `EtcdSnapshotSchedule`.
    pub schedule_uid: &'a str,
}

/// Whether the manifest found in the folder `key` is of a run of the schedule.
pub fn candidate(manifest: &Manifest, key: &str, whose: Whose<'_>) -> Result<(), Untouched> {
    if manifest.key != key {
        return Err(Untouched::Copied);
    }
    if manifest.cluster_uid.as_deref() != Some(whose.cluster_uid) {
        return Err(Untouched::OtherCluster);
    }
    let origin = manifest.origin.as_ref().ok_or(Untouched::ByHand)?;
    if origin.kind.as_deref() == Some(FINAL) {
        return Err(Untouched::Final);
    }
    match &origin.schedule {
        Some(schedule) if schedule.uid == whose.schedule_uid => Ok(()),
        None if origin.uid.is_none() => Err(Untouched::ByHand),
        Some(_) | None => Err(Untouched::OtherOrigin),
    }
}
