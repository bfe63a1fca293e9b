//! The log: its Deployment, what an answer or its absence makes of the condition, and the save after a gap.

use holdfast_api::log::{Log, LogStatus};
use holdfast_contract::{ExitClass, FailedReport, LogGap, LogProblem, LogReport};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStateRunning, ContainerStateWaiting};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::fixtures::flags;

/// A schedule whose log stands: its Deployment is applied, and its agent has stored the log up to five seconds ago.
fn logging() -> Observed {
    let mut seen = running();
    let place = S3Location { bucket: "backups".to_owned(), ..S3Location::default() };
    seen.schedule.spec.snapshot_template.destination = Location::S3(place).into();
    let mut cron = applied(&planned(&seen)).unwrap();
    stored(&mut cron.metadata, "u-cron");
    seen.cron_job = Some(cron);
    seen.schedule.spec.log = Some(Log { every_seconds: Some(10), ..Log::default() });
    let mut deployment = wanted(&seen).unwrap();
    stored(&mut deployment.metadata, "u-log");
    seen.log_deployment = Some(deployment);
    answer(&mut seen, 5, |_| ());
    seen
}

fn wanted(seen: &Observed) -> Option<Deployment> {
    planned(seen).ensures.into_iter().find_map(|ensure| match ensure {
        Ensure::Deployment(log) => Some(*log),
        _ => None,
    })
}

/// Sets the answer of an agent that has stored everything up to `ago` seconds ago, and takes the status over.
fn answer(seen: &mut Observed, ago: i64, change: impl FnOnce(&mut LogReport)) {
    let mut report = LogReport {
        cluster_id: Some("c1".to_owned()),
        stored_revision: Some(70),
        stored_until: Some(noon() - SignedDuration::from_secs(ago)),
        largest_lag_seconds: Some(15),
        ..LogReport::default()
    };
    change(&mut report);
    seen.log_report = Seen::Known(report);
    seen.schedule.status = Some(planned(seen).status);
}

/// Sets the Pod with this state of its container; the agent does not answer.
fn pod(seen: &mut Observed, state: ContainerState, last: Option<ContainerState>) {
    let template = seen.log_deployment.as_ref().unwrap().spec.as_ref().unwrap().template.clone();
    let mut pod = Pod { metadata: template.metadata.unwrap(), spec: template.spec, status: None };
    pod.metadata.name = Some("nightly-log-x".to_owned());
    let status = ContainerStatus {
        name: "agent".to_owned(),
        state: Some(state),
        last_state: last,
        ..ContainerStatus::default()
    };
    pod.status = Some(PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() });
    seen.log_pods = vec![pod];
    seen.log_report = Seen::unknown("no answer");
}

fn message(seen: &Observed) -> String {
    let plan = planned(seen);
    plan.status.conditions.iter().find(|c| c.type_ == "LogCurrent").unwrap().message.clone()
}

fn state(seen: &Observed) -> (String, String) {
    let plan = planned(seen);
    let (status, reason) = told(&plan, Type::LogCurrent);
    (status.to_owned(), reason.to_owned())
}

fn is(seen: &Observed, status: &str, reason: &str) {
    assert_eq!(state(seen), (status.to_owned(), reason.to_owned()), "{}", message(seen));
}

#[test]
fn the_pod_is_that_of_a_save_that_never_ends() {
    let mut seen = logging();
    let deployment = seen.log_deployment.clone().unwrap();
    let name = deployment.metadata.name.clone().unwrap();
    assert!(name.starts_with("nightly-log-") && name.len() == "nightly-log-".len() + 8, "{name}");
    let spec = deployment.spec.unwrap();
    let (labels, selector) = (spec.template.metadata.unwrap().labels.unwrap(), spec.selector.match_labels.unwrap());
    assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)) && selector.len() == 2);
    assert_eq!((spec.replicas, spec.strategy.unwrap().type_.as_deref()), (Some(1), Some("Recreate")));
    let pod = spec.template.spec.unwrap();
    let agent = &pod.containers[0];
    let args = flags(agent);
    for arg in [
        "--every-seconds=10",
        "--spool-dir=/spool",
        "--spool-mib=256",
        "--check-seconds=3600",
        "--metrics-port=2382",
        "--cluster-uid=u-a",
        "--expect-cluster-id=c1",
    ] {
        assert!(args.iter().any(|there| there == arg), "{arg}: {args:?}");
    }
    assert_eq!(args.iter().filter(|arg| arg.starts_with("--endpoints=")).count(), 2, "{args:?}");
    assert_eq!(pod.restart_policy.as_deref(), Some("Always"));
    assert_eq!(agent.security_context.as_ref().unwrap().read_only_root_filesystem, Some(true));
    let spool = pod.volumes.unwrap().into_iter().find(|volume| volume.name == "spool").unwrap();
    assert_eq!(spool.empty_dir.unwrap().size_limit.unwrap().0, "320Mi");

    seen.schedule.spec.log.as_mut().unwrap().spool = Some(Quantity("1Gi".to_owned()));
    let wider = wanted(&seen).unwrap().spec.unwrap().template.spec.unwrap();
    assert!(flags(&wider.containers[0]).iter().any(|arg| arg == "--spool-mib=1024"));
}

