//! Merges of snapshots and the log: the `CronJob`, and what the retention does with the log.

use crate::fixtures::flags;
use holdfast_api::log::{Compaction, Log};
use holdfast_api::schedule::LastSuccessful;
use holdfast_api::snapshot::{Age, Encryption, Spool};
use holdfast_base::objects::job::Kind;
use holdfast_contract::{ExitClass, FailedReport, Failure};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

fn merging() -> Observed {
    let mut seen = running();
    let compaction = Compaction { schedule: "30 * * * *".to_owned(), ..Compaction::default() };
    seen.schedule.spec.log = Some(Log { compaction: Some(compaction), ..Log::default() });
    seen
}

fn compaction(seen: &mut Observed) -> &mut Compaction {
    seen.schedule.spec.log.as_mut().unwrap().compaction.as_mut().unwrap()
}

/// The `CronJob` that merges, if a plan applies it.
fn wanted(seen: &Observed) -> Option<CronJob> {
    planned(seen).ensures.into_iter().find_map(|ensure| match ensure {
        Ensure::CronJob(cron) if cron.metadata.name.as_ref().unwrap().contains("-compact-") => Some(*cron),
        _ => None,
    })
}

fn stands(mut seen: Observed) -> Observed {
    let mut cron = wanted(&seen).unwrap();
    stored(&mut cron.metadata, "u-compact");
    seen.compaction_cron_job = Some(cron);
    seen.schedule.status = Some(planned(&seen).status);
    assert_eq!(wanted(&seen), None);
    seen
}

/// Adds a merge that ended `ago` minutes ago, and takes its result over.
fn ended(seen: &mut Observed, ago: i64, failure: Option<ExitClass>) -> Plan<EtcdSnapshotScheduleStatus> {
    let template = seen.compaction_cron_job.as_ref().unwrap().spec.clone().unwrap().job_template;
    let mut job = Job { metadata: template.metadata.unwrap(), spec: template.spec, status: None };
    stored(&mut job.metadata, &format!("u-m-{ago}"));
    let at = Time(noon() - minutes(ago));
    (job.metadata.name, job.metadata.creation_timestamp) = (Some(format!("m-{ago}")), Some(at.clone()));
    let condition = JobCondition {
        type_: if failure.is_none() { "Complete" } else { "Failed" }.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(at.clone()),
        ..JobCondition::default()
    };
    job.status = Some(JobStatus { conditions: Some(vec![condition]), ..JobStatus::default() });
    let report = failure.map(|class| FailedReport { class, origin: None, message: "no room in --scratch".to_owned() });
    let end = ContainerStateTerminated {
        exit_code: failure.map_or(0, |class| Failure::for_class(class, None).code.into()),
        message: report.map(|report| serde_json::to_string(&Report::Failed(report)).unwrap()),
        finished_at: Some(at),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    let status = ContainerStatus { name: "agent".to_owned(), state, ..ContainerStatus::default() };
    let mut pod = Pod { spec: job.spec.as_ref().unwrap().template.spec.clone(), ..Pod::default() };
    pod.metadata.name = Some(format!("m-{ago}-x"));
    pod.status = Some(PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() });
    seen.merges.push(Recall { job, pods: vec![pod] });
    seen.schedule.status = Some(planned(seen).status);
    planned(seen)
}

