//! Breach tables of scaling, the cluster's pass: a permitted act, then one changed fact at a time, and the rule that
//! refuses.

use holdfast_api::member::{Departure, Leaving, Parked, Removed};
use holdfast_api::role;

use super::*;
use crate::fixtures::noon;
use holdfast_base::Unelectable;
use holdfast_base::seen::cluster::{Listed, Member as Part};

pub(super) type Change = fn(&mut Cluster);
pub(super) type Breach = (&'static str, &'static str, Change);

/// Changes after which no act on the membership is permitted.
const FORMED: [Breach; 3] = [
    ("the membership is unknown", "I1", |s| s.etcd = Seen::unknown("no")),
    ("another etcd cluster answers", "I2", |s| etcd(s).cluster_id = 9),
    ("the cluster has not formed", "I2", |s| latches(s).formed = None),
];

/// Checks that the act is permitted, and that each change alone forbids it.
pub(super) fn breached(good: &Cluster, act: &Act, changes: &[Breach]) {
    assert_eq!(broken(good, act.clone()), None, "the good value");
    for (what, invariant, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(broken(&seen, act.clone()), Some(*invariant), "{what}");
    }
}

/// Returns the same facts with this server unhealthy, in each way.
fn ill(good: &Cluster, n: usize) -> Vec<(&'static str, Cluster)> {
    let with = |said: Option<Seen<Answer>>| {
        let mut seen = good.clone();
        match said {
            Some(said) => drop(seen.answers.insert(named(n), said)),
            None => drop(seen.answers.remove(&named(n))),
        }
        seen
    };
    let own = good.answers[&named(n)].known().cloned().unwrap();
    let known = |said: Answer| with(Some(Seen::Known(said)));
    // A leader never lags.
    let leads = good.etcd.known().and_then(|etcd| etcd.leader) == Some(own.member_id);
    let lags = Answer { applied_index: own.applied_index - 1_001, ..own.clone() };
    let mut all = vec![
        ("it has no Pod", with(None)),
        ("it is silent", with(Some(Seen::unknown("timed out")))),
        ("it is cut off and knows no leader", known(Answer { leader: 0, ..own.clone() })),
        ("it follows another leader", known(Answer { leader: 0x99, ..own.clone() })),
        ("another cluster's server answers", known(Answer { cluster_id: 9, ..own.clone() })),
        ("another member's server answers", known(Answer { member_id: 0x99, ..own })),
    ];
    all.extend((!leads).then(|| ("it lags", known(lags))));
    all
}

/// Checks that the act breaks I1 when this server is unhealthy in any way, but not when it lags a thousand entries.
pub(super) fn needs_the_health_of(good: &Cluster, act: &Act, n: usize) {
    for (what, seen) in ill(good, n) {
        assert_eq!(broken(&seen, act.clone()), Some("I1"), "{what}");
    }
    let mut close = good.clone();
    if let Some(Seen::Known(said)) = close.answers.get_mut(&named(n)) {
        said.applied_index -= 1_000;
    }
    assert_eq!(broken(&close, act.clone()), None, "it is close behind");
}

fn member_id(n: usize) -> u64 {
    0x10 + u64::try_from(n).unwrap()
}

pub(super) fn member_target(seen: &Cluster, n: usize) -> Target {
    target(&seen.members[n].object.metadata)
}

pub(super) fn leave(m: &mut Part) {
    m.object.spec.leaving = Some(Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() });
}

fn remove(m: &mut Part) {
    leave(m);
    m.object.spec.removed = Some(removed());
}

/// Returns the proof for the second member.
fn removed() -> Removed {
    Removed { cluster_id: "c1".to_owned(), member_id: Some("11".to_owned()), at: noon().to_string() }
}

fn parked(index: Option<u64>) -> Option<Parked> {
    Some(Parked { term: index.map(|_| 3), index, at: noon().to_string() })
}

fn newer(meta: &mut ObjectMeta) {
    meta.resource_version = Some("8".to_owned());
}

fn corrupt(seen: &mut Cluster) {
    etcd(seen).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt });
}

