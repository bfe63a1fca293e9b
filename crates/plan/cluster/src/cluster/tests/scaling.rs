//! Fewer members, zero members, and back: which member goes, in which order, and under which conditions.

use holdfast_api::member::{Departure, Leaving, Parked, Removed};

use super::*;

fn leaving() -> Option<Leaving> {
    Some(Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() })
}

/// Returns three voters; the second leaves.
fn one_leaves() -> Observed {
    let mut seen = formed(3, 2);
    seen.members[1].object.spec.leaving = leaving();
    seen
}

fn victim(seen: &Observed) -> Option<String> {
    match act(seen) {
        Some(Act::LatchLeaving { member, .. }) => Some(member.name),
        other => panic!("{other:?}"),
    }
}

fn silence(seen: &mut Observed, n: usize) {
    seen.answers.insert(named(n), Seen::unknown("no"));
}

#[test]
fn the_victim_is_the_one_that_is_missed_least() {
    // All voters equal: a follower, never the leader; the first by name.
    assert_eq!(victim(&formed(3, 2)), Some(named(1)));
    type Change = fn(&mut Observed);
    let node = |s: &mut Observed, n: usize, node: &str| {
        s.members[n].pod.as_mut().unwrap().spec.as_mut().unwrap().node_name = Some(node.to_owned());
    };
    let crowded = move |s: &mut Observed| (0..3).for_each(|n| node(s, n, if n == 1 { "other" } else { "same" }));
    let changes: [(usize, Change); 4] = [
        (2, |s| silence(s, 2)),
        (2, |s| s.members[2].object.metadata.deletion_timestamp = Some(earlier())),
        (2, |s| s.members[2].object.metadata.creation_timestamp = Some(Time(noon()))),
        // A learner goes before voters.
        (3, |s| {
            *s = with_learner(3, 2);
            s.members[3].object.spec.joined = joined_member(&s.cluster, 3).spec.joined;
            s.members[3].pod.as_mut().unwrap().metadata.annotations = None;
            silence(s, 3);
        }),
    ];
    for (n, change) in changes {
        let mut seen = formed(3, 2);
        change(&mut seen);
        assert_eq!(victim(&seen), Some(named(n)));
    }
    let mut seen = formed(3, 2);
    crowded(&mut seen);
    assert_eq!(victim(&seen), Some(named(2)), "the node with two voters loses one, and not the leader");
    // A member that etcd does not list goes first.
    let mut seen = formed(3, 3);
    let mut object = objects::member::joiner(&seen.cluster, &named(8));
    stored(&mut object.metadata, "u-8");
    seen.members.push(Member { object, pod: None, claim: None });
    assert_eq!(victim(&seen), Some(named(8)));
}

#[test]
fn a_voter_goes_only_while_a_quorum_of_the_rest_is_healthy() {
    let spared = |there: usize, wanted: i32, silent: &[usize]| {
        let mut seen = formed(there, wanted);
        silent.iter().for_each(|n| silence(&mut seen, *n));
        act(&seen).is_some()
    };
    assert!(spared(2, 1, &[]));
    assert!(spared(3, 1, &[2]), "the silent one goes first");
    assert!(spared(5, 3, &[3, 4]), "three of four are a quorum");
    assert!(!spared(5, 3, &[2, 3, 4]));
    // A voter that answers and is cut off from the leader, or far behind, is not healthy.
    for change in [|a: &mut Answer| a.leader = 0x99, |a: &mut Answer| a.applied_index -= 1_001] {
        let mut seen = formed(4, 3);
        for n in [1, 2, 3] {
            let mut said = answer(n);
            change(&mut said);
            seen.answers.insert(named(n), Seen::Known(said));
        }
        assert_eq!(waits(&seen), Some(Reason::Shrinking), "2 of the other 3 are needed, and the leader alone is well");
        let mut one = formed(4, 3);
        let mut said = answer(3);
        change(&mut said);
        one.answers.insert(named(3), Seen::Known(said));
        assert_eq!(victim(&one), Some(named(3)));
    }
    let mut corrupt = formed(3, 2);
    etcd(&mut corrupt).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
    assert_eq!(waits(&corrupt), Some(Reason::AlarmRaised));
}

