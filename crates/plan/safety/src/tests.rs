//! The safety rules: each rule refuses a plan that breaks it, and accepts a plan that keeps it.

mod defragmenting;
mod last_snapshot;
mod parts;
mod replacing;
mod retention;
mod rolling;
mod scaling;
mod timeline;
mod transport;
mod volumes;

use holdfast_api::cluster::{Formed, Latches, Retention};
use holdfast_api::member::{Birth, Joined};
use holdfast_api::restore::Restoring;
use holdfast_api::{EtcdClusterStatus, EtcdMemberStatus, key};

use super::*;
use crate::fixtures::{
    answer, bare, claim_of, earlier, etcd, formed, joined_member, labels, latches, named, noon, pod_of, restoring,
    running, seeding, serving, stored, unborn, with_learner,
};
use holdfast_base::seen::cluster::Observed as Cluster;
use holdfast_base::seen::member::Observed as Member;
use holdfast_base::{Act, Ensure, Plan, Seen, Wake, objects};

fn plan_of<S>(act: Option<Act>, status: S) -> Plan<S> {
    Plan { ensures: vec![], act, status, notes: vec![], waiting: None, wake: Wake::Now }
}

/// Returns the invariant that an act of the cluster's pass breaks.
fn broken(seen: &Cluster, act: Act) -> Option<&'static str> {
    let status = seen.cluster.status.clone().unwrap_or_default();
    cluster(seen, &plan_of(Some(act), status)).err().map(|v| v.invariant)
}

/// Returns the invariant that an act of the member's pass breaks.
fn wrong(seen: &Member, act: Act) -> Option<&'static str> {
    member(seen, &plan_of(Some(act), EtcdMemberStatus::default())).err().map(|v| v.invariant)
}

fn target(meta: &ObjectMeta) -> Target {
    Target::from(meta)
}

fn pod_target(seen: &Cluster, n: usize) -> Target {
    target(&seen.members[n].pod.as_ref().unwrap().metadata)
}

#[test]
fn a_status_keeps_its_latches_and_a_paused_cluster_its_peace() {
    let seen = formed(3, 3);
    let status = seen.cluster.status.clone().unwrap();
    assert_eq!(cluster(&seen, &plan_of(None, status.clone())), Ok(()));
    assert!(cluster(&seen, &plan_of(None, EtcdClusterStatus::default())).is_err());
    let mut paused = seen.clone();
    paused.cluster.spec.paused = true;
    assert_eq!(broken(&paused, Act::DismissClients { pod: pod_target(&seen, 0) }), Some("I13"));
    assert_eq!(broken(&paused, Act::AdmitClients { pod: pod_target(&seen, 0) }), None, "clients are given back");
    let latches = latches(&mut paused).clone();
    assert_eq!(
        broken(&paused, Act::Latch(Box::new(Latches { pending_member: Some("x".to_owned()), ..latches }))),
        Some("I13")
    );
    let mut plan = plan_of(None, status);
    plan.ensures = vec![Ensure::Service(Box::new(objects::service::client(&seen.cluster)))];
    assert_eq!(cluster(&seen, &plan), Ok(()));
    let mut foreign = seen.clone();
    foreign.client_service.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(cluster(&foreign, &plan).unwrap_err().invariant, "I13");
    plan.ensures = vec![Ensure::Budget(Box::new(objects::budget::budget(&seen.cluster, 3, 3).unwrap()))];
    foreign.budget.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(cluster(&foreign, &plan).unwrap_err().invariant, "I13");
}