#[test]
fn merges_that_fail_are_seen() {
    let full = Some(ExitClass::Full);
    let mut seen = stands(merging());
    assert_eq!(told(&planned(&seen), Type::Merged), ("Unknown", "NoMergeYet"));
    // A new cluster: the first snapshot comes after the first merge.
    let early = ended(&mut seen, 90, Some(ExitClass::NotFound));
    assert_eq!(told(&early, Type::Merged), ("Unknown", "NoMergeYet"));
    assert_eq!(early.status.log.unwrap().merges.unwrap().consecutive_failures, 0);
    let saved = LastSuccessful {
        key: "ns/a/u-a/x".to_owned(),
        taken_at: (noon() - minutes(80)).to_string(),
        ..LastSuccessful::default()
    };
    seen.schedule.status.as_mut().unwrap().last_successful = Some(saved);
    assert_eq!(told(&ended(&mut seen, 70, None), Type::Merged), ("True", "MergeSucceeded"));

    assert_eq!(told(&ended(&mut seen, 60, full), Type::Merged), ("False", "MergeFailing"));
    let twice = ended(&mut seen, 50, full);
    let merges = twice.status.log.clone().unwrap().merges.unwrap();
    assert_eq!((merges.consecutive_failures, merges.last_failed.unwrap().job.as_str()), (2, "m-50"));
    let message = &twice.status.conditions.iter().find(|c| c.type_ == "Merged").unwrap().message;
    for part in ["the newest 2 merges failed", "no room in --scratch", "Job m-50"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(planned(&seen).status, twice.status, "each Job counts once");
    let mut schedule = seen.schedule.clone();
    schedule.status.as_mut().unwrap().conditions.retain(|c| c.type_ == "Merged");
    assert_eq!(healthy([&schedule]).reason, Reason::MergeFailing);
    assert_eq!(told(&ended(&mut seen, 40, None), Type::Merged), ("True", "MergeSucceeded"));

    seen.schedule.spec.log.as_mut().unwrap().compaction = None;
    let without = planned(&seen).status;
    assert!(without.log.unwrap().merges.is_none() && without.conditions.iter().all(|c| c.type_ != "Merged"));
}

#[test]
fn a_merge_reaches_the_store_and_a_scratch_volume_and_no_member() {
    let mut seen = merging();
    seen.cluster.as_mut().unwrap().spec.placement.priority_class_name = Some("members".to_owned());
    let age = Age { recipients: vec!["age1x".to_owned()] };
    seen.schedule.spec.snapshot_template.encryption = Some(Encryption { age });
    *compaction(&mut seen) = Compaction {
        schedule: "30 2 * * *".to_owned(),
        time_zone: Some("Europe/Berlin".to_owned()),
        scratch: Some(Spool { size: Quantity("20Gi".to_owned()), storage_class_name: None }),
        identity_secret_refs: vec![LocalRef { name: "age-key".to_owned() }],
        resources: None,
    };
    let cron = wanted(&seen).unwrap();
    assert_eq!(cron.metadata.owner_references.as_ref().unwrap()[0].uid, "u-s", "it goes with the schedule");
    let spec = cron.spec.clone().unwrap();
    assert_eq!((spec.schedule.as_str(), spec.time_zone.as_deref()), ("30 2 * * *", Some("Europe/Berlin")));
    assert_eq!((spec.suspend, spec.concurrency_policy.as_deref()), (Some(false), Some("Forbid")));
    let pod = spec.job_template.spec.unwrap().template.spec.unwrap();
    assert_eq!((pod.priority_class_name.as_deref(), pod.automount_service_account_token), (None, Some(false)));
    let agent = &pod.containers[0];
    assert!(Kind::Compact.runs_in(Some(&pod)));
    let told = flags(agent);
    for arg in [
        "--namespace=ns",
        "--cluster=a",
        "--lineage=u-a",
        "--schedule-uid=u-s",
        "--scratch=/scratch",
        "--age-recipient=age1x",
        "--age-identity-dir=/etc/holdfast/identities/0",
    ] {
        assert!(told.contains(&arg.to_owned()), "{arg} is missing in {told:?}");
    }
    assert!(!told.iter().any(|arg| arg.starts_with("--endpoints")), "{told:?}");
    let variables: Vec<&str> = agent.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert!(variables.contains(&"HOLDFAST_OWNER_UID") && variables.contains(&"HOLDFAST_POD_UID"), "{variables:?}");
    let mounts: Vec<&str> = agent.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    assert!(mounts.contains(&"/scratch"), "{mounts:?}");
}

#[test]
fn merges_pause_with_the_backups_and_stop_with_the_spec() {
    let seen = stands(merging());
    let log = planned(&seen).status.log.unwrap();
    assert_eq!(log.compaction.unwrap().uid, "u-compact");
    let mut paused = seen.clone();
    paused.schedule.spec.suspend = true;
    assert_eq!(wanted(&paused).unwrap().spec.unwrap().suspend, Some(true));
    let mut without = seen.clone();
    without.schedule.spec.log.as_mut().unwrap().compaction = None;
    assert_eq!(wanted(&without).unwrap().spec.unwrap().suspend, Some(true), "the operator deletes no CronJob");
    assert_eq!(planned(&without).status.log.unwrap_or_default().compaction, None);

    let mut wrong = seen.clone();
    compaction(&mut wrong).schedule = "0 0 30 2 *".to_owned();
    assert_eq!(told(&planned(&wrong), Type::Ready), ("False", "NeverFires"));
    let mut foreign = seen;
    foreign.compaction_cron_job.as_mut().unwrap().metadata.owner_references = None;
    let plan = planned(&foreign);
    assert_eq!(told(&plan, Type::Ready), ("False", "NameConflict"));
    assert_eq!(plan.ensures, vec![]);
}
