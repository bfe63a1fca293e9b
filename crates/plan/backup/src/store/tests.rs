//! Tests of a store's plan, one mutation of a good world at a time.

use holdfast_api::backup_store::{Credentials, Probe, StoreRecord};
use holdfast_api::condition::Reason;
use holdfast_api::name::LocalRef;
use holdfast_api::store::{Location, PvcLocation, S3Location};
use holdfast_api::{EtcdBackupStore, EtcdBackupStoreSpec, EtcdBackupStoreStatus, component, key};
use holdfast_contract::{ExitClass, FailedReport, Finding, Origin, Outcome, Probed, Report, Trial};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};

use super::*;
use crate::fixtures::flags;
use holdfast_base::objects::job::Kind;
use holdfast_base::{Act, Plan, Proxies, Seen, Settings, Wake};

mod clocks;
mod held;
mod marks;
mod readers;

/// The store ID.
const MARK: &str = "0a1b2c3d-0000-4000-8000-000000000000";

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("prod".to_owned()),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    }
}

/// A new store with all its Secrets, and no Job.
fn fresh() -> Observed {
    let s3 = S3Location {
        bucket: "backups".to_owned(),
        prefix: Some("etcd".to_owned()),
        ca_ref: Some(LocalRef { name: "ca".to_owned() }),
        ..S3Location::default()
    };
    let credentials =
        Credentials { write: "writes".to_owned(), read: Some("reads".to_owned()), prune: Some("prunes".to_owned()) };
    let spec = EtcdBackupStoreSpec {
        place: Location::S3(s3).into(),
        credentials: Some(credentials),
        ..EtcdBackupStoreSpec::default()
    };
    let store = EtcdBackupStore { metadata: meta("vault", "store-uid"), spec, status: None };
    let secrets = secrets(&store).into_iter().map(|name| (name, Seen::Known(Some("u/1".to_owned())))).collect();
    Observed {
        store,
        secrets,
        job: None,
        pods: vec![],
        claim_users: vec![],
        refusal: None,
        settings: Settings {
            agent_image: "r/holdfast:1".to_owned(),
            etcd_repository: "r/etcd".to_owned(),
            proxies: Proxies::default(),
            cluster_domain: None,
            allowed_names: vec![],
            pod_run_as: holdfast_api::pod_security::RunAs::default(),
        },
    }
}

fn planned(seen: &Observed) -> Plan<EtcdBackupStoreStatus> {
    plan(seen, now())
}

fn started(plan: &Plan<EtcdBackupStoreStatus>) -> &Job {
    match &plan.act {
        Some(Act::StartJob(job)) => job,
        other => panic!("no Job was started: {other:?}"),
    }
}

fn ready(plan: &Plan<EtcdBackupStoreStatus>) -> &Condition {
    plan.status.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready is always told")
}

fn told(plan: &Plan<EtcdBackupStoreStatus>) -> (&str, &str) {
    (ready(plan).status.as_str(), ready(plan).reason.as_str())
}

fn pod(state: ContainerState, phase: &str) -> Pod {
    let container = ContainerStatus { name: "agent".to_owned(), state: Some(state), ..ContainerStatus::default() };
    let status =
        PodStatus { phase: Some(phase.to_owned()), container_statuses: Some(vec![container]), ..PodStatus::default() };
    Pod { metadata: meta("p-1", "p-1"), status: Some(status), ..Pod::default() }
}

fn ended(code: u8, report: Option<&Report>) -> Pod {
    let end = ContainerStateTerminated {
        exit_code: code.into(),
        message: report.map(|report| serde_json::to_string(report).unwrap()),
        finished_at: Some(Time(ago(5))),
        ..ContainerStateTerminated::default()
    };
    let state = ContainerState { terminated: Some(end), ..ContainerState::default() };
    pod(state, if code == 0 { "Succeeded" } else { "Failed" })
}

/// A probe's report: all trials succeed, except these.
fn probed(not: &[Trial], failed: Option<ExitClass>) -> Probed {
    let findings = Trial::ALL.map(|trial| Finding {
        trial,
        outcome: if not.contains(&trial) { Outcome::No } else { Outcome::Yes },
        needed: trial.needed(),
        detail: "as seen".to_owned(),
    });
    Probed {
        store: "s3://backups/etcd".to_owned(),
        usable: failed.is_none(),
        findings: findings.to_vec(),
        store_id: failed.is_none().then(|| MARK.to_owned()),
        left_behind: None,
        failed: failed.map(|class| failed_report(class, "the store said so")),
    }
}