#[test]
fn it_stands_while_backups_run_and_goes_with_the_wish() {
    let mut seen = logging();
    assert_eq!(planned(&seen).ensures, vec![]);
    is(&seen, "True", "LogStored");

    let mut edited = seen.clone();
    edited.log_deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(3);
    let plan = planned(&edited);
    assert!(matches!(&plan.ensures[..], [Ensure::Deployment(_)]) && plan.notes[0].reason == "DeploymentRestored");

    let mut suspended = seen.clone();
    suspended.schedule.spec.suspend = true;
    assert_eq!(wanted(&suspended).unwrap().spec.unwrap().replicas, Some(0));
    is(&suspended, "Unknown", "Suspended");
    assert_eq!(planned(&suspended).status.log.unwrap().active_since, None);
    suspended.log_deployment = None;
    assert_eq!(wanted(&suspended), None, "the first one begins with a record");

    let mut gone = seen.clone();
    gone.cluster = None;
    let standing = wanted(&gone).unwrap().spec.unwrap();
    assert_eq!(standing.replicas, Some(0));
    assert_eq!(standing.template, seen.log_deployment.clone().unwrap().spec.unwrap().template);

    let mut foreign = seen.clone();
    foreign.log_deployment.as_mut().unwrap().metadata.owner_references = None;
    is(&foreign, "False", "NameConflict");
    assert_eq!(wanted(&foreign), None);

    let mut on_a_volume = seen.clone();
    on_a_volume.schedule.spec.snapshot_template.destination = fresh_one().schedule.spec.snapshot_template.destination;
    is(&on_a_volume, "False", "InvalidSpec");

    seen.schedule.spec.log = None;
    let plan = planned(&seen);
    assert!(
        matches!(&plan.act, Some(Act::DeleteDeployment { deployment, .. }) if deployment.uid == "u-log"),
        "{plan:?}"
    );
    assert!(plan.status.conditions.iter().all(|c| c.type_ != "LogCurrent"));
    let rest = LogStatus { deployment: deployment_name(&seen), ..LogStatus::default() };
    assert_eq!(plan.status.log, Some(rest), "a pass that fails is followed by one that reads the Deployment");
    let mut retired = seen.clone();
    (retired.schedule.status, retired.log_deployment) = (Some(plan.status.clone()), None);
    assert_eq!(planned(&retired).status.log, None);
    let mut wrong = planned(&logging());
    wrong.act = plan.act;
    assert!(safety::schedule(&logging(), &wrong).is_err(), "a log that the spec asks for goes on");
}

