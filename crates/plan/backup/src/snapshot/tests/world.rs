//! A good world, and Jobs and Pods as Kubernetes shows them.

use holdfast_api::cluster::{EtcdClusterSpec, EtcdClusterStatus, Formed, Latches, MemberSummary};
use holdfast_api::name::LocalRef;
use holdfast_api::snapshot::{EtcdSnapshotSpec, Phase, SnapshotTemplate};
use holdfast_api::store::{Location, PvcLocation};
use holdfast_api::{EtcdCluster, EtcdSnapshot, EtcdSnapshotStatus};
use holdfast_base::objects::job::{Kind, pod_spec};
use holdfast_contract::{ExitClass, FailedReport, Level, Origin, Report, SavedReport, Verification};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::super::{Inspection, Observed, plan};
use crate::fixtures::flags_of_job;
use holdfast_base::{Act, Plan, Proxies, Settings};

pub(super) fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub(super) fn ago(seconds: i64) -> Time {
    Time(now() - SignedDuration::from_secs(seconds))
}

pub(super) fn meta(name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("prod".to_owned()),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    }
}

pub(super) fn member(name: &str, role: Option<&str>) -> MemberSummary {
    MemberSummary { name: name.to_owned(), role: role.map(str::to_owned), ..MemberSummary::default() }
}

/// A formed cluster of two voters and a learner, a fresh snapshot, no Job.
pub(super) fn fresh() -> Observed {
    let spec = EtcdSnapshotSpec {
        cluster_ref: Some(LocalRef { name: "a".to_owned() }),
        template: SnapshotTemplate {
            destination: Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: None }).into(),
            ..SnapshotTemplate::default()
        },
        ..EtcdSnapshotSpec::default()
    };
    let formed = Formed { cluster_id: "c1".to_owned(), ..Formed::default() };
    let status = EtcdClusterStatus {
        members: vec![member("a-1", Some("voter")), member("a-2", Some("learner")), member("a-3", Some("voter"))],
        latches: Latches { formed: Some(formed), ..Latches::default() },
        ..EtcdClusterStatus::default()
    };
    Observed {
        snapshot: EtcdSnapshot { metadata: meta("nightly", "snap-uid"), spec, status: None },
        cluster: Some(EtcdCluster {
            metadata: meta("a", "cluster-uid"),
            status: Some(status),
            spec: EtcdClusterSpec { replicas: 3, ..EtcdClusterSpec::default() },
        }),
        store: None,
        job: None,
        cron_job: None,
        pods: vec![],
        unstarted: vec![],
        claim_users: vec![],
        refusal: None,
        missing_secrets: vec![],
        strays: vec![],
        inspections: vec![],
        deletion: None,
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

pub(super) fn planned(seen: &Observed) -> Plan<EtcdSnapshotStatus> {
    plan(seen, now())
}

pub(super) fn started(seen: &Observed) -> Job {
    match planned(seen).act {
        Some(Act::StartJob(job)) => *job,
        other => panic!("no Job was started: {other:?}"),
    }
}

/// The same, after another question to the store: by a Job with these Pods, which has ended if the Pods have.
pub(super) fn asked(mut seen: Observed, answer: Vec<Pod>) -> Observed {
    let mut job = started(&seen);
    assert!(Kind::Inspect.runs_in(pod_spec(&job)));
    let number = i32::try_from(seen.inspections.len()).unwrap();
    assert_eq!(job.metadata.name, Some(super::super::inspection(&seen.snapshot, seen.job.as_ref(), number)));
    job.metadata.uid = Some(format!("inspection-uid-{number}"));
    job.metadata.creation_timestamp = Some(ago(30));
    let kind = match answer.last().and_then(|p| p.status.as_ref()?.phase.as_deref()) {
        Some("Succeeded") => Some("Complete"),
        Some("Failed") => Some("Failed"),
        _ => None,
    };
    job.status = kind.map(|kind| ended(kind, "", 1, 1));
    seen.inspections.push(Inspection { number, job, pods: answer });
    seen
}

/// The same, with all times of the asking Jobs some seconds earlier.
pub(super) fn aged(mut seen: Observed, seconds: i64) -> Observed {
    for Inspection { job, .. } in &mut seen.inspections {
        job_back(job, seconds);
    }
    seen
}

/// The same, with all times of the saving Job and its Pods some seconds earlier.
pub(super) fn saved_earlier(mut seen: Observed, seconds: i64) -> Observed {
    job_back(seen.job.as_mut().unwrap(), seconds);
    for pod in &mut seen.pods {
        back(&mut pod.metadata.creation_timestamp, seconds);
        let containers = pod.status.iter_mut().flat_map(|s| s.container_statuses.iter_mut().flatten());
        let ends = containers.filter_map(|c| c.state.as_mut()?.terminated.as_mut());
        ends.for_each(|end| back(&mut end.finished_at, seconds));
    }
    seen
}

/// The same, with a Job that ended so long ago that the store lists all its objects.
pub(super) fn long_over(seen: Observed) -> Observed {
    saved_earlier(seen, 200)
}

fn job_back(job: &mut Job, seconds: i64) {
    back(&mut job.metadata.creation_timestamp, seconds);
    job.status
        .iter_mut()
        .flat_map(|s| s.conditions.iter_mut().flatten())
        .for_each(|c| back(&mut c.last_transition_time, seconds));
}

fn back(time: &mut Option<Time>, seconds: i64) {
    *time = time.take().map(|t| Time(t.0 - SignedDuration::from_secs(seconds)));
}

/// The same, with the status of the last pass.
pub(super) fn written(mut seen: Observed) -> Observed {
    seen.snapshot.status = Some(planned(&seen).status);
    seen
}

/// A saving Pod on a node that does not report its end.
pub(super) fn silent() -> Pod {
    let mut pod = running();
    pod.metadata.deletion_timestamp = Some(ago(200));
    pod.spec.get_or_insert_default().node_name = Some("n7".to_owned());
    pod
}

/// The answer of a store without the snapshot.
pub(super) fn nothing() -> Vec<Pod> {
    vec![failed("p-ask", ExitClass::NotFound, "no folder of this snapshot holds a manifest")]
}

/// [`fresh`], with its Job as the API server keeps the Job, and these Pods.
pub(super) fn with(pods: Vec<Pod>) -> Observed {
    let mut seen = fresh();
    let mut job = started(&seen);
    job.metadata.uid = Some("job-uid".to_owned());
    job.metadata.creation_timestamp = Some(ago(60));
    seen.job = Some(job);
    seen.pods = pods;
    seen
}

pub(super) fn ends(seen: &mut Observed, kind: &str, reason: &str, seconds_ago: i64) {
    let failed = i32::try_from(seen.pods.len()).unwrap();
    seen.job.as_mut().unwrap().status = Some(ended(kind, reason, seconds_ago, failed));
}

pub(super) fn ended(kind: &str, reason: &str, seconds_ago: i64, failed: i32) -> JobStatus {
    let condition = JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some("the Job's own words".to_owned()),
        last_transition_time: Some(ago(seconds_ago)),
        ..JobCondition::default()
    };
    JobStatus {
        conditions: Some(vec![condition]),
        failed: (kind == "Failed").then_some(failed),
        ..JobStatus::default()
    }
}