fn failed_report(class: ExitClass, message: &str) -> FailedReport {
    FailedReport { class, origin: (class == ExitClass::Refused).then_some(Origin::Store), message: message.to_owned() }
}

/// Returns the exit code of a report.
fn code(report: &Probed) -> u8 {
    report.failed.as_ref().map_or(0, |failed| failed.failure().code)
}

fn answered(not: &[Trial], failed: Option<ExitClass>) -> Pod {
    let report = probed(not, failed);
    ended(code(&report), Some(&Report::Probed(report)))
}

/// The same world with the Job of its plan, as the API server keeps the Job, and these Pods.
fn with(mut seen: Observed, pods: Vec<Pod>) -> Observed {
    let mut job = started(&planned(&seen)).clone();
    job.metadata.uid = Some("job-uid".to_owned());
    job.metadata.creation_timestamp = Some(Time(ago(30)));
    let over = pods.last().and_then(|p| p.status.as_ref()?.phase.as_deref()).and_then(|phase| match phase {
        "Succeeded" => Some("Complete"),
        "Failed" => Some("Failed"),
        _ => None,
    });
    job.status = over.map(|kind| JobStatus {
        conditions: Some(vec![JobCondition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(ago(4))),
            ..JobCondition::default()
        }]),
        failed: (kind == "Failed").then_some(1),
        ..JobStatus::default()
    });
    seen.job = Some(job);
    seen.pods = pods;
    seen
}

/// The world after the plan's status was written, without a Job for the next probe.
fn written(seen: Observed, plan: &Plan<EtcdBackupStoreStatus>) -> Observed {
    let mut store = seen.store;
    store.status = Some(plan.status.clone());
    Observed { store, job: None, pods: vec![], ..seen }
}

/// A store found usable `seconds` ago.
fn found(seconds: i64) -> Observed {
    let seen = with(fresh(), vec![answered(&[], None)]);
    let plan = planned(&seen);
    let mut seen = written(seen, &plan);
    seen.store.status.as_mut().unwrap().probe.as_mut().unwrap().at = ago(seconds).to_string();
    seen
}

fn probe(plan: &Plan<EtcdBackupStoreStatus>) -> &Probe {
    plan.status.probe.as_ref().expect("a probe is told of")
}

#[test]
fn a_new_store_is_probed_with_the_credentials_that_write() {
    let plan = planned(&fresh());
    assert_eq!(told(&plan), ("False", "Probing"));
    assert_eq!((plan.status.kind.as_deref(), plan.status.uri.as_deref()), (Some("S3"), Some("s3://backups/etcd")));
    let job = started(&plan);
    let owner = job.metadata.owner_references.clone().unwrap().remove(0);
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("EtcdBackupStore", "store-uid"));
    let labels = job.metadata.labels.clone().unwrap();
    assert_eq!((labels[key::STORE].as_str(), labels[key::COMPONENT].as_str()), ("vault", component::SNAPSHOT_AGENT));
    assert!(!labels.contains_key(key::CLUSTER) && !labels.contains_key(key::SNAPSHOT));
    let spec = job.spec.clone().unwrap();
    assert_eq!((spec.backoff_limit, spec.ttl_seconds_after_finished), (Some(0), Some(600)));
    let pod = spec.template.spec.unwrap();
    assert!(Kind::Probe.runs_in(Some(&pod)));
    let args = flags(&pod.containers[0]);
    assert!(args.contains(&"--store=s3://backups/etcd".to_owned()), "{args:?}");
    let secrets = pod.volumes.unwrap().into_iter().filter_map(|v| v.secret?.secret_name);
    assert_eq!(secrets.collect::<Vec<_>>(), ["writes", "ca", "reads"]);
}

#[test]
fn a_volume_is_probed_where_it_can_be_written() {
    let mut seen = fresh();
    let pvc = PvcLocation { claim_name: "backups".to_owned(), sub_path: Some("etcd".to_owned()) };
    seen.store.spec = EtcdBackupStoreSpec { place: Location::Pvc(pvc).into(), ..EtcdBackupStoreSpec::default() };
    seen.secrets = [].into();
    let plan = planned(&seen);
    assert_eq!((plan.status.kind.as_deref(), plan.status.uri.as_deref()), (Some("PVC"), Some("pvc://backups/etcd")));
    let volumes = started(&plan).spec.clone().unwrap().template.spec.unwrap().volumes.unwrap();
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().unwrap().read_only, None);
}

