//! Facts of one pass over an `EtcdSnapshot`: plain values, filled by `operator::observe::snapshot`.

use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, key};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use crate::pod_cause::PodCause;
use crate::pods::Unstarted;
use crate::{Settings, jobs, meta};

/// All values that a decision about a snapshot depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The `EtcdSnapshot`.
    pub snapshot: EtcdSnapshot,
    /// The cluster in the spec, if the cluster exists.
    pub cluster: Option<EtcdCluster>,
    /// The `EtcdBackupStore` in the spec's destination, if the store exists.
    pub store: Option<EtcdBackupStore>,
    /// Secrets that the API server does not have: before the first Job those in the spec, later those for which the Job's Pod waits.
    pub missing_secrets: Vec<String>,
    /// The Job with the name of the snapshot's Job, of any owner; for a recorded run, the Job with the run's name and UID.
    pub job: Option<Job>,
    /// The `CronJob` that controls this Job, for a recorded run.
    pub cron_job: Option<CronJob>,
    /// The Pods of the Job (by owner UID), oldest first.
    pub pods: Vec<Pod>,
    /// Deleted Pods of the Job whose agent never ran. A Pod that disappeared between two passes is missing here.
    pub unstarted: Vec<Unstarted>,
    /// Other Holdfast Pods that mount a claim for which a Pod of the snapshot's Jobs waits. Only messages depend on these Pods.
    pub claim_users: Vec<Pod>,
    /// Why the API server refuses the Job's Pods, if the Job controller has created none for a while.
    pub refusal: Option<String>,
    /// Pods that save this snapshot for a deleted Job, and have not ended.
    pub strays: Vec<Pod>,
    /// The Jobs with the names of the Jobs that ask the store, in order, of any owner.
    pub inspections: Vec<Inspection>,
    /// Facts for the deletion, if the deletion waits for the removal of the stored snapshot.
    pub deletion: Option<Deletion>,
    /// Settings from the operator's command line.
    pub settings: Settings,
}

impl Observed {
    /// Whether the Job saves this snapshot, or is its recorded run: a Job of the `CronJob` of the schedule in the snapshot's
    /// label. A verified run stays verified, also when a user deletes the schedule before its Jobs.
    pub fn owns(&self, job: &Job) -> bool {
        let Some(run) = &self.snapshot.spec.run else {
            return meta::controlled_by(&job.metadata, meta::uid(&self.snapshot.metadata));
        };
        let schedule = meta::label(&self.snapshot.metadata, key::SCHEDULE_UID).unwrap_or_default();
        let of_schedule = self.cron_job.as_ref().is_some_and(|cron| {
            let is_owned = meta::controlled_by(&cron.metadata, schedule);
            is_owned && meta::controlled_by(&job.metadata, meta::uid(&cron.metadata))
        });
        let verified = self.snapshot.status.as_ref().is_some_and(|s| s.started_at.is_some());
        meta::uid(&job.metadata) == run.uid && (verified || of_schedule)
    }

    /// UID of the snapshot in the store: the UID of a run's Job, else the UID of the `EtcdSnapshot`.
    pub fn owner_uid(&self) -> &str {
        self.snapshot.spec.run.as_ref().map_or(meta::uid(&self.snapshot.metadata), |run| &run.uid)
    }

    /// Returns the status's record of a Pod that did not run.
    pub fn held_up(&self) -> Option<PodCause> {
        PodCause::kept(self.snapshot.status.as_ref()?.held_up.as_ref())
    }
}

impl Inspection {
    /// Whether the Job is over or is being deleted, so that another Job may ask.
    pub fn is_done(&self) -> bool {
        jobs::over(&self.job) || self.pods.last().is_some_and(|pod| meta::deleting(&pod.metadata))
    }
}

/// A Job that asks the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Number of the earlier Jobs that asked.
    pub number: i32,
    /// The Job.
    pub job: Job,
    /// The Job's Pods, oldest first.
    pub pods: Vec<Pod>,
}

/// Facts for the deletion of an object together with its stored snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The Job in `status.removal`. Another object may own the Job.
    pub job: Option<Inspection>,
    /// Keys of the snapshots that restores read, looked up after the removal's latch.
    pub restores: Vec<String>,
    /// Whether an `EtcdCluster` searches its latest snapshot, which may be this snapshot.
    pub searched: bool,
    /// Whether the namespace is being deleted: the API server then refuses new objects.
    pub terminating: bool,
}