fn label(seen: &mut Cluster, n: usize, role: &str) {
    seen.members[n].pod.as_mut().unwrap().metadata.labels = labels(&[(key::ROLE, role)]);
}

/// Returns three voters; the second leaves and has no clients any more.
fn one_leaves() -> Cluster {
    let mut seen = formed(3, 2);
    leave(&mut seen.members[1]);
    label(&mut seen, 1, role::LEARNER);
    seen
}

/// Returns the same cluster, with the leaving member as leader.
fn leader_leaves() -> Cluster {
    let mut seen = one_leaves();
    etcd(&mut seen).leader = Some(0x11);
    seen.answers = (0..3).map(|n| (named(n), Seen::Known(Answer { leader: 0x11, ..answer(n) }))).collect();
    seen
}

#[test]
fn a_learner_is_added_beside_a_healthy_quorum_of_the_grown_cluster() {
    let add = |seen: &Cluster, n: usize| Act::AddLearner {
        name: named(n),
        peer_url: objects::member::peer_url(&seen.cluster, &named(n)),
        cluster_id: 0xc1,
    };
    let good = unlisted(3);
    breached(&good, &add(&good, 3), &FORMED);
    breached(
        &good,
        &add(&good, 3),
        &[
            ("it leaves", "I11", |s| leave(&mut s.members[3])),
            ("it is deleted", "I12", |s| s.members[3].object.metadata.deletion_timestamp = Some(earlier())),
            ("it has joined", "I5", |s| s.members[3].object.spec.joined = Some(Joined::default())),
            ("etcd lists its name", "I11", |s| etcd(s).members[2].name = named(3)),
            ("etcd lists its URL", "I11", |s| {
                let url = objects::member::peer_url(&s.cluster, &named(3));
                etcd(s).members[2].peer_urls = vec![url];
            }),
            ("data are in doubt", "I3", corrupt),
            ("nobody leads", "I1", |s| etcd(s).leader = None),
        ],
    );
    // Three of four are a quorum; with four voters one may be unhealthy, with five two may not.
    for n in 0..3 {
        needs_the_health_of(&good, &add(&good, 3), n);
    }
    let four = unlisted(4);
    assert!(ill(&four, 3).into_iter().all(|(_, seen)| broken(&seen, add(&seen, 4)).is_none()));
    for (_, mut seen) in ill(&unlisted(5), 4) {
        assert_eq!(broken(&seen, add(&seen, 5)), None);
        seen.answers.remove(&named(3));
        assert_eq!(broken(&seen, add(&seen, 5)), Some("I1"));
    }
}

#[test]
fn a_vote_is_given_to_a_healthy_learner_beside_healthy_voters() {
    let joined = |voters: usize| {
        let mut seen = with_learner(voters, 9);
        seen.members[voters].object.spec.joined = joined_member(&seen.cluster, voters).spec.joined;
        seen.members[voters].pod.as_mut().unwrap().metadata.annotations = None;
        seen
    };
    let promote = |n: usize| Act::Promote { name: named(n), member_id: member_id(n), cluster_id: 0xc1 };
    let good = joined(1);
    breached(&good, &promote(1), &FORMED);
    breached(
        &good,
        &promote(1),
        &[
            ("it leaves", "I11", |s| leave(&mut s.members[1])),
            ("it is deleted", "I12", |s| s.members[1].object.metadata.deletion_timestamp = Some(earlier())),
            ("it votes already", "I11", |s| etcd(s).members[1].learner = false),
            ("etcd does not list it", "I11", |s| drop(etcd(s).members.pop())),
            ("it has not joined", "I3", |s| s.members[1].object.spec.joined = None),
            ("it has joined under another ID", "I3", |s| {
                s.members[1].object.spec.joined.as_mut().unwrap().member_id = "99".to_owned();
            }),
            ("it may start empty", "I3", |s| {
                s.members[1].pod.as_mut().unwrap().metadata.annotations = labels(&[(key::MAY_START_EMPTY, "x")]);
            }),
            ("nobody leads", "I1", |s| etcd(s).leader = None),
        ],
    );
    // Both are needed. A third vote beside two needs one of them and the newcomer.
    for n in 0..2 {
        needs_the_health_of(&good, &promote(1), n);
    }
    for (_, mut seen) in ill(&joined(3), 2) {
        assert_eq!(broken(&seen, promote(3)), None);
        seen.answers.remove(&named(1));
        assert_eq!(broken(&seen, promote(3)), Some("I1"));
    }
}

