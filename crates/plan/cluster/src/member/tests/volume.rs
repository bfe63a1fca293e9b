//! A volume that grows under its Pod: the size that kubelet reads from the Pod, and when a Pod in which no etcd runs is made again.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimCondition, PersistentVolumeClaimStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

/// A member that serves, with a volume that grew at this time under its file system.
fn pending(since: Time) -> Observed {
    let mut seen = serving();
    let condition = PersistentVolumeClaimCondition {
        type_: "FileSystemResizePending".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(since),
        ..PersistentVolumeClaimCondition::default()
    };
    let conditions = Some(vec![condition]);
    seen.claim.as_mut().unwrap().status =
        Some(PersistentVolumeClaimStatus { conditions, ..PersistentVolumeClaimStatus::default() });
    seen
}

fn announced(seen: &mut Observed) {
    let annotations = seen.pod.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
    annotations.insert(key::VOLUME_REQUEST.to_owned(), "8Gi".to_owned());
}

#[test]
fn kubelet_is_told_once_and_the_pod_that_serves_stays() {
    let mut seen = pending(earlier());
    let pod = Target::from(&seen.pod.as_ref().unwrap().metadata);
    assert_eq!(act(&seen), Some(Act::RefreshVolume { pod, size: Quantity("8Gi".to_owned()) }));
    announced(&mut seen);
    assert_eq!(act(&seen), None, "only the cluster's pass ends a Pod that serves");
}

/// A full volume ends every etcd: without a quorum no roll mounts the larger one.
#[test]
fn a_pod_in_which_no_etcd_runs_is_made_again_for_the_larger_volume() {
    let down = |mut seen: Observed| {
        failed(seen.pod.as_mut().unwrap(), "etcd", 1, "no space left on device", earlier());
        seen
    };
    let made_again = |seen: &Observed| matches!(act(seen), Some(Act::DeletePod { .. }));
    assert!(made_again(&down(pending(earlier()))));
    assert!(!made_again(&down(pending(Time(noon())))), "kubelet may still grow it");
    let mut younger = down(pending(earlier()));
    younger.pod.as_mut().unwrap().metadata.creation_timestamp = Some(Time(noon()));
    assert!(!made_again(&younger), "this Pod has mounted the larger volume");
    let mut larger = down(serving());
    assert!(!made_again(&larger));
    larger.member.spec.storage.size = Some(Quantity("16Gi".to_owned()));
    assert!(made_again(&larger), "for its quota");
}
