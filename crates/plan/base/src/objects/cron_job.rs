//! The `CronJob` of a schedule: its Jobs run the agent, with or without the operator.
//!
//! Decides the shape. `job.rs` decides the Job; `plan::schedule` decides the request, and when the `CronJob` is suspended.

use holdfast_api::key;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job, JobTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::job::{self, AgentJob};
use crate::meta;

/// Number of succeeded Jobs that Kubernetes keeps: from these Jobs the operator sees the runs of its own downtime.
pub const SUCCESSES: usize = 3;
/// Largest number of failed Jobs that Kubernetes keeps.
const FAILURES: usize = 3;

/// Input of the builder, already validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurring {
    /// The Job of each run, with the name and the owner of the `CronJob`.
    pub job: AgentJob,
    /// The snapshot template that each run records, as JSON; absent: the Job saves nothing.
    pub template: Option<String>,
    /// The cron line.
    pub schedule: String,
    /// The time zone of the cron line.
    pub time_zone: String,
    /// Whether the `CronJob` starts no run.
    pub suspend: bool,
    /// How many seconds late a run may start.
    pub starting_deadline: u32,
    /// Number of records of failed runs to keep.
    pub failed_limit: usize,
}

/// Returns the `CronJob`.
pub fn cron_job(want: &Recurring) -> CronJob {
    let run = job::job(&AgentJob { owner: None, namespace: None, recurring: true, ..want.job.clone() });
    let mut annotations = run.metadata.annotations.unwrap_or_default();
    annotations.extend(want.template.clone().map(|template| (key::SNAPSHOT_TEMPLATE.to_owned(), template)));
    let limit = |most: usize| i32::try_from(most).ok();
    let spec = CronJobSpec {
        schedule: want.schedule.clone(),
        time_zone: Some(want.time_zone.clone()),
        suspend: Some(want.suspend),
        // No second run joins a run that takes longer than the period.
        concurrency_policy: Some("Forbid".to_owned()),
        starting_deadline_seconds: Some(want.starting_deadline.into()),
        successful_jobs_history_limit: limit(SUCCESSES),
        failed_jobs_history_limit: limit(want.failed_limit.clamp(1, FAILURES)),
        job_template: JobTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: run.metadata.labels,
                annotations: (!annotations.is_empty()).then_some(annotations),
                ..ObjectMeta::default()
            }),
            spec: run.spec,
        },
    };
    with_spec(want.job.clone(), spec)
}

/// Returns a Holdfast `CronJob` with this spec.
pub fn with_spec(owner: AgentJob, spec: CronJobSpec) -> CronJob {
    CronJob { metadata: job::metadata(owner, &spec), spec: Some(spec), status: None }
}

/// Returns the Job of a run at another time than a due one, as `kubectl create job --from` makes it.
pub fn run_now(cron: &CronJob, name: String) -> Job {
    let template = cron.spec.as_ref().map(|spec| spec.job_template.clone()).unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some(name);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert("cronjob.kubernetes.io/instantiate".to_owned(), "manual".to_owned());
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "CronJob".to_owned(),
        name: meta::name(&cron.metadata).to_owned(),
        uid: meta::uid(&cron.metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    Job { metadata, spec: template.spec, status: None }
}
