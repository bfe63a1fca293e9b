//! Decides the owner of a manifest's snapshot: the schedule, or another owner, whose snapshots stay (I25).
//!
//! This file decides by the manifest alone. The reader finds out whether the data is complete, and whether the folder has a
//! hold.

use super::entry::Untouched;
use crate::manifest::Manifest;

/// Kind of the origin of a deleted cluster's last snapshot.
const FINAL: &str = "final";

/// The cluster and the schedule whose snapshots are judged.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// UID of the `EtcdCluster`: the folder's name holds eight characters of it, which prove nothing.
    pub cluster_uid: &'a str,
    /// UID of the `EtcdSnapshotSchedule`.
    pub schedule_uid: &'a str,
}

/// Whether the manifest in the folder `key` belongs to a run of the schedule.
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
