//! Upgrades to the next minor: what has to come first, and how long there is a way back.

use crate::fixtures::{flags, flags_of_job};
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{Artifact, EtcdSnapshotStatus, Phase, SnapshotTemplate, Spool};
use holdfast_api::store::{Location, PvcLocation};
use holdfast_api::upgrade::{Upgrade, UpgradeRecord};
use holdfast_contract::{ComparedReport, DifferenceKind, ExitClass, FailedReport, MemberDifference, Origin, Report};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use holdfast_base::meta;

/// A cluster of three whose spec asks for this version, with a snapshot of ten minutes ago.
fn asked(version: &str) -> Observed {
    let mut seen = formed(3, 3);
    version.clone_into(&mut seen.cluster.spec.version);
    seen.backup = Some(backup(noon() - SignedDuration::from_mins(10)));
    seen
}

/// Gives a member this version, with which it serves.
fn runs(seen: &mut Observed, n: usize, version: &str) {
    version.clone_into(&mut seen.members[n].object.spec.process.version);
    seen.answers.insert(named(n), Seen::Known(Answer { version: version.to_owned(), ..answer(n) }));
}

fn backup(at: Timestamp) -> EtcdSnapshot {
    let place = Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None });
    let template = SnapshotTemplate { destination: Destination::from(place), ..SnapshotTemplate::default() };
    let mut snapshot = EtcdSnapshot::new("nightly", EtcdSnapshotSpec { template, ..EtcdSnapshotSpec::default() });
    let artifact =
        Artifact { key: "k".to_owned(), etcd_version: "3.6.16".to_owned(), revision: Some(42), ..Artifact::default() };
    snapshot.status = Some(EtcdSnapshotStatus {
        phase: Phase::Complete,
        completed_at: Some(at.to_string()),
        artifact: Some(artifact),
        ..EtcdSnapshotStatus::default()
    });
    snapshot
}

/// Lets the Job of the rehearsal end.
fn rehearsed(seen: &mut Observed, passes: bool) {
    let Some(Act::StartJob(mut job)) = act(seen) else { panic!("{:?}", act(seen)) };
    stored(&mut job.metadata, "u-job");
    let end = JobCondition {
        type_: if passes { "Complete" } else { "Failed" }.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(earlier()),
        ..JobCondition::default()
    };
    job.status = Some(JobStatus {
        succeeded: passes.then_some(1),
        start_time: Some(earlier()),
        completion_time: Some(Time(noon())),
        conditions: Some(vec![end]),
        ..JobStatus::default()
    });
    seen.rehearsals = vec![ClusterJob { job: *job, pods: vec![] }];
}

fn record(seen: &Observed) -> Option<UpgradeRecord> {
    match act(seen) {
        Some(Act::Latch(latches)) => latches.upgrade,
        _ => None,
    }
}

#[test]
fn a_rehearsal_on_a_recent_snapshot_comes_first() {
    let mut seen = asked("3.7.3");
    rehearsed(&mut seen, true);
    let job = &seen.rehearsals[0].job;
    let pod = objects::job::pod_spec(job).unwrap();
    assert_eq!(pod.containers[0].image.as_deref(), Some("example.org/etcd:v3.7.3"));
    let args = flags_of_job(job);
    for arg in ["--level=drill", "--key=k", "--bin-dir=/usr/local/bin", "--scratch=/scratch", "--no-proof"] {
        assert!(args.iter().any(|given| given == arg), "{arg} is missing in {args:?}");
    }
    let begun = record(&seen).unwrap();
    assert_eq!((begun.from.as_str(), begun.to.as_str(), begun.reversible), ("3.6.16", "3.7.3", true));
    assert_eq!((begun.snapshot.as_str(), begun.revision, begun.rehearsed_in_seconds), ("nightly", Some(42), Some(120)));
    latches(&mut seen).upgrade = Some(begun);
    assert!(matches!(act(&seen), Some(Act::SetTemplate { .. })));
    assert_eq!(condition(&seen, "Progressing"), pair("True", "Upgrading"));
}