#[test]
fn leadership_goes_from_a_leader_that_leaves_to_a_healthy_voter_that_stays() {
    let good = leader_leaves();
    let over = |name: usize, from, to| Act::MoveLeader { name: named(name), from, to, cluster_id: 0xc1 };
    breached(&good, &over(1, 0x11, 0x12), &FORMED);
    breached(
        &good,
        &over(1, 0x11, 0x12),
        &[
            ("it does not leave", "I11", |s| s.members[1].object.spec.leaving = None),
            ("another leads", "I11", |s| etcd(s).leader = Some(0x10)),
            ("nobody leads", "I11", |s| etcd(s).leader = None),
            ("the next one leaves too", "I1", |s| leave(&mut s.members[2])),
            ("the next one is a learner", "I1", |s| etcd(s).members[2].learner = true),
            ("the next one is not listed", "I1", |s| drop(etcd(s).members.pop())),
            ("the leader is silent", "I1", |s| drop(s.answers.remove(&named(1)))),
        ],
    );
    assert_eq!(broken(&good, over(1, 0x11, 0x11)), Some("I1"), "to itself");
    assert_eq!(broken(&good, over(1, 0x10, 0x12)), Some("I11"), "from one that does not lead");
    assert_eq!(broken(&good, over(0, 0x11, 0x12)), Some("I11"), "in another's name");
    let mut follower = formed(3, 2);
    leave(&mut follower.members[1]);
    assert_eq!(broken(&follower, over(1, 0x10, 0x12)), Some("I11"), "the leader stays");
    for (what, seen) in ill(&good, 2) {
        assert_eq!(broken(&seen, over(1, 0x11, 0x12)), Some("I1"), "{what}");
    }
}

fn requests(s: &mut Cluster, n: usize) {
    s.cluster.metadata.annotations = Some([(key::MOVE_LEADER.to_owned(), named(n))].into());
}

#[test]
fn a_requested_leader_is_a_voter_beside_healthy_ones() {
    let over = |to| Act::MoveLeader { name: named(0), from: 0x10, to, cluster_id: 0xc1 };
    let mut good = formed(3, 3);
    requests(&mut good, 1);
    breached(&good, &over(0x11), &FORMED);
    breached(
        &good,
        &over(0x11),
        &[
            ("without a request", "I11", |s| s.cluster.metadata.annotations = None),
            ("a request for another", "I11", |s| requests(s, 2)),
            ("another leads", "I11", |s| etcd(s).leader = Some(0x12)),
            ("a learner", "I11", |s| etcd(s).members[1].learner = true),
            ("it leaves", "I1", |s| leave(&mut s.members[1])),
        ],
    );
    for n in 0..3 {
        needs_the_health_of(&good, &over(0x11), n);
    }
    assert_eq!(broken(&good, over(0x12)), Some("I11"), "another than the requested one");
}

#[test]
fn a_request_for_a_leader_ends_when_it_is_carried_out_or_cannot_be() {
    let end = |seen: &Cluster, n: usize, refused| {
        let cluster = Target::from(&seen.cluster.metadata);
        Act::EndLeaderRequest { cluster, member: named(n), refused }
    };
    let mut good = formed(3, 3);
    requests(&mut good, 0);
    let act = end(&good, 0, None);
    breached(&good, &act, &FORMED);
    breached(
        &good,
        &act,
        &[
            ("another leads", "I11", |s| etcd(s).leader = Some(0x11)),
            ("another request", "I12", |s| requests(s, 1)),
            ("no request", "I12", |s| s.cluster.metadata.annotations = None),
            ("another version of the cluster", "I12", |s| s.cluster.metadata.resource_version = Some("999".to_owned())),
        ],
    );
    assert_eq!(broken(&good, end(&good, 0, Some(Unelectable::Learner))), Some("I11"), "a voter");
    assert_eq!(broken(&good, end(&good, 0, Some(Unelectable::Absent))), Some("I11"), "a member");
    let mut learns = formed(3, 3);
    requests(&mut learns, 1);
    etcd(&mut learns).members[1].learner = true;
    assert_eq!(broken(&learns, end(&learns, 1, Some(Unelectable::Learner))), None);
    let mut leaves = formed(3, 2);
    requests(&mut leaves, 1);
    leave(&mut leaves.members[1]);
    assert_eq!(broken(&leaves, end(&leaves, 1, Some(Unelectable::Absent))), None);
}

