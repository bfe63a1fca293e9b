//! Breach tables of replacements: a permitted act, then one changed fact at a time, and the rule that refuses.

use holdfast_api::cluster::Storage;
use holdfast_api::member::{Departure, Leaving};
use holdfast_api::repair::{Evidence, Loss, Repair, RepairMode, Replaced};
use jiff::SignedDuration;

use super::scaling::{breached, leave, member_target, needs_the_health_of};
use super::*;
use crate::fixtures::{formed_in_memory, keep_in_memory, noon, serving_in_memory};
use holdfast_base::seen::cluster::KeyHash;
use holdfast_base::{Alarm, AlarmKind};

/// A fault, and the change that causes it.
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

/// Returns five voters; the second is lost.
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
            ("another lost one leaves", "I11", |s| {
                leave(&mut s.members[2]);
                s.members[2].object.spec.leaving.as_mut().unwrap().why = Departure::Lost;
            }),
            ("the cluster is parked", "I1", |s| s.cluster.spec.replicas = 0),
            ("two of the others are silent", "I1", |s| {
                for n in [2, 3] {
                    s.answers.insert(named(n), Seen::unknown("no"));
                }
            }),
        ],
    );
    let mut beside = good.clone();
    leave(&mut beside.members[2]);
    assert_eq!(broken(&beside, act), None, "another one waits to leave");
    // The Pod ends while etcd counts its vote: with four others three have to be healthy, and with three others three.
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
    // Refused once, in this Pod, where no container runs.
    let mut refused = good.clone();
    let refusal = |pod: &str| holdfast_api::repair::Refusal {
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

/// For data in a Pod's memory neither the wait nor the hour nor another member's loss matters.
#[test]
fn what_was_in_memory_is_replaced_at_once() {
    let mut good = formed_in_memory(5, 5);
    for n in [1, 2] {
        lose(&mut good, n, evidence(Loss::MemoryGone, 0));
        good.members[n].pod.as_mut().unwrap().status = None;
    }
    latches(&mut good).replaced =
        Some(Replaced { member: named(9), evidence: evidence(Loss::MemoryGone, 0), at: ago(0) });
    let told = Replaced { member: named(1), evidence: evidence(Loss::MemoryGone, 0), at: ago(0) };
    let judge = |change: &dyn Fn(&mut Cluster)| {
        let mut seen = good.clone();
        change(&mut seen);
        broken(&seen, latch(&seen, Some(told.clone())))
    };
    assert_eq!(judge(&|_| {}), None);
    assert_eq!(judge(&|s| running(s.members[1].pod.as_mut().unwrap(), true)), Some("I29"), "it serves");
    assert_eq!(judge(&|s| running(s.members[1].pod.as_mut().unwrap(), false)), Some("I29"), "etcd runs");
    assert_eq!(judge(&|s| s.members[1].object.spec.storage = Storage::default()), Some("I29"), "it has a claim");
    let manual = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
    assert_eq!(judge(&move |s| s.cluster.spec.repair = manual.clone()), Some("I29"), "a person decides");
}

#[test]
fn a_joined_member_in_memory_gets_neither_claim_nor_second_pod() {
    let good = serving_in_memory();
    let mut seen = good.clone();
    seen.pod = None;
    let mut pod = good.pod.clone().unwrap();
    pod.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), holdfast_api::role::LEARNER.to_owned());
    let create = Act::CreatePod(Box::new(pod));
    assert_eq!(wrong(&seen, create), Some("I5"));
    assert_eq!(wrong(&seen, Act::CreateClaim(Box::new(claim_of(&seen.member)))), Some("I5"));
    // The permission to start empty names the member, since there is no claim.
    let mut new = unborn(None);
    keep_in_memory(&mut new.member.spec.storage);
    (new.pod, new.claim) = (None, None);
    let Some(Act::CreatePod(pod)) = holdfast_cluster::member::plan(&new, earlier().0).act else { panic!() };
    assert_eq!(wrong(&new, Act::CreatePod(pod.clone())), None);
    let mut ran = new.clone();
    let lost = Some(evidence(Loss::MemoryGone, 0));
    ran.member.status = Some(EtcdMemberStatus { evidence: lost, ..EtcdMemberStatus::default() });
    assert_eq!(wrong(&ran, Act::CreatePod(pod.clone())), Some("I5"), "etcd has run in its Pod");
    let mut other = pod;
    other.metadata.annotations.as_mut().unwrap().insert(key::MAY_START_EMPTY.to_owned(), "u-data-a-m0".to_owned());
    assert_eq!(wrong(&new, Act::CreatePod(other)), Some("I3"));
}

/// Returns a voter that etcd's alarm names, while the other voters have one hash.
fn outvoted() -> Cluster {
    let mut seen = formed(3, 3);
    let hash = |hash| KeyHash { revision: 9, compact_revision: 5, hash };
    seen.hashes = [(named(0), hash(1)), (named(1), hash(2)), (named(2), hash(1))].into();
    etcd(&mut seen).alarms = vec![Alarm { member_id: 0x11, kind: AlarmKind::Corrupt }];
    let status = seen.cluster.status.as_mut().unwrap();
    status.members[1].evidence = Some(corrupt());
    seen
}

