//! Replaced members: evidence, quorum and size in one table; then limits, requests, and insufficient evidence.

use holdfast_api::EtcdMemberStatus;
use holdfast_api::member::{Departure, Leaving, Removed};
use holdfast_api::repair::{Evidence, Loss, Repair, RepairMode, Replaced};

use super::*;
use holdfast_base::objects::budget::quorum;

const KINDS: [Loss; 3] = [Loss::ClaimGone, Loss::VolumeRefused, Loss::DataCorrupt];

fn silence(seen: &mut Observed, n: usize) {
    seen.answers.insert(named(n), Seen::unknown("no"));
    running(seen.members[n].pod.as_mut().unwrap(), false);
}

fn evidence(kind: Loss, minutes: i64) -> Evidence {
    Evidence { kind, detail: None, at: (noon() - SignedDuration::from_mins(minutes)).to_string() }
}

/// Makes the nth member lost, with evidence in its status that is `minutes` old.
fn lose(seen: &mut Observed, n: usize, kind: Loss, minutes: i64) {
    silence(seen, n);
    let member = &mut seen.members[n];
    let status = EtcdMemberStatus { evidence: Some(evidence(kind, minutes)), ..EtcdMemberStatus::default() };
    member.object.status = Some(status);
    if kind == Loss::ClaimGone {
        member.claim = None;
    }
}

/// Returns three voters; the third has been lost for long enough.
fn one_lost() -> Observed {
    let mut seen = formed(3, 3);
    lose(&mut seen, 2, Loss::ClaimGone, 5);
    seen
}

fn asked(seen: &mut Observed, n: usize) {
    seen.cluster.metadata.annotations = labels(&[(key::REPLACE, &named(n))]);
}

/// Returns the member of a latched replacement on evidence.
fn latched(seen: &Observed) -> Option<String> {
    match act(seen)? {
        Act::Latch(latches) => latches.replaced.map(|replaced| replaced.member),
        other => panic!("{other:?}"),
    }
}

#[test]
fn evidence_by_quorum_by_size() {
    let mut replaced = 0;
    for kind in KINDS {
        for size in 1..=7_i32 {
            let voters = usize::try_from(size).unwrap();
            for silent in 0..voters {
                let mut seen = formed(voters, size);
                for n in 0..silent {
                    silence(&mut seen, voters - 2 - n);
                }
                lose(&mut seen, voters - 1, kind, 5);
                let up = voters - 1 - silent;
                if up < quorum(voters) {
                    seen.etcd = Seen::unknown("timed out");
                }
                let what = format!("{kind:?}, {size} voters, {silent} of the others silent");
                if up >= quorum(voters) {
                    assert_eq!(latched(&seen), Some(named(voters - 1)), "{what}");
                    replaced += 1;
                } else {
                    assert_eq!(waits(&seen), Some(Reason::QuorumLost), "{what}");
                }
            }
        }
    }
    assert_eq!(replaced, 3 * (1 + 1 + 2 + 2 + 3), "3 to 7 voters");
}

#[test]
fn no_slow_or_silent_member_shows_evidence() {
    let mut seen = formed(3, 3);
    silence(&mut seen, 2);
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
    let pod = seen.members[2].pod.as_mut().unwrap();
    failed(pod, "etcd", 137, "OOMKilled", earlier());
    let statuses = pod.status.as_mut().unwrap();
    (statuses.container_statuses, statuses.init_container_statuses) = (statuses.init_container_statuses.take(), None);
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
    seen.members[2].pod = None;
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting));
    // The evidence in the EtcdMember's status does not count while its claim exists.
    let mut seen = one_lost();
    seen.members[2].claim = formed(3, 3).members[2].claim.clone();
    assert_eq!(waits(&seen), Some(Reason::MemberRestarting), "the claim is there");
    let mut seen = formed(3, 3);
    lose(&mut seen, 2, Loss::VolumeRefused, 60);
    seen.members[2].pod = formed(3, 3).members[2].pod.clone();
    assert_eq!(act(&seen), None, "the Pod serves");
}