#[test]
fn secrets_are_waited_for_and_no_job_is_made_before() {
    assert_eq!(secrets(&fresh().store).into_iter().collect::<Vec<_>>(), ["ca", "prunes", "reads", "writes"]);
    for name in ["writes", "reads", "prunes", "ca"] {
        let mut seen = fresh();
        seen.secrets.insert(name.to_owned(), Seen::Known(None));
        let plan = planned(&seen);
        assert_eq!(told(&plan), ("False", "WaitingForReference"));
        assert!(ready(&plan).message.contains(&format!("Secret {name}")), "{}", ready(&plan).message);
        assert!(plan.act.is_none() && plan.wake == Wake::AfterMillis(15_000));
    }
    let mut seen = fresh();
    seen.secrets.insert("writes".to_owned(), Seen::unknown("the operator may not get Secrets"));
    started(&planned(&seen));
}

#[test]
fn what_a_probe_finds_is_told_whole() {
    let seen = with(fresh(), vec![answered(&[Trial::CreateOnly], None)]);
    let plan = planned(&seen);
    assert_eq!(told(&plan), ("True", "StoreUsable"));
    assert!(ready(&plan).message.contains("createOnly (as seen)"), "{}", ready(&plan).message);
    let found = probe(&plan);
    assert_eq!((found.usable, found.at.as_str(), found.trials.len()), (true, "2026-11-21T11:59:55Z", Trial::ALL.len()));
    let tried = found.trials.iter().find(|tried| tried.name == "createOnly").unwrap();
    assert_eq!((tried.outcome.as_str(), tried.needed, tried.detail.as_str()), ("No", false, "as seen"));
    assert_eq!(plan.notes.iter().map(|n| n.reason.as_str()).collect::<Vec<_>>(), ["StoreWeak"]);

    let after = planned(&written(seen.clone(), &plan));
    assert_eq!(after.status, plan.status, "what is written is not written again");
    assert!(after.act.is_none() && after.waiting.is_none() && after.notes.is_empty());
    assert_eq!(after.wake, Wake::AfterMillis(300_000), "Secrets are looked at");
}

#[test]
fn each_class_has_its_reason_and_its_remedy() {
    for (class, reason) in [
        (ExitClass::Config, "AgentMisconfigured"),
        (ExitClass::Denied, "StoreAccessDenied"),
        (ExitClass::NotFound, "ArtifactNotFound"),
        (ExitClass::Corrupt, "ArtifactCorrupt"),
        (ExitClass::Transient, "StoreUnavailable"),
        (ExitClass::Full, "NoSpace"),
        (ExitClass::Deadline, "AgentTimedOut"),
    ] {
        let seen = with(fresh(), vec![answered(&[Trial::ReadAfterWrite], Some(class))]);
        let plan = planned(&seen);
        assert_eq!(told(&plan), ("False", reason));
        assert!(ready(&plan).message.starts_with("the store said so. "), "{}", ready(&plan).message);
        assert_eq!(probe(&plan).class.as_deref(), Some(class.as_str()));
        assert_eq!(plan.notes.iter().filter(|note| note.reason == reason && note.warning).count(), 1);
        let after = planned(&written(seen, &plan));
        assert_eq!((told(&after), after.notes.len()), (("False", reason), 0), "told once");
        assert_eq!(after.wake, Wake::AfterMillis(15_000), "somebody may be correcting a Secret");
        assert_eq!(after.status, plan.status);
    }
    // The agent could not open the store.
    let report = Report::Failed(failed_report(ExitClass::Config, "accessKeyID is missing"));
    let plan = planned(&with(fresh(), vec![ended(64, Some(&report))]));
    assert_eq!(told(&plan), ("False", "AgentMisconfigured"));
    assert!(ready(&plan).message.contains("accessKeyID is missing"));
    let plan = planned(&with(fresh(), vec![ended(137, None)]));
    assert_eq!((told(&plan), probe(&plan).class.as_deref()), (("False", "AgentCrashed"), Some("Crashed")));
    let plan = planned(&with(fresh(), vec![ended(0, None)]));
    assert_eq!(told(&plan), ("False", "AgentCrashed"), "a probe without a report has found nothing");
}

