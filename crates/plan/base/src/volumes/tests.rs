//! Table tests: a claim whose volume grows, one changed field, the exact result.

use holdfast_api::cluster::Options;
use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::fixtures::{claim_of, earlier, etcd_cluster, joined_member, noon, pod_of};

fn claim(conditions: &[(&str, &str)], stage: Option<&str>) -> PersistentVolumeClaim {
    let one = |(kind, words): &(&str, &str)| PersistentVolumeClaimCondition {
        type_: (*kind).to_owned(),
        status: "True".to_owned(),
        message: Some((*words).to_owned()),
        last_transition_time: Some(earlier()),
        ..PersistentVolumeClaimCondition::default()
    };
    let mut claim = claim_of(&joined_member(&etcd_cluster(1), 0));
    claim.status = Some(PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        conditions: Some(conditions.iter().map(one).collect()),
        allocated_resource_statuses: stage.map(|stage| [(STORAGE.to_owned(), stage.to_owned())].into()),
        ..PersistentVolumeClaimStatus::default()
    });
    claim
}

fn pod(seconds_before_noon: i64) -> Pod {
    let mut pod = pod_of(&joined_member(&etcd_cluster(1), 0));
    pod.metadata.creation_timestamp = Some(Time(noon() - SignedDuration::from_secs(seconds_before_noon)));
    pod
}

const PENDING: (&str, &str) = ("FileSystemResizePending", "waiting for a Pod");
const CONTROLLER: (&str, &str) = ("ControllerResizeError", "the pool is full");
const NODE: (&str, &str) = ("NodeResizeError", "no such device");

#[test]
fn a_pod_from_before_the_growth_gets_ninety_seconds() {
    // The volume grew two minutes before noon.
    let pending = claim(&[PENDING], None);
    let needs =
        |made: i64, after: i64| needs_remount(Some(&pending), &pod(made), noon() + SignedDuration::from_secs(after));
    assert!(needs(600, 0));
    assert!(!needs(600, -31), "89 s after the growth");
    assert!(needs(120, 0), "made in the same second");
    assert!(!needs(119, 3600), "its mount grows the file system");
    assert!(!needs_remount(Some(&claim(&[], None)), &pod(600), noon()));
    assert!(!needs_remount(None, &pod(600), noon()));
}

#[test]
fn the_drivers_words_are_a_refusal_unless_a_mount_may_help() {
    let said = |conditions: &[(&str, &str)], stage: Option<&str>, made: i64| {
        refusal(&claim(conditions, stage), Some(&pod(made)))
    };
    let words = |text: &str| Some(text.to_owned());
    assert_eq!(said(&[], None, 600), None);
    assert_eq!(said(&[], Some("NodeResizePending"), 600), None);
    assert_eq!(said(&[CONTROLLER], Some("ControllerResizeInProgress"), 600), words("the pool is full"));
    assert_eq!(said(&[CONTROLLER], Some("ControllerResizeInfeasible"), 600), words("the pool is full"));
    assert_eq!(said(&[], Some("ControllerResizeInfeasible"), 600), words("the size is ControllerResizeInfeasible"));
    assert_eq!(
        said(&[CONTROLLER, PENDING], Some("NodeResizePending"), 600),
        None,
        "the driver has grown the volume since"
    );
    assert_eq!(said(&[PENDING, NODE], Some("NodeResizeInProgress"), 600), None, "the next mount may grow it");
    assert_eq!(said(&[PENDING, NODE], Some("NodeResizeInProgress"), 60), words("no such device"));
    assert_eq!(said(&[PENDING, NODE], Some("NodeResizeInfeasible"), 600), words("no such device"));
    assert_eq!(refusal(&claim(&[PENDING, NODE], None), None), None, "a parked member mounts it later");
}

#[test]
fn kubelet_is_called_once_for_each_size() {
    let pending = claim(&[PENDING], None);
    let mut there = pod(600);
    assert_eq!(to_announce(&pending, &there).map(|size| size.0.as_str()), Some("8Gi"));
    assert_eq!(to_announce(&claim(&[], None), &there), None);
    there.metadata.annotations.get_or_insert_default().insert(key::VOLUME_REQUEST.to_owned(), "8Gi".to_owned());
    assert_eq!(to_announce(&pending, &there), None);
    there = pod(600);
    there.status = None;
    assert_eq!(to_announce(&pending, &there), None, "its volume is not mounted yet");
}

#[test]
fn a_pod_is_outgrown_where_its_default_quota_is_smaller() {
    let outgrown = |made_for: Option<&str>, has: &str, quota: Option<i64>| {
        let mut member = joined_member(&etcd_cluster(1), 0);
        let mut pod = pod_of(&member);
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.remove(key::VOLUME_SIZE);
        annotations.extend(made_for.map(|size| (key::VOLUME_SIZE.to_owned(), size.to_owned())));
        member.spec.storage.size = Some(Quantity(has.to_owned()));
        member.spec.process.options = quota.map(|q| Options { quota_backend_bytes: Some(q), ..Options::default() });
        has_outgrown(&pod, &member)
    };
    assert!(outgrown(Some("8Gi"), "16Gi", None));
    assert!(!outgrown(Some("8Gi"), "16Gi", Some(1 << 30)), "the spec names the quota");
    assert!(!outgrown(Some("32Gi"), "64Gi", None), "both have the largest default");
    assert!(!outgrown(Some("8Gi"), "8192Mi", None), "the same size in other words");
    assert!(!outgrown(None, "16Gi", None), "a Pod of an earlier version of Holdfast");
    assert!(!outgrown(Some("16Gi"), "8Gi", None));
}