#[test]
fn evidence_waits_and_one_member_an_hour_goes() {
    let told = |change: &dyn Fn(&mut Observed)| {
        let mut seen = one_lost();
        change(&mut seen);
        let plan = planned(&seen);
        match act(&seen) {
            Some(Act::Latch(latches)) => (None, latches.replaced.unwrap().member),
            Some(other) => panic!("{other:?}"),
            None => (plan.waiting.as_ref().map(|w| w.reason), plan.waiting.unwrap().message),
        }
    };
    assert_eq!(told(&|_| {}), (None, named(2)));
    let (reason, message) = told(&|s| lose(s, 2, Loss::ClaimGone, 4));
    assert_eq!(reason, Some(Reason::Replacing));
    assert!(message.ends_with("its claim is gone. Holdfast replaces the member at 2026-01-01T12:01:00Z"), "{message}");
    let after = |after| Some(Repair { after_seconds: Some(after), ..Repair::default() });
    assert_eq!(
        told(&move |s| (lose(s, 2, Loss::ClaimGone, 4), s.cluster.spec.repair = after(240)).1),
        (None, named(2))
    );
    let replaced = |minutes: i64, evidence: Evidence| Replaced {
        member: named(9),
        evidence,
        at: (noon() - SignedDuration::from_mins(minutes)).to_string(),
    };
    let before =
        |minutes| move |s: &mut Observed| latches(s).replaced = Some(replaced(minutes, evidence(Loss::ClaimGone, 99)));
    let (reason, message) = told(&before(59));
    assert_eq!(reason, Some(Reason::Replacing));
    assert!(message.ends_with("at 2026-01-01T12:01:00Z"), "{message}");
    assert_eq!(told(&before(60)), (None, named(2)));
    let manual = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    assert_eq!(told(&move |s| s.cluster.spec.repair = manual.clone()).0, Some(Reason::Replacing), "a person decides");
    let joins = told(&|s| {
        *s = with_learner(3, 4);
        lose(s, 2, Loss::ClaimGone, 5);
        let learner = &mut s.members[3];
        learner.object.spec.joined = joined_member(&s.cluster, 3).spec.joined;
        learner.pod.as_mut().unwrap().metadata.annotations = None;
        s.answers.insert(named(3), Seen::unknown("no"));
    });
    assert_eq!(joins.0, Some(Reason::WaitingForLearner), "one in flight");
}

#[test]
fn the_same_evidence_on_two_members_is_held() {
    let two = |first: (Loss, i64), second: (Loss, i64)| {
        let mut seen = formed(5, 5);
        lose(&mut seen, 3, first.0, first.1);
        lose(&mut seen, 4, second.0, second.1);
        seen
    };
    for kind in KINDS {
        let seen = two((kind, 15), (kind, 5));
        assert_eq!(waits(&seen), Some(Reason::ReplacementHeld));
        assert_eq!(condition(&seen, "Degraded"), pair("True", "ReplacementHeld"));
        assert_eq!(latched(&two((kind, 16), (kind, 5))), Some(named(3)), "the earlier one first");
    }
    assert_eq!(latched(&two((Loss::ClaimGone, 15), (Loss::VolumeRefused, 15))), Some(named(3)));
    // Also where the first member was replaced for the same evidence.
    let mut seen = one_lost();
    let at = (noon() - SignedDuration::from_mins(61)).to_string();
    let before =
        |minutes| Some(Replaced { member: named(8), evidence: evidence(Loss::ClaimGone, minutes), at: at.clone() });
    latches(&mut seen).replaced = before(15);
    assert_eq!(waits(&seen), Some(Reason::ReplacementHeld));
    latches(&mut seen).replaced = before(16);
    assert_eq!(latched(&seen), Some(named(2)));
    // A person's request wins.
    let mut seen = two((Loss::ClaimGone, 5), (Loss::ClaimGone, 5));
    asked(&mut seen, 4);
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!(member.name, named(4));
    // The other member does not follow without a request.
    seen.members[4].object.spec.leaving = Some(leaving);
    seen.members[4].object.spec.removed = Some(Removed::default());
    seen.members[4].object.metadata.deletion_timestamp = Some(earlier());
    etcd(&mut seen).members.pop();
    seen.cluster.spec.replicas = 4;
    assert_eq!(waits(&seen), Some(Reason::ReplacementHeld));
}

