//! Promotion of learners, and admission of clients.

use super::*;

#[test]
fn joined_then_no_empty_start_then_vote_then_clients() {
    let mut seen = with_learner(1, 2);
    let Some(Act::LatchJoined { member, joined }) = act(&seen) else { panic!() };
    assert_eq!(member, member_target(&seen, 1));
    seen.members[1].object.spec.joined = Some(joined);
    assert_eq!(act(&seen), Some(forbidden(&seen, 1)));
    seen.members[1].pod.as_mut().unwrap().metadata.annotations = None;
    let plan = planned(&seen);
    assert_eq!(plan.act, Some(Act::Promote { name: named(1), member_id: 0x11, cluster_id: CLUSTER_ID }));
    assert_eq!(plan.wake, Wake::AfterMillis(100));
    etcd(&mut seen).members[1].learner = false;
    assert_eq!(act(&seen), Some(Act::AdmitClients { pod: pod_target(&seen, 1) }));
}

/// I3: the Pod on a member's volume may belong to another etcd.
#[test]
fn clients_reach_nobody_for_whom_another_answers() {
    let mut seen = candidate();
    etcd(&mut seen).members[1].learner = false;
    let admits = Act::AdmitClients { pod: pod_target(&seen, 1) };
    assert_eq!(act(&seen), Some(admits.clone()));
    let other_cluster = Answer { cluster_id: CLUSTER_ID + 1, ..answer(1) };
    let other_member = Answer { member_id: 0x99, ..answer(1) };
    for said in [Seen::Known(other_cluster), Seen::Known(other_member), Seen::unknown("silent")] {
        seen.answers.insert(named(1), said.clone());
        assert_ne!(act(&seen), Some(admits.clone()), "{said:?}");
    }
}

/// Returns a learner that has joined and may not start empty any more.
fn candidate() -> Observed {
    let mut seen = with_learner(1, 2);
    seen.members[1].object.spec.joined = joined_member(&seen.cluster, 1).spec.joined;
    seen.members[1].pod.as_mut().unwrap().metadata.annotations = None;
    seen
}

#[test]
fn a_vote_needs_a_learner_that_keeps_up() {
    let mut seen = candidate();
    let lag = |behind: u64| Seen::Known(Answer { learner: true, applied_index: 1_000_000 - behind, ..answer(1) });
    seen.answers.insert(named(1), lag(1_001));
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner));
    seen.answers.insert(named(1), lag(1_000));
    assert!(matches!(act(&seen), Some(Act::Promote { .. })));
    for leader in [0, 0x99] {
        let cut_off = Answer { learner: true, leader, ..answer(1) };
        seen.answers.insert(named(1), Seen::Known(cut_off));
        assert_eq!(waits(&seen), Some(Reason::WaitingForLearner), "its vote would be missing");
    }
    seen.answers.remove(&named(1));
    assert_eq!(act(&seen), None);
    let mut seen = candidate();
    etcd(&mut seen).leader = None;
    assert_eq!(act(&seen), None);
    let mut seen = candidate();
    seen.members[1].pod = None;
    assert_eq!(act(&seen), None);
}

#[test]
fn a_vote_needs_a_quorum_that_answers() {
    let mut seen = with_learner(3, 4);
    seen.members[3].object.spec.joined = joined_member(&seen.cluster, 3).spec.joined;
    seen.members[3].pod.as_mut().unwrap().metadata.annotations = None;
    seen.answers.remove(&named(1));
    assert!(matches!(act(&seen), Some(Act::Promote { .. })), "two voters and the new one are a quorum of four");
    seen.answers.remove(&named(2));
    assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
}

#[test]
fn a_pod_made_anew_is_admitted_again() {
    let mut seen = formed(3, 3);
    not_admitted(&mut seen.members[2]);
    assert_eq!(act(&seen), Some(Act::AdmitClients { pod: pod_target(&seen, 2) }));
    // Holdfast first removes a permission that came back.
    let pod = seen.members[0].pod.as_mut().unwrap();
    pod.metadata.annotations = labels(&[(key::MAY_START_EMPTY, "x")]);
    assert_eq!(act(&seen), Some(forbidden(&seen, 0)));
}

#[test]
fn pods_that_go_or_belong_to_others_are_left_alone() {
    let mut seen = formed(3, 3);
    let pod = seen.members[2].pod.as_mut().unwrap();
    pod.metadata.labels.as_mut().unwrap().remove(key::ROLE);
    pod.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(act(&seen), None);
    let pod = seen.members[2].pod.as_mut().unwrap();
    pod.metadata.deletion_timestamp = None;
    pod.metadata.owner_references = None;
    assert_eq!(act(&seen), None);
}

/// A policy removes the label from the Pod, or kube-controller-manager does not run.
#[test]
fn a_cluster_that_clients_cannot_reach_is_neither_ready_nor_available() {
    let mut seen = formed(3, 3);
    seen.client_endpoints = Some(vec!["u-of-another-cluster".to_owned()]);
    for kind in ["Ready", "Available"] {
        assert_eq!(condition(&seen, kind), pair("False", "NoClientEndpoint"), "{kind}");
    }
    seen.client_endpoints.as_mut().unwrap().push(format!("u-pod-{}", named(2)));
    for (kind, reason) in [("Ready", "AsDesired"), ("Available", "ReadSucceeded")] {
        assert_eq!(condition(&seen, kind), pair("True", reason), "one endpoint serves clients");
    }
    // Without the right to read EndpointSlices the operator knows no endpoints.
    seen.client_endpoints = None;
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    let mut lags = formed(1, 1);
    lags.client_endpoints = Some(vec![]);
    not_admitted(&mut lags.members[0]);
    assert!(matches!(act(&lags), Some(Act::AdmitClients { .. })));
}
