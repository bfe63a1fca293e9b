//! Learners are added one after the other, up to `spec.replicas` members.

use holdfast_api::repair::{Repair, RepairMode};

use super::*;

/// Returns a cluster with two more members that etcd does not list.
fn two_made() -> Observed {
    let mut seen = formed(1, 3);
    for n in [1, 2] {
        let mut object = joined_member(&seen.cluster, n);
        object.spec.joined = None;
        object.spec.initial_cluster = None;
        seen.members.push(Member { pod: None, claim: Some(claim_of(&object)), object });
    }
    latches(&mut seen).pending_member = Some(named(2));
    seen
}

fn list(seen: &mut Observed, n: usize) {
    let url = objects::member::peer_url(&seen.cluster, &named(n));
    let id = 0x10 + u64::try_from(n).unwrap();
    etcd(seen).members.push(Listed { id, name: String::new(), peer_urls: vec![url], learner: true });
}

#[test]
fn the_name_then_the_member() {
    let mut seen = formed(1, 3);
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.pending_member.as_deref(), Some("a-fresh"));
    assert_eq!(latched.formed, latches(&mut seen).formed);
    *latches(&mut seen) = *latched;
    let Some(Act::CreateMember(member)) = act(&seen) else { panic!() };
    assert_eq!((member.spec.role, member.spec.initial_cluster.clone()), (Birth::Joiner, None));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Growing"));
}

#[test]
fn beside_one_small_voter_all_are_made_then_added_then_told() {
    let mut seen = two_made();
    let Some(Act::AddLearner { name, peer_url, cluster_id }) = act(&seen) else { panic!() };
    assert_eq!((name, cluster_id), (named(1), CLUSTER_ID));
    assert_eq!(peer_url, "http://a-m1.a.ns.svc:2380");
    list(&mut seen, 1);
    assert!(matches!(act(&seen), Some(Act::AddLearner { name, .. }) if name == named(2)));
    list(&mut seen, 2);
    let everybody = "a-m0=http://a-m0.a.ns.svc:2380,a-m1=http://a-m1.a.ns.svc:2380,a-m2=http://a-m2.a.ns.svc:2380";
    for n in [1, 2] {
        let told = Act::SetInitialCluster { member: member_target(&seen, n), initial_cluster: everybody.to_owned() };
        assert_eq!(act(&seen), Some(told));
        seen.members[n].object.spec.initial_cluster = Some(everybody.to_owned());
    }
    assert!(matches!(act(&seen), Some(Act::Latch(l)) if l.pending_member.is_none()));
    latches(&mut seen).pending_member = None;
    assert_eq!(waits(&seen), Some(Reason::WaitingForPod));
}

/// A late failure of a request to a peer's earlier Pod makes the leader refuse every new member until its next term.
#[test]
fn a_leader_that_refuses_a_member_beside_healthy_voters_hands_the_leadership_over() {
    let refused = |seconds: i64, change: fn(&mut Observed)| {
        let mut seen = formed(3, 4);
        let mut object = joined_member(&seen.cluster, 3);
        (object.spec.joined, object.spec.initial_cluster) = (None, None);
        seen.members.push(Member { pod: None, claim: Some(claim_of(&object)), object });
        seen.refused_for = Some(SignedDuration::from_secs(seconds));
        change(&mut seen);
        (act(&seen), condition(&seen, "Progressing").1)
    };
    let growing = |done: (Option<Act>, String)| done.0.filter(|_| done.1 == "Growing");
    assert!(matches!(growing(refused(59, |_| {})), Some(Act::AddLearner { .. })));
    assert!(matches!(growing(refused(60, |_| {})), Some(Act::MoveLeader { from: 0x10, .. })));
    let silent = |seen: &mut Observed| drop(seen.answers.insert(named(2), Seen::unknown("refused")));
    assert_eq!(refused(60, silent).0, None, "the leader is right");
}