#[test]
fn clients_then_leadership_then_etcd_then_the_proof_then_the_object() {
    let mut seen = one_leaves();
    let pod = Target::from(&seen.members[1].pod.as_ref().unwrap().metadata);
    assert_eq!(act(&seen), Some(Act::DismissClients { pod }));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Shrinking"));
    let unlabelled = labels(&[(key::ROLE, role::LEARNER)]);
    seen.members[1].pod.as_mut().unwrap().metadata.labels = unlabelled.clone();
    let remove = Act::RemoveMember { name: named(1), member_id: 0x11, learner: false, cluster_id: CLUSTER_ID };
    assert_eq!(act(&seen), Some(remove.clone()));
    // The leader first hands over, to the healthy voter with the longest log that stays.
    etcd(&mut seen).leader = Some(0x11);
    for n in 0..3 {
        let ahead = u64::from(n == 2) * 10;
        let said = Answer { leader: 0x11, applied_index: 1_000_000 + ahead, ..answer(n) };
        seen.answers.insert(named(n), Seen::Known(said));
    }
    let over = Act::MoveLeader { name: named(1), from: 0x11, to: 0x12, cluster_id: CLUSTER_ID };
    assert_eq!(act(&seen), Some(over));
    // Holdfast checks the quorum again.
    silence(&mut seen, 0);
    silence(&mut seen, 2);
    assert_eq!(waits(&seen), Some(Reason::Shrinking));
    // etcd does not list the member: also where the operator missed the answer.
    let mut seen = one_leaves();
    etcd(&mut seen).members.remove(1);
    let Some(Act::LatchRemoved { removed, .. }) = act(&seen) else { panic!() };
    assert_eq!((removed.member_id.as_deref(), removed.cluster_id.as_str()), (Some("11"), "c1"));
    seen.members[1].object.spec.removed = Some(removed);
    assert!(matches!(act(&seen), Some(Act::DeleteMember { member, .. }) if member.name == named(1)));
    seen.members[1].object.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(act(&seen), None);
    assert_eq!(condition(&seen, "Ready"), pair("True", "AsDesired"), "its volume may go later");
}

#[test]
fn a_member_that_leaves_goes_although_more_are_wanted_again() {
    let mut seen = one_leaves();
    seen.cluster.spec.replicas = 5;
    assert!(matches!(act(&seen), Some(Act::DismissClients { .. })));
    etcd(&mut seen).members.remove(1);
    assert!(matches!(act(&seen), Some(Act::LatchRemoved { .. })));
    // No client gets back to the member, and Holdfast does not promote it.
    let mut seen = with_learner(3, 3);
    seen.members[3].object.spec.leaving = leaving();
    assert!(matches!(act(&seen), Some(Act::RemoveMember { learner: true, .. })));
}

fn parked(index: u64) -> Option<Parked> {
    Some(Parked { term: Some(3), index: Some(index), at: noon().to_string() })
}

