//! A run that Kubernetes skips because the previous run is active, and the deadline that prevents skips.

use k8s_openapi::api::batch::v1::CronJobStatus;
use k8s_openapi::api::core::v1::ObjectReference;

use super::*;

/// The hourly run of 11:07, and a status of the `CronJob` that lists its Job.
fn active() -> Observed {
    let mut seen = with_runs(&[(53, Phase::Running)]);
    let uid = seen.jobs[0].metadata.uid.clone();
    seen.cron_job.as_mut().unwrap().status = Some(CronJobStatus {
        active: Some(vec![ObjectReference { uid, ..ObjectReference::default() }]),
        last_schedule_time: Some(Time(noon() - minutes(53))),
        ..CronJobStatus::default()
    });
    seen
}

/// Seconds after the next due time, 12:07.
fn due(seconds: i64) -> Timestamp {
    noon() + minutes(7) + SignedDuration::from_secs(seconds)
}

fn fresh(plan: &Plan<EtcdSnapshotScheduleStatus>) -> (String, String, String) {
    let condition = plan.status.conditions.iter().find(|c| c.type_ == "Fresh").unwrap().clone();
    (condition.status, condition.reason, condition.message)
}

#[test]
fn a_run_that_is_skipped_is_told_at_once_with_the_active_job() {
    let seen = active();
    assert_eq!(planned_at(&seen, due(4)).status.skipped, None, "the controller needs some seconds");
    let plan = planned_at(&seen, due(5));
    let (status, reason, message) = fresh(&plan);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "RunSkipped"));
    for part in [
        "No run began at 2026-01-01T12:07:00Z",
        "Job run-53 of an earlier run is active since 2026-01-01T11:07:00Z",
        "kubectl describe etcdsnap run-53",
        "kubectl delete job run-53",
        "there is no complete backup yet",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    assert_eq!(plan.notes.iter().filter(|note| note.reason == "RunSkipped").count(), 1);
    let mut told = seen.clone();
    told.schedule.status = Some(plan.status.clone());
    let later = planned_at(&told, due(600));
    assert_eq!((fresh(&later), later.notes), (fresh(&plan), vec![]), "once, and in the same words");
}

#[test]
fn only_an_active_run_of_before_skips_one() {
    let mut ended = active();
    let over = JobCondition { type_: "Failed".to_owned(), status: "True".to_owned(), ..JobCondition::default() };
    ended.jobs[0].status = Some(JobStatus { conditions: Some(vec![over]), ..JobStatus::default() });
    let mut unknown = active();
    unknown.jobs.clear();
    let mut idle = active();
    idle.cron_job.as_mut().unwrap().status.as_mut().unwrap().active = None;
    let mut begun = active();
    begun.cron_job.as_mut().unwrap().status.as_mut().unwrap().last_schedule_time = Some(Time(due(0)));
    let mut never = active();
    never.cron_job.as_mut().unwrap().status.as_mut().unwrap().last_schedule_time = None;
    let mut suspended = active();
    suspended.schedule.spec.suspend = true;
    for (why, seen) in [
        ("it has ended", ended),
        ("its Job is not known", unknown),
        ("no run is active", idle),
        ("the run has begun", begun),
        ("nothing ever ran", never),
        ("no run is to begin", suspended),
    ] {
        assert_eq!(plan(&seen, due(60)).status.skipped, None, "{why}");
    }
}

#[test]
fn worse_reasons_name_the_active_job_too() {
    let mut failing = active();
    let failed = job(&failing, "run-113", 113, Some(false));
    let kept = record(&failing, &failed, Phase::Failed);
    failing.snapshots.push(kept);
    let (_, reason, message) = fresh(&planned_at(&failing, due(60)));
    assert_eq!(reason, "BackupFailing");
    assert!(message.contains("no right. No run began at 2026-01-01T12:07:00Z"), "{message}");
    let (_, reason, message) = fresh(&planned_at(&active(), due(2 * 3600)));
    assert_eq!(reason, "BackupOverdue");
    assert!(message.contains("Job run-53") && !message.contains("kubectl describe cronjob"), "{message}");
}

#[test]
fn the_due_time_is_waited_for_in_shorter_and_shorter_waits() {
    let left = |now| match planned_at(&active(), now).wake {
        Wake::AfterMillis(millis) => millis,
        other => panic!("{other:?}"),
    };
    // 7 min 5 s and 25 s, each less a fifth.
    assert_eq!((left(noon()), left(due(-20))), (340_000, 20_000));
}

/// The deadline of a schedule's Job, and the deadline of its agent.
fn deadlines(schedule: &str, asked: Option<u32>) -> (i64, u32) {
    let mut seen = fresh_one();
    schedule.clone_into(&mut seen.schedule.spec.schedule);
    seen.schedule.spec.snapshot_template.deadline_seconds = asked;
    let cron = applied(&planned(&seen)).unwrap();
    let told = args(&cron);
    let agent =
        told.iter().find_map(|arg| arg.strip_prefix("--deadline-seconds=")).map_or(3600, |n| n.parse().unwrap());
    (cron.spec.unwrap().job_template.spec.unwrap().active_deadline_seconds.unwrap(), agent)
}

#[test]
fn a_run_ends_before_the_next_one_is_due() {
    // The Job has 120 s more than its agent, which first waits for 19 s.
    for (schedule, period, agent) in [
        ("*/30 * * * *", 1800, 1631),
        ("7 * * * *", 3600, 3431),
        ("0 */2 * * *", 7200, 3600),
        ("0 0 * * *", 86_400, 3600),
    ] {
        let (job, told) = deadlines(schedule, None);
        assert_eq!((job, told), (i64::from(agent) + 120 + 19, agent), "{schedule}");
        assert!(job < period, "{schedule}");
        for asked in [10, 86_400] {
            assert_eq!(deadlines(schedule, Some(asked)).1, asked, "{schedule}: as the user asks");
        }
    }
    // A save that takes longer than such a period has to end well all the same.
    for schedule in ["* * * * *", "*/15 * * * *", "0,10 3 * * *"] {
        assert_eq!(deadlines(schedule, None).1, 3600, "{schedule}");
    }
}
