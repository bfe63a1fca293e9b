//! The source of a cluster's first data in the status.

use holdfast_api::restore::{RestorePhase, RestoreStatus, Restoring};
use holdfast_api::store::{Location, PvcLocation, S3Location, StoredSnapshot};
use holdfast_contract::{Report, RestoredReport};

use super::*;

/// The source is known also when the status was lost, and with the status the report of the step: Holdfast latched the source
/// before the step ran.
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
    // The report of the step has more facts, and stays.
    let reported = RestoreStatus {
        uri: Some(format!("file:///backup/{key}/snapshot.db.zst")),
        taken_at: Some("2026-11-21T16:22:33.5Z".to_owned()),
        db_bytes: Some(1 << 20),
        ..expected.clone()
    };
    seen.cluster.status.as_mut().unwrap().restore = Some(reported.clone());
    assert_eq!(told(&seen), Some(reported));
    // Status and latches are lost: the seed has the source.
    let mut lost = seen.clone();
    lost.members[0].object.spec.role = Birth::Seed;
    lost.members[0].object.spec.restore = Some(named);
    lost.cluster.status = None;
    assert_eq!(told(&lost).map(|restore| RestoreStatus { phase: expected.phase, ..restore }), Some(expected));
    // For a file that Holdfast did not write, only the place is known, also in a bucket.
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

/// Otherwise the lineage would be lost for good, or would name another source.
#[test]
fn a_cluster_never_forms_without_the_lineage_of_its_seed() {
    let mut seen = seeding(3);
    seen.members[0].object.spec.restore = Some(restoring("k1"));
    seen.members[0].object.spec.joined = joined_member(&seen.cluster, 0).spec.joined;
    seen.members[0].pod.as_mut().unwrap().metadata.annotations = None;
    restore(&mut seen, Some("k1"));
    let another = Restoring { restore_uid: "another-attempt".to_owned(), ..restoring("k1") };
    for (says, verdict) in [
        (Some(restoring("k1")), Ok(())),
        (None, Err("I9")),
        (Some(restoring("k2")), Err("I9")),
        (Some(another), Err("I9")),
    ] {
        let mut plan = planned(&seen);
        let Some(Act::Latch(latched)) = &mut plan.act else { panic!("it does not form") };
        latched.formed.as_mut().unwrap().restored_from = says.clone();
        let found = safety::cluster(&seen, &plan).map_err(|stop| stop.invariant);
        assert_eq!(found, verdict, "{says:?}");
    }
}

/// A key gives the place of the data alone. The sha256 comes from the report of the step, and before that or without a report from
/// the latch.
#[test]
fn which_bytes_were_restored_is_told_and_stays() {
    let words = || "its keys: the manifest does not say how many there were".to_owned();
    for (latched, reported, expected) in [
        (None, None, None),
        (None, Some("5a"), Some("5a")),
        (Some("5a"), None, Some("5a")),
        (Some("5a"), Some("5a"), Some("5a")),
        (None, Some(""), None),
    ] {
        let mut seen = seeding(1);
        restore(&mut seen, Some("k1"));
        let object = &mut seen.members[0].object;
        object.spec.restore = Some(Restoring { sha256: latched.map(str::to_owned), ..restoring("k1") });
        let mut pod = pod_of(object);
        if let Some(sha256) = reported {
            let report = RestoredReport {
                uri: "file:///backup/k1/snapshot.db".to_owned(),
                sha256: sha256.to_owned(),
                not_compared: Some(words()),
                ..RestoredReport::default()
            };
            let said = serde_json::to_string(&Report::Restored(report)).unwrap();
            failed(&mut pod, "restore", 0, &said, earlier());
        }
        seen.members[0].pod = Some(pod);
        let told = planned(&seen).status.restore.unwrap();
        assert_eq!(told.sha256.as_deref(), expected, "{latched:?}, {reported:?}");
        assert_eq!(told.not_compared, reported.map(|_| words()));
        // The Pod is deleted, and its report with it.
        seen.cluster.status.as_mut().unwrap().restore = Some(told.clone());
        seen.members[0].pod = None;
        let later = planned(&seen).status.restore.unwrap();
        assert_eq!((later.sha256, later.not_compared), (told.sha256, told.not_compared));
    }
}