/// Two members leave where the request of a crashed operator took effect late. Holdfast never takes `leaving` back.
#[test]
fn the_last_voter_leaves_after_another_one_has_come() {
    let mut seen = formed(2, 1);
    for n in 0..2 {
        seen.members[n].object.spec.leaving = leaving();
    }
    let pod = |n: usize| Target::from(&formed(2, 1).members[n].pod.as_ref().unwrap().metadata);
    assert_eq!(act(&seen), Some(Act::DismissClients { pod: pod(1) }), "the follower first");
    seen.members[1].pod.as_mut().unwrap().metadata.labels = labels(&[(key::ROLE, role::LEARNER)]);
    assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x11, .. })));
    let mut seen = formed(1, 1);
    seen.members[0].object.spec.leaving = leaving();
    assert!(matches!(act(&seen), Some(Act::Latch(_))), "clients stay, and a name is latched");
    latches(&mut seen).pending_member = Some("a-x".to_owned());
    assert!(matches!(act(&seen), Some(Act::CreateMember(_))));
    // Holdfast adds a member, and then the last voter goes.
    let mut seen = with_learner(1, 1);
    seen.members[0].object.spec.leaving = leaving();
    assert!(matches!(act(&seen), Some(Act::LatchJoined { .. })));
    etcd(&mut seen).members.pop();
    assert!(matches!(act(&seen), Some(Act::AddLearner { .. })));
    let mut seen = formed(2, 1);
    seen.members[0].object.spec.leaving = leaving();
    assert_eq!(act(&seen), Some(Act::DismissClients { pod: pod(0) }));
}

/// A voter that cannot go keeps its clients.
#[test]
fn a_voter_that_cannot_be_spared_keeps_its_clients() {
    let mut seen = one_leaves();
    silence(&mut seen, 2);
    assert_eq!(waits(&seen), Some(Reason::Shrinking));
}

/// The request of a crashed operator takes effect late: the member ID is new, and has no data.
#[test]
fn a_removed_member_that_is_added_late_is_removed_again() {
    let mut seen = with_learner(3, 3);
    let member = &mut seen.members[3].object;
    member.spec.leaving = leaving();
    member.spec.removed = Some(Removed { member_id: None, cluster_id: "c1".to_owned(), at: noon().to_string() });
    let remove = Act::RemoveMember { name: named(3), member_id: 0x13, learner: true, cluster_id: CLUSTER_ID };
    assert_eq!(act(&seen), Some(remove.clone()));
    let mut zero = seen.clone();
    zero.cluster.spec.replicas = 0;
    assert!(matches!(act(&zero), Some(Act::Park { .. })), "without it, not after it");
    seen.members[3].object.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(act(&seen), Some(remove.clone()));
    let mut next = seen.clone();
    next.members[1].object.spec.leaving = leaving();
    assert_eq!(act(&next), Some(remove), "before the next one that leaves");
    etcd(&mut seen).members.pop();
    seen.members[3].object.metadata.deletion_timestamp = None;
    assert!(matches!(act(&seen), Some(Act::DeleteMember { .. })));
}

/// No other act ends its Pod, and the cluster would stay in `Parking`.
#[test]
fn a_removed_member_goes_before_the_others_are_parked() {
    let mut seen = one_leaves();
    seen.cluster.spec.replicas = 0;
    etcd(&mut seen).members.remove(1);
    let removed = Removed { member_id: Some("11".to_owned()), cluster_id: "c1".to_owned(), at: noon().to_string() };
    seen.members[1].object.spec.removed = Some(removed);
    let goes = Some(Act::DeleteMember {
        member: member_target(&seen, 1),
        why: "etcd does not list the member any more".to_owned(),
    });
    assert_eq!(act(&seen), goes);
    seen.etcd = Seen::unknown("timed out");
    assert_eq!(act(&seen), goes, "the proof is latched");
    seen.members[1].object.metadata.deletion_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::Park { member, .. }) if member.name == named(2)), "the leader comes last");
}