#[test]
fn a_voter_is_removed_latched_without_clients_and_beside_a_healthy_quorum() {
    let act =
        |n: usize, learner| Act::RemoveMember { name: named(n), member_id: member_id(n), learner, cluster_id: 0xc1 };
    let good = one_leaves();
    breached(&good, &act(1, false), &FORMED);
    breached(
        &good,
        &act(1, false),
        &[
            ("it is not latched", "I11", |s| s.members[1].object.spec.leaving = None),
            ("clients reach it", "I16", |s| label(s, 1, role::VOTER)),
            ("it leads", "I1", |s| etcd(s).leader = Some(0x11)),
            ("nobody leads", "I1", |s| etcd(s).leader = None),
            ("etcd does not list its ID", "I12", |s| etcd(s).members[1].id = 0x99),
            ("it is a learner", "I12", |s| etcd(s).members[1].learner = true),
            ("the ID is another's", "I12", |s| {
                etcd(s).members[1].id = 0x10;
                etcd(s).members[0].id = 0x11;
            }),
            ("it has no EtcdMember, and a Pod", "I4", |s| {
                s.members.remove(1);
                s.stray_pods = vec![named(1)];
            }),
        ],
    );
    for n in [0, 2] {
        needs_the_health_of(&good, &act(1, false), n);
    }
    assert!(ill(&good, 1).into_iter().all(|(_, seen)| broken(&seen, act(1, false)).is_none()), "itself it may be ill");
    let mut last = one_leaves();
    etcd(&mut last).members = vec![etcd(&mut last).members[1].clone()];
    assert_eq!(broken(&last, act(1, false)), Some("I1"), "the last voter");
    // A learner has no vote.
    let mut seen = with_learner(3, 3);
    leave(&mut seen.members[3]);
    seen.answers.clear();
    assert_eq!(broken(&seen, act(3, true)), None);
    seen.members[3].object.spec.leaving = None;
    assert_eq!(broken(&seen, act(3, true)), Some("I11"));
    // A member without an EtcdMember has no vote either, if it has never started.
    seen.members.pop();
    seen.stray_pods = vec![named(3)];
    assert_eq!(broken(&seen, act(3, true)), Some("I4"), "it has a name, so it may have data");
    etcd(&mut seen).members[3].name.clear();
    assert_eq!(broken(&seen, act(3, true)), None);
}

#[test]
fn one_member_leaves_at_a_time_and_only_where_fewer_are_wanted() {
    let good = formed(3, 2);
    let leaving = Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() };
    let act = Act::LatchLeaving { member: member_target(&good, 1), leaving };
    breached(&good, &act, &FORMED);
    breached(
        &good,
        &act,
        &[
            ("it has changed", "I12", |s| newer(&mut s.members[1].object.metadata)),
            ("it leaves already", "I11", |s| leave(&mut s.members[1])),
            ("it is removed", "I11", |s| remove(&mut s.members[1])),
            ("another leaves", "I11", |s| leave(&mut s.members[2])),
            ("another is removed, so that two are left", "I1", |s| remove(&mut s.members[2])),
            ("as many are wanted", "I1", |s| s.cluster.spec.replicas = 3),
            ("more are wanted", "I1", |s| s.cluster.spec.replicas = 5),
            ("none is wanted, so that they are parked", "I1", |s| s.cluster.spec.replicas = 0),
            ("data are in doubt", "I3", corrupt),
            ("nobody leads", "I1", |s| etcd(s).leader = None),
        ],
    );
    for n in [0, 2] {
        needs_the_health_of(&good, &act, n);
    }
    assert!(ill(&good, 1).into_iter().all(|(_, seen)| broken(&seen, act.clone()).is_none()), "itself it may be ill");
    // A member without a vote does not count.
    let mut seen = with_learner(3, 3);
    seen.answers.clear();
    let leaving = Leaving { why: Departure::ScaledIn, evidence: None, at: noon().to_string() };
    assert_eq!(broken(&seen, Act::LatchLeaving { member: member_target(&seen, 3), leaving }), None);
}