#[test]
fn formed_is_latched_once_and_in_order() {
    let latch = |latches: &Latches| Act::Latch(Box::new(latches.clone()));
    let mut seen = formed(1, 1);
    let good = latches(&mut seen).clone();
    assert_eq!(broken(&seen, latch(&good)), None);
    assert_eq!(broken(&seen, latch(&Latches { formed: None, ..good.clone() })), Some("I2"));
    let restored = Latches { restoring: Some(restoring("k")), ..good.clone() };
    assert_eq!(broken(&seen, latch(&restored)), Some("I9"));
    let mut seen = seeding(1);
    assert_eq!(broken(&seen, latch(&good)), Some("I3"), "nobody has joined");
    let annotated = seen.members[0].pod.clone();
    seen.members[0] = formed(1, 1).members[0].clone();
    assert_eq!(broken(&seen, latch(&good)), None);
    assert_eq!(broken(&seen, latch(&Latches::default())), Some("I2"), "one has joined");
    let other = Formed { cluster_id: "9".to_owned(), ..good.formed.clone().unwrap() };
    assert_eq!(broken(&seen, latch(&Latches { formed: Some(other), ..good.clone() })), Some("I2"));
    seen.members[0].pod = annotated;
    assert_eq!(broken(&seen, latch(&good)), Some("I3"), "it may still start empty");
    seen.etcd = Seen::unknown("no");
    assert_eq!(broken(&seen, latch(&good)), Some("I1"));
}

#[test]
fn members_are_made_under_a_latched_name() {
    let create = |member| Act::CreateMember(Box::new(member));
    let mut seen = bare(3);
    let seed = objects::member::seed(&seen.cluster, "a-x", None);
    assert_eq!(broken(&seen, create(seed.clone())), Some("I11"));
    latches(&mut seen).pending_member = Some("a-x".to_owned());
    assert_eq!(broken(&seen, create(seed.clone())), None);
    let mut unowned = seed.clone();
    unowned.metadata.owner_references = None;
    assert_eq!(broken(&seen, create(unowned)), Some("I13"));
    let mut joined = seed.clone();
    joined.spec.joined = Some(Joined::default());
    assert_eq!(broken(&seen, create(joined)), Some("I5"));
    let restored = objects::member::seed(&seen.cluster, "a-x", Some(restoring("k")));
    assert_eq!(broken(&seen, create(restored)), Some("I9"));
    assert_eq!(broken(&seen, create(objects::member::joiner(&seen.cluster, "a-x"))), Some("I2"));

    let mut seen = formed(1, 2);
    latches(&mut seen).pending_member = Some("a-x".to_owned());
    let joiner = objects::member::joiner(&seen.cluster, "a-x");
    assert_eq!(broken(&seen, create(joiner.clone())), None);
    assert_eq!(broken(&seen, create(seed)), Some("I2"));
    let mut told = joiner.clone();
    told.spec.initial_cluster = Some("x".to_owned());
    assert_eq!(broken(&seen, create(told)), Some("I11"));
    let mut restored = joiner.clone();
    restored.spec.restore = Some(restoring("k"));
    assert_eq!(broken(&seen, create(restored)), Some("I9"));
    latches(&mut seen).pending_member = Some(named(0));
    assert_eq!(broken(&seen, create(objects::member::joiner(&seen.cluster, &named(0)))), Some("I5"));
    let mut full = formed(2, 2);
    latches(&mut full).pending_member = Some("a-x".to_owned());
    assert_eq!(broken(&full, create(joiner.clone())), Some("I11"));
    full.etcd = Seen::unknown("no");
    assert_eq!(broken(&full, create(joiner)), Some("I1"));
}

/// Returns voters, and one more member that etcd does not list.
fn unlisted(voters: usize) -> Cluster {
    let mut seen = with_learner(voters, 9);
    etcd(&mut seen).members.pop();
    seen.answers.remove(&named(voters));
    seen
}