#[test]
fn the_pod_stays_while_it_holds_segments_that_the_store_does_not_take() {
    type Edit = fn(&mut Observed);
    let mut seen = logging();
    let problem = |class| Some(LogProblem { class, message: "the store says no".to_owned() });
    let edits: [(&str, bool, Edit); 8] = [
        ("image", false, |seen| seen.settings.agent_image = "agent:2".to_owned()),
        ("endpoints", false, |seen| {
            seen.cluster.as_mut().unwrap().status.as_mut().unwrap().members.truncate(1);
        }),
        ("spool", false, |seen| seen.schedule.spec.log.as_mut().unwrap().spool = Some(Quantity("1Gi".to_owned()))),
        ("bucket", true, |seen| place(seen).bucket = "other".to_owned()),
        ("endpoint", true, |seen| place(seen).endpoint = Some("https://s3.example.com".to_owned())),
        ("Secret", true, |seen| place(seen).credentials_secret_ref = Some(LocalRef { name: "keys".to_owned() })),
        ("proxy", true, |seen| seen.settings.proxies.https = Some("http://proxy:3128".to_owned())),
        ("identity", true, |seen| {
            seen.schedule.spec.snapshot_template.agent.get_or_insert_default().service_account_name =
                Some("vault".to_owned());
        }),
    ];
    for (name, at_once, edit) in edits {
        let mut edited = seen.clone();
        edit(&mut edited);
        for (spool_bytes, problem, applied) in [
            (0, problem(ExitClass::Transient), true),
            (9, None, true),
            (9, problem(ExitClass::Transient), at_once),
            (9, problem(ExitClass::Denied), at_once),
        ] {
            answer(&mut edited, 5, |report| (report.spool_bytes, report.problem) = (spool_bytes, problem.clone()));
            assert_eq!(wanted(&edited).is_some(), applied, "{name}: {spool_bytes}, {problem:?}");
        }
        edited.schedule.spec.suspend = true;
        assert_eq!(wanted(&edited).unwrap().spec.unwrap().replicas, Some(0), "{name}");
    }
    answer(&mut seen, 5, |report| (report.spool_bytes, report.problem) = (9, problem(ExitClass::Transient)));
    seen.schedule.spec.log = None;
    assert!(matches!(planned(&seen).act, Some(Act::DeleteDeployment { .. })));
}

fn place(seen: &mut Observed) -> &mut S3Location {
    seen.schedule.spec.snapshot_template.destination.place.s3.as_mut().unwrap()
}

fn deployment_name(seen: &Observed) -> Option<String> {
    seen.log_deployment.as_ref().unwrap().metadata.name.clone()
}

#[test]
fn a_role_without_deployments_is_named() {
    let mut seen = logging();
    let name = deployment_name(&seen);
    (seen.log_forbidden, seen.log_report) = (true, Seen::unknown("the schedule has no Deployment"));
    seen.log_deployment = None;
    is(&seen, "False", "RightsMissing");
    assert!(message(&seen).contains("deployments (apiGroup apps)"), "{}", message(&seen));
    let plan = planned(&seen);
    assert_eq!((plan.ensures, plan.act), (vec![], None));
    assert_eq!(plan.status.log.unwrap().deployment, name);
    seen.schedule.spec.log = None;
    let plan = planned(&seen);
    assert_eq!((plan.act, plan.status.log.unwrap().deployment), (None, name), "unknown is not absent");

    // The name is written before the Deployment is.
    let mut first = logging();
    first.log_deployment = None;
    let name = wanted(&first).unwrap().metadata.name;
    assert_eq!(planned(&first).status.log.unwrap().deployment, name);
}

#[test]
fn the_age_of_the_stored_log_decides() {
    let mut seen = logging();
    seen.schedule.status.as_mut().unwrap().log.as_mut().unwrap().active_since = Some("2025-12-31T00:00:00Z".to_owned());
    answer(&mut seen, 60, |_| ());
    is(&seen, "True", "LogStored");
    answer(&mut seen, 61, |report| {
        report.problem = Some(LogProblem { class: ExitClass::Denied, message: "the store says no".to_owned() });
    });
    is(&seen, "False", "LogBehind");
    assert!(message(&seen).contains("the store says no"), "{}", message(&seen));
    let healthy = health::healthy([&seen.schedule]);
    assert_eq!((healthy.state, healthy.reason), (Some(false), Reason::LogBehind));
    let mut silent = seen.clone();
    silent.log_report = Seen::unknown("silence");
    is(&silent, "False", "LogBehind");
    assert_eq!(message(&silent), message(&seen), "silence is no recovery");
    answer(&mut seen, -30, |_| ());
    is(&seen, "True", "LogStored");
    answer(&mut seen, -31, |_| ());
    is(&seen, "False", "LogBehind");
    assert!(message(&seen).contains("clock of the agent's node is ahead"), "{}", message(&seen));
    answer(&mut seen, 5, |_| ());
    is(&seen, "True", "LogStored");

    // An answer that is missing for a moment changes nothing.
    seen.log_report = Seen::unknown("silence");
    is(&seen, "True", "LogStored");
    let later = |seconds| {
        let plan = planned_at(&seen, noon() + SignedDuration::from_secs(seconds));
        told(&plan, Type::LogCurrent).1.to_owned()
    };
    assert_eq!((later(355), later(356)), ("LogStored".to_owned(), "LogBehind".to_owned()));
}

