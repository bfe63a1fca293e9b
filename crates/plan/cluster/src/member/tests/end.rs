//! Members that are deleted: the order in which their parts go, and the parts that stay.

use holdfast_api::member::Removed;

use super::*;

fn deleted(mut seen: Observed) -> Observed {
    seen.member.metadata.deletion_timestamp = Some(earlier());
    seen
}

#[test]
fn pod_then_claim_then_let_go() {
    let mut seen = deleted(serving());
    seen.cluster = Seen::Known(None);
    assert!(matches!(act(&seen), Some(Act::DeletePod { pod, .. }) if pod.uid == "u-pod-a-m0"));
    seen.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!(waits(&seen), Some(Reason::Deleting));
    seen.pod = None;
    assert!(matches!(act(&seen), Some(Act::DeleteClaim { claim, .. }) if claim.uid == "u-data-a-m0"));
    seen.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert_eq!(waits(&seen), Some(Reason::Deleting));
    seen.claim = None;
    assert_eq!(act(&seen), Some(Act::ReleaseMember { member: Target::from(&seen.member.metadata) }));
    seen.member.metadata.finalizers = None;
    assert_eq!(waits(&seen), Some(Reason::Deleting));
}

#[test]
fn claims_to_keep_and_claims_of_others_stay() {
    let mut seen = deleted(serving());
    seen.cluster = Seen::Known(None);
    seen.pod = None;
    seen.member.spec.storage.retention = Retention::Retain;
    assert!(matches!(act(&seen), Some(Act::ReleaseMember { .. })));
    let mut seen = deleted(serving());
    seen.cluster = Seen::Known(None);
    seen.pod.as_mut().unwrap().metadata.owner_references = None;
    seen.claim.as_mut().unwrap().metadata.labels = None;
    assert!(matches!(act(&seen), Some(Act::ReleaseMember { .. })));
}

#[test]
fn the_clusters_word_on_retention_is_the_newer_one() {
    let mut seen = deleted(serving());
    seen.pod = None;
    cluster(&mut seen).metadata.deletion_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::DeleteClaim { .. })));
    cluster(&mut seen).spec.storage.retention = Retention::Retain;
    assert!(matches!(act(&seen), Some(Act::ReleaseMember { .. })));
}

/// Otherwise each drain would take a voter's Pod for good, and the second drain the quorum (I1).
#[test]
fn a_voter_that_was_deleted_by_mistake_keeps_its_vote() {
    let mut seen = deleted(serving());
    assert_eq!(degraded(&seen).0, "MemberStillListed");
    seen.pod.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Failed".to_owned());
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
    seen.pod = None;
    assert_eq!(degraded(&seen).0, "MemberStillListed", "also while something is done");
    let Some(Act::CreatePod(made)) = act(&seen) else { panic!("its Pod is made again") };
    assert!(!pods::may_start_empty(&made));
    // Only on the member's own volume.
    seen.claim = None;
    assert_eq!(waits(&seen), Some(Reason::ClaimLost));
    let without_pod = || Observed { pod: None, ..deleted(serving()) };
    let mut paused = without_pod();
    cluster(&mut paused).spec.paused = true;
    assert_eq!(waits(&paused), Some(Reason::MemberStillListed));
    // The garbage collector would delete each new Pod.
    let mut foreground = without_pod();
    foreground.member.metadata.finalizers.get_or_insert_default().push("foregroundDeletion".to_owned());
    assert_eq!(waits(&foreground), Some(Reason::MemberStillListed));
}

#[test]
fn while_its_cluster_lives_nothing_of_a_counted_member_is_touched() {
    assert_eq!(waits(&deleted(serving())), Some(Reason::MemberStillListed));
    let mut seen = deleted(serving());
    seen.cluster = Seen::unknown("timeout");
    assert_eq!(waits(&seen), Some(Reason::WaitingForReference));
    // etcd may already list a joiner of a formed cluster.
    let mut seen = deleted(serving());
    seen.member.spec.joined = None;
    seen.member.spec.role = Birth::Joiner;
    assert_eq!(waits(&seen), Some(Reason::MemberStillListed));
    // Another cluster with the same name has another UID, and changes nothing for this cluster's members.
    let mut seen = deleted(unborn(None));
    seen.cluster = Seen::Known(Some(etcd_cluster(1)));
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
    cluster(&mut seen).spec.paused = true;
    assert_eq!(waits(&seen), Some(Reason::Paused));
}

#[test]
fn a_parked_member_whose_claim_is_gone_has_lost_its_data() {
    let mut seen = serving();
    cluster(&mut seen).spec.replicas = 0;
    seen.member.spec.parked = Some(holdfast_api::member::Parked::default());
    seen.pod = None;
    assert_eq!(planned(&seen).waiting, None, "its claim holds the data");
    seen.claim = None;
    assert_eq!(waits(&seen), Some(Reason::ClaimLost));
}

/// Otherwise kubelet restarts the etcd of a removed member again and again, with growing pauses.
#[test]
fn the_pod_of_a_removed_member_ends_before_the_member_is_deleted() {
    let mut seen = serving();
    seen.member.spec.removed = Some(Removed { at: "2026-01-01T11:59:00Z".to_owned(), ..Removed::default() });
    let pod = Target::from(&seen.pod.as_ref().unwrap().metadata);
    assert!(matches!(act(&seen), Some(Act::DeletePod { pod: target, .. }) if target == pod), "{:?}", act(&seen));
    let mut paused = seen.clone();
    cluster(&mut paused).spec.paused = true;
    assert_eq!(act(&paused), None);
    seen.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert_eq!(act(&seen), None);
    seen.pod = None;
    assert_eq!(act(&seen), None, "no Pod is made for a removed member");
}
