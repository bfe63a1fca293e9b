//! A cluster with `spec.finalSnapshot` goes after its last snapshot.

use holdfast_api::final_snapshot::{FinalSnapshot, OnFailure};
use holdfast_api::snapshot::{Artifact, Phase};
use holdfast_api::{CLUSTER_FINALIZER, EtcdSnapshot, EtcdSnapshotStatus, key};

use super::*;
use crate::cluster::Ending;
use holdfast_base::meta;

/// A cluster that was deleted at noon, with Pods that are older.
fn deleted(voters: usize) -> Observed {
    let mut seen = formed(voters, i32::try_from(voters).unwrap());
    seen.cluster.spec.final_snapshot = Some(FinalSnapshot::default());
    seen.cluster.metadata.deletion_timestamp = Some(Time(noon()));
    seen.ending = Some(Ending::default());
    latches(&mut seen).final_snapshot_since = Some(noon().to_string());
    seen
}

fn began(seen: &mut Observed, ago: SignedDuration) {
    latches(seen).final_snapshot_since = Some((noon() - ago).to_string());
}

/// A deleted cluster whose Pods are out of the client Service and younger than the first step.
fn without_clients(voters: usize) -> Observed {
    let mut seen = deleted(voters);
    for pod in seen.members.iter_mut().filter_map(|m| m.pod.as_mut()) {
        pod.metadata.labels.as_mut().unwrap().insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
        pod.metadata.creation_timestamp = Some(Time(noon() + SignedDuration::from_secs(1)));
    }
    seen
}

fn saved(phase: Phase, uid: &str) -> EtcdSnapshot {
    let mut snapshot = EtcdSnapshot::new("a-final", holdfast_api::EtcdSnapshotSpec::default());
    snapshot.metadata.creation_timestamp = Some(Time(noon()));
    let artifact = (phase == Phase::Complete).then(Artifact::default);
    snapshot.status = Some(EtcdSnapshotStatus {
        phase,
        artifact,
        cluster_uid: Some(uid.to_owned()),
        ..EtcdSnapshotStatus::default()
    });
    snapshot
}

fn with_snapshot(phase: Phase) -> Observed {
    let mut seen = without_clients(3);
    seen.ending = Some(Ending { snapshot: Some(saved(phase, "u-a")), terminating: false });
    seen
}

fn goes(seen: &Observed) -> bool {
    matches!(act(seen), Some(Act::ReleaseCluster { .. }))
}

#[test]
fn clients_leave_and_pods_end_one_by_one_before_the_request() {
    let mut seen = deleted(3);
    for n in 0..3 {
        assert!(matches!(act(&seen), Some(Act::DismissClients { pod }) if pod.name == named(n)), "{:?}", act(&seen));
        let labels = seen.members[n].pod.as_mut().unwrap().metadata.labels.as_mut().unwrap();
        labels.insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
    }
    assert_eq!(condition(&seen, "Available").1, "SavingFinalSnapshot");
    // The leader is the first member.
    for n in [1, 2, 0] {
        assert!(matches!(act(&seen), Some(Act::DeletePod { pod, .. }) if pod.name == named(n)), "{:?}", act(&seen));
        let pod = seen.members[n].pod.as_mut().unwrap();
        pod.metadata.creation_timestamp = Some(Time(noon() + SignedDuration::from_secs(1)));
    }
    let Some(Act::RequestSnapshot(snapshot)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(snapshot.metadata.owner_references, None, "the snapshot outlives the cluster");
    assert_eq!(Some(snapshot.spec.template), seen.cluster.spec.final_snapshot.map(|wanted| wanted.template));
}

#[test]
fn a_pod_that_comes_back_is_waited_for_and_a_voter_that_was_down_is_not() {
    let mut seen = without_clients(3);
    seen.answers.insert(named(1), Seen::unknown("refused"));
    let pod = seen.members[1].pod.as_mut().unwrap();
    pod.metadata.creation_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::RequestSnapshot(_))), "{:?}", act(&seen));
    seen.members[1].pod = None;
    assert_eq!(waits(&seen), Some(Reason::SavingFinalSnapshot));
    began(&mut seen, SignedDuration::from_mins(3));
    assert!(matches!(act(&seen), Some(Act::RequestSnapshot(_))), "later the snapshot counts for more");
}