#[test]
fn the_status_is_written_every_five_minutes_and_with_each_change() {
    let seen = logging();
    let before = seen.schedule.status.clone().unwrap();
    let at = |seconds: i64| {
        let mut seen = seen.clone();
        let now = noon() + SignedDuration::from_secs(seconds);
        let until = now - SignedDuration::from_secs(5);
        seen.log_report = Seen::Known(LogReport {
            cluster_id: Some("c1".to_owned()),
            stored_revision: Some(99),
            stored_until: Some(until),
            largest_lag_seconds: Some(20),
            ..LogReport::default()
        });
        planned_at(&seen, now).status.log
    };
    assert_eq!(at(299), before.log);
    let log = at(300).unwrap();
    assert_eq!((log.revision, log.rpo_seconds), (Some(99), Some(20)));
    let expected = LogStatus {
        revision: Some(70),
        rpo_seconds: Some(15),
        time: Some("2026-01-01T11:59:55Z".to_owned()),
        ..before.log.clone().unwrap()
    };
    assert_eq!(before.log, Some(expected));
    assert_eq!(planned(&seen).wake, Wake::AfterMillis(30_000));
}

#[test]
fn a_pod_that_cannot_run_is_told_at_once() {
    let mut seen = logging();
    let waiting = |reason: &str| {
        let waiting =
            ContainerStateWaiting { reason: Some(reason.to_owned()), message: Some("no such image".to_owned()) };
        ContainerState { waiting: Some(waiting), ..ContainerState::default() }
    };
    pod(&mut seen, waiting("ContainerCreating"), None);
    is(&seen, "True", "LogStored");
    pod(&mut seen, waiting("ImagePullBackOff"), None);
    is(&seen, "False", "LogBehind");
    assert!(message(&seen).contains("no such image"), "{}", message(&seen));
    let failed = FailedReport { class: ExitClass::Refused, origin: None, message: "etcd was restored".to_owned() };
    let end = |message: Option<String>, reason: Option<&str>| {
        let terminated = ContainerStateTerminated {
            exit_code: 74,
            message,
            reason: reason.map(str::to_owned),
            ..ContainerStateTerminated::default()
        };
        Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() })
    };
    let report = serde_json::to_string(&Report::Failed(failed)).unwrap();
    for (last, words) in [
        (end(Some(report), None), "ends with code 74: etcd was restored"),
        (end(None, Some("OOMKilled")), "spec.log.resources"),
        (end(None, Some("Error")), "kubectl logs --previous"),
    ] {
        pod(&mut seen, waiting("CrashLoopBackOff"), last);
        is(&seen, "False", "LogBehind");
        assert!(message(&seen).contains(words), "{}", message(&seen));
    }
    let runs = ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    pod(&mut seen, runs, end(None, None));
    is(&seen, "True", "LogStored");
}

#[test]
fn a_new_log_starts_and_is_late_when_the_store_holds_nothing() {
    let mut seen = logging();
    seen.schedule.status = Some(running().schedule.status.unwrap());
    seen.log_report = Seen::unknown("no agent runs");
    is(&seen, "Unknown", "LogStarting");
    let empty = LogReport { cluster_id: Some("c1".to_owned()), ..LogReport::default() };
    answer(&mut seen, 0, |report| *report = empty);
    is(&seen, "Unknown", "LogStarting");
    let plan = planned_at(&seen, noon() + SignedDuration::from_secs(61));
    assert_eq!(told(&plan, Type::LogCurrent), ("False", "LogBehind"));
}

