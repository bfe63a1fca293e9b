//! `schedule run|suspend|resume`: one backup now, and whether backups are made.
//!
//! Decides the name of a run by hand, which is a Job of the schedule's `CronJob`. The operator
//! records the run as an EtcdSnapshot with the name of the Job.

use clap::{Args, Subcommand};
use holdfast_api::snapshot::{EtcdSnapshot, Phase};
use holdfast_api::{EtcdSnapshotSchedule, name};
use holdfast_base::objects::cron_job::run_now;
use holdfast_io::clock;
use holdfast_kube::requests;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::json;

use super::access::{Access, MANAGER, Session, refused};
use super::end::{DONE, print};
use super::progress::Live;
use super::status::observe::snapshot;
use super::wait::{Look, Wait};
use holdfast_manifests::names::object;

/// Verbs of `schedule`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum ScheduleVerb {
    /// Save one snapshot now, with the settings of the schedule.
    Run(Box<RunFlags>),
    /// Start no run until `schedule resume`. A run that has started goes on.
    Suspend(Box<SuspendFlags>),
    /// Start runs again.
    Resume(Box<SuspendFlags>),
}

/// Flags of `schedule run`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RunFlags {
    /// `EtcdSnapshotSchedule`.
    #[arg(value_parser = object)]
    pub schedule: String,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Flags of `schedule suspend` and `schedule resume`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SuspendFlags {
    /// `EtcdSnapshotSchedule`.
    #[arg(value_parser = object)]
    pub schedule: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Carries out a verb.
pub async fn run(verb: ScheduleVerb) -> anyhow::Result<u8> {
    match verb {
        ScheduleVerb::Run(flags) => start(*flags).await,
        ScheduleVerb::Suspend(flags) => suspend(*flags, true).await,
        ScheduleVerb::Resume(flags) => suspend(*flags, false).await,
    }
}

async fn suspend(flags: SuspendFlags, suspend: bool) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let changed = session.merge::<EtcdSnapshotSchedule>(&flags.schedule, json!({"spec": {"suspend": suspend}})).await?;
    let word = if suspend { "suspended" } else { "resumed" };
    print(&format!("etcdsnapshotschedule.holdfast.dev/{} {word}\n", changed.name_any()))?;
    Ok(DONE)
}

async fn start(flags: RunFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let schedule = session.named::<EtcdSnapshotSchedule>(&flags.schedule).await?;
    let known = schedule.status.as_ref().and_then(|status| status.cron_job.as_ref());
    let Some(cron) = known else {
        anyhow::bail!(
            "the schedule {} has no CronJob yet: kubectl describe etcdsched {}",
            flags.schedule,
            flags.schedule
        )
    };
    let cron = session.named::<CronJob>(&cron.name).await?;
    let job = run_now(&cron, run_name(&flags.schedule, clock::now()));
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let made = requests::create(&session.client, &session.namespace, &params, &job).await;
    let made: Job = made.map_err(|error| refused(&error, "creating the Job"))?;
    let name = made.name_any();
    print(&format!("job.batch/{name} created\n"))?;
    let live = || Live::of_job(&session, &name);
    let code = flags.wait.until_with(live, async || read_run(&session, &name).await).await?;
    if !flags.wait.wait {
        print(&format!("The record of the run: kubectl get etcdsnap {name}{}\n", session.flag()))?;
    }
    Ok(code)
}

/// Looks at the record of a run, and at its Job until the record exists.
async fn read_run(session: &Session, name: &str) -> anyhow::Result<Look> {
    let Some(object) = session.get::<EtcdSnapshot>(name).await? else {
        return Ok(Look::Waits("the operator has not recorded the run yet".to_owned()));
    };
    let found = snapshot(&object);
    let phase = object.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let words = format!("{}  {}", phase.as_str(), found.message.unwrap_or_default());
    Ok(match phase {
        Phase::Complete => {
            let artifact = object.status.and_then(|status| status.artifact);
            print(&format!("{}\n", artifact.map(|artifact| artifact.uri).unwrap_or_default()))?;
            Look::Done
        }
        Phase::Failed => Look::Failed(words),
        Phase::Pending | Phase::Running => Look::Waits(words.trim_end().to_owned()),
    })
}

/// Returns the name of a run by hand: the schedule and the second.
fn run_name(schedule: &str, now: Timestamp) -> String {
    let second = now.strftime("%y%m%d%H%M%S").to_string();
    let room = name::MAX_LABEL - second.len() - 1;
    let mut start = schedule.replace('.', "-");
    start.truncate(room);
    format!("{}-{second}", start.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_by_hand_is_the_cron_jobs_own() {
        let cron: CronJob = serde_json::from_value(json!({
            "metadata": {"name": "alpha-hourly-1a2b", "uid": "u-1"},
            "spec": {"schedule": "7 * * * *", "jobTemplate": {
                "metadata": {"labels": {"holdfast.dev/schedule": "alpha-hourly"}, "annotations": {"a": "b"}},
                "spec": {"backoffLimit": 2, "template": {}},
            }},
        }))
        .unwrap();
        let made = run_now(&cron, run_name("alpha-hourly", "2026-11-27T12:00:01Z".parse().unwrap()));
        assert_eq!(made.name_any(), "alpha-hourly-261127120001");
        assert_eq!((made.annotations()["a"].as_str(), made.annotations().len()), ("b", 2));
        assert_eq!(made.labels()["holdfast.dev/schedule"], "alpha-hourly");
        let owner = &made.owner_references()[0];
        assert_eq!(
            (owner.uid.as_str(), owner.controller, made.spec.as_ref().unwrap().backoff_limit),
            ("u-1", Some(true), Some(2))
        );
        let long = run_name(&"a.b".repeat(40), Timestamp::UNIX_EPOCH);
        assert!(long.len() <= 63 && !long.contains('.') && long.ends_with("-700101000000"), "{long}");
    }
}