/// Latched, decided, fenced, removed; a crash between two steps changes nothing.
#[test]
fn wait_fence_remove_and_grow() {
    let mut seen = one_lost();
    let Some(Act::Latch(latched)) = act(&seen) else { panic!() };
    assert_eq!(latched.pending_member.as_deref(), Some("a-fresh"));
    assert_eq!(latched.replaced.as_ref().unwrap().at, noon().to_string());
    *latches(&mut seen) = *latched;
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!((member.name.as_str(), leaving.why), (named(2).as_str(), Departure::Lost));
    assert_eq!(leaving.evidence, Some(evidence(Loss::ClaimGone, 5)));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Replacing"));
    seen.members[2].object.spec.leaving = Some(leaving);
    assert_eq!(waits(&seen), Some(Reason::Replacing), "its Pod ends first");
    let mut lingers = seen.clone();
    lingers.members[2].pod.as_mut().unwrap().metadata.deletion_timestamp =
        Some(Time(noon() - SignedDuration::from_mins(1)));
    assert_eq!(waits(&lingers), Some(Reason::NodeSilent));
    seen.members[2].pod = None;
    seen.answers.remove(&named(2));
    assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x12, learner: false, .. })));
    etcd(&mut seen).members.pop();
    let Some(Act::LatchRemoved { removed, .. }) = act(&seen) else { panic!() };
    seen.members[2].object.spec.removed = Some(removed);
    assert!(matches!(act(&seen), Some(Act::DeleteMember { .. })));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Replacing"));
    seen.members[2].object.metadata.deletion_timestamp = Some(earlier());
    assert!(
        matches!(act(&seen), Some(Act::CreateMember(member)) if member.metadata.name.as_deref() == Some("a-fresh"))
    );
    // Two members remain, and the next replacement waits for its hour.
    lose(&mut seen, 1, Loss::ClaimGone, 30);
    etcd(&mut seen).leader = Some(0x10);
    assert!(!matches!(act(&seen), Some(Act::LatchLeaving { .. } | Act::RemoveMember { .. })));
}

#[test]
fn evidence_is_told_of_each_member() {
    let status = planned(&one_lost()).status;
    assert_eq!(status.broken_members, 1);
    let told: Vec<_> = status.members.iter().map(|m| m.evidence.clone()).collect();
    assert_eq!(told, [None, None, Some(evidence(Loss::ClaimGone, 5))]);
    assert_eq!(planned(&formed(3, 3)).status.broken_members, 0);
}

#[test]
fn a_person_asks_for_a_member() {
    let leaves = |seen: &Observed| match act(seen) {
        Some(Act::LatchLeaving { member, leaving }) => Some((member.name, leaving.why)),
        None => None,
        other => panic!("{other:?}"),
    };
    let requested = Some((named(1), Departure::Requested));
    let by_deletion = |seen: &mut Observed| seen.members[1].object.metadata.deletion_timestamp = Some(earlier());
    for ask in [|s: &mut Observed| asked(s, 1), by_deletion] {
        let mut seen = formed(3, 3);
        ask(&mut seen);
        assert_eq!(leaves(&seen), requested);
        seen.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
        latches(&mut seen).replaced = Some(Replaced { at: noon().to_string(), ..Replaced::default() });
        assert_eq!(leaves(&seen), requested, "neither mode nor hour matters");
        // Beside a silent voter no serving voter goes, but the silent voter may go.
        silence(&mut seen, 2);
        assert_eq!(waits(&seen), Some(Reason::Replacing));
        let mut seen = formed(3, 3);
        silence(&mut seen, 1);
        ask(&mut seen);
        assert_eq!(leaves(&seen), requested);
        // No voter goes while other members are missing.
        let mut seen = formed(3, 4);
        ask(&mut seen);
        assert!(matches!(act(&seen), Some(Act::Latch(_))), "growth first");
    }
    // The last voter: another voter comes first.
    let mut seen = formed(1, 1);
    asked(&mut seen, 0);
    assert_eq!(leaves(&seen), Some((named(0), Departure::Requested)));
    seen.members[0].object.spec.leaving =
        Some(Leaving { why: Departure::Requested, evidence: None, at: noon().to_string() });
    assert!(matches!(act(&seen), Some(Act::Latch(_))));
    // A learner that does not start goes at once, also while another member is wanted.
    let mut seen = with_learner(3, 5);
    silence(&mut seen, 3);
    let learner = &mut seen.members[3];
    learner.object.spec.joined = joined_member(&seen.cluster, 3).spec.joined;
    learner.pod = None;
    asked(&mut seen, 3);
    assert_eq!(leaves(&seen), Some((named(3), Departure::Requested)));
    // A name without a member.
    let mut seen = formed(3, 3);
    asked(&mut seen, 7);
    assert_eq!(act(&seen), None);
    // A joiner that never started, and that a user deleted.
    let mut seen = with_learner(3, 4);
    silence(&mut seen, 3);
    seen.members[3].object.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(leaves(&seen), Some((named(3), Departure::Requested)));
}