#[test]
fn learners_are_added_to_healthy_clusters_one_at_a_time() {
    let add = |seen: &Cluster, n: usize| Act::AddLearner {
        name: named(n),
        peer_url: objects::member::peer_url(&seen.cluster, &named(n)),
        cluster_id: 0xc1,
    };
    let seen = unlisted(3);
    assert_eq!(broken(&seen, add(&seen, 3)), None);
    let url = "http://elsewhere:2380".to_owned();
    assert_eq!(broken(&seen, Act::AddLearner { name: named(3), peer_url: url, cluster_id: 0xc1 }), Some("I11"));
    assert_eq!(broken(&seen, add(&seen, 0)), Some("I5"));
    assert_eq!(broken(&seen, add(&seen, 7)), Some("I12"));
    let peer_url = objects::member::peer_url(&seen.cluster, &named(3));
    assert_eq!(broken(&seen, Act::AddLearner { name: named(3), peer_url, cluster_id: 9 }), Some("I2"));
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 6] = [
        ("I1", |s| drop(s.answers.remove(&named(2)))),
        ("I1", |s| drop(s.answers.insert(named(2), Seen::Known(Answer { cluster_id: 9, ..answer(2) })))),
        ("I1", |s| s.etcd = Seen::unknown("no")),
        ("I2", |s| latches(s).formed = None),
        ("I3", |s| etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt })),
        ("I12", |s| s.members[3].object.metadata.deletion_timestamp = Some(earlier())),
    ];
    for (invariant, change) in changes {
        let mut seen = unlisted(3);
        change(&mut seen);
        assert_eq!(broken(&seen, add(&seen, 3)), Some(invariant));
    }
    // A second learner only in 3.6 or later.
    let two = |voters: usize, version: &str| {
        let mut seen = with_learner(voters, 9);
        let mut object = joined_member(&seen.cluster, voters + 1);
        object.spec.joined = None;
        seen.members.push(holdfast_base::seen::cluster::Member { pod: None, claim: Some(claim_of(&object)), object });
        seen.cluster.spec.version = version.to_owned();
        broken(&seen, add(&seen, voters + 1))
    };
    assert_eq!(two(1, "3.6.16"), None);
    assert_eq!(two(1, "3.5.35"), Some("I11"));
    assert_eq!(two(2, "3.6.16"), None);
    assert_eq!(two(2, "3.5.35"), Some("I11"));
    let listed = with_learner(1, 3);
    assert_eq!(broken(&listed, add(&listed, 1)), Some("I11"));
}

#[test]
fn an_entry_is_committed_only_for_a_member_that_runs_and_is_silent() {
    let commit = |cluster_id| Act::CommitEntry { cluster_id };
    let mut good = formed(3, 3);
    good.answers.insert(named(2), Seen::unknown("connection refused"));
    assert_eq!((broken(&good, commit(0xc1)), broken(&good, commit(9))), (None, Some("I2")));
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 4] = [
        ("I1", |s| s.etcd = Seen::unknown("no")),
        ("I2", |s| latches(s).formed = None),
        ("I17", |s| *s = formed(3, 3)),
        ("I17", |s| s.members[2].pod.as_mut().unwrap().status = None),
    ];
    for (invariant, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(broken(&seen, commit(0xc1)), Some(invariant));
    }
}

use holdfast_base::seen::cluster::Answer;
use holdfast_base::{Alarm, AlarmKind};

/// Holdfast clears an alarm of another cluster's member, a listed member's `NOSPACE` only while its file is below the quota, and
/// no alarm without a member.
#[test]
fn an_alarm_is_cleared_only_where_nobody_can_hold_it() {
    let raised = |kind, member_id| Alarm { member_id, kind };
    let (corrupt, full) = (raised(AlarmKind::Corrupt, 0xdead), raised(AlarmKind::NoSpace, 0xdead));
    let clear = |alarm: &Alarm| Act::Disarm { alarm: alarm.clone(), cluster_id: 0xc1 };
    let mut good = formed(3, 3);
    let there = latches(&mut good).formed.as_mut().unwrap();
    there.restored_from = Some(restoring("k"));
    there.corrupt_came_along = ["0", "11", "dead"].map(str::to_owned).to_vec();
    etcd(&mut good).alarms = vec![corrupt.clone(), full.clone()];
    for alarm in [&corrupt, &full] {
        assert_eq!(broken(&good, clear(alarm)), None);
    }
    assert_eq!(broken(&good, clear(&raised(AlarmKind::NoSpace, 0xbeef))), Some("I12"), "nobody has raised it");
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 6] = [
        ("I2", |s| etcd(s).cluster_id = 9),
        ("I3", |s| latches(s).formed.as_mut().unwrap().restored_from = None),
        ("I3", |s| latches(s).formed.as_mut().unwrap().corrupt_came_along.clear()),
        ("I3", |s| etcd(s).alarms.push(Alarm { member_id: 0x11, kind: AlarmKind::Corrupt })),
        ("I3", |s| etcd(s).alarms.push(Alarm { member_id: 0, kind: AlarmKind::Corrupt })),
        ("I1", |s| drop(s.answers.remove(&named(2)))),
    ];
    for (invariant, change) in changes {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!((broken(&seen, clear(&corrupt)), broken(&seen, clear(&full))), (Some(invariant), Some(invariant)));
    }
    let own = raised(AlarmKind::NoSpace, 0x11);
    let mut listed = formed(3, 3);
    etcd(&mut listed).alarms = vec![own.clone(), raised(AlarmKind::Corrupt, 0x12)];
    assert_eq!(broken(&listed, clear(&raised(AlarmKind::Corrupt, 0x12))), Some("I12"));
    assert_eq!(broken(&listed, clear(&own)), Some("I3"), "a CORRUPT alarm concerns the cluster's own data");
    etcd(&mut listed).alarms.pop();
    assert_eq!(broken(&listed, clear(&own)), None);
    let Some(Seen::Known(said)) = listed.answers.get_mut(&named(1)) else { panic!() };
    said.db_bytes = i64::MAX;
    assert_eq!(broken(&listed, clear(&own)), Some("I12"));
}