pub(super) fn pod(name: &str, phase: &str, state: ContainerState) -> Pod {
    let container = ContainerStatus { name: "agent".to_owned(), state: Some(state), ..ContainerStatus::default() };
    Pod {
        // Created together with its Job.
        metadata: ObjectMeta { creation_timestamp: Some(ago(60)), ..meta(name, name) },
        status: Some(PodStatus {
            phase: Some(phase.to_owned()),
            container_statuses: Some(vec![container]),
            ..PodStatus::default()
        }),
        ..Pod::default()
    }
}

pub(super) fn running() -> Pod {
    let running = ContainerStateRunning { started_at: Some(ago(30)) };
    pod("p-1", "Running", ContainerState { running: Some(running), ..ContainerState::default() })
}

pub(super) fn waiting(reason: &str, message: Option<&str>) -> Pod {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: message.map(str::to_owned) };
    pod("p-1", "Pending", ContainerState { waiting: Some(waiting), ..ContainerState::default() })
}

pub(super) fn terminated(name: &str, code: i32, reason: &str, message: Option<String>) -> Pod {
    let end = ContainerStateTerminated {
        exit_code: code,
        reason: Some(reason.to_owned()),
        message,
        finished_at: Some(ago(5)),
        ..ContainerStateTerminated::default()
    };
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    pod(name, phase, ContainerState { terminated: Some(end), ..ContainerState::default() })
}

pub(super) fn saved() -> Pod {
    saved_and(Verification {
        level: Level::HashKV,
        agreed_by: vec!["a-3".to_owned(), "a-1".to_owned()],
        agreed_by_reason: None,
        read_back: true,
        read_back_reason: None,
        differences: vec![],
        reason: None,
    })
}

/// A saving Pod's report with this verification.
pub(super) fn saved_and(verification: Verification) -> Pod {
    let report = SavedReport {
        key: "prod/a/cluster/x".to_owned(),
        uri: "file:///backup/prod/a/cluster/x/snapshot.db.zst".to_owned(),
        db_bytes: 3 * 1024 * 1024,
        encrypted: true,
        member: "a-3".to_owned(),
        cluster_id: "c1".to_owned(),
        revision: Some(40),
        keys: Some(12),
        hash_kv: Some(u32::MAX),
        verification: Some(verification),
        ..SavedReport::default()
    };
    terminated("p-1", 0, "Completed", Some(serde_json::to_string(&Report::Saved(Box::new(report))).unwrap()))
}

pub(super) fn failed(name: &str, class: ExitClass, message: &str) -> Pod {
    let origin = (class == ExitClass::Refused).then_some(Origin::Store);
    let failed = FailedReport { class, origin, message: message.to_owned() };
    let code = failed.failure().code.into();
    let report = Report::Failed(failed);
    terminated(name, code, "Error", Some(serde_json::to_string(&report).unwrap()))
}

/// Returns the phase, and status, reason and message of `Ready`.
pub(super) fn told(status: &EtcdSnapshotStatus) -> (Phase, &str, &str, &str) {
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready is always told");
    (status.phase, ready.status.as_str(), ready.reason.as_str(), ready.message.as_str())
}

pub(super) fn args(job: &Job) -> Vec<String> {
    flags_of_job(job)
}

/// A Pod that fits on no node.
pub(super) fn unschedulable() -> Pod {
    let mut pod = pod("p-1", "Pending", ContainerState::default());
    let status = pod.status.as_mut().unwrap();
    status.container_statuses = None;
    status.conditions = Some(vec![PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some("0/3 nodes are available".to_owned()),
        ..PodCondition::default()
    }]);
    pod
}
