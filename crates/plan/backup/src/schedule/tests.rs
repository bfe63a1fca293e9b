//! Tests of a schedule's plan, one mutation at a time.

use holdfast_api::cluster::{Formed, MemberSummary};
use holdfast_api::condition::{Reason, Type, Wanted, merge};
use holdfast_api::name::LocalRef;
use holdfast_api::schedule::EtcdSnapshotScheduleSpec;
use holdfast_api::snapshot::{Artifact, DeletionPolicy, External, Failure, Phase, SnapshotTemplate, Verification};
use holdfast_api::store::{Location, PvcLocation, S3Location};
use holdfast_api::{
    EtcdBackupStore, EtcdClusterStatus, EtcdSnapshot, EtcdSnapshotSchedule, EtcdSnapshotScheduleStatus,
    EtcdSnapshotStatus, key,
};
use holdfast_contract::{Level, RecallReport, RecalledRun, Report, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

use super::*;
use crate::fixtures::{etcd_cluster, flags, noon, settings, stored};
use crate::safety;
use holdfast_base::objects::request;
use holdfast_base::{Act, Ensure, Note, Plan, Seen, Target, Wake};

mod drilling;
mod logging;
mod merging;
mod pruning;
mod recalling;
mod returned;
mod skipped;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A formed cluster, an hourly schedule, no `CronJob`.
fn fresh_one() -> Observed {
    let spec = EtcdSnapshotScheduleSpec {
        cluster_ref: Some(LocalRef { name: "a".to_owned() }),
        schedule: "7 * * * *".to_owned(),
        snapshot_template: SnapshotTemplate {
            destination: Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None }).into(),
            ..SnapshotTemplate::default()
        },
        ..EtcdSnapshotScheduleSpec::default()
    };
    let mut schedule = EtcdSnapshotSchedule::new("nightly", spec);
    stored(&mut schedule.metadata, "u-s");
    let mut cluster = etcd_cluster(3);
    let voter = |name: &str| MemberSummary {
        name: name.to_owned(),
        role: Some("voter".to_owned()),
        ..MemberSummary::default()
    };
    let mut status = EtcdClusterStatus { members: vec![voter("a-1"), voter("a-2")], ..EtcdClusterStatus::default() };
    status.latches.formed = Some(Formed { cluster_id: "c1".to_owned(), ..Formed::default() });
    cluster.status = Some(status);
    Observed {
        schedule,
        cluster: Some(cluster),
        store: None,
        cron_job: None,
        jobs: vec![],
        drill_cron_job: None,
        compaction_cron_job: None,
        merges: vec![],
        drills: vec![],
        log_deployment: None,
        log_forbidden: false,
        log_pods: vec![],
        log_report: Seen::unknown("no log"),
        snapshots: vec![],
        recalls: vec![],
        restores: vec![],
        held: vec![],
        settings: settings(),
    }
}

fn planned(seen: &Observed) -> Plan<EtcdSnapshotScheduleStatus> {
    planned_at(seen, noon())
}

