//! Snapshots that record a run of a schedule: the operator reads such a run, and never starts a run.

use holdfast_api::snapshot::Run;
use k8s_openapi::api::batch::v1::CronJob;

use super::*;

fn controlled(meta: &mut ObjectMeta, kind: &str, uid: &str) {
    meta.owner_references = Some(vec![OwnerReference {
        kind: kind.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
}

/// A record whose Job exists, with these Pods.
fn recorded(pods: Vec<Pod>) -> Observed {
    let mut seen = with(pods);
    let job = seen.job.as_mut().unwrap();
    job.metadata.uid = Some("run-uid".to_owned());
    controlled(&mut job.metadata, "CronJob", "cron-uid");
    let mut cron = CronJob { metadata: meta("nightly-backup-1", "cron-uid"), ..CronJob::default() };
    controlled(&mut cron.metadata, "EtcdSnapshotSchedule", "schedule-uid");
    seen.cron_job = Some(cron);
    let name = job.metadata.name.clone().unwrap();
    seen.snapshot.metadata.labels = Some([(key::SCHEDULE_UID.to_owned(), "schedule-uid".to_owned())].into());
    seen.snapshot.spec.run = Some(Run { job: name, uid: "run-uid".to_owned(), started_at: ago(60).0.to_string() });
    seen
}

#[test]
fn a_run_is_read_like_any_job() {
    let running = planned(&recorded(vec![running()]));
    assert_eq!((running.act, running.status.phase), (None, Phase::Running));
    let plan = planned(&recorded(vec![saved()]));
    assert_eq!((plan.act, plan.status.phase), (None, Phase::Complete));
    assert!(plan.status.artifact.is_some());
    let mut seen = recorded(vec![failed("p-1", ExitClass::Denied, "no right")]);
    ends(&mut seen, "Failed", "PodFailurePolicy", 60);
    assert_eq!(planned(&seen).status.phase, Phase::Failed);
    // The Job names the cluster.
    let mut seen = recorded(vec![saved()]);
    let job = seen.job.as_mut().unwrap();
    job.metadata.annotations = Some([(key::CLUSTER_UID.to_owned(), "cluster-uid".to_owned())].into());
    assert_eq!(planned(&seen).status.cluster_uid.as_deref(), Some("cluster-uid"));
}

/// A user who may create snapshots must not make the operator accept another Job's report as a backup.
#[test]
fn nothing_is_taken_from_a_job_that_is_no_run_of_the_schedule() {
    let refused = |change: &dyn Fn(&mut Observed)| {
        let mut seen = recorded(vec![saved()]);
        change(&mut seen);
        let plan = planned(&seen);
        let (phase, ready, reason, message) = told(&plan.status);
        assert_eq!(
            (plan.act.is_none(), phase, ready, reason),
            (true, Phase::Pending, "False", "InvalidSpec"),
            "{message}"
        );
        assert_eq!((&plan.status.artifact, &plan.status.started_at), (&None, &None));
    };
    refused(&|s| s.cron_job = None);
    refused(&|s| s.snapshot.metadata.labels = None);
    refused(&|s| controlled(&mut s.cron_job.as_mut().unwrap().metadata, "EtcdSnapshotSchedule", "another"));
    refused(&|s| s.cron_job.as_mut().unwrap().metadata.uid = Some("another".to_owned()));
    refused(&|s| controlled(&mut s.job.as_mut().unwrap().metadata, "Pod", "x"));
    // After the verification a user may delete the schedule before its Job.
    let mut seen = recorded(vec![running()]);
    seen.snapshot.status = Some(planned(&seen).status);
    seen.cron_job = None;
    seen.pods = vec![saved()];
    assert_eq!(planned(&seen).status.phase, Phase::Complete);
}

#[test]
fn a_run_whose_job_is_gone_is_asked_for_and_never_started() {
    let mut seen = recorded(vec![]);
    seen.job = None;
    seen.cron_job = None;
    let plan = planned(&seen);
    let Some(Act::StartJob(asks)) = &plan.act else { panic!("{:?}", plan.act) };
    let asked_for = args(asks);
    assert!(asked_for.contains(&"--owner-uid=run-uid".to_owned()), "by the UID of the Job: {asked_for:?}");
    seen.snapshot.status = Some(plan.status);
    let nothing_there = planned(&asked(seen.clone(), nothing()));
    assert_eq!((nothing_there.act, nothing_there.status.phase), (None, Phase::Failed));
    assert_eq!(nothing_there.status.error.unwrap().class, "NotFound");
    let there = planned(&asked(seen.clone(), vec![saved()]));
    assert_eq!((there.act, there.status.phase), (None, Phase::Complete));
    // Write-only credentials: the answer stays unknown, and the operator starts nothing.
    let denied = planned(&asked(seen, vec![failed("p", ExitClass::Denied, "no right to read")]));
    assert!(
        !matches!(denied.act, Some(Act::StartJob(ref job)) if args(job).iter().any(|a| a.starts_with("--endpoints")))
    );
    assert_eq!(denied.status.phase, Phase::Running);
}

/// A mesh or a policy adds a container that never ends: the Job would live to its deadline, and the CronJob start no run.
#[test]
fn a_job_that_a_sidecar_keeps_alive_is_deleted_after_its_result_is_recorded() {
    let beside_a_sidecar = || {
        let mut pod = saved();
        pod.status.as_mut().unwrap().phase = Some("Running".to_owned());
        let mut seen = saved_earlier(recorded(vec![pod]), 60);
        seen.job.as_mut().unwrap().metadata.resource_version = Some("7".to_owned());
        seen
    };
    let first = planned(&beside_a_sidecar());
    assert_eq!((first.act, first.status.phase), (None, Phase::Complete), "the result is recorded first");
    let mut seen = beside_a_sidecar();
    seen.snapshot.status = Some(first.status);
    let job = Target::from(&seen.job.as_ref().unwrap().metadata);
    let next = planned(&seen);
    assert!(matches!(&next.act, Some(Act::DeleteJob { job: target, .. }) if *target == job), "{:?}", next.act);
    assert_eq!(Some(next.status), seen.snapshot.status, "a final status stays");
    type Change = fn(&mut Observed);
    let changes: [Change; 4] = [
        |s| s.pods[0].status.as_mut().unwrap().phase = Some("Succeeded".to_owned()),
        |s| s.job.as_mut().unwrap().metadata.uid = Some("another".to_owned()),
        |s| s.pods = vec![running()],
        |s| ends(s, "Complete", "", 60),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut other = seen.clone();
        change(&mut other);
        assert_eq!(planned(&other).act, None, "{n}");
    }
}
