//! Runs during an outage of the operator: a Job asks the store for them.

use super::*;
use crate::fixtures::flags_of_job;
use holdfast_base::objects::job::{Kind, pod_spec};

fn answered(job: Job, report: &Report) -> Recall {
    let end =
        ContainerStateTerminated { message: serde_json::to_string(report).ok(), ..ContainerStateTerminated::default() };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let agent = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let status = PodStatus { container_statuses: Some(vec![agent]), ..PodStatus::default() };
    Recall { job, pods: vec![Pod { status: Some(status), ..Pod::default() }] }
}

#[test]
fn a_hole_is_asked_about_once_and_filled() {
    let ages: Vec<(i64, Phase)> = [300, 240, 180, 120, 60].map(|ago| (ago, Phase::Complete)).into();
    let mut seen = with_runs(&ages);
    // Jobs still exist: all succeeded Jobs since the last record are visible.
    let first = (noon() - minutes(300)).to_string();
    seen.schedule.status.as_mut().unwrap().recalled_through = Some(first);
    let status = planned(&seen).status;
    assert_eq!(status.recalled_through.as_deref(), Some((noon() - minutes(60)).to_string().as_str()));
    assert_eq!(planned(&seen).act, None);

    // An outage: the records end 300 minutes ago, and only the newest two Jobs exist.
    seen.snapshots.drain(1..3);
    seen.jobs = seen.jobs.split_off(3);
    let old = (noon() - minutes(300)).to_string();
    seen.schedule.status.as_mut().unwrap().recalled_through = Some(old.clone());
    let Some(Act::StartJob(asks)) = planned(&seen).act else { panic!("{:?}", planned(&seen).act) };
    assert!(Kind::Recall.runs_in(pod_spec(&asks)));
    let args = flags_of_job(&asks);
    for arg in [format!("--after={old}"), format!("--until={}", noon() - minutes(120)), "--schedule-uid=u-s".to_owned()]
    {
        assert!(args.contains(&arg), "{arg} is missing in {args:?}");
    }
    let run =
        |name: &str, ago| RecalledRun { job: name.to_owned(), uid: format!("u-{name}"), at: noon() - minutes(ago) };
    let until = noon() - minutes(120);
    let report = |runs, through| Report::Recalled(RecallReport { runs, through });
    let mut job = *asks;
    stored(&mut job.metadata, "u-asks");
    let hole = seen.clone();
    let found = vec![run("run-300", 299), run("run-240", 239), run("run-180", 179)];
    seen.recalls = vec![answered(job.clone(), &report(found, until))];
    for uid in ["u-run-240", "u-run-180"] {
        let Some(Act::RecordRun(missed)) = planned(&seen).act else { panic!() };
        assert_eq!(missed.spec.run.as_ref().unwrap().uid, uid, "what is recorded is not recorded again");
        seen.snapshots.push(*missed);
    }
    // From there on no run is missing.
    let plan = planned(&seen);
    let newest = (noon() - minutes(60)).to_string();
    assert_eq!((plan.act, plan.status.recalled_through), (None, Some(newest)));

    // The report contains only the first run: the next Job asks from there on.
    seen = hole.clone();
    let cut = noon() - minutes(239);
    seen.recalls = vec![answered(job.clone(), &report(vec![run("run-240", 239)], cut))];
    let Some(Act::RecordRun(missed)) = planned(&seen).act else { panic!() };
    seen.snapshots.push(*missed);
    let plan = planned(&seen);
    assert_eq!(plan.status.recalled_through.as_deref(), Some(cut.to_string().as_str()));
    let Some(Act::StartJob(next)) = plan.act else { panic!() };
    assert_ne!(next.metadata.name, job.metadata.name);

    // A user deletes all ended Jobs: the operator asks about the gap between the records.
    seen = hole.clone();
    seen.jobs.retain(|job| job.metadata.name.as_deref() == Some("run-60"));
    let Some(Act::StartJob(_)) = planned(&seen).act else { panic!() };

    // The operator repeats a failed question after a pause, and an Event has the cause.
    seen = hole;
    let end = JobCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(noon())),
        ..JobCondition::default()
    };
    job.status = Some(JobStatus { conditions: Some(vec![end]), ..JobStatus::default() });
    job.metadata.creation_timestamp = Some(Time(noon()));
    seen.recalls = vec![Recall { job: job.clone(), pods: vec![] }];
    assert_eq!(planned(&seen).act, None);
    let later = planned_at(&seen, noon() + minutes(2));
    let Some(Act::StartJob(again)) = &later.act else { panic!("{:?}", later.act) };
    assert_ne!(again.metadata.name, job.metadata.name);
    assert!(later.notes.iter().any(|note| note.reason == "RecallStarted" && note.message.contains("no Pod is left")));
}
