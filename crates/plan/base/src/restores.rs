//! Stored snapshots and lineages that a restore reads, and that therefore stay (I25).
//!
//! Decides from clusters that have not formed, and their first members: from the latch, or from the spec without a latch. A
//! `source` may name a file, or a folder below another prefix of the bucket: each key is cut to the folder that agents know, so
//! that keys compare. A restore to a point in time reads the log of the lineage, and may begin with any snapshot of it.

use std::collections::BTreeSet;

use holdfast_api::restore::Restoring;
use holdfast_api::{EtcdCluster, EtcdMember, EtcdSnapshot};
use holdfast_layout::attempt_time;

use crate::meta;
use crate::stored_key::attempt_of;

/// Returns the keys that a restore reads: the snapshot's, and for a point in time the lineage's.
fn keys_of(key: &str, to_a_point: bool) -> Vec<String> {
    let named = attempt_of(key);
    if !to_a_point {
        return vec![named];
    }
    let mut parts: Vec<&str> = named.split('/').collect();
    let snapshot = parts.pop_if(|last| attempt_time(last).is_some()).is_some();
    let lineage = parts.split_off(parts.len().saturating_sub(3)).join("/");
    std::iter::once(lineage).chain(snapshot.then_some(named)).collect()
}

/// Returns the keys that a latched restore reads; none for the volume of a survivor.
pub fn read_by(restoring: &Restoring) -> Vec<String> {
    if restoring.survivor.is_some() { vec![] } else { keys_of(&restoring.source.key, restoring.at.is_some()) }
}