#[test]
fn the_pods_of_members_in_memory_stay() {
    let mut seen = without_clients(3);
    for member in &mut seen.members {
        member.object.spec.storage.medium = holdfast_api::storage::Medium::Memory;
        member.pod.as_mut().unwrap().metadata.creation_timestamp = Some(earlier());
    }
    assert!(matches!(act(&seen), Some(Act::RequestSnapshot(_))), "{:?}", act(&seen));
}

#[test]
fn the_cluster_goes_with_its_snapshot_and_says_so() {
    for phase in [Phase::Pending, Phase::Running] {
        assert_eq!(waits(&with_snapshot(phase)), Some(Reason::SavingFinalSnapshot), "{phase:?}");
    }
    let seen = with_snapshot(Phase::Complete);
    assert!(goes(&seen));
    assert_eq!(planned(&seen).notes[0].reason, "FinalSnapshotSaved");
    let mut other = seen;
    other.ending.as_mut().unwrap().snapshot = Some(saved(Phase::Complete, "u-b"));
    assert_eq!(waits(&other), Some(Reason::FinalSnapshotHeld), "I25: the snapshot of another cluster");
}

#[test]
fn a_failed_snapshot_holds_the_cluster_unless_the_spec_or_a_person_lets_it_go() {
    let seen = with_snapshot(Phase::Failed);
    assert_eq!((waits(&seen), condition(&seen, "Degraded").0), (Some(Reason::FinalSnapshotHeld), "True".to_owned()));
    type Change = fn(&mut Observed);
    let changes: [Change; 3] = [
        |s| s.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed),
        |s| s.cluster.spec.final_snapshot = None,
        |s| {
            let skip = (key::SKIP_FINAL_SNAPSHOT.to_owned(), "true".to_owned());
            s.cluster.metadata.annotations = Some([skip].into());
        },
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut seen = seen.clone();
        change(&mut seen);
        assert!(goes(&seen), "{n}");
    }
}

/// The operator may have been away at the deletion.
#[test]
fn the_deadline_counts_from_the_first_step() {
    let mut seen = without_clients(3);
    latches(&mut seen).final_snapshot_since = None;
    seen.cluster.metadata.deletion_timestamp = Some(Time(noon() - SignedDuration::from_hours(9)));
    seen.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed);
    let Some(Act::Latch(new)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(new.final_snapshot_since, Some(noon().to_string()));
}

#[test]
fn without_a_quorum_the_deadline_decides() {
    let over = SignedDuration::from_mins(63);
    let mut seen = without_clients(3);
    seen.etcd = Seen::unknown("no quorum");
    assert_eq!(waits(&seen), Some(Reason::FinalSnapshotHeld), "a person may act at once");
    seen.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed);
    assert_eq!(waits(&seen), Some(Reason::SavingFinalSnapshot));
    began(&mut seen, over - SignedDuration::from_secs(1));
    assert_eq!(waits(&seen), Some(Reason::SavingFinalSnapshot));
    began(&mut seen, over);
    assert!(goes(&seen));
    // A step that the API server refuses ends too.
    let mut refused = without_clients(3);
    refused.cluster.spec.final_snapshot = seen.cluster.spec.final_snapshot;
    began(&mut refused, over);
    assert!(matches!(act(&refused), Some(Act::RequestSnapshot(_))));
    began(&mut refused, over + SignedDuration::from_hours(1));
    assert!(goes(&refused));
}

/// The store may not answer what became of the save.
#[test]
fn each_phase_of_the_snapshot_has_an_end() {
    let hours = SignedDuration::from_hours;
    for (phase, limit) in [(Phase::Pending, hours(1)), (Phase::Running, hours(2) + SignedDuration::from_mins(10))] {
        let mut seen = with_snapshot(phase);
        seen.cluster.metadata.deletion_timestamp = Some(Time(noon() - hours(9)));
        let mut at = |ago: SignedDuration| {
            let snapshot = seen.ending.as_mut().unwrap().snapshot.as_mut().unwrap();
            snapshot.metadata.creation_timestamp = Some(Time(noon() - ago));
            waits(&seen)
        };
        assert_eq!(at(limit - SignedDuration::from_secs(1)), Some(Reason::SavingFinalSnapshot), "{phase:?}");
        assert_eq!(at(limit), Some(Reason::FinalSnapshotHeld), "{phase:?}");
    }
    let mut early = with_snapshot(Phase::Complete);
    let snapshot = early.ending.as_mut().unwrap().snapshot.as_mut().unwrap();
    snapshot.metadata.creation_timestamp = Some(earlier());
    assert_eq!(waits(&early), Some(Reason::FinalSnapshotHeld), "an earlier snapshot lacks later writes");
}

