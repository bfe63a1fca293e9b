//! Breach tables of replacements: what is permitted, then one fact changed at a time, and the rule that refuses.

use jiff::SignedDuration;

use super::scaling::{breached, leave, member_target, needs_the_health_of};
use super::*;
use crate::api::member::{Departure, Leaving};
use crate::api::repair::{Evidence, Loss, Repair, RepairMode, Replaced};
use crate::plan::fixtures::noon;

/// What is wrong, and the change that makes it so.
type Fact<'a> = (&'static str, &'a dyn Fn(&mut Cluster));

fn ago(minutes: i64) -> String {
    (noon() - SignedDuration::from_mins(minutes)).to_string()
}

fn evidence(kind: Loss, minutes: i64) -> Evidence {
    Evidence { kind, detail: None, at: ago(minutes) }
}

fn lose(seen: &mut Cluster, n: usize, evidence: Evidence) {
    let member = &mut seen.members[n];
    member.object.status = Some(EtcdMemberStatus { evidence: Some(evidence), ..EtcdMemberStatus::default() });
    member.claim = None;
    running(member.pod.as_mut().unwrap(), false);
    seen.answers.insert(named(n), Seen::unknown("no"));
}

/// Five voters of which the second is lost.
fn lost() -> Cluster {
    let mut seen = formed(5, 5);
    lose(&mut seen, 1, evidence(Loss::ClaimGone, 5));
    seen
}

fn replaced() -> Replaced {
    Replaced { member: named(1), evidence: evidence(Loss::ClaimGone, 5), at: ago(0) }
}

fn latch(seen: &Cluster, replaced: Option<Replaced>) -> Act {
    let old = seen.cluster.status.clone().unwrap_or_default().latches;
    Act::Latch(Box::new(Latches { replaced, ..old }))
}

#[test]
fn a_replacement_is_latched_on_evidence_one_an_hour() {
    let good = lost();
    let judge = |change: &dyn Fn(&mut Cluster)| {
        let mut seen = good.clone();
        change(&mut seen);
        broken(&seen, latch(&seen, Some(replaced())))
    };
    assert_eq!(judge(&|_| {}), None);
    let last = |minutes: i64, evidence: Evidence| Replaced { member: named(9), evidence, at: ago(minutes) };
    let earlier = |replaced: Replaced| move |s: &mut Cluster| latches(s).replaced = Some(replaced.clone());
    let wait = |after| Some(Repair { after_seconds: Some(after), ..Repair::default() });
    let breaches: [Fact<'_>; 10] = [
        ("a person decides", &|s| {
            s.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
        }),
        ("it was not waited long enough", &move |s| s.cluster.spec.repair = wait(301)),
        ("the claim is there", &|s| s.members[1].claim = Some(claim_of(&s.members[1].object))),
        ("it shows no evidence", &|s| s.members[1].object.status = None),
        ("it never joined", &|s| s.members[1].object.spec.joined = None),
        ("it leaves", &|s| leave(&mut s.members[1])),
        ("another one shows the same", &|s| lose(s, 2, evidence(Loss::ClaimGone, 15))),
        ("one was replaced within the hour", &earlier(last(59, evidence(Loss::VolumeRefused, 70)))),
        ("one was replaced for the same", &earlier(last(61, evidence(Loss::ClaimGone, 15)))),
        ("other evidence was written down", &|s| lose(s, 1, evidence(Loss::ClaimGone, 6))),
    ];
    for (what, change) in breaches {
        assert_eq!(judge(change), Some("I29"), "{what}");
    }
    assert_eq!(judge(&earlier(last(60, evidence(Loss::ClaimGone, 70)))), None, "an hour is over");
    assert_eq!(judge(&|s| lose(s, 2, evidence(Loss::ClaimGone, 16))), None, "another one shows it since earlier");
    let mut known = good.clone();
    latches(&mut known).replaced = Some(replaced());
    assert_eq!(broken(&known, latch(&known, None)), Some("I29"));
}

