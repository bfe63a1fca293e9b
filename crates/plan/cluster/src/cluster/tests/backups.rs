//! `status.lastSnapshot` and `status.endpoint`.

use holdfast_api::cluster::LastSnapshot;
use holdfast_api::snapshot::Verification;
use holdfast_contract::Level;

use super::*;

fn snapshot(name: &str, cluster_uid: &str, phase: Phase, at: &str) -> EtcdSnapshot {
    let spec = serde_json::json!({"clusterRef": {"name": "a"}, "destination": {"pvc": {"claimName": "backups"}}});
    let spec: EtcdSnapshotSpec = serde_json::from_value(spec).unwrap();
    let mut snapshot = EtcdSnapshot::new(name, spec);
    snapshot.status = Some(EtcdSnapshotStatus {
        phase,
        cluster_uid: Some(cluster_uid.to_owned()),
        completed_at: Some(at.to_owned()),
        verification: Some(Verification { level: Level::HashKV, ..Verification::default() }),
        ..EtcdSnapshotStatus::default()
    });
    snapshot
}

fn last(name: &str, at: &str) -> LastSnapshot {
    LastSnapshot { name: name.to_owned(), level: Level::HashKV, completed_at: at.to_owned() }
}

#[test]
fn only_complete_snapshots_of_this_very_cluster_count() {
    let all = [
        snapshot("first", "u-a", Phase::Complete, "2026-01-01T09:00:00Z"),
        snapshot("second", "u-a", Phase::Complete, "2026-01-01T10:00:00Z"),
        snapshot("failed", "u-a", Phase::Failed, "2026-01-01T11:00:00Z"),
        snapshot("of-an-earlier-namesake", "u-old", Phase::Complete, "2026-01-01T11:30:00Z"),
    ];
    assert_eq!(newest("u-a", &all), Some(last("second", "2026-01-01T10:00:00Z")));
    assert_eq!(newest("u-a", all.iter().rev()), Some(last("second", "2026-01-01T10:00:00Z")));
    assert_eq!(newest("u-b", &all), None);
}

#[test]
fn the_last_snapshot_never_goes_back() {
    let mut seen = formed(3, 3);
    assert_eq!(planned(&seen).status.last_snapshot, None);
    let (old, new) = (last("s-1", "2026-01-01T09:00:00Z"), last("s-2", "2026-01-01T10:00:00Z"));
    seen.last_snapshot = Some(new.clone());
    seen.cluster.status = Some(planned(&seen).status);
    assert_eq!(planned(&seen).status.last_snapshot, Some(new.clone()));
    for left in [Some(old), None] {
        seen.last_snapshot = left;
        let plan = planned(&seen);
        assert_eq!(plan.status.last_snapshot, Some(new.clone()), "its EtcdSnapshot was deleted");
        assert_eq!(Some(plan.status), seen.cluster.status, "nothing is written");
    }
}

#[test]
fn the_endpoint_is_the_client_service() {
    for seen in [bare(3), formed(3, 3)] {
        assert_eq!(planned(&seen).status.endpoint.as_deref(), Some("http://a-client.ns.svc:2379"));
    }
}