#[test]
fn a_store_is_probed_again_when_it_is_time() {
    let again = |seen: &Observed| planned(seen).act.is_some();
    let day = 24 * 3600;
    assert!(!again(&found(day - 10)));
    assert!(again(&found(day)));
    let plan = planned(&found(day));
    assert_eq!(told(&plan), ("True", "StoreUsable"), "routine takes nothing from those who use it");
    for (class, seconds) in [
        (Some(ExitClass::Transient), 60),
        (Some(ExitClass::Deadline), 60),
        (None, 60),
        (Some(ExitClass::Denied), 300),
        (Some(ExitClass::NotFound), 300),
        (Some(ExitClass::Config), 300),
    ] {
        let failed = |seconds| {
            let mut seen = found(seconds);
            let probe = seen.store.status.as_mut().unwrap().probe.as_mut().unwrap();
            probe.usable = false;
            probe.class = Some(class.map_or("Crashed", ExitClass::as_str).to_owned());
            seen
        };
        assert!(!again(&failed(seconds - 1)), "{class:?}");
        assert!(again(&failed(seconds)), "{class:?}");
        assert_eq!(told(&planned(&failed(seconds))).0, "False", "{class:?}");
    }
}

/// A store that each probe since `since` found not usable, with the last probe `last` seconds ago.
fn failing(class: ExitClass, since: i64, last: i64) -> Observed {
    let mut seen = found(last);
    let status = seen.store.status.as_mut().unwrap();
    let probe = status.probe.as_mut().unwrap();
    (probe.usable, probe.class) = (false, Some(class.as_str().to_owned()));
    probe.failing_since = Some(ago(since).to_string());
    seen
}

#[test]
fn what_only_a_person_can_mend_is_tried_the_more_rarely_the_longer_it_lasts() {
    for class in [ExitClass::Config, ExitClass::Denied, ExitClass::Corrupt] {
        // Duration of the fault at the last probe, and the pause after that probe.
        for (lasted, pause) in [(0, 300), (300, 300), (900, 900), (2400, 2400), (3600, 3600), (90_000, 3600)] {
            let early = planned(&failing(class, lasted + pause - 1, pause - 1));
            assert!(early.act.is_none(), "{class:?}, {lasted}");
            assert!(matches!(early.wake, Wake::AfterMillis(1..=15_000)), "Secrets are looked at all the same");
            started(&planned(&failing(class, lasted + pause, pause)));
        }
        // The fault is the same while the inputs do not change.
        let first = planned(&with(fresh(), vec![answered(&[], Some(class))]));
        assert_eq!(probe(&first).failing_since, Some(probe(&first).at.clone()));
        let again = planned(&with(failing(class, 90_000, 3600), vec![answered(&[], Some(class))]));
        assert_eq!(probe(&again).failing_since, Some(ago(90_000).to_string()));
        let well = planned(&with(failing(class, 90_000, 3600), vec![answered(&[], None)]));
        assert_eq!(probe(&well).failing_since, None);
        // After a change the operator probes at once, and the time of the fault restarts.
        let mut corrected = failing(class, 90_000, 10);
        corrected.secrets.insert("writes".to_owned(), Seen::Known(Some("u/2".to_owned())));
        let anew = planned(&with(corrected, vec![answered(&[], Some(class))]));
        assert_eq!(probe(&anew).failing_since, Some(probe(&anew).at.clone()));
        let mut edited = failing(class, 90_000, 10);
        edited.store.spec.place.s3.as_mut().unwrap().prefix = None;
        started(&planned(&edited));
    }
    // Faults that may pass, or that an action elsewhere may fix.
    for (class, pause) in [(ExitClass::Transient, 60), (ExitClass::NotFound, 300), (ExitClass::Full, 300)] {
        started(&planned(&failing(class, 90_000, pause)));
    }
    // A Secret that the operator may not read may have been corrected.
    let mut blind = fresh();
    blind.secrets.insert("writes".to_owned(), Seen::unknown("the operator may not get Secrets"));
    let plan = planned(&with(blind, vec![answered(&[], Some(ExitClass::Denied))]));
    assert_eq!(probe(&plan).failing_since, None);
}

