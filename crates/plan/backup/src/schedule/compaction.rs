//! The `CronJob` that merges the newest snapshot and the log (`spec.log.compaction`).
//!
//! Decides when there is one, and its Job: the agent, which needs the store and a scratch volume, and no member. The agent chooses
//! snapshot and revision when the Job runs, and publishes the merged snapshot as one of the schedule: the retention judges it. The
//! Job fails where the merged snapshot would fill the quota of the cluster.

use std::path::PathBuf;

use holdfast_api::agent::Agent;
use holdfast_api::backup_store::Right;
use holdfast_api::cluster::Placement;
use holdfast_api::condition::Reason;
use holdfast_api::log::Compaction;
use holdfast_api::{EtcdSnapshotScheduleStatus, name};
use holdfast_contract::{CompactRequest, DEFAULT_SAVE_DEADLINE_SECONDS, Request};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::CronJob;

use super::arm::{self, Place};
use super::beside::{self, Armed, Live};
use super::{Observed, UTC};
use holdfast_base::objects::cron_job::{Recurring, cron_job};
use holdfast_base::objects::job::{AgentJob, SCRATCH};
use holdfast_base::{meta, objects, saving, valid};

/// Number of failed Jobs that Kubernetes keeps.
const FAILURES: usize = 3;

/// Returns the `CronJob` to apply, and the mistake that a person has to correct.
pub(super) fn decide(seen: &Observed, now: Timestamp) -> (Option<CronJob>, Option<(Reason, String)>) {
    let live = Live { any: seen.compaction_cron_job.as_ref(), own: seen.own_compaction_cron_job() };
    let Some(compaction) = wanted(seen) else { return (live.retire(agent_job(seen)), None) };
    let due = (compaction.schedule.as_str(), compaction.time_zone.as_deref());
    let line = beside::line(seen, "spec.log.compaction", due, now);
    let begins = (Reason::JobPending, "Holdfast creates the CronJob that merges".to_owned());
    let rendered = |suspend| line.and_then(|_| rendered(seen, compaction, suspend));
    let standing = |suspend| live.suspended(agent_job(seen), suspend);
    let Armed { apply, wrong, .. } = live.arm(seen, begins, standing, rendered);
    (apply, wrong)
}

/// Writes the name of the `CronJob` into the status of the log.
pub(super) fn record(seen: &Observed, status: &mut EtcdSnapshotScheduleStatus) {
    let cron = seen.own_compaction_cron_job().filter(|_| wanted(seen).is_some()).map(beside::reference);
    if seen.schedule.spec.log.is_some() && (cron.is_some() || status.log.is_some()) {
        status.log.get_or_insert_default().compaction = cron;
    }
}

fn wanted(seen: &Observed) -> Option<&Compaction> {
    seen.schedule.spec.log.as_ref()?.compaction.as_ref()
}

fn rendered(seen: &Observed, compaction: &Compaction, suspend: bool) -> Result<CronJob, (Reason, String)> {
    let (meta, spec) = (&seen.schedule.metadata, &seen.schedule.spec);
    let Place { location, record } = arm::place(seen, Right::Write)?;
    let cluster = arm::cluster(seen)?;
    let lineage = cluster.map(|cluster| meta::uid(&cluster.metadata).to_owned());
    let template = &spec.snapshot_template;
    let request = CompactRequest {
        expect_store_id: record.as_ref().and_then(|record| record.id.clone()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(spec.cluster_ref.as_ref()),
        lineage,
        quota_backend_bytes: cluster.and_then(valid::most_bytes),
        schedule_name: Some(meta::name(meta).to_owned()),
        schedule_uid: Some(seen.uid().to_owned()),
        age_recipients: template.encryption.as_ref().map(|e| e.age.recipients.clone()).unwrap_or_default(),
        compression: template.compression,
        verify: template.verify,
        ..request()
    };
    let zone = compaction.time_zone.clone().or_else(|| spec.time_zone.clone());
    Ok(cron_job(&Recurring {
        job: AgentJob {
            work: Request::Compact(request),
            destination: location,
            record,
            spool: compaction.scratch.clone(),
            identities: compaction.identity_secret_refs.clone(),
            ..agent_job(seen)
        },
        template: None,
        schedule: compaction.schedule.clone(),
        time_zone: zone.unwrap_or_else(|| UTC.to_owned()),
        suspend,
        starting_deadline: spec.starting_deadline(),
        failed_limit: FAILURES,
    }))
}

fn request() -> CompactRequest {
    CompactRequest {
        scratch: PathBuf::from(SCRATCH),
        deadline_seconds: DEFAULT_SAVE_DEADLINE_SECONDS,
        ..CompactRequest::default()
    }
}

/// Returns the settings that the `CronJob` shares with the backups': without the members' priority, which merges must not have.
fn agent_job(seen: &Observed) -> AgentJob {
    let shared = arm::agent_job(seen);
    let meta = &seen.schedule.metadata;
    let resources = wanted(seen).and_then(|compaction| compaction.resources.clone());
    AgentJob {
        name: name::compaction_cron_job(meta::name(meta), meta::uid(meta)),
        work: Request::Compact(request()),
        agent: Agent { resources: Some(resources.unwrap_or_else(objects::drill_requests)), ..shared.agent.clone() },
        placement: Placement { priority_class_name: None, ..shared.placement.clone() },
        ..shared
    }
}