#[test]
fn removed_is_latched_by_a_list_of_the_same_cluster_without_the_member() {
    let mut good = one_leaves();
    etcd(&mut good).members.remove(1);
    let latch = |removed| Act::LatchRemoved { member: member_target(&good, 1), removed };
    breached(&good, &latch(removed()), &FORMED);
    let listed = |s: &mut Cluster, id: u64, name: &str, url: &str| {
        let peer_urls = vec![url.to_owned()];
        etcd(s).members.push(Listed { id, name: name.to_owned(), peer_urls, learner: true });
    };
    breached(
        &good,
        &latch(removed()),
        &[
            ("it has changed", "I12", |s| newer(&mut s.members[1].object.metadata)),
            ("it does not leave", "I11", |s| s.members[1].object.spec.leaving = None),
            ("it is latched already", "I11", |s| s.members[1].object.spec.removed = Some(removed())),
            ("it has joined under another ID", "I5", |s| {
                s.members[1].object.spec.joined.as_mut().unwrap().member_id = "99".to_owned();
            }),
            ("it has never joined", "I5", |s| s.members[1].object.spec.joined = None),
        ],
    );
    let url = objects::member::peer_url(&good.cluster, &named(1));
    for (id, name, url) in [(0x11, "", "http://x"), (0x99, "a-m1", "http://x"), (0x99, "", url.as_str())] {
        let mut seen = good.clone();
        listed(&mut seen, id, name, url);
        assert_eq!(broken(&seen, latch(removed())), Some("I4"), "etcd lists {id:x} {name} {url}");
    }
    let other = Removed { cluster_id: "c2".to_owned(), ..removed() };
    assert_eq!(broken(&good, latch(other)), Some("I4"), "another cluster's list");
    let nobody = Removed { member_id: None, ..removed() };
    assert_eq!(broken(&good, latch(nobody.clone())), Some("I5"));
    // A member that never joined has no known ID.
    let mut stranger = good.clone();
    stranger.members[1].object.spec.joined = None;
    assert_eq!(broken(&stranger, latch(nobody)), None);
}

#[test]
fn clients_are_led_away_from_a_member_that_leaves_and_to_none() {
    let mut good = one_leaves();
    label(&mut good, 1, role::VOTER);
    let pod = pod_target(&good, 1);
    breached(
        &good,
        &Act::DismissClients { pod },
        &[
            ("it stays", "I16", |s| s.members[1].object.spec.leaving = None),
            ("its Pod has changed", "I13", |s| newer(&mut s.members[1].pod.as_mut().unwrap().metadata)),
            ("its Pod is another's", "I13", |s| {
                s.members[1].pod.as_mut().unwrap().metadata.owner_references = None;
            }),
        ],
    );
    let good = formed(3, 3);
    let pod = pod_target(&good, 1);
    breached(
        &good,
        &Act::AdmitClients { pod },
        &[
            ("it leaves", "I16", |s| leave(&mut s.members[1])),
            ("another is parked", "I3", |s| s.members[2].object.spec.parked = parked(None)),
            ("etcd does not list it", "I16", |s| drop(etcd(s).members.remove(1))),
        ],
    );
}