#[test]
fn zero_members_are_a_parked_cluster() {
    let mut seen = formed(3, 0);
    // The leader comes last, after the others' Pods.
    for n in [1, 2, 0] {
        if n == 0 {
            assert_eq!(waits(&seen), Some(Reason::Parking));
            seen.members[1].pod = None;
            seen.members[2].pod = None;
        }
        let Some(Act::Park { member, parked }) = act(&seen) else { panic!() };
        assert_eq!((member, parked.index, parked.term), (member_target(&seen, n), Some(1_000_000), Some(3)));
        assert_eq!(condition(&seen, "Available"), pair("False", "Parking"));
        seen.members[n].object.spec.parked = Some(parked);
    }
    assert_eq!(waits(&seen), Some(Reason::Parking));
    seen.members.iter_mut().for_each(|m| m.pod = None);
    seen.etcd = Seen::unknown("nobody");
    seen.answers.clear();
    assert_eq!((act(&seen), planned(&seen).wake), (None, Wake::OnChange));
    assert_eq!(condition(&seen, "Ready"), pair("True", "Parked"));
    assert_eq!(condition(&seen, "Available"), pair("False", "Parked"));
    assert_eq!(condition(&seen, "Degraded"), pair("False", "NothingWrong"));
    // A silent member gets no latched index, and parking does not wait for its answer.
    let mut seen = formed(3, 0);
    silence(&mut seen, 0);
    assert!(matches!(act(&seen), Some(Act::Park { parked, .. }) if parked.index.is_none()));
    // No cluster is founded with zero members.
    assert_eq!(act(&bare(0)), None);
    assert_eq!(condition(&bare(0), "Ready"), pair("True", "Parked"));
}

#[test]
fn clients_come_back_when_the_log_is_as_long_as_it_was() {
    let waking = |index: u64| {
        let mut seen = formed(3, 3);
        for m in &mut seen.members {
            m.object.spec.parked = parked(index);
            not_admitted(m);
        }
        seen
    };
    let mut seen = waking(1_000_000);
    assert!(matches!(act(&seen), Some(Act::Unpark { .. })));
    assert_eq!(condition(&seen, "Available"), pair("False", "Waking"));
    // The largest index goes last: until then the check covers every member.
    seen.members[0].object.spec.parked = parked(999);
    assert_eq!(act(&seen), Some(Act::Unpark { member: member_target(&seen, 0) }));
    seen.members.iter_mut().for_each(|m| m.object.spec.parked = None);
    assert!(matches!(act(&seen), Some(Act::AdmitClients { .. })));
    // Older volumes: no client gets access, and a person has to look.
    let mut older = waking(1_000_001);
    assert_eq!(waits(&older), Some(Reason::VolumeRolledBack));
    silence(&mut older, 2);
    assert_eq!(waits(&older), Some(Reason::Waking), "the one that does not answer yet may have it");
    let mut silent = waking(5);
    silent.etcd = Seen::unknown("no");
    silent.answers.clear();
    silent.members.iter_mut().for_each(|m| m.pod = None);
    assert_eq!(waits(&silent), Some(Reason::Waking));
}

#[test]
fn what_takes_too_long_is_told_and_goes_on() {
    let mut seen = with_learner(1, 2);
    seen.answers.remove(&named(1));
    let mut status = planned(&seen).status;
    let progressing = status.conditions.iter_mut().find(|c| c.type_ == "Progressing").unwrap();
    progressing.last_transition_time = Time(noon() - SignedDuration::from_secs(599));
    seen.cluster.status = Some(status);
    assert_eq!(condition(&seen, "Degraded").1, "NothingWrong");
    seen.cluster.spec.progress_deadline_seconds = Some(599);
    assert_eq!(condition(&seen, "Degraded"), pair("True", "DeadlineExceeded"));
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner));
}