#[test]
fn a_member_that_etcd_lost_is_replaced_without_a_removal() {
    let mut seen = formed(3, 3);
    etcd(&mut seen).members.remove(1);
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!((member.name, leaving.why), (named(1), Departure::NotListed));
    seen.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    assert_eq!(waits(&seen), Some(Reason::MemberNotListed));
}

/// Of the members that scaling in removes, a lost member goes first.
#[test]
fn a_lost_member_goes_first_when_fewer_are_wanted() {
    let mut seen = formed(5, 3);
    silence(&mut seen, 3);
    lose(&mut seen, 4, Loss::ClaimGone, 0);
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!() };
    assert_eq!((member.name, leaving.why), (named(4), Departure::ScaledIn));
}

/// Returns a cluster with a listed voter that has neither an `EtcdMember` nor a Pod.
fn orphan() -> Observed {
    let mut seen = formed(3, 3);
    seen.members.pop();
    seen.answers.remove(&named(2));
    seen
}

#[test]
fn a_member_without_an_object_and_a_pod_is_removed() {
    // The operator reads Kubernetes again after the latch.
    let latch = |orphan| move |s: &Observed| Some(Act::Latch(Box::new(Latches { orphan, ..s.latches() })));
    let mut seen = orphan();
    assert_eq!(act(&seen), latch(Some("12".to_owned()))(&seen));
    latches(&mut seen).orphan = Some("12".to_owned());
    assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x12, learner: false, .. })));
    let mut gone = seen.clone();
    etcd(&mut gone).members.pop();
    assert_eq!(act(&gone), latch(None)(&gone));
    let mut known = formed(3, 3);
    latches(&mut known).orphan = Some("12".to_owned());
    assert_eq!(act(&known), latch(None)(&known), "its object was not seen before");
    let orphan = || seen.clone();
    let mut started = orphan();
    etcd(&mut started).members[2].learner = true;
    assert!(matches!(act(&started), Some(Act::RemoveMember { member_id: 0x12, learner: true, .. })));
    let manual = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Observed));
    let changes: [Change<'_>; 7] = [
        ("its Pod is there", &|s| s.stray_pods = vec![named(2)]),
        ("it is nobody of ours", &|s| etcd(s).members[2].peer_urls = vec!["http://elsewhere:2380".to_owned()]),
        ("it leads", &|s| etcd(s).leader = Some(0x12)),
        ("another one is silent", &|s| silence(s, 1)),
        ("data are in doubt", &|s| etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt })),
        ("a person decides", &move |s| s.cluster.spec.repair = manual.clone()),
        ("its object is about to be made", &|s| latches(s).pending_member = Some(named(2))),
    ];
    for (what, change) in changes {
        let mut seen = orphan();
        change(&mut seen);
        let plan = planned(&seen);
        assert!(!matches!(plan.act, Some(Act::RemoveMember { .. })), "{what}");
        assert_eq!(plan.waiting.map(|w| w.reason), Some(Reason::UnknownMember), "{what}");
    }
}

/// A request during a replacement waits until the next member is promoted.
#[test]
fn one_replacement_is_in_flight() {
    let leaves = |seen: &Observed| match act(seen) {
        Some(Act::LatchLeaving { member, leaving }) => Some((member.name, leaving.why)),
        _ => None,
    };
    // The replacement on evidence is latched: that member goes first.
    let mut seen = formed(5, 5);
    lose(&mut seen, 4, Loss::ClaimGone, 5);
    silence(&mut seen, 3);
    asked(&mut seen, 3);
    let decided = Replaced { member: named(4), evidence: evidence(Loss::ClaimGone, 5), at: noon().to_string() };
    latches(&mut seen).replaced = Some(decided.clone());
    assert_eq!(leaves(&seen), Some((named(4), Departure::Lost)));
    // The member is gone, and the next member is missing: growth first.
    let mut seen = formed(4, 5);
    silence(&mut seen, 3);
    asked(&mut seen, 3);
    latches(&mut seen).replaced = Some(decided);
    assert!(matches!(act(&seen), Some(Act::Latch(latches)) if latches.pending_member.is_some()));
    // The next member joins.
    let mut seen = with_learner(4, 5);
    silence(&mut seen, 3);
    asked(&mut seen, 3);
    let learner = &mut seen.members[4];
    learner.object.spec.joined = joined_member(&seen.cluster, 4).spec.joined;
    learner.pod.as_mut().unwrap().metadata.annotations = None;
    seen.answers.insert(named(4), Seen::unknown("no"));
    assert_eq!(leaves(&seen), None);
    // Where no member can be added the request does not wait: of four voters two are silent after the loss of one.
    let mut seen = formed(3, 4);
    silence(&mut seen, 2);
    asked(&mut seen, 2);
    assert_eq!(leaves(&seen), Some((named(2), Departure::Requested)));
    // The reverse case: evidence waits for the replacement that a person requested.
    let mut seen = formed(4, 5);
    lose(&mut seen, 3, Loss::ClaimGone, 5);
    assert!(matches!(act(&seen), Some(Act::Latch(latches)) if latches.replaced.is_none()));
}