/// An alarm provably came along only at the moment when the restored seed is alone.
#[test]
fn what_came_along_is_latched_with_a_restored_seed_alone() {
    let latch = |seen: &Cluster, restored: bool, ids: &[&str]| {
        let formed = Formed {
            cluster_id: "c1".to_owned(),
            restored_from: restored.then(|| restoring("k")),
            corrupt_came_along: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..Formed::default()
        };
        let latches = Latches { formed: Some(formed), ..Latches::default() };
        broken(seen, Act::Latch(Box::new(latches)))
    };
    let forming = |there| {
        let mut seen = formed(there, 3);
        *latches(&mut seen) = Latches { restoring: Some(restoring("k")), ..Latches::default() };
        seen.members[0].object.spec.restore = Some(restoring("k"));
        seen
    };
    let mut seen = forming(1);
    assert_eq!((latch(&seen, true, &["dead"]), latch(&seen, true, &[])), (None, None));
    assert_eq!(latch(&seen, false, &[]), Some("I9"), "where its data came from would be lost");
    let mut empty = seen.clone();
    empty.members[0].object.spec.restore = None;
    assert_eq!((latch(&empty, false, &[]), latch(&empty, true, &[])), (None, Some("I9")), "it was founded empty");
    assert_eq!(latch(&seen, true, &["10"]), Some("I3"), "its own");
    assert_eq!(latch(&seen, false, &["dead"]), Some("I3"), "nothing was restored");
    assert_eq!(latch(&forming(2), true, &["dead"]), Some("I3"), "it is not alone");
    latches(&mut seen).restoring = None;
    assert_eq!(latch(&seen, true, &["dead"]), Some("I3"), "the status was lost, and may have been for long");
}

#[test]
fn newcomers_are_told_of_exactly_everybody() {
    let seen = with_learner(1, 2);
    let tell = |n: usize, text: &str| Act::SetInitialCluster {
        member: target(&seen.members[n].object.metadata),
        initial_cluster: text.to_owned(),
    };
    let good = "a-m0=http://a-m0.a.ns.svc:2380,a-m1=http://a-m1.a.ns.svc:2380";
    assert_eq!(broken(&seen, tell(1, good)), None);
    assert_eq!(broken(&seen, tell(0, good)), Some("I5"));
    assert_eq!(broken(&seen, tell(1, "a-m1=http://a-m1.a.ns.svc:2380")), Some("I11"));
    assert_eq!(broken(&seen, tell(1, &format!("{good},b=http://b:2380"))), Some("I11"));
    assert_eq!(broken(&seen, tell(1, &good.replace("a-m1=", "b="))), Some("I11"));
    let mut stale = target(&seen.members[1].object.metadata);
    stale.resource_version = "6".to_owned();
    let act = Act::SetInitialCluster { member: stale, initial_cluster: good.to_owned() };
    assert_eq!(broken(&seen, act), Some("I12"));
}