/// Whether a key is that of a lineage or below it.
pub fn is_within(key: &str, lineage: &str) -> bool {
    key.strip_prefix(lineage).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether restores read this snapshot, or may read it.
pub fn is_read(restores: &[String], key: &str) -> bool {
    let key = attempt_of(key);
    restores.iter().any(|restored| is_within(&key, restored))
}

/// Whether a cluster searches its latest snapshot, and has not latched the result.
pub fn searches(cluster: &EtcdCluster) -> bool {
    let latches = cluster.status.as_ref().map(|status| &status.latches);
    let open = latches.is_none_or(|latches| latches.formed.is_none() && latches.restoring.is_none());
    let asked = cluster.spec.bootstrap.as_ref().and_then(|bootstrap| bootstrap.restore.as_ref());
    open && asked.is_some_and(|asked| asked.latest.is_some())
}

/// Returns the keys of the snapshots and lineages that restores read.
pub fn restores(clusters: &[EtcdCluster], members: &[EtcdMember], snapshots: &[EtcdSnapshot]) -> Vec<String> {
    let forming = clusters.iter().filter(|c| c.status.as_ref().is_none_or(|s| s.latches.formed.is_none()));
    let of_cluster = forming.flat_map(|cluster| {
        let latched = cluster.status.as_ref().and_then(|status| status.latches.restoring.as_ref()).map(read_by);
        let asked = cluster.spec.bootstrap.as_ref().and_then(|bootstrap| bootstrap.restore.as_ref());
        let named = asked.and_then(|asked| asked.snapshot_ref.as_ref()).and_then(|named| {
            let snapshot = snapshots.iter().find(|snapshot| meta::name(&snapshot.metadata) == named.name)?;
            Some(snapshot.status.as_ref()?.artifact.as_ref()?.key.clone())
        });
        let source = asked.and_then(|asked| asked.source.as_ref()).map(|source| source.key.clone());
        let to_a_point = asked.is_some_and(|asked| asked.at.is_some());
        let asked = named.into_iter().chain(source).flat_map(move |key| keys_of(&key, to_a_point));
        latched.into_iter().flatten().chain(asked).collect::<Vec<_>>()
    });
    let returns = clusters.iter().filter_map(|cluster| cluster.status.as_ref()?.latches.returning.as_ref());
    let returns = returns.filter(|returning| !returning.phase().is_final());
    let returns = returns.filter_map(|returning| returning.restoring.as_ref()).flat_map(read_by);
    // A member still carries the restore after the cluster's status is lost.
    let carried = members.iter().filter(|member| member.spec.joined.is_none());
    let carried = carried.filter_map(|member| member.spec.restore.as_ref()).flat_map(read_by);
    of_cluster.chain(returns).chain(carried).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use holdfast_api::cluster::Formed;
    use holdfast_api::member::Joined;
    use holdfast_api::restore::RestorePoint;
    use holdfast_api::snapshot::Artifact;
    use holdfast_api::{EtcdClusterStatus, EtcdSnapshotStatus};

    use super::*;
    use crate::fixtures::etcd_cluster;
    use serde_json::json;

    #[test]
    fn a_restore_is_known_by_its_latch_its_spec_and_its_member() {
        let asked = |restore: serde_json::Value| {
            let mut cluster = etcd_cluster(1);
            cluster.spec.bootstrap = Some(serde_json::from_value(json!({ "restore": restore })).unwrap());
            cluster
        };
        let source = |key: &str| json!({"source": {"pvc": {"claimName": "backups"}, "key": key}});
        let by_name = asked(json!({"snapshotRef": {"name": "nightly-1"}}));
        let artifact = Artifact { key: "ns/a/0/1".to_owned(), ..Artifact::default() };
        let mut snapshot: EtcdSnapshot = serde_json::from_value(json!({
            "apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdSnapshot", "metadata": {"name": "nightly-1"},
            "spec": {"clusterRef": {"name": "a"}, "destination": {"pvc": {"claimName": "backups"}}},
        }))
        .unwrap();
        snapshot.status = Some(EtcdSnapshotStatus { artifact: Some(artifact), ..EtcdSnapshotStatus::default() });
        let mut latched = asked(source("ns/a/0/new"));
        let restoring: Restoring =
            serde_json::from_value(json!({"restoreUID": "r", "source": source("ns/a/0/old")["source"]})).unwrap();
        latched.status = Some(EtcdClusterStatus::default());
        latched.status.as_mut().unwrap().latches.restoring = Some(restoring.clone());
        let read = |cluster: &EtcdCluster, members: &[EtcdMember]| {
            restores(std::slice::from_ref(cluster), members, std::slice::from_ref(&snapshot))
        };
        assert_eq!(read(&by_name, &[]), ["ns/a/0/1"]);
        assert_eq!(read(&asked(source("ns/a/0/2/x.db")), &[]), ["ns/a/0/2"]);
        assert_eq!(read(&latched, &[]), ["ns/a/0/new", "ns/a/0/old"]);
        let mut to_a_point = asked(source("backups/ns/a/0/20260101T000000Z-00000001-x"));
        let restore = to_a_point.spec.bootstrap.as_mut().unwrap().restore.as_mut().unwrap();
        restore.at = Some(RestorePoint { revision: Some(9), ..RestorePoint::default() });
        let both = ["ns/a/0", "ns/a/0/20260101T000000Z-00000001-x"];
        assert_eq!(read(&to_a_point, &[]), both);
        let mut of_the_lineage = restoring.clone();
        "ns/b/0".clone_into(&mut of_the_lineage.source.key);
        of_the_lineage.at = Some(RestorePoint { revision: Some(9), ..RestorePoint::default() });
        to_a_point.status = latched.status.clone();
        to_a_point.status.as_mut().unwrap().latches.restoring = Some(of_the_lineage);
        assert_eq!(read(&to_a_point, &[]), ["ns/a/0", both[1], "ns/b/0"]);
        for (key, is) in
            [("x/ns/b/0/1/snapshot.db", true), ("ns/b/00/1", false), ("ns/a/0/1", true), ("ns/c/0/1", false)]
        {
            assert_eq!(is_read(&read(&to_a_point, &[]), key), is, "{key}");
        }
        let mut formed = by_name;
        formed.status = Some(EtcdClusterStatus::default());
        formed.status.as_mut().unwrap().latches.formed = Some(Formed::default());
        assert_eq!(read(&formed, &[]), [] as [&str; 0]);
        let mut member = EtcdMember::default();
        member.spec.restore = Some(restoring);
        assert_eq!(read(&formed, std::slice::from_ref(&member)), ["ns/a/0/old"]);
        member.spec.joined = Some(Joined::default());
        assert_eq!(read(&formed, &[member]), [] as [&str; 0]);
    }
}
