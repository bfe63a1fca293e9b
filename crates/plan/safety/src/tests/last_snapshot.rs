//! Breaches of the rules for the last snapshot.

use holdfast_api::final_snapshot::{FinalSnapshot, OnFailure};
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{Artifact, DeletionPolicy, Phase};
use holdfast_api::{EtcdSnapshot, EtcdSnapshotSpec, EtcdSnapshotStatus};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use holdfast_base::seen::cluster::Ending;

fn deleted() -> Cluster {
    let mut seen = formed(3, 3);
    seen.cluster.spec.final_snapshot = Some(FinalSnapshot::default());
    seen.cluster.metadata.deletion_timestamp = Some(Time(noon()));
    seen.ending = Some(Ending::default());
    latches(&mut seen).final_snapshot_since = Some(noon().to_string());
    seen
}

fn without_clients() -> Cluster {
    let mut seen = deleted();
    for pod in seen.members.iter_mut().filter_map(|m| m.pod.as_mut()) {
        pod.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), "learner".to_owned());
    }
    seen
}

fn snapshot(phase: Phase) -> EtcdSnapshot {
    let mut snapshot = EtcdSnapshot::new("a-final", EtcdSnapshotSpec::default());
    snapshot.metadata.creation_timestamp = Some(Time(noon()));
    let (artifact, cluster_uid) = (Some(Artifact::default()), Some("u-a".to_owned()));
    snapshot.status = Some(EtcdSnapshotStatus { phase, artifact, cluster_uid, ..EtcdSnapshotStatus::default() });
    snapshot
}

#[test]
fn the_cluster_goes_after_its_snapshot() {
    let release = |seen: &Cluster| Act::ReleaseCluster { cluster: target(&seen.cluster.metadata) };
    type Change = fn(&mut Cluster);
    let goes: [Change; 5] = [
        |s| s.ending.as_mut().unwrap().snapshot = Some(snapshot(Phase::Complete)),
        |s| s.ending.as_mut().unwrap().terminating = true,
        |s| s.cluster.spec.final_snapshot = None,
        |s| s.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed),
        |s| s.cluster.metadata.annotations = Some([(key::SKIP_FINAL_SNAPSHOT.to_owned(), "true".to_owned())].into()),
    ];
    for (n, change) in goes.into_iter().enumerate() {
        let mut seen = without_clients();
        change(&mut seen);
        assert_eq!(broken(&seen, release(&seen)), None, "{n}");
    }
    let stays: [Change; 8] = [
        |s| {
            let mut early = snapshot(Phase::Complete);
            early.metadata.creation_timestamp = Some(earlier());
            s.ending.as_mut().unwrap().snapshot = Some(early);
        },
        |s| {
            s.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed);
            latches(s).final_snapshot_since = None;
        },
        |_| {},
        |s| s.ending = None,
        |s| s.ending.as_mut().unwrap().snapshot = Some(snapshot(Phase::Failed)),
        |s| s.cluster.metadata.annotations = Some([(key::SKIP_FINAL_SNAPSHOT.to_owned(), "no".to_owned())].into()),
        |s| latches(s).formed = None,
        |s| {
            let mut other = snapshot(Phase::Complete);
            other.status.as_mut().unwrap().cluster_uid = Some("u-b".to_owned());
            s.ending.as_mut().unwrap().snapshot = Some(other);
        },
    ];
    for (n, change) in stays.into_iter().enumerate() {
        let mut seen = without_clients();
        change(&mut seen);
        assert_eq!(broken(&seen, release(&seen)), Some("I4"), "{n}");
    }
}

