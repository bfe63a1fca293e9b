//! The `EtcdSnapshot` that records a run.
//!
//! Decides the record's name and spec. The name is the Job's name; if another object has that name, a name from the Job's UID.
//! The record has no owner reference: deleting a schedule or a cluster deletes no backup.

use std::collections::BTreeMap;

use holdfast_api::snapshot::{DeletionPolicy, EtcdSnapshotSpec, Run, SnapshotTemplate};
use holdfast_api::{EtcdSnapshot, key, name};
use holdfast_contract::RecalledRun;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Observed, facts};
use holdfast_base::{meta, saving};

/// Returns the record of an existing Job.
pub(super) fn of_job(seen: &Observed, job: &Job) -> EtcdSnapshot {
    let asked = meta::annotation(&job.metadata, key::SNAPSHOT_TEMPLATE);
    // The template at the run's start: a change of the schedule applies from the next run on.
    let template = asked.and_then(|json| serde_json::from_str(json).ok());
    let at = facts::created(job).map(|at| at.to_string()).unwrap_or_default();
    let (name, uid) = (meta::name(&job.metadata), meta::uid(&job.metadata));
    record(seen, Run { job: name.to_owned(), uid: uid.to_owned(), started_at: at }, template)
}

/// Returns the record of a run whose Job is gone, and whose snapshot the store holds.
pub(super) fn of_recalled(seen: &Observed, run: &RecalledRun) -> EtcdSnapshot {
    record(seen, Run { job: run.job.clone(), uid: run.uid.clone(), started_at: run.at.to_string() }, None)
}

fn record(seen: &Observed, run: Run, template: Option<SnapshotTemplate>) -> EtcdSnapshot {
    let spec = &seen.schedule.spec;
    let schedule = meta::name(&seen.schedule.metadata);
    let labels = [
        (key::MANAGED_BY, "holdfast".to_owned()),
        (key::CLUSTER, name::label_value(&saving::filed_under(spec.cluster_ref.as_ref()))),
        (key::SCHEDULE, name::label_value(schedule)),
        (key::SCHEDULE_UID, seen.uid().to_owned()),
    ];
    let taken = seen.snapshots.iter().any(|there| meta::name(&there.metadata) == run.job);
    EtcdSnapshot {
        metadata: ObjectMeta {
            name: Some(if taken { name::job(&run.job, &run.uid) } else { run.job.clone() }),
            namespace: seen.schedule.metadata.namespace.clone(),
            labels: Some(labels.map(|(k, v)| (k.to_owned(), v)).into_iter().collect::<BTreeMap<_, _>>()),
            ..ObjectMeta::default()
        },
        spec: EtcdSnapshotSpec {
            cluster_ref: spec.cluster_ref.clone(),
            external: spec.external.clone(),
            run: Some(run),
            hold: false,
            deletion_policy: DeletionPolicy::Retain,
            template: template.unwrap_or_else(|| spec.snapshot_template.clone()),
        },
        status: None,
    }
}