/// Otherwise no member could go: the first waits for a quorum of the rest, and the lost member for the first.
#[test]
fn a_lost_member_goes_beside_one_that_waits_to_leave() {
    let leaving = |why| Some(Leaving { why, evidence: None, at: noon().to_string() });
    for why in [Departure::Requested, Departure::ScaledIn] {
        let mut seen = formed(3, 3);
        seen.members[1].object.spec.leaving = leaving(why);
        lose(&mut seen, 2, Loss::ClaimGone, 5);
        if why == Departure::ScaledIn {
            seen.cluster.spec.replicas = 2;
        }
        let Some(Act::Latch(latched)) = act(&seen) else { panic!("{why:?}: {:?}", planned(&seen)) };
        *latches(&mut seen) = *latched;
        let Some(Act::LatchLeaving { member, leaving: lost }) = act(&seen) else { panic!("{why:?}") };
        assert_eq!((member.name, lost.why), (named(2), Departure::Lost));
        seen.members[2].object.spec.leaving = Some(lost);
        assert_eq!(waits(&seen), Some(Reason::Replacing), "its Pod ends first");
        seen.members[2].pod = None;
        seen.answers.remove(&named(2));
        assert!(matches!(act(&seen), Some(Act::RemoveMember { member_id: 0x12, .. })), "the lost one goes first");
        etcd(&mut seen).members.pop();
        seen.members.pop();
        // With one voter the next loss would be total: other members come before the healthy voter goes.
        assert!(matches!(act(&seen), Some(Act::CreateMember(_))), "{why:?}: {:?}", act(&seen));
    }
    // In mode Manual a person cannot ask for a second member: the message names etcdctl.
    let mut seen = formed(3, 3);
    seen.members[1].object.spec.leaving = leaving(Departure::Requested);
    lose(&mut seen, 2, Loss::ClaimGone, 5);
    seen.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    let message = planned(&seen).waiting.unwrap().message;
    assert!(message.contains("etcdctl member remove 12"), "{message}");
    // No other member goes beside.
    let mut seen = formed(3, 3);
    seen.members[1].object.spec.leaving = leaving(Departure::Requested);
    silence(&mut seen, 2);
    asked(&mut seen, 2);
    assert_eq!(act(&seen), None);
}

/// Of two voters the healthy one that is replaced goes after the promotion of another member.
#[test]
fn one_of_two_waits_for_the_next_one() {
    let mut seen = formed(2, 2);
    seen.members[1].object.spec.leaving =
        Some(Leaving { why: Departure::Requested, evidence: None, at: noon().to_string() });
    assert!(matches!(act(&seen), Some(Act::Latch(_))), "{:?}", act(&seen));
    let mut goes = seen.clone();
    goes.members[1].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    assert!(matches!(act(&goes), Some(Act::RemoveMember { .. })), "its vote ends with its Pod: {:?}", act(&goes));
    seen.cluster.spec.replicas = 1;
    assert!(matches!(act(&seen), Some(Act::DismissClients { .. })), "no other is wanted: {:?}", act(&seen));
}

/// Otherwise a member that cannot join would block every act: the member that leaves waits for it.
#[test]
fn a_learner_that_is_stuck_goes_beside_one_that_waits_to_leave() {
    let mut seen = with_learner(2, 2);
    seen.members[1].object.spec.leaving =
        Some(Leaving { why: Departure::Requested, evidence: None, at: noon().to_string() });
    silence(&mut seen, 2);
    let old = Some(Time(noon() - SignedDuration::from_mins(21)));
    seen.members[2].object.metadata.creation_timestamp = old.clone();
    seen.members[2].pod.as_mut().unwrap().metadata.creation_timestamp = old;
    let Some(Act::Latch(latched)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    *latches(&mut seen) = *latched;
    let Some(Act::LatchLeaving { member, leaving }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!((member.name, leaving.why), (named(2), Departure::NeverPromoted));
    seen.members[2].object.spec.leaving = Some(leaving);
    assert!(matches!(act(&seen), Some(Act::RemoveMember { learner: true, .. })), "{:?}", act(&seen));
}