#[test]
fn a_gap_is_followed_by_one_save() {
    let mut seen = logging();
    let gap = |report: &mut LogReport| report.gap = Some(LogGap { after: 5, until: 9, at: Some(noon()) });
    answer(&mut seen, 5, gap);
    is(&seen, "False", "LogInterrupted");
    assert!(message(&seen).contains("the revisions 6 to 9"), "{}", message(&seen));
    let Some(Act::StartRun(job)) = planned(&seen).act else { panic!("{:?}", planned(&seen).act) };
    assert!(holdfast_base::meta::controlled_by(&job.metadata, "u-cron"));

    let mut suspended = seen.clone();
    suspended.cron_job.as_mut().unwrap().spec.as_mut().unwrap().suspend = Some(true);
    assert!(!matches!(planned(&suspended).act, Some(Act::StartRun(_))));

    let mut made = *job;
    stored(&mut made.metadata, "u-made");
    made.metadata.creation_timestamp = Some(Time(noon()));
    let mut saving = seen.clone();
    saving.jobs = vec![made.clone()];
    assert!(matches!(planned(&saving).act, Some(Act::RecordRun(_))), "recorded like each other run");
    for (phase, state) in [(Phase::Running, "False"), (Phase::Failed, "False"), (Phase::Complete, "True")] {
        let mut saved = saving.clone();
        saved.snapshots = vec![record(&saving, &made, phase)];
        if let Some(artifact) = saved.snapshots[0].status.as_mut().unwrap().artifact.as_mut() {
            artifact.key = "ns/a/u-a/20260101T120000Z-u-made-00000001".to_owned();
        }
        let plan = planned(&saved);
        assert!(plan.act.is_none(), "{phase:?}: {:?}", plan.act);
        assert_eq!(told(&plan, Type::LogCurrent).0, state, "{phase:?}");
        saved.jobs = vec![];
        assert!(!matches!(planned(&saved).act, Some(Act::StartRun(_))), "once for each gap, also without its Job");
    }
    // Another run is active.
    let other = self::job(&seen, "other", 1, None);
    let mut busy = seen.clone();
    busy.snapshots = vec![record(&seen, &other, Phase::Running)];
    assert!(!matches!(planned(&busy).act, Some(Act::StartRun(_))));
    // The operator was restarted, and the agent does not answer: the status knows.
    seen.log_report = Seen::unknown("silence");
    is(&seen, "False", "LogInterrupted");
}

#[test]
fn an_agent_that_has_not_reached_etcd_knows_nothing_of_the_log() {
    let mut seen = logging();
    answer(&mut seen, 5, |report| report.gap = Some(LogGap { after: 5, until: 9, at: Some(noon()) }));
    let (gap, mut current) = (seen.schedule.status.clone().unwrap().log.unwrap(), logging());
    let message = "no member answers".to_owned();
    let begins =
        LogReport { problem: Some(LogProblem { class: ExitClass::Transient, message }), ..LogReport::default() };
    seen.log_report = Seen::Known(begins.clone());
    is(&seen, "False", "LogInterrupted");
    assert_eq!(planned(&seen).status.log, Some(gap));

    let before = current.schedule.status.clone().unwrap().log;
    current.log_report = Seen::Known(begins);
    is(&current, "True", "LogStored");
    assert_eq!(planned(&current).status.log, before);
    let plan = planned_at(&current, noon() + SignedDuration::from_secs(361));
    assert_eq!(told(&plan, Type::LogCurrent), ("False", "LogBehind"));
    let told = plan.status.conditions.iter().find(|c| c.type_ == "LogCurrent").unwrap();
    assert!(told.message.contains("no member answers"), "{}", told.message);
}

#[test]
fn only_pods_of_the_deployment_are_asked() {
    let seen = logging();
    let deployment = seen.log_deployment.as_ref().unwrap();
    let name = deployment.metadata.name.clone().unwrap();
    let pod = |kind: &str, owner: String, uid: &str| {
        let mut pod = Pod::default();
        pod.metadata.labels = Some([(key::SCHEDULE_UID.to_owned(), uid.to_owned())].into());
        pod.metadata.owner_references = Some(vec![OwnerReference {
            kind: kind.to_owned(),
            name: owner,
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        is_log_pod(&pod, deployment, "u-s")
    };
    assert!(pod("ReplicaSet", format!("{name}-7d4b9c"), "u-s"));
    assert!(!pod("ReplicaSet", format!("{name}-7d4b9c"), "u-other"));
    assert!(!pod("Job", format!("{name}-7d4b9c"), "u-s"));
    assert!(!pod("ReplicaSet", format!("{name}-other-7d4b9c"), "u-s"));
    assert!(!pod("ReplicaSet", name, "u-s"));
}