#[test]
fn the_request_follows_the_clients_and_names_the_place_of_the_spec() {
    let request = |change: fn(&mut EtcdSnapshot)| {
        let mut snapshot = EtcdSnapshot::new("a-final", EtcdSnapshotSpec::default());
        snapshot.metadata.namespace = Some("ns".to_owned());
        snapshot.spec.cluster_ref = Some(LocalRef { name: "a".to_owned() });
        change(&mut snapshot);
        Act::RequestSnapshot(Box::new(snapshot))
    };
    let seen = without_clients();
    assert_eq!(broken(&seen, request(|_| {})), None);
    assert_eq!(broken(&deleted(), request(|_| {})), Some("I16"), "clients still reach a member");
    for (breach, why) in [
        (request(|s| s.spec.cluster_ref = Some(LocalRef { name: "b".to_owned() })), "I13"),
        (request(|s| s.metadata.namespace = Some("other".to_owned())), "I13"),
        (request(|s| s.spec.template.deadline_seconds = Some(7)), "I13"),
        (request(|s| s.spec.deletion_policy = DeletionPolicy::Delete), "I6"),
    ] {
        assert_eq!(broken(&seen, breach), Some(why));
    }
    let mut unread = without_clients();
    unread.etcd = Seen::unknown("no quorum");
    assert!(broken(&unread, request(|_| {})).is_some(), "no linearizable read");
}

#[test]
fn a_pod_ends_once_while_every_voter_keeps_up() {
    let end = |seen: &Cluster| Act::DeletePod { pod: pod_target(seen, 1), why: String::new() };
    let good = without_clients();
    assert_eq!(broken(&good, end(&good)), None);
    assert_eq!(broken(&deleted(), Act::DismissClients { pod: pod_target(&deleted(), 1) }), None);
    let living = formed(3, 3);
    assert_eq!(broken(&living, Act::DismissClients { pod: pod_target(&living, 1) }), Some("I16"));
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 4] = [
        ("I1", |s| drop(s.answers.insert(named(2), Seen::unknown("refused")))),
        ("I1", |s| {
            let later = Time(noon() + jiff::SignedDuration::from_secs(1));
            s.members[1].pod.as_mut().unwrap().metadata.creation_timestamp = Some(later);
        }),
        ("I3", |s| s.members[1].object.spec.storage.medium = holdfast_api::cluster::Medium::Memory),
        ("I4", |s| s.members[1].claim = None),
    ];
    for (n, (invariant, change)) in changes.into_iter().enumerate() {
        let mut seen = good.clone();
        change(&mut seen);
        assert_eq!(broken(&seen, end(&seen)), Some(invariant), "{n}");
    }
    let begin = |seen: &Cluster, change: fn(&mut holdfast_api::cluster::Latches)| {
        let mut new = seen.cluster.status.as_ref().unwrap().latches.clone();
        change(&mut new);
        Act::Latch(Box::new(new))
    };
    let mut first = good.clone();
    latches(&mut first).final_snapshot_since = None;
    let since =
        |new: &mut holdfast_api::cluster::Latches| new.final_snapshot_since = Some("2026-01-01T12:00:01Z".to_owned());
    assert_eq!(broken(&first, begin(&first, since)), None);
    assert_eq!(broken(&good, begin(&good, since)), Some("I4"), "the begin is written once");
    assert_eq!(broken(&first, begin(&first, |new| new.pending_member = Some("a-x".to_owned()))), Some("I4"));
    let admit = Act::AdmitClients { pod: pod_target(&good, 1) };
    assert_eq!(broken(&good, admit), Some("I13"), "no client comes back");
}

/// Until the snapshot is complete, the members of a deleted cluster count as those of a living one.
#[test]
fn the_claims_stay_until_the_snapshot() {
    let mut seen = serving();
    seen.pod = None;
    seen.member.metadata.deletion_timestamp = Some(earlier());
    if let Seen::Known(Some(cluster)) = &mut seen.cluster {
        cluster.metadata.deletion_timestamp = Some(Time(noon()));
        cluster.metadata.finalizers = Some(vec![holdfast_api::CLUSTER_FINALIZER.to_owned()]);
    }
    let delete =
        |seen: &Member| Act::DeleteClaim { claim: target(&seen.claim.as_ref().unwrap().metadata), why: String::new() };
    assert_eq!(wrong(&seen, delete(&seen)), None);
    if let Seen::Known(Some(cluster)) = &mut seen.cluster {
        cluster.spec.final_snapshot = Some(FinalSnapshot::default());
    }
    assert_eq!(wrong(&seen, delete(&seen)), Some("I4"));
}
