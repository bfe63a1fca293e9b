//! Members in memory: the limits of a replacement, and the loss of all members.

use holdfast_api::EtcdMemberStatus;
use holdfast_api::member::{Departure, Leaving};
use holdfast_api::repair::{Evidence, GivenUp, Loss, Repair, RepairMode, Replaced};

use super::*;
use crate::fixtures::formed_in_memory;

fn evidence() -> Evidence {
    Evidence { kind: Loss::MemoryGone, detail: None, at: noon().to_string() }
}

/// Removes the nth member's Pod.
fn lose(seen: &mut Observed, n: usize) {
    seen.answers.remove(&named(n));
    seen.members[n].pod = None;
    let status = EtcdMemberStatus { evidence: Some(evidence()), ..EtcdMemberStatus::default() };
    seen.members[n].object.status = Some(status);
}

fn latched(seen: &Observed) -> Option<String> {
    match act(seen)? {
        Act::Latch(latches) => latches.replaced.map(|replaced| replaced.member),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_pod_is_replaced_at_once() {
    let mut seen = formed_in_memory(3, 3);
    assert_eq!(act(&seen), None);
    lose(&mut seen, 2);
    assert_eq!(latched(&seen), Some(named(2)));
    // The replacement waits neither for the hour nor for another member with the same evidence.
    let mut again = formed_in_memory(5, 5);
    lose(&mut again, 3);
    lose(&mut again, 4);
    let before = Replaced { member: named(9), evidence: evidence(), at: noon().to_string() };
    latches(&mut again).replaced = Some(before);
    assert_eq!(latched(&again), Some(named(3)));
    // One member after the other: the first leaves, then the next joins.
    seen.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    assert_eq!(waits(&seen), Some(Reason::Replacing), "a person decides");
    // etcd lists the member until the removal, and the Pod is gone before.
    let mut leaves = formed_in_memory(3, 3);
    lose(&mut leaves, 2);
    let lost = Leaving { why: Departure::Lost, evidence: Some(evidence()), at: noon().to_string() };
    leaves.members[2].object.spec.leaving = Some(lost);
    assert!(matches!(act(&leaves), Some(Act::RemoveMember { member_id: 0x12, learner: false, .. })));
}

#[test]
fn a_lost_learner_of_the_first_member_is_made_anew() {
    let mut seen = with_learner(1, 3);
    for member in &mut seen.members {
        crate::fixtures::keep_in_memory(&mut member.object.spec.storage);
    }
    crate::fixtures::keep_in_memory(&mut seen.cluster.spec.storage);
    seen.members[1].object.spec.joined = joined_member(&seen.cluster, 1).spec.joined;
    lose(&mut seen, 1);
    assert_eq!(latched(&seen), Some(named(1)), "the third one waits for it, and not the other way round");
    // Two lost learners do not wait for each other, and a lost voter does not wait for them.
    let mut two = formed_in_memory(3, 3);
    for n in [1, 2] {
        lose(&mut two, n);
        etcd(&mut two).members[n].learner = true;
    }
    assert_eq!(latched(&two), Some(named(1)));
    let mut voter = formed_in_memory(4, 4);
    lose(&mut voter, 2);
    lose(&mut voter, 3);
    etcd(&mut voter).members[3].learner = true;
    assert_eq!(latched(&voter), Some(named(2)));
    // The learner had no vote: a CORRUPT alarm does not matter.
    etcd(&mut seen).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
    seen.members[1].object.spec.role = Birth::Joiner;
    assert_eq!(latched(&seen), Some(named(1)));
    latches(&mut seen).replaced = Some(Replaced { member: named(1), evidence: evidence(), at: noon().to_string() });
    assert!(matches!(act(&seen), Some(Act::LatchLeaving { .. })));
}

/// Holdfast removes a listed learner that had not joined, and counts no other evidence for it.
#[test]
fn a_learner_that_loses_its_pod_before_it_joins_is_made_anew() {
    let mut seen = formed_in_memory(4, 4);
    etcd(&mut seen).members[3].learner = true;
    seen.members[3].object.spec.role = Birth::Joiner;
    seen.members[3].object.spec.joined = None;
    lose(&mut seen, 3);
    assert_eq!(latched(&seen), Some(named(3)));
    latches(&mut seen).replaced = Some(Replaced { member: named(3), evidence: evidence(), at: noon().to_string() });
    assert!(matches!(act(&seen), Some(Act::LatchLeaving { .. })));
    // Holdfast replaces the first learner at once; after several in a row the next one waits.
    let count = |seen: &Observed| match act(seen) {
        Some(Act::Latch(latched)) => latched.given_up.map(|last| last.count),
        other => panic!("{other:?}"),
    };
    let mut again = seen.clone();
    latches(&mut again).replaced = None;
    assert_eq!(count(&again), Some(0));
    let last = |count| Some(GivenUp { member: "a-before".to_owned(), count, at: noon().to_string() });
    latches(&mut again).given_up = last(0);
    assert_eq!(count(&again), Some(1));
    let mut fewer = formed_in_memory(3, 4);
    latches(&mut fewer).given_up = last(0);
    assert!(matches!(act(&fewer), Some(Act::Latch(_))));
    latches(&mut fewer).given_up = last(1);
    assert_eq!(waits(&fewer), Some(Reason::JoinerStuck));
    let lost = Leaving { why: Departure::Lost, evidence: Some(evidence()), at: noon().to_string() };
    let mut leaves = seen.clone();
    leaves.members[3].object.spec.leaving = Some(lost);
    assert!(matches!(act(&leaves), Some(Act::RemoveMember { member_id: 0x13, learner: true, .. })));
    for kind in [Loss::ClaimGone, Loss::VolumeRefused, Loss::DataCorrupt] {
        let mut other = seen.clone();
        let status = other.members[3].object.status.as_mut().unwrap();
        status.evidence = Some(Evidence { kind, ..evidence() });
        latches(&mut other).replaced = None;
        assert_eq!(waits(&other), Some(Reason::WaitingForPod), "{kind:?}");
    }
}

#[test]
fn the_loss_of_all_is_told_and_nothing_is_made_anew() {
    for size in [1_usize, 2, 3, 5] {
        let mut seen = formed_in_memory(size, i32::try_from(size).unwrap());
        seen.etcd = Seen::unknown("no member has a Pod with an address");
        for n in 0..size {
            lose(&mut seen, n);
        }
        assert_eq!(waits(&seen), Some(Reason::DataLost), "{size}");
        assert_eq!(condition(&seen, "Ready"), pair("False", "DataLost"));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "DataLost"));
        let status = planned(&seen).status;
        assert!(
            status.members.iter().all(|m| m.reason.as_deref() == Some("its Pod is gone, and the data in its memory"))
        );
    }
    // While one of the members runs, its data can be saved.
    let mut seen = formed_in_memory(3, 3);
    seen.etcd = Seen::unknown("timed out");
    lose(&mut seen, 1);
    lose(&mut seen, 2);
    assert_eq!(waits(&seen), Some(Reason::QuorumLost));
    let message = planned(&seen).waiting.unwrap().message;
    assert!(message.contains("save the survivor before its Pod ends"), "{message}");
    assert!(!message.contains("Bring the data"), "{message}");
    // The loss also waits until each member's own pass has looked for its Pod: the list of Pods may lack a running Pod.
    let mut unseen = formed_in_memory(3, 3);
    unseen.etcd = Seen::unknown("no member has a Pod with an address");
    unseen.answers.clear();
    for member in &mut unseen.members {
        member.pod = None;
    }
    assert_eq!(waits(&unseen), Some(Reason::QuorumLost));
    // A refusal of the gate that does not concern the data is no loss.
    let mut refused = seen.clone();
    let report = r#"{"kind":"gate","verdict":"UnreadableAnnotations","message":"m"}"#;
    failed(refused.members[0].pod.as_mut().unwrap(), "etcd", 71, report, earlier());
    assert_eq!(waits(&refused), Some(Reason::QuorumLost));
    // Evidence that the Pod contradicts.
    let mut runs = seen.clone();
    let pod = runs.members[0].pod.clone();
    lose(&mut runs, 0);
    runs.members[0].pod = pod;
    running(runs.members[0].pod.as_mut().unwrap(), false);
    assert_ne!(waits(&runs), Some(Reason::DataLost));
    // A lost status founds no cluster either.
    lose(&mut seen, 0);
    seen.cluster.status = None;
    assert_eq!(waits(&seen), Some(Reason::DataLost));
}

#[test]
fn fewer_than_three_members_in_memory_are_a_risk() {
    for (size, reason) in [(1, "NoSpareMember"), (2, "NoSpareMember"), (3, "NothingWrong")] {
        let seen = formed_in_memory(usize::try_from(size).unwrap(), size);
        assert_eq!(condition(&seen, "AtRisk").1, reason, "{size}");
    }
    let mut new = bare(1);
    crate::fixtures::keep_in_memory(&mut new.cluster.spec.storage);
    assert_eq!(condition(&new, "AtRisk").1, "NoSpareMember", "also before there is any");
}