#[test]
fn members_are_parked_once_and_only_for_zero() {
    let good = formed(3, 0);
    let latch = Parked { term: None, index: None, at: noon().to_string() };
    let act = Act::Park { member: member_target(&good, 1), parked: latch };
    breached(
        &good,
        &act,
        &[
            ("it has changed", "I12", |s| newer(&mut s.members[1].object.metadata)),
            ("one is wanted", "I1", |s| s.cluster.spec.replicas = 1),
            ("it is parked", "I11", |s| s.members[1].object.spec.parked = parked(None)),
            ("it is removed", "I11", |s| remove(&mut s.members[1])),
        ],
    );
    let mut silent = good.clone();
    silent.etcd = Seen::unknown("no");
    silent.answers.clear();
    assert_eq!(broken(&silent, act), None, "no quorum is needed");
}

#[test]
fn members_are_back_when_the_leader_has_every_entry_that_one_was_parked_with() {
    let mut good = formed(3, 3);
    for (n, index) in [Some(5), Some(1_000_000), None].into_iter().enumerate() {
        good.members[n].object.spec.parked = parked(index);
    }
    let act = Act::Unpark { member: member_target(&good, 0) };
    breached(&good, &act, &FORMED);
    breached(
        &good,
        &act,
        &[
            ("it has changed", "I12", |s| newer(&mut s.members[0].object.metadata)),
            ("none is wanted", "I1", |s| s.cluster.spec.replicas = 0),
            ("nobody leads", "I3", |s| etcd(s).leader = None),
            ("the leader is silent", "I3", |s| drop(s.answers.remove(&named(0)))),
            ("another answers in the leader's place", "I3", |s| {
                s.answers.insert(named(0), Seen::Known(Answer { member_id: 0x99, ..answer(0) }));
            }),
            ("another was parked with more", "I3", |s| s.members[1].object.spec.parked = parked(Some(1_000_001))),
        ],
    );
}

#[test]
fn a_member_is_deleted_by_proof_and_while_etcd_does_not_list_it() {
    let mut good = one_leaves();
    remove(&mut good.members[1]);
    etcd(&mut good).members.remove(1);
    let act = Act::DeleteMember { member: member_target(&good, 1), why: String::new() };
    let mut silent = good.clone();
    silent.etcd = Seen::unknown("no");
    assert_eq!(broken(&silent, act.clone()), None, "the proof is latched");
    breached(
        &good,
        &act,
        &[
            ("it has changed", "I12", |s| newer(&mut s.members[1].object.metadata)),
            ("there is no proof", "I4", |s| s.members[1].object.spec.removed = None),
            ("it is not even to leave", "I4", |s| {
                s.members[1].object.spec.removed = None;
                s.members[1].object.spec.leaving = None;
            }),
            ("etcd lists its name", "I4", |s| etcd(s).members[1].name = named(1)),
            ("etcd lists its URL", "I4", |s| {
                let url = objects::member::peer_url(&s.cluster, &named(1));
                etcd(s).members[1].peer_urls = vec![url];
            }),
        ],
    );
}

#[test]
fn the_budget_goes_with_the_second_voter() {
    let mut good = formed(3, 1);
    etcd(&mut good).members.truncate(1);
    let drop_it = Ensure::DropBudget(target(&good.budget.as_ref().unwrap().metadata));
    let verdict = |seen: &Cluster| {
        let mut plan = plan_of(None, seen.cluster.status.clone().unwrap_or_default());
        plan.ensures = vec![drop_it.clone()];
        cluster(seen, &plan).err().map(|v| v.invariant)
    };
    assert_eq!(verdict(&good), None);
    let changes: [Breach; 6] = [
        ("there is none", "I12", |s| s.budget = None),
        ("it has changed", "I12", |s| newer(&mut s.budget.as_mut().unwrap().metadata)),
        ("it is another's", "I13", |s| s.budget.as_mut().unwrap().metadata.owner_references = None),
        ("the membership is unknown", "I1", |s| s.etcd = Seen::unknown("no")),
        ("two vote", "I16", |s| {
            let second = Listed { id: 0x11, name: named(1), ..Listed::default() };
            etcd(s).members.push(second);
        }),
        ("the cluster is paused", "I13", |s| s.cluster.spec.paused = true),
    ];
    for (what, invariant, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(verdict(&seen), Some(invariant), "{what}");
    }
}
