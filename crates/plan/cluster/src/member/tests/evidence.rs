//! Facts that are evidence, and acts that end evidence.

use holdfast_api::member::{Departure, LastFailure, Leaving, Removed};
use holdfast_api::repair::{Evidence, Loss, Repair};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated};

use super::*;

fn later(seconds: i64) -> Timestamp {
    noon() + SignedDuration::from_secs(seconds)
}

/// The member's etcd container has ended with this code in the Pod with this UID, and kubelet waits.
fn ended(seen: &mut Observed, pod: &str, code: i32, words: &str) {
    let there = seen.pod.get_or_insert_with(|| pod_of(&seen.member));
    failed(there, container::ETCD, code, words, earlier());
    let status = there.status.as_mut().unwrap();
    (status.container_statuses, status.init_container_statuses) = (status.init_container_statuses.take(), None);
    there.metadata.uid = Some(pod.to_owned());
}

fn gate(verdict: &str) -> String {
    format!(r#"{{"kind":"gate","verdict":"{verdict}","message":"m"}}"#)
}

/// Runs one pass and writes its status.
fn look(seen: &mut Observed, now: Timestamp) -> Plan<EtcdMemberStatus> {
    let plan = planned_at(seen, now);
    seen.member.status = Some(plan.status.clone());
    assert_eq!(planned_at(seen, now).status, plan.status, "written once");
    plan
}

/// Returns the evidence after two Pods refused the member's data with these messages.
fn twice(first: (i32, &str), second: (i32, &str)) -> Option<Evidence> {
    let mut seen = serving();
    ended(&mut seen, "u-1", first.0, first.1);
    assert_eq!(look(&mut seen, noon()).status.evidence, None, "once is no evidence");
    assert_eq!(look(&mut seen, later(30)).status.evidence, None, "nor is the same Pod again");
    ended(&mut seen, "u-2", second.0, second.1);
    look(&mut seen, later(90)).status.evidence
}

#[test]
fn two_pods_that_refuse_lost_data_are_evidence() {
    let lost =
        ["EmptyVolume", "EmptiedVolume", "ForeignVolume", "OlderVolume", "WrongClaim", "WrongMember", "WrongWal"];
    for verdict in lost {
        let words = gate(verdict);
        let found = twice((71, &words), (71, &words)).unwrap();
        assert_eq!((found.kind, found.detail.as_deref()), (Loss::VolumeRefused, Some(verdict)));
        assert_eq!(found.at, later(90).to_string());
    }
    for verdict in ["RestoreIncomplete", "IdentityLost", "WrongCluster", "WrongRestore", "UnreadableAnnotations"] {
        let words = gate(verdict);
        assert_eq!(twice((71, &words), (71, &words)), None, "{verdict}");
    }
    let (emptied, older, identity) = (gate("EmptiedVolume"), gate("OlderVolume"), gate("IdentityLost"));
    assert_eq!(twice((71, &emptied), (71, &older)).unwrap().detail.as_deref(), Some("EmptiedVolume, OlderVolume"));
    assert_eq!(twice((71, &emptied), (71, &identity)), None);
}

#[test]
fn corrupt_data_are_told_by_code_and_words() {
    let log = r#"{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"wal: crc mismatch"}"#;
    let database = "panic: assertion failed: Page expected to be: 23, but self identifies as 0";
    for (words, verdict) in [(log, "CorruptLog"), (database, "CorruptDatabase")] {
        for code in [1, 2] {
            let found = twice((code, words), (code, words)).unwrap();
            assert_eq!((found.kind, found.detail.as_deref()), (Loss::DataCorrupt, Some(verdict)));
        }
        assert_eq!(twice((137, words), (137, words)), None, "it was killed");
    }
    for words in ["", "panic: out of memory", "no space left on device", "etcdserver: request timed out"] {
        assert_eq!(twice((2, words), (2, words)), None, "{words}");
    }
    let unreadable = gate("UnreadableWal");
    assert_eq!(twice((71, &unreadable), (71, &unreadable)).unwrap().kind, Loss::DataCorrupt);
}

#[test]
fn the_first_pod_that_refuses_is_made_anew_once() {
    let mut seen = serving();
    ended(&mut seen, "u-1", 71, &gate("EmptiedVolume"));
    look(&mut seen, noon());
    assert_eq!(look(&mut seen, later(59)).act, None);
    assert!(matches!(look(&mut seen, later(60)).act, Some(Act::DeletePod { pod, .. }) if pod.uid == "u-1"));
    ended(&mut seen, "u-2", 71, &gate("EmptiedVolume"));
    look(&mut seen, later(70));
    assert_eq!(look(&mut seen, later(700)).act, None, "the second one stays");
    // A message that is no evidence ends no Pod; nor does a message while a container runs.
    let mut seen = serving();
    ended(&mut seen, "u-1", 71, &gate("IdentityLost"));
    look(&mut seen, noon());
    assert_eq!(look(&mut seen, later(700)).act, None);
    let mut seen = serving();
    ended(&mut seen, "u-1", 71, &gate("EmptiedVolume"));
    look(&mut seen, noon());
    running(seen.pod.as_mut().unwrap(), false);
    assert_eq!(look(&mut seen, later(700)).act, None);
    // A member that serves again is not lost.
    running(seen.pod.as_mut().unwrap(), true);
    assert_eq!(look(&mut seen, later(800)).status.refusals, vec![]);
}

#[test]
fn a_claim_that_is_gone_is_evidence_from_then_on() {
    let mut seen = serving();
    seen.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert_eq!(look(&mut seen, noon()).status.evidence, None, "the data are there while the Pod is");
    seen.claim = None;
    let gone = Some(Evidence { kind: Loss::ClaimGone, detail: None, at: later(1).to_string() });
    assert_eq!(look(&mut seen, later(1)).status.evidence, gone);
    assert_eq!(look(&mut seen, later(500)).status.evidence, gone);
    let mut never = serving();
    (never.claim, never.member.spec.joined) = (None, None);
    assert_eq!(planned(&never).status.evidence, None, "a member that never served has lost nothing");
    // An earlier refusal is no evidence about the claim.
    seen.claim = serving().claim;
    assert_eq!(look(&mut seen, later(600)).status.evidence, None);
}

fn leaving(seen: &mut Observed, why: Departure) {
    seen.member.spec.leaving = Some(Leaving { why, evidence: None, at: noon().to_string() });
}

#[test]
fn the_pod_of_a_lost_member_ends_and_none_is_made() {
    let mut seen = serving();
    leaving(&mut seen, Departure::Lost);
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })));
    seen.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert_eq!(waits(&seen), Some(Reason::Replacing));
    seen.pod = None;
    assert_eq!(waits(&seen), Some(Reason::Replacing));
    for why in [Departure::ScaledIn, Departure::Requested, Departure::NotListed, Departure::NeverPromoted] {
        leaving(&mut seen, why);
        assert!(matches!(act(&seen), Some(Act::CreatePod(_))), "{why:?}: it serves until etcd removes it");
    }
}