fn planned_at(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotScheduleStatus> {
    let decided = plan(seen, now);
    safety::schedule(seen, &decided).unwrap_or_else(|violation| panic!("{violation}: {decided:?}"));
    let mut again = seen.clone();
    again.schedule.status = Some(decided.status.clone());
    assert_eq!(plan(&again, now).status, decided.status, "a written status is not written again");
    decided
}

fn applied(plan: &Plan<EtcdSnapshotScheduleStatus>) -> Option<CronJob> {
    plan.ensures.first().map(|ensure| match ensure {
        Ensure::CronJob(cron) => cron.as_ref().clone(),
        other => panic!("{other:?}"),
    })
}

/// The same, with the wanted `CronJob`.
fn running() -> Observed {
    let mut seen = fresh_one();
    let mut cron = applied(&planned(&seen)).unwrap();
    stored(&mut cron.metadata, "u-cron");
    cron.metadata.creation_timestamp = Some(Time(noon() - minutes(24 * 60)));
    seen.cron_job = Some(cron);
    seen.schedule.status = Some(planned(&seen).status);
    assert_eq!(planned(&seen).ensures, vec![]);
    seen
}

fn told(plan: &Plan<EtcdSnapshotScheduleStatus>, kind: Type) -> (&str, &str) {
    let condition = plan.status.conditions.iter().find(|c| c.type_ == kind.as_str()).unwrap();
    (condition.status.as_str(), condition.reason.as_str())
}

fn args(cron: &CronJob) -> Vec<String> {
    let pod = cron.spec.as_ref().unwrap().job_template.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    flags(&pod.containers[0])
}

/// A Job of the `CronJob`, created `ago` minutes ago.
fn job(seen: &Observed, name: &str, ago: i64, ended: Option<bool>) -> Job {
    let cron = seen.cron_job.as_ref().unwrap();
    let template = cron.spec.clone().unwrap().job_template;
    let mut job = Job { metadata: template.metadata.unwrap(), spec: template.spec, status: None };
    stored(&mut job.metadata, &format!("u-{name}"));
    job.metadata.name = Some(name.to_owned());
    job.metadata.creation_timestamp = Some(Time(noon() - minutes(ago)));
    job.metadata.owner_references = Some(vec![OwnerReference {
        kind: "CronJob".to_owned(),
        uid: "u-cron".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    job.status =
        ended.map(|ok| JobStatus { succeeded: ok.then_some(1), failed: (!ok).then_some(1), ..JobStatus::default() });
    job
}

/// The Job's record in this phase, as the plan creates the record.
fn record(seen: &Observed, job: &Job, phase: Phase) -> EtcdSnapshot {
    let mut alone = seen.clone();
    alone.jobs = vec![job.clone()];
    alone.snapshots = vec![];
    let Some(Act::RecordRun(record)) = planned(&alone).act else { panic!() };
    let mut record = *record;
    stored(&mut record.metadata, &format!("u-record-{}", job.metadata.name.as_ref().unwrap()));
    let at = job.metadata.creation_timestamp.clone().unwrap().0;
    let complete = phase == Phase::Complete;
    record.status = Some(EtcdSnapshotStatus {
        phase,
        completed_at: Some((at + SignedDuration::from_secs(40)).to_string()),
        artifact: complete.then(|| Artifact {
            key: "k".to_owned(),
            db_bytes: 5,
            stored_bytes: 3,
            revision: Some(9),
            ..Artifact::default()
        }),
        verification: complete.then(|| Verification { level: Level::HashKV, ..Verification::default() }),
        error: (phase == Phase::Failed).then(|| Failure {
            class: "Denied".to_owned(),
            origin: None,
            message: "no right".to_owned(),
        }),
        ..EtcdSnapshotStatus::default()
    });
    record
}

/// Recorded runs of these ages in minutes, oldest first, with their Jobs, and the resulting status.
fn with_runs(ages: &[(i64, Phase)]) -> Observed {
    let mut seen = running();
    let oldest = ages.iter().map(|(ago, _)| *ago).max().unwrap();
    seen.cron_job.as_mut().unwrap().metadata.creation_timestamp = Some(Time(noon() - minutes(oldest + 10)));
    for (ago, phase) in ages {
        let ended = match phase {
            Phase::Complete => Some(true),
            Phase::Failed => Some(false),
            _ => None,
        };
        let one = job(&seen, &format!("run-{ago}"), *ago, ended);
        let kept = record(&seen, &one, *phase);
        seen.jobs.push(one);
        seen.snapshots.push(kept);
    }
    seen.schedule.status = Some(planned(&seen).status);
    seen
}

#[test]
fn the_cron_job_runs_the_agent_itself() {
    let cron = applied(&planned(&fresh_one())).unwrap();
    let name = cron.metadata.name.clone().unwrap();
    assert!(name.starts_with("nightly-backup-"), "{name}");
    assert_eq!(cron.metadata.owner_references.as_ref().unwrap()[0].uid, "u-s");
    let spec = cron.spec.clone().unwrap();
    assert_eq!((spec.schedule.as_str(), spec.time_zone.as_deref()), ("7 * * * *", Some("Etc/UTC")));
    assert_eq!((spec.suspend, spec.concurrency_policy.as_deref()), (Some(false), Some("Forbid")));
    assert_eq!((spec.successful_jobs_history_limit, spec.failed_jobs_history_limit), (Some(3), Some(3)));
    let job = spec.job_template.spec.as_ref().unwrap();
    assert_eq!(job.ttl_seconds_after_finished, None, "the operator may be down for longer");
    let container = &job.template.spec.as_ref().unwrap().containers[0];
    assert!(matches!(request::read(container), Some(Request::Save(_))));
    let told = args(&cron);
    for arg in [
        "--endpoints=http://a-1.a.ns.svc:2379",
        "--cluster-uid=u-a",
        "--expect-cluster-id=c1",
        "--schedule-name=nightly",
        "--schedule-uid=u-s",
    ] {
        assert!(told.contains(&arg.to_owned()), "{arg} is missing in {told:?}");
    }
    assert!(!told.iter().any(|arg| arg.starts_with("--owner")), "whose Job it is nobody knows before: {told:?}");
    let env: Vec<_> =
        container.env.iter().flatten().filter_map(|e| Some((e.name.as_str(), e.value_from.as_ref()?))).collect();
    let path = |name: &str| {
        let (_, from) = env.iter().find(|(there, _)| *there == name).unwrap();
        from.field_ref.as_ref().unwrap().field_path.clone()
    };
    assert_eq!(path("HOLDFAST_OWNER_UID"), "metadata.labels['batch.kubernetes.io/controller-uid']");
    assert_eq!(path("HOLDFAST_OWNER_NAME"), "metadata.labels['batch.kubernetes.io/job-name']");
}

#[test]
fn there_is_none_before_cluster_and_store_are_there_and_it_stays_when_they_fail() {
    let mut young = fresh_one();
    young.cluster.as_mut().unwrap().status = None;
    let plan = planned(&young);
    assert_eq!((plan.ensures.len(), told(&plan, Type::Ready).1), (0, "WaitingForCluster"));
    young.cluster = None;
    assert_eq!(told(&planned(&young), Type::Ready).1, "WaitingForReference");

    let mut seen = fresh_one();
    let vault = Some(LocalRef { name: "vault".to_owned() });
    seen.schedule.spec.snapshot_template.destination =
        holdfast_api::store::Destination { store_ref: vault, ..Default::default() };
    assert_eq!(told(&planned(&seen), Type::Ready).1, "WaitingForReference");
    let mut store = EtcdBackupStore::new("vault", holdfast_api::EtcdBackupStoreSpec::default());
    store.spec.place = Location::S3(S3Location { bucket: "b".to_owned(), ..S3Location::default() }).into();
    let ready = |usable: bool| {
        let wanted = if usable {
            Wanted::yes(Type::Ready, Reason::StoreUsable, "x")
        } else {
            Wanted::no(Type::Ready, Reason::StoreUnavailable, "down")
        };
        let mut store = store.clone();
        let conditions = merge(&[], &[wanted], None, noon());
        store.status = Some(holdfast_api::EtcdBackupStoreStatus { conditions, ..Default::default() });
        Some(store)
    };
    seen.store = ready(false);
    assert_eq!((planned(&seen).ensures.len(), told(&planned(&seen), Type::Ready).1), (0, "WaitingForStore"));
    seen.store = ready(true);
    let mut cron = applied(&planned(&seen)).unwrap();
    assert!(args(&cron).contains(&"--store=s3://b".to_owned()));
    stored(&mut cron.metadata, "u-cron");
    seen.cron_job = Some(cron);
    seen.store = ready(false);
    let plan = planned(&seen);
    assert_eq!((plan.ensures, plan.status.next_time.is_some()), (vec![], true), "never suspended by a failing store");
}

#[test]
fn members_and_edits_are_applied_and_hands_are_told_of() {
    let mut seen = running();
    seen.cluster.as_mut().unwrap().status.as_mut().unwrap().members[0].name = "a-9".to_owned();
    let plan = planned(&seen);
    let endpoints = args(&applied(&plan).unwrap()).into_iter().filter(|flag| flag.starts_with("--endpoints="));
    assert!(endpoints.collect::<String>().contains("a-9"), "the voters of now");
    assert_eq!(plan.notes, vec![]);

    let mut edited = running();
    edited.cron_job.as_mut().unwrap().spec.as_mut().unwrap().suspend = Some(true);
    let plan = planned(&edited);
    assert_eq!(applied(&plan).unwrap().spec.unwrap().suspend, Some(false));
    assert_eq!((plan.notes[0].reason.as_str(), plan.notes[0].warning), ("CronJobRestored", true));

    // A cluster that lists no voter for a moment changes nothing.
    let mut blind = running();
    blind.cluster.as_mut().unwrap().status.as_mut().unwrap().members.clear();
    let plan = planned(&blind);
    assert_eq!((plan.ensures.len(), told(&plan, Type::Ready)), (0, ("False", "WaitingForCluster")));
    assert!(plan.status.next_time.is_some(), "runs begin all the same");
}

#[test]
fn it_is_suspended_while_nothing_can_be_saved() {
    let suspended = |change: &dyn Fn(&mut Observed)| {
        let mut seen = running();
        change(&mut seen);
        let plan = planned(&seen);
        assert_eq!(applied(&plan).unwrap().spec.unwrap().suspend, Some(true));
        assert_eq!((plan.status.next_time.as_ref(), plan.status.active_since.as_ref()), (None, None));
        let (ready, fresh) = (told(&plan, Type::Ready), told(&plan, Type::Fresh));
        assert_eq!((fresh.0, fresh.1), ("Unknown", ready.1));
        (ready.0.to_owned(), ready.1.to_owned())
    };
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(suspended(&|s| s.schedule.spec.suspend = true), is("True", "Suspended"));
    assert_eq!(suspended(&|s| s.cluster.as_mut().unwrap().spec.replicas = 0), is("True", "Parked"));
    assert_eq!(suspended(&|s| s.cluster = None), is("False", "WaitingForReference"));
    let going = |s: &mut Observed| {
        s.cluster.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(noon()));
    };
    assert_eq!(suspended(&going), is("False", "WaitingForReference"));
    let anew = |s: &mut Observed| s.cluster.as_mut().unwrap().status = None;
    assert_eq!(suspended(&anew), is("False", "WaitingForCluster"));
}

#[test]
fn what_can_never_run_says_so() {
    let said = |change: &dyn Fn(&mut Observed)| {
        let mut seen = running();
        change(&mut seen);
        let plan = planned(&seen);
        assert_eq!((plan.ensures.len(), told(&plan, Type::Fresh).0), (0, "False"));
        assert!(plan.notes.iter().any(|note| note.warning), "a person hears of it");
        told(&plan, Type::Ready).1.to_owned()
    };
    assert_eq!(said(&|s| s.schedule.spec.schedule = "0 0 30 2 *".to_owned()), "NeverFires");
    assert_eq!(said(&|s| s.schedule.spec.schedule = "0 0 * * 7".to_owned()), "InvalidSpec");
    assert_eq!(said(&|s| s.schedule.spec.time_zone = Some("Mars/Base".to_owned())), "InvalidSpec");
    assert_eq!(said(&|s| s.cron_job.as_mut().unwrap().metadata.owner_references = None), "NameConflict");
}

#[test]
fn each_job_is_recorded_once_by_its_uid() {
    let mut seen = running();
    seen.schedule.spec.snapshot_template.deadline_seconds = Some(99);
    let mut cron = applied(&planned(&seen)).unwrap();
    stored(&mut cron.metadata, "u-cron");
    seen.cron_job = Some(cron);
    let one = job(&seen, "run-1", 60, None);
    seen.schedule.spec.snapshot_template.deadline_seconds = Some(10);
    seen.jobs = vec![job(&seen, "run-2", 5, None), one.clone()];
    let Some(Act::RecordRun(first)) = planned(&seen).act else { panic!() };
    let run = first.spec.run.clone().unwrap();
    assert_eq!((first.metadata.name.as_deref(), run.uid.as_str()), (Some("run-1"), "u-run-1"), "the oldest first");
    assert_eq!(first.spec.template.deadline_seconds, Some(99), "as it was when the run began");
    assert_eq!(first.metadata.owner_references, None, "no deletion takes it away");
    assert_eq!(first.metadata.labels.as_ref().unwrap()[key::SCHEDULE_UID], "u-s");

    seen.snapshots = vec![*first.clone()];
    let Some(Act::RecordRun(second)) = planned(&seen).act else { panic!() };
    assert_eq!(second.spec.run.unwrap().uid, "u-run-2");

    // Another owner's snapshot has the name of the Job.
    let mut stranger = EtcdSnapshot { status: None, ..*first };
    stranger.metadata.labels = None;
    seen.snapshots = vec![stranger.clone()];
    seen.jobs = vec![one];
    assert_eq!(planned(&seen).act, None, "a record without its labels is a record");
    stranger.spec.run = None;
    seen.snapshots = vec![stranger.clone()];
    let Some(Act::RecordRun(beside)) = planned(&seen).act else { panic!() };
    let name = beside.metadata.name.unwrap();
    assert!(name.starts_with("run-1-") && name.len() > 6, "{name}");
    // An outdated definition dropped the record's `spec.run`: the operator does not create the record again and again.
    stranger.metadata.labels = Some([(key::SCHEDULE_UID.to_owned(), "u-s".to_owned())].into());
    seen.snapshots = vec![stranger];
    assert_eq!(planned(&seen).act, None);
}

#[test]
fn the_status_tells_of_the_newest_backup_and_of_failures_since() {
    let seen = with_runs(&[(120, Phase::Complete), (60, Phase::Failed), (1, Phase::Running)]);
    let status = planned(&seen).status;
    let last = status.last_successful.clone().unwrap();
    assert_eq!((last.name.as_str(), last.level, last.seconds), ("run-120", Level::HashKV, 40));
    assert_eq!((status.active, status.consecutive_failures), (vec!["run-1".to_owned()], 1));
    assert_eq!(status.last_failed.unwrap().class, "Denied");
    assert_eq!(told(&planned(&seen), Type::Fresh), ("False", "BackupFailing"));

    // A user deletes a record: the stored snapshot stays.
    let mut fewer = seen;
    fewer.snapshots.retain(|s| s.metadata.name.as_deref() != Some("run-120"));
    fewer.jobs.retain(|j| j.metadata.name.as_deref() != Some("run-120"));
    assert_eq!(planned(&fewer).status.last_successful.unwrap(), last);

    let healthy = with_runs(&[(120, Phase::Failed), (60, Phase::Complete)]);
    let plan = planned(&healthy);
    assert_eq!((plan.status.consecutive_failures, told(&plan, Type::Fresh)), (0, ("True", "BackupRecent")));
}

#[test]
fn failures_are_counted_beyond_the_records() {
    let mut seen = with_runs(&[(300, Phase::Failed), (240, Phase::Failed), (180, Phase::Failed)]);
    assert_eq!(planned(&seen).status.consecutive_failures, 3);
    let last = job(&seen, "run-10", 10, Some(false));
    let kept = record(&seen, &last, Phase::Failed);
    seen.jobs = vec![last];
    seen.snapshots = seen.snapshots.split_off(1);
    seen.snapshots.push(kept);
    assert_eq!(planned(&seen).status.consecutive_failures, 4);
}

#[test]
fn only_failed_records_whose_jobs_are_gone_are_deleted_beyond_the_limit() {
    let ages: Vec<(i64, Phase)> = vec![
        (300, Phase::Complete),
        (240, Phase::Failed),
        (180, Phase::Failed),
        (120, Phase::Failed),
        (60, Phase::Failed),
    ];
    let mut seen = with_runs(&ages);
    assert_eq!(planned(&seen).act, None, "it would be recorded again");
    seen.jobs.retain(|job| !["run-240", "run-300"].contains(&job.metadata.name.as_deref().unwrap()));
    let Some(Act::DeleteRecord { snapshot, .. }) = planned(&seen).act else { panic!() };
    assert_eq!(snapshot.name, "run-240");
    seen.schedule.spec.failed_history_limit = Some(4);
    assert_eq!(planned(&seen).act, None);
}

/// The objects of complete runs are bounded; the store keeps their snapshots.
#[test]
fn records_of_complete_runs_beyond_the_limit_go_unless_a_person_or_a_restore_needs_them() {
    let ages: Vec<(i64, Phase)> = [300, 240, 180, 120, 60].map(|ago| (ago, Phase::Complete)).into();
    let mut seen = with_runs(&ages);
    for (number, snapshot) in seen.snapshots.iter_mut().enumerate() {
        snapshot.status.as_mut().unwrap().artifact.as_mut().unwrap().key = format!("ns/a/l/{number}");
    }
    assert_eq!(planned(&seen).act, None, "fifty stay");
    seen.schedule.spec.successful_history_limit = Some(3);
    assert_eq!(planned(&seen).act, None, "their Jobs stand, and would be recorded again");
    seen.jobs.retain(|job| !["run-240", "run-300"].contains(&job.metadata.name.as_deref().unwrap()));
    let goes = |change: fn(&mut Observed)| {
        let mut seen = seen.clone();
        change(&mut seen);
        match planned(&seen).act {
            Some(Act::DeleteRecord { snapshot, removed: None, .. }) => Some(snapshot.name),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(goes(|_| {}).as_deref(), Some("run-300"));
    assert_eq!(goes(|seen| seen.snapshots[0].spec.hold = true).as_deref(), Some("run-240"));
    assert_eq!(goes(|seen| seen.restores.push("ns/a/l/0".to_owned())).as_deref(), Some("run-240"));
    let along = |seen: &mut Observed| seen.snapshots[0].spec.deletion_policy = DeletionPolicy::Delete;
    assert_eq!(goes(along).as_deref(), Some("run-240"));
    // Before the store was asked about an outage, a missing record would be a gap.
    let early = |seen: &mut Observed| {
        seen.schedule.status.as_mut().unwrap().recalled_through = Some("2026-01-01T06:00:00Z".to_owned());
    };

    let broken = |change: fn(&mut Observed)| {
        let mut seen = seen.clone();
        change(&mut seen);
        let snapshot = Target::from(&seen.snapshots[0].metadata);
        let act = Some(Act::DeleteRecord { snapshot, removed: None, why: String::new() });
        let plan = plan(&seen, noon());
        safety::schedule(&seen, &Plan { act, ..plan }).err().map(|violation| violation.invariant)
    };
    assert_eq!(broken(|_| {}), None);
    assert_eq!(broken(|seen| seen.snapshots[0].spec.hold = true), Some("I18"));
    assert_eq!(broken(|seen| seen.restores.push("ns/a/l/0".to_owned())), Some("I18"));
    assert_eq!(broken(along), Some("I18"));
    assert_eq!(broken(early), Some("I18"));
    assert_eq!(broken(|seen| seen.schedule.spec.successful_history_limit = Some(5)), Some("I18"));
}

#[test]
fn overdue_is_after_two_due_times_and_the_deadline() {
    let seen = with_runs(&[(53, Phase::Complete)]);
    // 11:07, due at 12:07 and 13:07, and ten minutes more.
    let due: Timestamp = "2026-01-01T13:17:00Z".parse().unwrap();
    assert_eq!(told(&planned_at(&seen, due - SignedDuration::from_secs(1)), Type::Fresh), ("True", "BackupRecent"));
    let late = planned_at(&seen, due);
    assert_eq!(told(&late, Type::Fresh), ("False", "BackupOverdue"));
    assert_eq!(late.notes.iter().map(|n: &Note| n.reason.as_str()).collect::<Vec<_>>(), ["BackupOverdue"]);
    // The wake is the time when the condition may change.
    assert_eq!(planned(&seen).wake, Wake::AfterMillis((7 * 60 + 5) * 1000));
    // A schedule without a run, and a schedule that was suspended for long.
    let mut none = running();
    none.schedule.status.as_mut().unwrap().active_since = Some(noon().to_string());
    assert_eq!(told(&planned(&none), Type::Fresh), ("Unknown", "NoBackupYet"));
    assert_eq!(told(&planned_at(&none, due), Type::Fresh), ("False", "BackupOverdue"));
    let mut resumed = seen;
    resumed.schedule.status.as_mut().unwrap().active_since = None;
    assert_eq!(told(&planned_at(&resumed, due + minutes(1)), Type::Fresh), ("Unknown", "NoBackupYet"));
    // A mistake in the line does not restart the time.
    let mut wrong = none;
    wrong.schedule.spec.time_zone = Some("europe/berlin".to_owned());
    let status = planned_at(&wrong, due).status;
    assert_eq!(status.active_since, Some(noon().to_string()));
}

#[test]
fn an_etcd_of_somebody_elses_needs_no_cluster() {
    let mut seen = fresh_one();
    seen.cluster = None;
    seen.schedule.spec.cluster_ref = None;
    seen.schedule.spec.external =
        Some(External { endpoints: vec!["https://e:2379".to_owned()], ..External::default() });
    let cron = applied(&planned(&seen)).unwrap();
    let told = args(&cron);
    assert!(told.contains(&"--endpoints=https://e:2379".to_owned()) && told.contains(&"--cluster=external".to_owned()));
}

#[test]
fn a_deleted_schedule_is_left_alone() {
    let mut seen = running();
    seen.jobs = vec![job(&seen, "run-1", 1, None)];
    seen.cron_job = None;
    seen.schedule.metadata.deletion_timestamp = Some(Time(noon()));
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.ensures), (None, vec![]));
}

#[test]
fn a_cluster_is_as_healthy_as_its_worst_schedule() {
    let none = healthy([]);
    assert_eq!((none.state, none.reason), (None, Reason::NoSchedule));
    let of = |ages: &[(i64, Phase)]| with_runs(ages).schedule;
    let (good, bad) = (of(&[(53, Phase::Complete)]), of(&[(53, Phase::Failed)]));
    assert_eq!(healthy([&good]).state, Some(true));
    let both = healthy([&good, &bad]);
    assert_eq!((both.state, both.reason), (Some(false), Reason::BackupFailing));
    assert!(both.message.starts_with("EtcdSnapshotSchedule nightly: "), "{}", both.message);
}