#[test]
fn a_lost_member_leaves_when_that_is_latched_and_the_others_are_a_quorum() {
    let mut good = lost();
    latches(&mut good).replaced = Some(replaced());
    let leaving = Leaving { why: Departure::Lost, evidence: Some(evidence(Loss::ClaimGone, 5)), at: ago(0) };
    let act = Act::LatchLeaving { member: member_target(&good, 1), leaving: leaving.clone() };
    breached(
        &good,
        &act,
        &[
            ("it is not latched", "I29", |s| latches(s).replaced = None),
            ("another one is latched", "I29", |s| latches(s).replaced.as_mut().unwrap().member = named(2)),
            ("its claim is there", "I29", |s| s.members[1].claim = Some(claim_of(&s.members[1].object))),
            ("other evidence is there", "I29", |s| lose(s, 1, evidence(Loss::DataCorrupt, 5))),
            ("another one leaves", "I11", |s| leave(&mut s.members[2])),
            ("the cluster is parked", "I1", |s| s.cluster.spec.replicas = 0),
            ("two of the others are silent", "I1", |s| {
                for n in [2, 3] {
                    s.answers.insert(named(n), Seen::unknown("no"));
                }
            }),
        ],
    );
    // Its Pod ends while its vote counts: of four others that are enough three are needed, and of three three.
    let mut serves = formed(4, 4);
    lose(&mut serves, 1, evidence(Loss::ClaimGone, 5));
    serves.answers.insert(named(1), Seen::Known(answer(1)));
    latches(&mut serves).replaced = Some(replaced());
    let act = Act::LatchLeaving { member: member_target(&serves, 1), leaving };
    assert_eq!(broken(&serves, act.clone()), None);
    needs_the_health_of(&serves, &act, 2);
}

#[test]
fn a_request_is_a_persons_and_spares_a_quorum() {
    let mut good = formed(3, 3);
    good.cluster.metadata.annotations = labels(&[(key::REPLACE, &named(1))]);
    let leaving = |why| Leaving { why, evidence: None, at: ago(0) };
    let act = Act::LatchLeaving { member: member_target(&good, 1), leaving: leaving(Departure::Requested) };
    breached(
        &good,
        &act,
        &[
            ("nobody asks", "I29", |s| s.cluster.metadata.annotations = None),
            ("another one is meant", "I29", |s| {
                s.cluster.metadata.annotations = labels(&[(key::REPLACE, &named(2))]);
            }),
        ],
    );
    needs_the_health_of(&good, &act, 0);
    let mut alone = formed(1, 1);
    alone.cluster.metadata.annotations = labels(&[(key::REPLACE, &named(0))]);
    let act = Act::LatchLeaving { member: member_target(&alone, 0), leaving: leaving(Departure::Requested) };
    assert_eq!(broken(&alone, act.clone()), None, "another one comes first");
    alone.answers.clear();
    assert_eq!(broken(&alone, act), Some("I1"));
    let act = |seen: &Cluster, why| Act::LatchLeaving { member: member_target(seen, 1), leaving: leaving(why) };
    for why in [Departure::NotListed, Departure::NeverPromoted, Departure::Lost] {
        assert_eq!(broken(&good, act(&good, why)), Some("I29"), "{why:?} of a voter that is well");
    }
    etcd(&mut good).members.remove(1);
    assert_eq!(broken(&good, act(&good, Departure::NotListed)), None);
}

#[test]
fn the_pod_of_a_lost_member_ends_before_etcd_removes_it() {
    let mut seen = lost();
    seen.members[1].object.spec.leaving =
        Some(Leaving { why: Departure::Lost, evidence: Some(evidence(Loss::ClaimGone, 5)), at: ago(0) });
    let act = Act::RemoveMember { name: named(1), member_id: 0x11, learner: false, cluster_id: 0xc1 };
    assert_eq!(broken(&seen, act.clone()), Some("I29"));
    seen.members[1].pod = None;
    assert_eq!(broken(&seen, act), None);
}

#[test]
fn a_lost_members_pod_ends_and_one_that_refused_is_made_anew() {
    let end = |seen: &Member| Act::DeletePod { pod: target(&seen.pod.as_ref().unwrap().metadata), why: String::new() };
    let good = serving();
    assert_eq!(wrong(&good, end(&good)), Some("I1"), "it serves");
    let mut lost = good.clone();
    lost.member.spec.leaving = Some(Leaving { why: Departure::Lost, evidence: None, at: ago(0) });
    assert_eq!(wrong(&lost, end(&lost)), None);
    let create = Act::CreatePod(Box::new(pod_of(&good.member)));
    lost.pod = None;
    assert_eq!(wrong(&lost, create), Some("I29"));
    // Refused once, in this Pod, in which nothing runs.
    let mut refused = good.clone();
    let refusal = |pod: &str| crate::api::repair::Refusal {
        pod_uid: pod.to_owned(),
        verdict: "EmptiedVolume".to_owned(),
        at: ago(1),
    };
    let own = refused.pod.as_ref().unwrap().metadata.uid.clone().unwrap();
    let known = |refusals| Some(EtcdMemberStatus { refusals, ..EtcdMemberStatus::default() });
    refused.member.status = known(vec![refusal(&own)]);
    assert_eq!(wrong(&refused, end(&refused)), Some("I1"), "etcd runs");
    refused.pod.as_mut().unwrap().status = None;
    assert_eq!(wrong(&refused, end(&refused)), None);
    for others in [vec![], vec![refusal("u-0")], vec![refusal("u-0"), refusal(&own)]] {
        refused.member.status = known(others);
        assert_eq!(wrong(&refused, end(&refused)), Some("I1"));
    }
}
