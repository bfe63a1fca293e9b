//! The `CronJob` of a schedule: its Jobs run the agent themselves, whether the operator runs or not.
//!
//! Decides the shape. The Job is `job.rs`'s; what is asked of the agent, and when the `CronJob` is suspended, is decided
//! before (`plan::schedule`).

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::job::{self, AgentJob};
use crate::api::key;
use crate::plan::fingerprint;

/// Jobs that have ended well and stay: by them the operator sees what has run while it was down.
pub const SUCCESSES: usize = 3;
/// Jobs that have failed and stay, at most.
const FAILURES: usize = 3;

/// What the builder needs; all of it has been judged before.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurring {
    /// The Job of each run; its name is the `CronJob`'s, and its owner too.
    pub job: AgentJob,
    /// What each run records: the template, as JSON.
    pub template: String,
    /// Due times.
    pub schedule: String,
    /// Their time zone.
    pub time_zone: String,
    /// Whether no run is started.
    pub suspend: bool,
    /// Seconds that a run may start late.
    pub starting_deadline: u32,
    /// Records of failed runs that are kept.
    pub failed_limit: usize,
}

/// The `CronJob`.
pub fn cron_job(want: &Recurring) -> CronJob {
    let run = job::job(&AgentJob { owner: None, namespace: None, recurring: true, ..want.job.clone() });
    let mut annotations = run.metadata.annotations.unwrap_or_default();
    annotations.insert(key::SNAPSHOT_TEMPLATE.to_owned(), want.template.clone());
    let limit = |most: usize| i32::try_from(most).ok();
    let spec = CronJobSpec {
        schedule: want.schedule.clone(),
        time_zone: Some(want.time_zone.clone()),
        suspend: Some(want.suspend),
        // A run that takes longer than the pause is not joined by a second one.
        concurrency_policy: Some("Forbid".to_owned()),
        starting_deadline_seconds: Some(want.starting_deadline.into()),
        successful_jobs_history_limit: limit(SUCCESSES),
        failed_jobs_history_limit: limit(want.failed_limit.clamp(1, FAILURES)),
        job_template: JobTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: run.metadata.labels,
                annotations: Some(annotations),
                ..ObjectMeta::default()
            }),
            spec: run.spec,
        },
    };
    with_spec(want.job.clone(), spec)
}

/// The metadata of a `CronJob` of ours around this spec.
pub fn with_spec(owner: AgentJob, spec: CronJobSpec) -> CronJob {
    // JSON of Kubernetes' own types cannot fail.
    let rendered = fingerprint::of([serde_json::to_string(&spec).unwrap_or_default()]);
    CronJob {
        metadata: ObjectMeta {
            labels: Some(job::labels(&owner)),
            annotations: Some(BTreeMap::from([(key::RENDERED.to_owned(), rendered)])),
            name: Some(owner.name),
            namespace: owner.namespace,
            owner_references: owner.owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}