#[test]
fn joining_is_seen_not_believed() {
    let join = |seen: &Cluster, n: usize, member_id: &str, cluster_id: &str| Act::LatchJoined {
        member: target(&seen.members[n].object.metadata),
        joined: Joined { member_id: member_id.to_owned(), cluster_id: cluster_id.to_owned() },
    };
    let mut seen = with_learner(1, 2);
    assert_eq!(broken(&seen, join(&seen, 1, "11", "c1")), None);
    assert_eq!(broken(&seen, join(&seen, 0, "10", "c1")), Some("I5"));
    assert_eq!(broken(&seen, join(&seen, 1, "10", "c1")), Some("I5"));
    assert_eq!(broken(&seen, join(&seen, 1, "11", "9")), Some("I2"));
    seen.answers.remove(&named(1));
    assert_eq!(broken(&seen, join(&seen, 1, "11", "c1")), Some("I5"));
    let mut seen = seeding(1);
    assert_eq!(broken(&seen, join(&seen, 0, "10", "c1")), None);
    let twin = etcd(&mut seen).members[0].clone();
    etcd(&mut seen).members.push(twin);
    assert_eq!(broken(&seen, join(&seen, 0, "10", "c1")), Some("I2"));
}

#[test]
fn votes_and_clients_come_last() {
    let mut seen = with_learner(1, 2);
    let vote = Act::Promote { name: named(1), member_id: 0x11, cluster_id: 0xc1 };
    let forbid = |seen: &Cluster, n| Act::ForbidEmptyStart {
        pod: pod_target(seen, n),
        joined: seen.members[n].object.spec.joined.clone().unwrap_or_default(),
    };
    assert_eq!(broken(&seen, vote.clone()), Some("I3"), "not joined");
    assert_eq!(broken(&seen, forbid(&seen, 1)), Some("I3"));
    seen.members[1].object.spec.joined = joined_member(&seen.cluster, 1).spec.joined;
    assert_eq!(broken(&seen, vote.clone()), Some("I3"), "may start empty");
    assert_eq!(broken(&seen, forbid(&seen, 1)), None);
    seen.members[1].pod.as_mut().unwrap().metadata.annotations = None;
    assert_eq!(broken(&seen, vote.clone()), None);
    assert_eq!(broken(&seen, Act::AdmitClients { pod: pod_target(&seen, 1) }), Some("I16"), "a learner");
    let mut silent = seen.clone();
    silent.answers.remove(&named(1));
    assert_eq!(broken(&silent, vote.clone()), Some("I1"));
    etcd(&mut seen).members[1].learner = false;
    assert_eq!(broken(&seen, vote), Some("I11"));
    let admit = Act::AdmitClients { pod: pod_target(&seen, 1) };
    assert_eq!(broken(&seen, admit.clone()), None);
    let mut unformed = seen.clone();
    latches(&mut unformed).formed = None;
    assert_eq!(broken(&unformed, admit.clone()), Some("I3"));
    let mut permitted = seen.clone();
    permitted.members[1].pod.as_mut().unwrap().metadata.annotations = labels(&[(key::MAY_START_EMPTY, "x")]);
    assert_eq!(broken(&permitted, admit.clone()), Some("I3"));
    let mut foreign = seen.clone();
    foreign.members[1].pod.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(broken(&foreign, admit.clone()), Some("I13"));
    seen.members[1].object.spec.joined = None;
    assert_eq!(broken(&seen, admit), Some("I3"));
}

#[test]
fn starts_are_counted_one_by_one_of_pods_that_serve() {
    let mut seen = serving();
    let latch = |seen: &Member, count: u64| Act::LatchStart { member: target(&seen.member.metadata), count };
    let mark = |seen: &Member, count: u64| Act::MarkStarted {
        pod: target(&seen.pod.as_ref().unwrap().metadata),
        count,
        joined: seen.member.spec.joined.clone().unwrap(),
    };
    assert_eq!(wrong(&seen, mark(&seen, 1)), None);
    assert_eq!(wrong(&seen, mark(&seen, 2)), Some("I27"), "not what is latched");
    let mut other = seen.clone();
    other.member.spec.joined.as_mut().unwrap().member_id = "b0b".to_owned();
    assert_eq!(wrong(&seen, mark(&other, 1)), Some("I5"), "another's IDs");
    assert_eq!(wrong(&seen, latch(&seen, 2)), Some("I27"), "its number is 1");
    seen.member.spec.start_count = 0;
    assert_eq!(wrong(&seen, latch(&seen, 1)), None);
    let mut starting = seen.clone();
    running(starting.pod.as_mut().unwrap(), false);
    assert_eq!(wrong(&starting, latch(&starting, 1)), Some("I27"), "it does not serve");
    let mut unjoined = seen.clone();
    unjoined.member.spec.joined = None;
    assert_eq!(wrong(&unjoined, latch(&unjoined, 1)), Some("I27"));
    seen.member.spec.start_count = 2;
    assert_eq!(wrong(&seen, mark(&seen, 2)), Some("I27"), "its own next start would be refused");
}