#[test]
fn a_leaver_that_cannot_go_serves_on_and_does_not_block_newcomers() {
    // The other voter is silent: the leaving member keeps its clients.
    let mut seen = formed(2, 1);
    seen.members[1].object.spec.leaving = leaving();
    silence(&mut seen, 0);
    etcd(&mut seen).leader = Some(0x11);
    seen.answers.insert(named(1), Seen::Known(Answer { leader: 0x11, ..answer(1) }));
    assert_eq!(waits(&seen), Some(Reason::Shrinking));
    // A late write latched the last voter: a newcomer comes first, or the voter could never go.
    let mut seen = formed(1, 1);
    seen.members[0].object.spec.leaving = leaving();
    let Some(Act::Latch(latches)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert!(latches.pending_member.is_some());
}

#[test]
fn no_voter_goes_while_data_are_in_doubt_also_after_the_latch() {
    let mut seen = one_leaves();
    etcd(&mut seen).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
    assert_eq!(waits(&seen), Some(Reason::AlarmRaised));
}

#[test]
fn a_voter_whose_pod_is_being_deleted_is_not_healthy_and_goes_first() {
    let mut seen = formed(3, 2);
    seen.members[2].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier());
    assert_eq!(victim(&seen), Some(named(2)));
}

#[test]
fn nothing_is_parked_that_would_come_back_locked() {
    let mut seen = formed(3, 0);
    seen.etcd = Seen::Unknown(Unread::LoginRequired("etcd says no".to_owned()));
    assert_eq!(waits(&seen), Some(Reason::AuthRequiredNotConfigured));
    // A member that leaves goes before the others are parked, also while etcd is silent.
    let mut seen = formed(3, 0);
    seen.etcd = Seen::unknown("no");
    seen.members[1].object.spec.leaving = leaving();
    seen.members[1].object.spec.removed = Some(Removed::default());
    assert!(matches!(act(&seen), Some(Act::DeleteMember { member, .. }) if member.name == named(1)));
}

/// Two voters have no quorum while one restarts.
#[test]
fn restarts_come_before_fewer_than_three_members() {
    let edited = |voters: usize, wanted: i32| {
        let mut seen = formed(voters, wanted);
        seen.cluster.spec.options = Some(Options { snapshot_count: Some(7), ..Options::default() });
        seen
    };
    for wanted in [1, 2] {
        assert!(matches!(act(&edited(3, wanted)), Some(Act::SetTemplate { .. })), "{wanted}");
        assert!(matches!(act(&edited(5, wanted)), Some(Act::LatchLeaving { .. })), "{wanted}");
    }
    assert!(matches!(act(&edited(2, 1)), Some(Act::LatchLeaving { .. })), "a restart costs the quorum already");
    // The object of a removed member goes later.
    let mut removed = edited(4, 1);
    removed.members[3].object.spec.leaving = leaving();
    removed.members[3].object.spec.removed = Some(Removed::default());
    removed.members[3].object.metadata.deletion_timestamp = Some(earlier());
    etcd(&mut removed).members.pop();
    removed.answers.remove(&named(3));
    assert!(matches!(act(&removed), Some(Act::SetTemplate { .. })), "{:?}", act(&removed));
    // The member in its turn has no Pod yet.
    let mut turn = edited(3, 1);
    let wanted = holdfast_base::template::wanted(&turn.cluster);
    let member = &mut turn.members[2];
    member.object.spec.served = Some(member.object.spec.process.clone());
    holdfast_base::template::put(&mut member.object, &wanted);
    member.pod = None;
    silence(&mut turn, 2);
    assert_eq!(waits(&turn), Some(Reason::Rolling));
    // A change that does not go on holds no removal up.
    let stuck: [fn(&mut Observed); 2] = [
        |seen| {
            let refused = Judgement::Refused { words: "no".to_owned(), lasted: SignedDuration::ZERO };
            seen.next_pods.values_mut().for_each(|judged| *judged = Seen::Known(refused.clone()));
        },
        |seen| {
            let template = holdfast_base::template::fingerprint(&holdfast_base::template::wanted(&seen.cluster));
            let failed = holdfast_api::template::FailedTemplate { template, ..Default::default() };
            latches(seen).failed_template = Some(failed);
        },
    ];
    for change in stuck {
        let mut seen = edited(3, 1);
        change(&mut seen);
        assert!(matches!(act(&seen), Some(Act::LatchLeaving { .. })), "{:?}", act(&seen));
    }
}