fn corrupt() -> Evidence {
    Evidence { detail: Some("11".to_owned()), ..evidence(Loss::Diverged, 5) }
}

#[test]
fn a_voter_that_etcd_calls_corrupt_goes_while_the_others_agree() {
    let good = outvoted();
    let told = Replaced { member: named(1), evidence: corrupt(), at: ago(0) };
    let latched = |seen: &Cluster| broken(seen, latch(seen, Some(told.clone())));
    assert_eq!(latched(&good), None);
    let doubts: [Fact<'_>; 6] = [
        ("the alarm names nobody", &|s| etcd(s).alarms[0].member_id = 0),
        ("another alarm names nobody", &|s| etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt })),
        ("another one says nothing", &|s| s.hashes.retain(|name, _| *name != named(2))),
        ("another one differs", &|s| s.hashes.get_mut(&named(2)).unwrap().hash = 3),
        ("at another revision", &|s| s.hashes.get_mut(&named(2)).unwrap().revision = 8),
        ("it has the same", &|s| s.hashes.get_mut(&named(1)).unwrap().hash = 1),
    ];
    let mut leaves = good.clone();
    latches(&mut leaves).replaced = Some(told.clone());
    let leaving = Leaving { why: Departure::Lost, evidence: Some(corrupt()), at: ago(0) };
    let leave = Act::LatchLeaving { member: member_target(&leaves, 1), leaving: leaving.clone() };
    assert_eq!(broken(&leaves, leave.clone()), None);
    let mut goes = leaves.clone();
    goes.members[1].object.spec.leaving = Some(leaving);
    goes.members[1].pod = None;
    let remove = Act::RemoveMember { name: named(1), member_id: 0x11, learner: false, cluster_id: 0xc1 };
    assert_eq!(broken(&goes, remove.clone()), None);
    for (what, change) in doubts {
        let with = |seen: &Cluster| {
            let mut seen = seen.clone();
            change(&mut seen);
            seen
        };
        assert_eq!(latched(&with(&good)), Some("I29"), "{what}");
        assert_eq!(broken(&with(&leaves), leave.clone()), Some("I29"), "{what}");
        assert_eq!(broken(&with(&goes), remove.clone()), Some("I3"), "{what}");
    }
    assert_eq!(
        latched(&{
            let mut s = good.clone();
            etcd(&mut s).alarms.clear();
            s
        }),
        Some("I29"),
        "no alarm"
    );
}

#[test]
fn the_alarm_of_a_replaced_member_is_cleared_when_those_left_agree() {
    let mut good = outvoted();
    let alarm = good.etcd.known().unwrap().alarms[0].clone();
    etcd(&mut good).members.remove(1);
    latches(&mut good).replaced = Some(Replaced { member: named(1), evidence: corrupt(), at: ago(0) });
    let clear = Act::Disarm { alarm, cluster_id: 0xc1 };
    breached(
        &good,
        &clear,
        &[
            ("another one was replaced", "I3", |s| {
                latches(s).replaced.as_mut().unwrap().evidence.detail = Some("99".to_owned());
            }),
            ("it was replaced for something else", "I3", |s| {
                latches(s).replaced.as_mut().unwrap().evidence.kind = Loss::DataCorrupt;
            }),
            ("those left differ", "I3", |s| s.hashes.get_mut(&named(2)).unwrap().hash = 3),
            ("one of them says nothing", "I3", |s| s.hashes.retain(|name, _| *name != named(2))),
            ("another alarm names nobody", "I3", |s| {
                etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
            }),
        ],
    );
}

#[test]
fn a_voter_without_an_object_goes_when_nothing_can_run_under_its_name() {
    let mut good = formed(3, 3);
    good.members.remove(1);
    good.answers.remove(&named(1));
    latches(&mut good).orphan = Some("11".to_owned());
    let act = Act::RemoveMember { name: named(1), member_id: 0x11, learner: false, cluster_id: 0xc1 };
    breached(
        &good,
        &act,
        &[
            ("its Pod is there", "I4", |s| s.stray_pods = vec![named(1)]),
            ("it is not latched", "I4", |s| latches(s).orphan = None),
            ("another one is latched", "I4", |s| latches(s).orphan = Some("12".to_owned())),
            ("it is nobody of ours", "I4", |s| etcd(s).members[1].peer_urls = vec!["http://elsewhere:2380".to_owned()]),
            ("it has no peer URL", "I4", |s| etcd(s).members[1].peer_urls.clear()),
            ("a person decides", "I29", |s| {
                s.cluster.spec.repair = Some(Repair { mode: RepairMode::Manual, ..Repair::default() });
            }),
            ("data are in doubt", "I3", |s| etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt })),
            ("another one joins", "I11", |s| etcd(s).members[2].learner = true),
            ("it leads", "I1", |s| etcd(s).leader = Some(0x11)),
        ],
    );
    for n in [0, 2] {
        needs_the_health_of(&good, &act, n);
    }
}
