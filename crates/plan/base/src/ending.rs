//! A deleted cluster with `spec.finalSnapshot`.
//!
//! Decides whether its members still run, for the last snapshot: one answer for the cluster, its members and its snapshots.
//! `cluster/last_snapshot.rs` decides the steps and the end.

use holdfast_api::final_snapshot::FinalSnapshot;
use holdfast_api::{CLUSTER_FINALIZER, EtcdCluster, key};

use super::meta;

/// Whether the cluster is being deleted, and its spec asks for a snapshot, also after a person has given the snapshot up.
pub fn asked_for_snapshot(cluster: &EtcdCluster) -> bool {
    meta::deleting(&cluster.metadata) && cluster.spec.final_snapshot.is_some()
}

/// Returns the last snapshot that the deletion of a cluster waits for. Once the finalizer is gone, the cluster goes.
pub fn final_snapshot(cluster: &EtcdCluster) -> Option<&FinalSnapshot> {
    let meta = &cluster.metadata;
    let skipped = meta::annotation(meta, key::SKIP_FINAL_SNAPSHOT) == Some("true");
    let held = meta::deleting(meta) && meta::has_finalizer(meta, CLUSTER_FINALIZER) && !skipped;
    cluster.spec.final_snapshot.as_ref().filter(|_| held)
}

/// Whether the members of a deleted cluster run on, for the last snapshot.
pub fn awaits_snapshot(cluster: &EtcdCluster) -> bool {
    let formed = cluster.status.as_ref().is_some_and(|status| status.latches.formed.is_some());
    formed && final_snapshot(cluster).is_some()
}

/// Whether the cluster is being deleted, and no snapshot keeps its members. A lost status is not the proof that the cluster never
/// formed (I4).
pub fn goes(cluster: &EtcdCluster) -> bool {
    meta::deleting(&cluster.metadata) && final_snapshot(cluster).is_none()
}