#[test]
fn the_claim_of_a_replaced_member_is_kept_for_a_while() {
    let goes = |why| {
        let mut seen = serving();
        leaving(&mut seen, why);
        seen.member.metadata.deletion_timestamp = Some(earlier());
        seen.member.spec.removed =
            Some(Removed { at: noon().to_string(), cluster_id: "c1".to_owned(), member_id: Some("10".to_owned()) });
        seen.pod = None;
        seen
    };
    let deletes = |seen: &Observed, now| matches!(planned_at(seen, now).act, Some(Act::DeleteClaim { .. }));
    let day = 24 * 60 * 60;
    for why in [Departure::Lost, Departure::Requested, Departure::NotListed] {
        let mut seen = goes(why);
        assert_eq!(waits(&seen), Some(Reason::ClaimKept));
        assert!(!deletes(&seen, later(day - 1)) && deletes(&seen, later(day)));
        cluster(&mut seen).spec.repair = Some(Repair { keep_claim_seconds: Some(60), ..Repair::default() });
        assert!(!deletes(&seen, later(59)) && deletes(&seen, later(60)));
        let mut ends = goes(why);
        cluster(&mut ends).metadata.deletion_timestamp = Some(earlier());
        assert!(deletes(&ends, noon()), "it goes with its cluster");
        seen.claim = None;
        assert!(matches!(act(&seen), Some(Act::ReleaseMember { .. })));
    }
    for why in [Departure::ScaledIn, Departure::NeverPromoted] {
        assert!(deletes(&goes(why), noon()), "{why:?}");
    }
    // The failure for which Holdfast replaced the member is no fault any more.
    let mut seen = goes(Departure::Lost);
    let failure = LastFailure {
        container: container::ETCD.to_owned(),
        exit_code: 71,
        reason: Some("VolumeRefused".to_owned()),
        ..LastFailure::default()
    };
    seen.member.status = Some(EtcdMemberStatus { last_failure: Some(failure.clone()), ..EtcdMemberStatus::default() });
    let status = planned(&seen).status;
    let told: Vec<_> = status.conditions.iter().map(|c| (c.type_.as_str(), c.reason.as_str())).collect();
    assert_eq!(told, [("Degraded", "NothingWrong"), ("Progressing", "ClaimKept"), ("Ready", "ClaimKept")]);
    assert_eq!(status.last_failure, Some(failure), "the status keeps the failure");
}

/// A container that ended long ago, and whose Pod has served since, is no fault of the next Pod.
#[test]
fn a_failure_before_the_member_served_is_not_reported_at_its_next_pod() {
    let mut seen = serving();
    let pod = seen.pod.as_mut().unwrap();
    let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
    let end = ContainerStateTerminated { exit_code: 137, ..ContainerStateTerminated::default() };
    statuses[0].last_state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let status = planned(&seen).status;
    assert_eq!(
        (status.state.as_deref(), status.last_failure.as_ref().map(|f| f.exit_code)),
        (Some("Serving"), Some(137))
    );
    seen.member.status = Some(status);
    let mut going = seen.clone();
    let pod = going.pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = Some(Time(noon()));
    running(pod, false);
    going.pod.as_mut().unwrap().status.as_mut().unwrap().container_statuses =
        seen.pod.as_ref().unwrap().status.as_ref().unwrap().container_statuses.clone();
    let mut next = pod_of(&seen.member);
    next.status = None;
    for pod in [going.pod, None, Some(next)] {
        seen.pod = pod;
        let status = planned(&seen).status;
        assert_eq!(status.last_failure, None);
        assert_ne!(degraded(&seen).0, "MemberRestarting");
        seen.member.status = Some(status);
    }
    // A container that fails for now is one.
    failed(seen.pod.as_mut().unwrap(), "etcd", 1, "no", Time(noon()));
    assert_eq!(degraded(&seen).0, "MemberRestarting");
}