#[test]
fn a_store_that_keeps_versions_is_told_to_be_filled_by_what_is_removed() {
    let plan = planned(&with(fresh(), vec![answered(&[], None)]));
    let message = &ready(&plan).message;
    assert!(
        message.ends_with(
            "; removed objects stay as old versions until a lifecycle rule of the bucket removes the versions"
        ),
        "{message}"
    );
    let without = planned(&with(fresh(), vec![answered(&[Trial::Versions], None)]));
    assert!(!ready(&without).message.contains("old version"), "{}", ready(&without).message);
}

#[test]
fn a_change_is_another_question_at_once() {
    type Change = (&'static str, fn(&mut Observed));
    let changes: [Change; 3] = [
        ("a Secret", |s| drop(s.secrets.insert("writes".to_owned(), Seen::Known(Some("u/2".to_owned()))))),
        ("a Secret made anew", |s| drop(s.secrets.insert("reads".to_owned(), Seen::Known(Some("v/1".to_owned()))))),
        ("the spec", |s| s.store.spec.place.s3.as_mut().unwrap().prefix = None),
    ];
    let before = found(10);
    let old_name = job_name(&before.store, &inputs(&before.store, &before.secrets));
    for (what, change) in changes {
        let mut seen = found(10);
        change(&mut seen);
        let plan = planned(&seen);
        assert_ne!(started(&plan).metadata.name.as_deref(), Some(old_name.as_str()), "{what}");
        assert_eq!(told(&plan), ("False", "Probing"), "{what}: what was found before says nothing");
        assert_eq!(probe(&plan).at, ago(10).to_string(), "{what}: and is history");
    }
}

#[test]
fn a_probe_that_cannot_run_says_why() {
    let waiting = ContainerStateWaiting { reason: Some("ErrImagePull".to_owned()), message: Some("no".to_owned()) };
    let held = pod(ContainerState { waiting: Some(waiting), ..ContainerState::default() }, "Pending");
    let plan = planned(&with(fresh(), vec![held.clone()]));
    assert_eq!((told(&plan), plan.act.is_none()), (("False", "PodHeldUp"), true));
    let routine = planned(&with(found(24 * 3600), vec![held]));
    assert_eq!(told(&routine), ("True", "StoreUsable"));
    let mut seen = with(fresh(), vec![]);
    seen.refusal = Some("quota".to_owned());
    assert_eq!(told(&planned(&seen)), ("False", "WriteRefused"));
    let mut seen = with(fresh(), vec![]);
    seen.job.as_mut().unwrap().metadata.owner_references =
        Some(vec![OwnerReference { uid: "stranger".to_owned(), ..OwnerReference::default() }]);
    assert_eq!((told(&planned(&seen)), planned(&seen).act.is_none()), (("False", "NameConflict"), true));
}

#[test]
fn what_goes_is_left_alone() {
    let mut seen = found(48 * 3600);
    seen.store.metadata.deletion_timestamp = Some(Time(now()));
    let plan = planned(&seen);
    assert_eq!((plan.act.is_none(), Some(&plan.status)), (true, seen.store.status.as_ref()));
    let mut seen = fresh();
    seen.store.spec.place.s3 = None;
    assert_eq!(told(&planned(&seen)), ("False", "InvalidSpec"));
}

#[test]
fn a_store_is_used_only_when_it_is_known_to_be_usable_as_it_is() {
    let refused = |seen: &Observed| usable("vault", Some(&seen.store)).map_err(|(reason, _)| reason);
    assert_eq!(usable("vault", None).unwrap_err().0, Reason::WaitingForReference);
    assert_eq!(refused(&fresh()), Err(Reason::WaitingForStore));
    let good = found(10);
    assert_eq!(refused(&good), Ok(StoreRecord { id: Some(MARK.to_owned()), ..good.store.record() }));
    let mut edited = found(10);
    edited.store.metadata.generation = Some(2);
    assert_eq!(refused(&edited), Err(Reason::WaitingForStore));
    let mut going = found(10);
    going.store.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(refused(&going), Err(Reason::WaitingForReference));
    let seen = with(fresh(), vec![answered(&[], Some(ExitClass::Denied))]);
    let plan = planned(&seen);
    let (reason, message) = usable("vault", Some(&written(seen, &plan).store)).unwrap_err();
    assert_eq!(reason, Reason::WaitingForStore);
    assert!(message.contains("StoreAccessDenied") && message.contains("the store said so"), "{message}");
}