#[test]
fn a_pod_is_relabelled_as_it_was_seen_and_never_as_a_voters() {
    let seen = serving();
    let relabel = |seen: &Member, key: &str| Act::Relabel {
        pod: target(&seen.pod.as_ref().unwrap().metadata),
        labels: labels(&[(key, "x")]).unwrap(),
    };
    assert_eq!(wrong(&seen, relabel(&seen, key::MEMBER)), None);
    assert_eq!(wrong(&seen, relabel(&seen, key::ROLE)), Some("I16"));
    let mut newer = seen.clone();
    newer.pod.as_mut().unwrap().metadata.resource_version = Some("9999".to_owned());
    assert_eq!(wrong(&seen, relabel(&newer, key::MEMBER)), Some("I12"));
    let mut foreign = seen.clone();
    foreign.pod.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(wrong(&foreign, relabel(&foreign, key::MEMBER)), Some("I12"));
}

#[test]
fn members_that_count_are_never_deleted() {
    let delete = |seen: &Cluster, n: usize| Act::DeleteMember {
        member: target(&seen.members[n].object.metadata),
        why: String::new(),
    };
    let mut seen = seeding(1);
    assert_eq!(broken(&seen, delete(&seen, 0)), None);
    seen.members[0].object.spec.joined = Some(Joined::default());
    assert_eq!(broken(&seen, delete(&seen, 0)), Some("I4"));
    let mut seen = with_learner(1, 2);
    assert_eq!(broken(&seen, delete(&seen, 1)), Some("I4"));
    seen.members[1].object.spec.role = Birth::Seed;
    assert_eq!(broken(&seen, delete(&seen, 1)), Some("I4"), "etcd lists it");
    etcd(&mut seen).members.pop();
    assert_eq!(broken(&seen, delete(&seen, 1)), None);
    seen.etcd = Seen::unknown("no");
    assert_eq!(broken(&seen, delete(&seen, 1)), Some("I1"));
}