/// Gives the cluster a newer snapshot of this name.
fn save_again(seen: &mut Observed, name: &str) {
    let mut newer = backup(noon() - SignedDuration::from_mins(1));
    newer.metadata.name = Some(name.to_owned());
    let artifact = newer.status.as_mut().unwrap().artifact.as_mut().unwrap();
    (artifact.key, artifact.revision) = (name.to_owned(), Some(99));
    seen.backup = Some(newer);
}

#[test]
fn the_record_names_the_snapshot_that_was_rehearsed() {
    let mut seen = asked("3.7.3");
    rehearsed(&mut seen, true);
    save_again(&mut seen, "later");
    let begun = record(&seen).unwrap();
    assert_eq!((begun.snapshot.as_str(), begun.key.as_deref(), begun.revision), ("nightly", Some("k"), Some(42)));
    // Without a rehearsal the newest is recorded.
    seen.cluster.spec.upgrade = Some(Upgrade { rehearse: Some(false), ..Upgrade::default() });
    seen.rehearsals.clear();
    let begun = record(&seen).unwrap();
    assert_eq!((begun.snapshot.as_str(), begun.key.as_deref(), begun.revision), ("later", Some("later"), Some(99)));
}

/// A cluster that went back to the earlier minor, while the Job of the first rehearsal is still there.
#[test]
fn each_upgrade_has_a_rehearsal_of_its_own() {
    for from_3_5 in [false, true] {
        let mut seen = if from_3_5 { self::from_3_5() } else { asked("3.7.3") };
        rehearsed(&mut seen, true);
        let first = meta::name(&seen.rehearsals[0].job.metadata).to_owned();
        let wanted = seen.cluster.spec.version.clone();
        latches(&mut seen).upgrade = record(&seen);
        // Back: every member has the earlier minor again.
        seen.members[0].object.spec.process.version.clone_into(&mut seen.cluster.spec.version);
        let Some(Act::Latch(ended)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_eq!((ended.upgrade.as_ref(), ended.upgrade_ended_at.clone()), (None, Some(noon().to_string())));
        *latches(&mut seen) = *ended;
        save_again(&mut seen, "later");
        let status = seen.backup.as_mut().and_then(|b| b.status.as_mut()).unwrap();
        seen.members[0].object.spec.process.version.clone_into(&mut status.artifact.as_mut().unwrap().etcd_version);
        wanted.clone_into(&mut seen.cluster.spec.version);
        let Some(Act::StartJob(job)) = act(&seen) else { panic!("{:?}", act(&seen)) };
        assert_ne!(meta::name(&job.metadata), first);
        assert!(flags_of_job(&job).contains(&"--key=later".to_owned()));
        assert_eq!(objects::job::compares(objects::job::pod_spec(&job).unwrap()), from_3_5);
    }
}

#[test]
fn a_failed_rehearsal_touches_no_member() {
    let mut seen = asked("3.7.3");
    rehearsed(&mut seen, false);
    assert_eq!(waits(&seen), Some(Reason::PreflightFailed));
    assert_eq!(condition(&seen, "Available"), pair("True", "ReadSucceeded"));
}

/// A cluster of 3.5 whose spec asks for 3.6.
fn from_3_5() -> Observed {
    let mut seen = asked("3.6.16");
    for n in 0..3 {
        runs(&mut seen, n, "3.5.35");
    }
    let status = seen.backup.as_mut().and_then(|b| b.status.as_mut()).unwrap();
    "3.5.35".clone_into(&mut status.artifact.as_mut().unwrap().etcd_version);
    seen
}

/// The Pod of the rehearsal, whose comparison ended with this code and this message.
fn compared(code: i32, message: String) -> Pod {
    let end = ContainerStateTerminated {
        exit_code: code,
        message: Some(message),
        finished_at: Some(earlier()),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let compare = ContainerStatus { name: objects::job::COMPARE.to_owned(), state, ..ContainerStatus::default() };
    let status = PodStatus {
        phase: Some("Failed".to_owned()),
        init_container_statuses: Some(vec![compare]),
        ..PodStatus::default()
    };
    Pod { status: Some(status), ..Pod::default() }
}

#[test]
fn members_of_3_5_are_compared_before_the_rehearsal() {
    let Some(Act::StartJob(job)) = act(&from_3_5()) else { panic!() };
    let pod = objects::job::pod_spec(&job).unwrap();
    let [compare, install] = pod.init_containers.as_deref().unwrap() else { panic!("{pod:?}") };
    assert_eq!((compare.name.as_str(), install.name.as_str()), ("compare", "install"));
    assert_eq!(compare.image.as_deref(), Some("agent:1"));
    let args = flags(compare);
    for n in 0..3 {
        let endpoint = format!("--endpoints=http://{}.a.ns.svc:2379", named(n));
        assert!(args.contains(&endpoint), "{endpoint} is missing in {args:?}");
    }
    assert!(args.contains(&"--expect-cluster-id=c1".to_owned()), "{args:?}");
    let rules = job.spec.as_ref().unwrap().pod_failure_policy.as_ref().unwrap().rules.clone();
    let ends = rules.iter().filter_map(|rule| rule.on_exit_codes.as_ref());
    let ends: Vec<_> =
        ends.filter(|codes| codes.values.contains(&82)).map(|codes| codes.container_name.clone()).collect();
    assert_eq!(ends, [Some("agent".to_owned()), Some("compare".to_owned())]);

    let Some(Act::StartJob(job)) = act(&asked("3.7.3")) else { panic!() };
    let pod = objects::job::pod_spec(&job).unwrap();
    assert!(!objects::job::compares(pod) && pod.init_containers.as_ref().unwrap().len() == 1, "3.6 has one list");
}

#[test]
fn members_that_differ_are_named_and_not_touched() {
    let difference = MemberDifference {
        member: named(2),
        member_id: "590a".to_owned(),
        kind: DifferenceKind::LearnerInData,
        data_of: named(1),
        data_of_id: "1".to_owned(),
    };
    let report = Report::Compared(ComparedReport { differences: vec![difference], ..ComparedReport::default() });
    let failed = FailedReport { class: ExitClass::Transient, origin: Some(Origin::Etcd), message: "no".to_owned() };
    for (pod, says, not) in [
        (
            compared(82, serde_json::to_string(&report).unwrap()),
            format!("the database of {} has {} (590a) as a learner", named(1), named(2)),
            "delete the Job",
        ),
        (compared(76, serde_json::to_string(&Report::Failed(failed)).unwrap()), ": no. After".to_owned(), "learner"),
        (compared(137, String::new()), "comparison of the members ended with code 137".to_owned(), "learner"),
    ] {
        let mut seen = from_3_5();
        rehearsed(&mut seen, false);
        seen.rehearsals[0].pods = vec![pod];
        let waiting = planned(&seen).waiting.unwrap();
        assert_eq!(waiting.reason, Reason::PreflightFailed);
        assert!(waiting.message.contains(&says) && !waiting.message.contains(not), "{}", waiting.message);
    }
}

/// A restart does not take a member out of the removed ones.
#[test]
fn the_remedy_fits_the_difference() {
    let says = |kind| {
        let difference = MemberDifference {
            member: named(2),
            member_id: "590a".to_owned(),
            kind,
            data_of: named(1),
            data_of_id: "1".to_owned(),
        };
        let report = Report::Compared(ComparedReport { differences: vec![difference], ..ComparedReport::default() });
        let mut seen = from_3_5();
        rehearsed(&mut seen, false);
        seen.rehearsals[0].pods = vec![compared(82, serde_json::to_string(&report).unwrap())];
        planned(&seen).waiting.unwrap().message
    };
    let restart = says(DifferenceKind::NotListed);
    assert!(restart.contains("When every member has restarted") && !restart.contains(key::REPLACE), "{restart}");
    let replace = says(DifferenceKind::RemovedInData);
    assert!(replace.contains("No restart corrects this") && replace.contains(key::REPLACE), "{replace}");
}

#[test]
fn an_old_snapshot_names_the_place_of_a_new_one() {
    let mut seen = asked("3.7.3");
    let old = backup(noon() - SignedDuration::from_mins(61));
    seen.backup = Some(old.clone());
    let Some(Act::RequestSnapshot(mut requested)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(requested.spec.template, old.spec.template);
    assert_eq!(requested.spec.cluster_ref.as_ref().map(|cluster| cluster.name.as_str()), Some("a"));
    let mut waits = |phase: Phase| {
        requested.status = Some(EtcdSnapshotStatus { phase, ..EtcdSnapshotStatus::default() });
        seen.requested = Some((*requested).clone());
        planned(&seen).waiting.map(|waiting| (waiting.reason, waiting.message)).unwrap()
    };
    assert_eq!(waits(Phase::Running).0, Reason::Upgrading);
    let (reason, message) = waits(Phase::Failed);
    assert!(reason == Reason::SnapshotNeeded && message.contains("which Holdfast requested, has failed"), "{message}");
    assert_eq!(waits(Phase::Complete).0, Reason::SnapshotNeeded, "too old meanwhile");
}

#[test]
fn what_is_missing_is_named() {
    let waits_with = |change: fn(&mut Observed)| {
        let mut seen = asked("3.7.3");
        change(&mut seen);
        planned(&seen).waiting.map(|waiting| waiting.reason)
    };
    assert_eq!(waits_with(|_| {}), None, "a Job starts");
    assert_eq!(waits_with(|seen| seen.backup = None), Some(Reason::SnapshotNeeded));
    let old = |seen: &mut Observed| seen.backup = Some(backup(noon() - SignedDuration::from_mins(61)));
    assert_eq!(waits_with(old), None, "Holdfast requests another one");
    let of_another_minor = |seen: &mut Observed| {
        let status = seen.backup.as_mut().and_then(|b| b.status.as_mut()).unwrap();
        status.artifact.as_mut().unwrap().etcd_version = "3.5.35".to_owned();
    };
    assert_eq!(waits_with(of_another_minor), None);
    let encrypted = |seen: &mut Observed| {
        let status = seen.backup.as_mut().and_then(|b| b.status.as_mut()).unwrap();
        status.artifact.as_mut().unwrap().encrypted = true;
    };
    assert_eq!(waits_with(encrypted), Some(Reason::PreflightFailed));
    let with_identity = |seen: &mut Observed| {
        let status = seen.backup.as_mut().and_then(|b| b.status.as_mut()).unwrap();
        status.artifact.as_mut().unwrap().encrypted = true;
        let identity_secret_refs = vec![LocalRef { name: "age".to_owned() }];
        seen.cluster.spec.upgrade = Some(Upgrade { identity_secret_refs, ..Upgrade::default() });
    };
    assert_eq!(waits_with(with_identity), None, "a Job starts");
    let full = |seen: &mut Observed| {
        etcd(seen).alarms.push(Alarm { member_id: 0x10, kind: AlarmKind::NoSpace });
        let Some(Seen::Known(said)) = seen.answers.get_mut(&named(0)) else { panic!() };
        (said.db_bytes, said.used_bytes) = (8 << 30, 8 << 30);
    };
    assert_eq!(waits_with(full), Some(Reason::PreflightFailed));
    assert_eq!(
        waits_with(|seen| {
            let Some(Seen::Known(said)) = seen.answers.get_mut(&named(0)) else { panic!() };
            said.version = "3.6.10".to_owned();
        }),
        Some(Reason::PreflightFailed)
    );
    let silent = |seen: &mut Observed| running(seen.members[2].pod.as_mut().unwrap(), false);
    assert_eq!(waits_with(silent), Some(Reason::Upgrading));
}

#[test]
fn a_rehearsal_has_the_volume_of_the_spec() {
    let mut seen = asked("3.7.3");
    let scratch = Spool { size: Quantity("64Gi".to_owned()), storage_class_name: Some("fast".to_owned()) };
    seen.cluster.spec.upgrade = Some(Upgrade { scratch: Some(scratch), ..Upgrade::default() });
    let Some(Act::StartJob(job)) = act(&seen) else { panic!("{:?}", act(&seen)) };
    let volumes = job.spec.unwrap().template.spec.unwrap().volumes.unwrap();
    let scratch: Vec<_> = volumes.iter().filter(|volume| volume.name == "scratch").collect();
    let claim = scratch[0].ephemeral.as_ref().and_then(|own| own.volume_claim_template.as_ref()).unwrap();
    assert_eq!((scratch.len(), claim.spec.storage_class_name.as_deref()), (1, Some("fast")));
}

#[test]
fn a_person_may_leave_the_rehearsal_out() {
    let mut seen = asked("3.7.3");
    seen.cluster.spec.upgrade = Some(Upgrade { rehearse: Some(false), ..Upgrade::default() });
    assert_eq!(record(&seen).unwrap().rehearsed_in_seconds, None);
}

#[test]
fn the_way_back_closes_before_the_last_member() {
    let mut seen = asked("3.7.3");
    rehearsed(&mut seen, true);
    latches(&mut seen).upgrade = record(&seen);
    for n in [0, 1] {
        runs(&mut seen, n, "3.7.3");
    }
    let closed = record(&seen).unwrap();
    assert!(!closed.reversible);
    let mut back = seen.clone();
    back.cluster.spec.version = "3.6.16".to_owned();
    assert!(matches!(act(&back), Some(Act::SetTemplate { .. })), "{:?}", act(&back));
    latches(&mut seen).upgrade = Some(closed.clone());
    assert!(matches!(act(&seen), Some(Act::SetTemplate { .. })));
    latches(&mut back).upgrade = Some(closed);
    assert_eq!(waits(&back), Some(Reason::InvalidSpec));
}

/// etcd 3.7 ends when it reads an entry of 3.5 in its log.
#[test]
fn entries_of_3_5_leave_the_log_before_3_7() {
    let mut seen = asked("3.7.3");
    let applied = answer(0).applied_index;
    latches(&mut seen).log_since = Some(i64::try_from(applied).unwrap() - 11_500);
    let Some(Act::FillLog { entries, .. }) = act(&seen) else { panic!("{:?}", act(&seen)) };
    assert_eq!(entries, 500, "10000 until the next raft snapshot, and 2000 in flight");
    latches(&mut seen).log_since = Some(i64::try_from(applied).unwrap() - 12_000);
    assert!(matches!(act(&seen), Some(Act::StartJob(_))));
}

#[test]
fn another_patch_of_the_next_minor_closes_the_way_back_too() {
    let mut seen = asked("3.7.4");
    for n in [0, 1] {
        runs(&mut seen, n, "3.7.4");
    }
    let begun = UpgradeRecord {
        from: "3.6.16".to_owned(),
        to: "3.7.3".to_owned(),
        reversible: true,
        ..UpgradeRecord::default()
    };
    latches(&mut seen).upgrade = Some(begun);
    assert!(!record(&seen).unwrap().reversible);
}

/// The last member of the earlier minor leaves: etcd then writes data of the next one.
#[test]
fn there_is_no_way_back_without_a_member_of_the_earlier_minor() {
    let mut seen = asked("3.6.16");
    latches(&mut seen).upgrade = Some(UpgradeRecord {
        from: "3.6.16".to_owned(),
        to: "3.7.3".to_owned(),
        reversible: true,
        ..UpgradeRecord::default()
    });
    for n in 0..3 {
        runs(&mut seen, n, "3.7.3");
    }
    assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
    let conditions = planned(&seen).status.conditions;
    let ready = &conditions.iter().find(|c| c.type_ == "Ready").unwrap().message;
    assert!(ready.contains("every member has the version") && ready.contains("spec.paused"), "{ready}");
}

#[test]
fn an_upgrade_whose_record_is_lost_goes_on() {
    let mut seen = asked("3.7.3");
    runs(&mut seen, 0, "3.7.3");
    let resumed = record(&seen).unwrap();
    assert_eq!((resumed.from.as_str(), resumed.to.as_str(), resumed.reversible), ("3.6.16", "3.7.3", false));
    seen.cluster.spec.version = "3.6.16".to_owned();
    assert_eq!(waits(&seen), Some(Reason::InvalidSpec));
}

/// The digest of an image names no version.
#[test]
fn an_image_of_another_minor_stops_at_one_member() {
    let mut seen = asked("3.7.3");
    let record = UpgradeRecord {
        from: "3.6.16".to_owned(),
        to: "3.7.3".to_owned(),
        reversible: true,
        ..UpgradeRecord::default()
    };
    latches(&mut seen).upgrade = Some(record);
    let wanted = holdfast_base::template::wanted(&seen.cluster);
    holdfast_base::template::put(&mut seen.members[1].object, &wanted);
    seen.members[1].pod = Some(pod_of(&seen.members[1].object));
    assert_eq!(waits(&seen), Some(Reason::RolloutStuck), "it still answers with 3.6");
    seen.cluster.spec.version = "3.6.16".to_owned();
    assert!(matches!(act(&seen), Some(Act::SetTemplate { .. })), "{:?}", act(&seen));
}

#[test]
fn deliberate_breaches_are_refused() {
    let broken = |seen: &Observed, act: Act| {
        let mut plan = plan(seen, noon());
        (plan.act, plan.ensures, plan.status) = (Some(act), vec![], seen.cluster.status.clone().unwrap());
        safety::cluster(seen, &plan).err().map(|violation| violation.invariant)
    };
    let mut seen = asked("3.7.3");
    let begin = |reversible, to: &str| {
        let mut all = seen.latches();
        all.upgrade = Some(UpgradeRecord {
            from: "3.6.16".to_owned(),
            to: to.to_owned(),
            reversible,
            key: Some("k".to_owned()),
            ..UpgradeRecord::default()
        });
        Act::Latch(Box::new(all))
    };
    let begin_on = |key: &str| {
        let Act::Latch(mut all) = begin(true, "3.7.3") else { panic!() };
        all.upgrade.as_mut().unwrap().key = Some(key.to_owned());
        Act::Latch(all)
    };
    assert_eq!(broken(&seen, begin(true, "3.7.3")), Some("I30"), "without a rehearsal");
    assert_eq!(broken(&seen, begin(false, "3.7.3")), Some("I30"), "no record was lost");
    // The rehearsal of another version, or of another cluster.
    let mut other = seen.clone();
    rehearsed(&mut other, true);
    assert_eq!(broken(&other, begin(true, "3.7.3")), None);
    assert_eq!(broken(&other, begin_on("later")), Some("I30"), "the Job read another snapshot");
    other.cluster.spec.version = "3.7.4".to_owned();
    assert_eq!(broken(&other, begin(true, "3.7.4")), Some("I30"), "rehearsed with 3.7.3");
    other.cluster.spec.version = "3.7.3".to_owned();
    other.cluster.metadata.annotations = Some([(key::RESTART.to_owned(), "again".to_owned())].into());
    assert_eq!(broken(&other, begin(true, "3.7.3")), Some("I30"), "rehearsed before the person asked again");
    other.cluster.metadata.annotations = None;
    other.rehearsals[0].job.metadata.owner_references = None;
    assert_eq!(broken(&other, begin(true, "3.7.3")), Some("I30"), "another owner");
    // A rehearsal without the comparison of the members of 3.5.
    let old = from_3_5();
    let Some(Act::StartJob(mut job)) = act(&old) else { panic!() };
    assert_eq!(broken(&old, Act::StartJob(job.clone())), None);
    job.spec.as_mut().unwrap().template.spec.as_mut().unwrap().init_containers.as_mut().unwrap().remove(0);
    assert_eq!(broken(&old, Act::StartJob(job)), Some("I30"));
    let unrehearsed = Upgrade { rehearse: Some(false), ..Upgrade::default() };
    let mut asked_for = seen.clone();
    asked_for.cluster.spec.upgrade = Some(unrehearsed);
    assert_eq!(broken(&asked_for, begin(true, "3.7.3")), None);
    assert_eq!(broken(&asked_for, begin(true, "3.7.4")), Some("I30"), "another version than the spec's");
    let mut silent = asked_for.clone();
    silent.answers.insert(named(2), Seen::unknown("refused"));
    assert_eq!(broken(&silent, begin(true, "3.7.3")), Some("I1"));
    // The last member, while the way back is open.
    let set = |seen: &Observed, n: usize| Act::SetTemplate {
        member: member_target(seen, n),
        template: Box::new(holdfast_base::template::wanted(&seen.cluster)),
        served: Some(Box::new(seen.members[n].object.spec.process.clone())),
    };
    assert_eq!(broken(&seen, set(&seen, 0)), Some("I30"), "no upgrade is latched");
    latches(&mut seen).upgrade = Some(UpgradeRecord {
        from: "3.6.16".to_owned(),
        to: "3.7.3".to_owned(),
        reversible: true,
        ..UpgradeRecord::default()
    });
    assert_eq!(broken(&seen, set(&seen, 0)), None);
    for n in [1, 2] {
        seen.members[n].object.spec.process.version = "3.7.3".to_owned();
    }
    assert_eq!(broken(&seen, set(&seen, 0)), Some("I30"));
}