#[test]
fn otherwise_one_by_one() {
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 2] = [
        ("3.5", |s| s.cluster.spec.version = "3.5.35".to_owned()),
        ("a large database", |s| {
            s.answers.insert(named(0), Seen::Known(Answer { db_bytes: 256 << 20, ..answer(0) }));
        }),
    ];
    for (what, change) in changes {
        let mut seen = two_made();
        change(&mut seen);
        list(&mut seen, 1);
        // The second member waits until the first is promoted.
        assert!(
            matches!(act(&seen), Some(Act::SetInitialCluster { member, .. }) if member == member_target(&seen, 1)),
            "{what}"
        );
    }
    // A large database that was restored a moment ago has no clients that wait for the leader.
    let mut seen = two_made();
    latches(&mut seen).formed.as_mut().unwrap().restored_from = Some(restoring("x"));
    seen.answers.insert(named(0), Seen::Known(Answer { db_bytes: 1 << 30, applied_index: 999, ..answer(0) }));
    list(&mut seen, 1);
    assert!(matches!(act(&seen), Some(Act::AddLearner { .. })), "{:?}", act(&seen));
    // Beside several voters too; with 3.5 the next learner waits for the promotion.
    let seen = with_learner(2, 5);
    assert!(matches!(act(&seen), Some(Act::LatchJoined { .. })));
    let mut seen = with_learner(2, 5);
    seen.answers.remove(&named(2));
    assert!(matches!(act(&seen), Some(Act::Latch(next)) if next.pending_member.is_some()));
    seen.cluster.spec.version = "3.5.35".to_owned();
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner));
}

#[test]
fn nobody_is_added_to_what_is_not_well() {
    let mut seen = two_made();
    seen.answers.insert(named(0), Seen::unknown("no"));
    assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
    let mut seen = two_made();
    etcd(&mut seen).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
    assert_eq!(waits(&seen), Some(Reason::AlarmRaised));
    // Two of three are no quorum of four.
    let mut seen = formed(3, 5);
    seen.answers.remove(&named(2));
    assert_eq!(waits(&seen), Some(Reason::WaitingForEtcd));
    // Four of five are a quorum of six. Older patches require every voter.
    for (version, adds) in [("3.6.16", true), ("3.6.10", false), ("3.5.30", true), ("3.5.29", false)] {
        let mut seen = formed(5, 6);
        seen.answers.remove(&named(4));
        with_version(&mut seen, version);
        assert_eq!(act(&seen).is_some(), adds, "{version}");
    }
    let mut seen = two_made();
    seen.etcd = Seen::unknown("no");
    assert_eq!(act(&seen), None);
}

#[test]
fn a_newcomer_that_never_started_is_told_again_when_the_list_changes() {
    let mut seen = with_learner(1, 2);
    seen.answers.remove(&named(1));
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner));
    seen.members[1].object.spec.initial_cluster = Some("a-m1=http://a-m1.a.ns.svc:2380".to_owned());
    assert_eq!(waits(&seen), Some(Reason::WaitingForLearner), "it has started: etcd knows its name");
    etcd(&mut seen).members[1].name = String::new();
    assert!(matches!(act(&seen), Some(Act::SetInitialCluster { .. })));
}

#[test]
fn strangers_stop_growth() {
    let mut seen = formed(1, 3);
    list(&mut seen, 7);
    // A learner of this cluster that never booted, without an EtcdMember: a request to add it took effect late.
    assert!(matches!(act(&seen), Some(Act::RemoveMember { learner: true, member_id: 0x17, .. })));
    etcd(&mut seen).members[1].name = "stranger".to_owned();
    etcd(&mut seen).members[1].peer_urls = vec!["http://elsewhere:2380".to_owned()];
    assert_eq!(waits(&seen), Some(Reason::UnknownMember));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
    let mut seen = formed(3, 3);
    etcd(&mut seen).members.pop();
    seen.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    assert_eq!(waits(&seen), Some(Reason::MemberNotListed));
    let mut seen = formed(1, 3);
    etcd(&mut seen).cluster_id = 9;
    assert_eq!(waits(&seen), Some(Reason::SafetyStop));
    assert_eq!(condition(&seen, "Available"), pair("False", "SafetyStop"));
}

#[test]
fn a_seed_that_came_too_late_goes() {
    let mut seen = formed(1, 3);
    let mut late = objects::member::seed(&seen.cluster, "a-late", None);
    stored(&mut late.metadata, "u-late");
    seen.members.push(Member { object: late, pod: None, claim: None });
    assert!(matches!(act(&seen), Some(Act::DeleteMember { member, .. }) if member == member_target(&seen, 1)));
}

#[test]
fn a_taken_name_is_not_taken_again() {
    let mut seen = formed(1, 3);
    seen.fresh_suffix = "m0".to_owned();
    assert_eq!(waits(&seen), Some(Reason::Growing));
}