/// The next Pod of a cluster without a spare voter may never run.
#[test]
fn the_only_etcd_is_not_ended_where_the_data_would_go() {
    let mut seen = without_clients(1);
    seen.members[0].pod.as_mut().unwrap().metadata.creation_timestamp = Some(earlier());
    assert!(matches!(act(&seen), Some(Act::DeletePod { .. })), "{:?}", act(&seen));
    seen.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed);
    assert!(matches!(act(&seen), Some(Act::RequestSnapshot(_))), "{:?}", act(&seen));
    seen.ending = Some(Ending { snapshot: Some(saved(Phase::Complete, "u-a")), terminating: false });
    let note = &planned(&seen).notes[0];
    assert!(note.warning && note.message.contains("open connection"), "{note:?}");
}

#[test]
fn a_cluster_without_data_goes_and_one_with_a_lost_status_stays() {
    let mut seen = bare(1);
    seen.cluster.spec.final_snapshot = Some(FinalSnapshot::default());
    seen.cluster.metadata.deletion_timestamp = Some(Time(noon()));
    assert!(goes(&seen));
    let mut lost = without_clients(3);
    lost.cluster.status = None;
    assert_eq!(waits(&lost), Some(Reason::FinalSnapshotHeld), "I4");
    let mut ends = without_clients(3);
    ends.ending.as_mut().unwrap().terminating = true;
    assert!(goes(&ends), "nothing can be created in a namespace that is being deleted");
    assert_eq!(planned(&ends).notes[0].reason, "FinalSnapshotSkipped");
    let mut unread = without_clients(3);
    unread.ending = None;
    assert_eq!(waits(&unread), Some(Reason::SavingFinalSnapshot), "unknown is not absent");
}

/// Kubernetes' garbage collector deletes the Pods before the operator can save.
#[test]
fn a_foreground_deletion_is_named() {
    let mut seen = without_clients(1);
    seen.cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned(), meta::FOREGROUND.to_owned()]);
    let message = planned(&seen).waiting.unwrap().message;
    assert!(message.contains("--cascade=foreground"), "{message}");
}

#[test]
fn saves_that_fail_are_a_fault_of_the_cluster() {
    let status = |attempts: i32, reason: Reason, message: &str| {
        let mut seen = with_snapshot(Phase::Running);
        let snapshot = seen.ending.as_mut().and_then(|facts| facts.snapshot.as_mut()).unwrap();
        let status = snapshot.status.as_mut().unwrap();
        status.attempts = attempts;
        status.conditions = merge(&[], &[Wanted::no(Type::Ready, reason, message)], None, noon());
        seen
    };
    let first = status(1, Reason::JobRunning, "the first attempt");
    assert_eq!(condition(&first, "Degraded"), pair("False", "NothingWrong"));
    for seen in [
        status(2, Reason::JobRunning, "S3 refused the upload: the bucket is gone"),
        status(0, Reason::WriteRefused, "S3 refused the upload: the bucket is gone"),
    ] {
        assert_eq!(condition(&seen, "Degraded"), pair("True", "FinalSnapshotHeld"));
        let says = |seen: &Observed| {
            let all = planned(seen).status.conditions;
            all.into_iter().find(|c| c.type_ == "Degraded").unwrap().message
        };
        let message = says(&seen);
        assert!(message.contains("the bucket is gone") && message.contains("skip-final-snapshot"), "{message}");
        let mut proceeds = seen.clone();
        proceeds.cluster.spec.final_snapshot.as_mut().unwrap().on_failure = Some(OnFailure::Proceed);
        assert!(!says(&proceeds).contains("volumes stay"), "{}", says(&proceeds));
    }
}