/// A quorum answers without the member, and its Pod is the only Pod that restored.
#[test]
fn only_a_pod_with_a_restore_step_ends_while_its_member_serves() {
    use k8s_openapi::api::core::v1::Container;
    let step = || Container { name: objects::container::RESTORE.to_owned(), ..Container::default() };
    let end = |seen: &Cluster| Act::DeletePod { pod: pod_target(seen, 0), why: String::new() };
    let restored = |voters: usize| {
        let mut seen = formed(voters, i32::try_from(voters).unwrap());
        let spec = seen.members[0].pod.as_mut().unwrap().spec.as_mut().unwrap();
        spec.init_containers.get_or_insert_default().push(step());
        seen
    };
    for (voters, broken_by) in [(1, Some("I1")), (2, Some("I1")), (3, None), (4, None), (5, None)] {
        let seen = restored(voters);
        assert_eq!(broken(&seen, end(&seen)), broken_by, "{voters}");
    }
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 18] = [
        ("I4", |s| s.members[0].claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        ("I4", |s| s.members[1].claim = None),
        ("I1", |s| s.etcd = Seen::unknown("no")),
        ("I2", |s| latches(s).formed = None),
        ("I2", |s| etcd(s).cluster_id = 9),
        ("I13", |s| s.members[0].pod.as_mut().unwrap().metadata.owner_references = None),
        ("I1", |s| drop(s.members[0].pod.as_mut().unwrap().spec.as_mut().unwrap().init_containers.take())),
        ("I9", |s| s.members[0].object.spec.joined = None),
        ("I3", |s| s.members[0].pod.as_mut().unwrap().metadata.annotations = labels(&[(key::MAY_START_EMPTY, "x")])),
        ("I1", |s| s.members[0].object.metadata.deletion_timestamp = Some(earlier())),
        ("I1", |s| s.members[1].pod = None),
        ("I1", |s| running(s.members[1].pod.as_mut().unwrap(), false)),
        ("I1", |s| s.members[1].pod.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        ("I1", |s| s.members[2].object.metadata.deletion_timestamp = Some(earlier())),
        ("I1", |s| drop(s.answers.remove(&named(2)))),
        ("I1", |s| drop(s.answers.insert(named(2), Seen::Known(Answer { cluster_id: 9, ..answer(2) })))),
        ("I11", |s| etcd(s).members[2].learner = true),
        ("I11", |s| latches(s).pending_member = Some("a-x".to_owned())),
    ];
    for (n, (invariant, change)) in changes.into_iter().enumerate() {
        let mut seen = restored(3);
        change(&mut seen);
        assert_eq!(broken(&seen, end(&seen)), Some(invariant), "change {n}");
    }
    let seen = restored(3);
    let mut newer = seen.clone();
    newer.members[0].pod.as_mut().unwrap().metadata.resource_version = Some("9999".to_owned());
    assert_eq!(broken(&newer, end(&seen)), Some("I13"), "it is not the Pod that was seen");
}

#[test]
fn each_pass_keeps_to_its_own() {
    let seen = formed(1, 1);
    let claim =
        Act::DeleteClaim { claim: target(&seen.members[0].claim.as_ref().unwrap().metadata), why: String::new() };
    assert_eq!(broken(&seen, claim), Some("I1"));
    let vote = Act::Promote { name: named(0), member_id: 1, cluster_id: 1 };
    assert_eq!(wrong(&serving(), vote), Some("I11"));
}

#[test]
fn pods_start_on_their_own_claim_with_no_more_than_they_may() {
    let create = |pod| Act::CreatePod(Box::new(pod));
    let mut seen = unborn(Some(restoring("k")));
    let first = seen.pod.take().unwrap();
    assert_eq!(wrong(&seen, create(first.clone())), None);
    type Change = fn(&mut Member);
    let changes: [(&str, Change); 7] = [
        ("I5", |s| s.claim = None),
        ("I5", |s| s.claim.as_mut().unwrap().metadata.deletion_timestamp = Some(earlier())),
        ("I5", |s| s.claim.as_mut().unwrap().metadata.labels = None),
        ("I3", |s| s.claim.as_mut().unwrap().metadata.uid = Some("other".to_owned())),
        ("I3", |s| s.member.spec.joined = Some(Joined::default())),
        ("I9", |s| s.cluster = serving().cluster),
        ("I21", |s| s.member.metadata.deletion_timestamp = Some(earlier())),
    ];
    for (invariant, change) in changes {
        let mut seen = seen.clone();
        change(&mut seen);
        assert_eq!(wrong(&seen, create(first.clone())), Some(invariant));
    }
    // Without a restore step the breach is the second founding.
    let mut late = unborn(None);
    let founding = late.pod.take().unwrap();
    assert_eq!(wrong(&late, create(founding.clone())), None);
    late.cluster = serving().cluster;
    assert_eq!(wrong(&late, create(founding)), Some("I2"));
    let mut voter = first.clone();
    voter.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), "voter".to_owned());
    assert_eq!(wrong(&seen, create(voter)), Some("I16"));
    let mut unowned = first.clone();
    unowned.metadata.owner_references = None;
    assert_eq!(wrong(&seen, create(unowned)), Some("I13"));
    // The store ID of the store that the member is restored from.
    let marked = Restoring { store_id: Some("store-one".to_owned()), ..restoring("k") };
    let mut from_marked = unborn(Some(marked));
    let expects = from_marked.pod.take().unwrap();
    assert_eq!(wrong(&from_marked, create(expects)), None);
    assert_eq!(wrong(&from_marked, create(first.clone())), Some("I25"));
    // The IDs under which the member has joined.
    let mut again = serving();
    again.pod = None;
    let Some(Act::CreatePod(knows)) = holdfast_cluster::member::plan(&again, earlier().0).act else { panic!() };
    assert_eq!(wrong(&again, Act::CreatePod(knows.clone())), None);
    for said in [None, Some("c1/b0b".to_owned())] {
        let mut pod = knows.clone();
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations.remove(key::JOINED);
        annotations.extend(said.map(|said| (key::JOINED.to_owned(), said)));
        assert_eq!(wrong(&again, Act::CreatePod(pod)), Some("I5"));
    }
    seen.pod = Some(first.clone());
    assert_eq!(wrong(&seen, create(first)), Some("I5"));
}

