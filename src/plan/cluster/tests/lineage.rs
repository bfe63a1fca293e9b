//! Where a cluster's first data came from, as far as it can be told.

use super::*;
use crate::api::restore::{RestorePhase, RestoreStatus, Restoring};
use crate::api::store::{Location, PvcLocation, S3Location, StoredSnapshot};

/// Where the data came from is known also when the status was lost, and with it what the step reported: from what was
/// written down before it ran.
#[test]
fn lineage_outlives_a_lost_status() {
    let key = "shop/orders/1a2b3c4d/20261121T162233Z-99887766-abcdef01";
    let named = Restoring { snapshot: Some("nightly".to_owned()), ..restoring(key) };
    let expected = RestoreStatus {
        phase: Some(RestorePhase::Formed),
        uri: Some(format!("file:///backup/{key}")),
        taken_at: Some("2026-11-21T16:22:33Z".to_owned()),
        from_cluster: Some("shop/orders".to_owned()),
        snapshot: Some("nightly".to_owned()),
        revision_bump: Some(1_000_000_000),
        ..RestoreStatus::default()
    };
    let told = |seen: &Observed| planned(seen).status.restore;
    let mut seen = formed(1, 1);
    latches(&mut seen).formed.as_mut().unwrap().restored_from = Some(named.clone());
    assert_eq!(told(&seen), Some(expected.clone()));
    // What the step has reported is more, and stays.
    let reported = RestoreStatus {
        uri: Some(format!("file:///backup/{key}/snapshot.db.zst")),
        taken_at: Some("2026-11-21T16:22:33.5Z".to_owned()),
        db_bytes: Some(1 << 20),
        ..expected.clone()
    };
    seen.cluster.status.as_mut().unwrap().restore = Some(reported.clone());
    assert_eq!(told(&seen), Some(reported));
    // Everything is lost, the latches too: the seed knows.
    let mut lost = seen.clone();
    lost.members[0].object.spec.role = Birth::Seed;
    lost.members[0].object.spec.restore = Some(named);
    lost.cluster.status = None;
    assert_eq!(told(&lost).map(|restore| RestoreStatus { phase: expected.phase, ..restore }), Some(expected));
    // A file of somebody else's says no more than where it is, one in a bucket too.
    let raw = |source| RestoreStatus { uri: source, ..RestoreStatus::default() };
    for (place, uri) in [
        (
            Location::Pvc(PvcLocation { claim_name: "b".to_owned(), sub_path: Some("x".to_owned()) }),
            "file:///backup/x/a.db",
        ),
        (
            Location::S3(S3Location {
                bucket: "b".to_owned(),
                prefix: Some("p/q".to_owned()),
                ..S3Location::default()
            }),
            "s3://b/p/q/a.db",
        ),
    ] {
        let source = StoredSnapshot::at(place, "a.db".to_owned());
        let file = Restoring { source, revision_bump: None, ..restoring("a.db") };
        let mut seen = formed(1, 1);
        latches(&mut seen).formed.as_mut().unwrap().restored_from = Some(file);
        let known = RestoreStatus { phase: Some(RestorePhase::Formed), ..raw(Some(uri.to_owned())) };
        assert_eq!(told(&seen), Some(known));
    }
}