#[test]
fn claims_are_made_once_and_without_an_owner() {
    let create = |claim| Act::CreateClaim(Box::new(claim));
    let mut seen = unborn(None);
    let claim = seen.claim.take().unwrap();
    assert_eq!(wrong(&seen, create(claim.clone())), None);
    let mut owned = claim.clone();
    owned.metadata.owner_references = Some(vec![objects::owner(&seen.member)]);
    assert_eq!(wrong(&seen, create(owned)), Some("I4"));
    let mut unlabelled = claim.clone();
    unlabelled.metadata.labels = None;
    assert_eq!(wrong(&seen, create(unlabelled)), Some("I4"));
    seen.member.spec.joined = Some(Joined::default());
    assert_eq!(wrong(&seen, create(claim)), Some("I5"));
}

#[test]
fn nothing_of_a_member_that_counts_is_deleted() {
    let pod = |seen: &Member| Act::DeletePod { pod: target(&seen.pod.as_ref().unwrap().metadata), why: String::new() };
    let claim =
        |seen: &Member| Act::DeleteClaim { claim: target(&seen.claim.as_ref().unwrap().metadata), why: String::new() };
    let release = |seen: &Member| Act::ReleaseMember { member: target(&seen.member.metadata) };
    let mut seen = serving();
    assert_eq!(wrong(&seen, pod(&seen)), Some("I1"));
    assert_eq!(wrong(&seen, claim(&seen)), Some("I4"));
    assert_eq!(wrong(&seen, release(&seen)), Some("I4"));
    // A user deleted the member while its cluster lives, or the cluster is unknown.
    seen.member.metadata.deletion_timestamp = Some(earlier());
    assert_eq!(wrong(&seen, pod(&seen)), Some("I1"));
    seen.pod = None;
    assert_eq!(wrong(&seen, claim(&seen)), Some("I4"));
    assert_eq!(wrong(&seen, release(&seen)), Some("I4"));
    seen.cluster = Seen::unknown("no");
    assert_eq!(wrong(&seen, claim(&seen)), Some("I4"));
    // The cluster is gone: the claim goes after the Pod, and only with the policy Delete and the right label.
    seen.cluster = Seen::Known(None);
    assert_eq!(wrong(&seen, claim(&seen)), None);
    assert_eq!(wrong(&seen, release(&seen)), Some("I21"));
    let mut kept = seen.clone();
    kept.member.spec.storage.retention = Retention::Retain;
    assert_eq!(wrong(&kept, claim(&kept)), Some("I4"));
    assert_eq!(wrong(&kept, release(&kept)), None);
    let mut foreign = seen.clone();
    foreign.claim.as_mut().unwrap().metadata.labels = labels(&[(key::MEMBER_UID, "x")]);
    assert_eq!(wrong(&foreign, claim(&foreign)), Some("I4"));
    let mut running = seen.clone();
    running.pod = Some(pod_of(&running.member));
    assert_eq!(wrong(&running, claim(&running)), Some("I4"));
    assert_eq!(wrong(&running, release(&running)), Some("I21"));
    assert_eq!(wrong(&running, pod(&running)), None);
    let old = pod(&running);
    stored(&mut running.pod.as_mut().unwrap().metadata, "another");
    assert_eq!(wrong(&running, old), Some("I12"));
    running.pod.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(wrong(&running, pod(&running)), Some("I13"));
}
