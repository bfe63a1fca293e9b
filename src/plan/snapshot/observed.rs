//! What one pass over an `EtcdSnapshot` has seen: plain values, filled by `operator::observe::snapshot`.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use crate::api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, key};
use crate::plan::held::HeldUp;
use crate::plan::pods::Unstarted;
use crate::plan::{Settings, jobs, meta};

/// Everything a decision about a snapshot may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub snapshot: EtcdSnapshot,
    /// The cluster it names, if it exists.
    pub cluster: Option<EtcdCluster>,
    /// The store that its destination names, if it names one and it exists.
    pub store: Option<EtcdBackupStore>,
    /// Secrets that the spec names and the API server does not have; looked up only while no Job has begun.
    pub missing_secrets: Vec<String>,
    /// What stands where its Job belongs, whoever owns it; of a recorded run, the Job with its name and UID.
    pub job: Option<Job>,
    /// The `CronJob` that this Job names as its controller, where the snapshot records a run.
    pub cron_job: Option<CronJob>,
    /// The Pods of its Job (by owner UID), oldest first.
    pub pods: Vec<Pod>,
    /// Pods of its Job that are gone, and whose agent never ran. Those that are gone unseen are not among them.
    pub unstarted: Vec<Unstarted>,
    /// Other Pods of ours that mount a claim which a Pod of its Jobs mounts and waits for. Only messages depend on them.
    pub claim_users: Vec<Pod>,
    /// Why the API server takes no Pod of its Job, where it has made none for a while.
    pub refusal: Option<String>,
    /// Pods that save this snapshot for a Job that is gone, and have not ended.
    pub strays: Vec<Pod>,
    /// What stands where the Jobs belong that ask the store, one after the other, whoever owns it.
    pub inspections: Vec<Inspection>,
    /// What is known for its deletion, where that waits for the removal of the stored snapshot.
    pub deletion: Option<Deletion>,
    /// What the operator was started with.
    pub settings: Settings,
}

impl Observed {
    /// Whether a Job saves this snapshot, or is the run that it records: a Job of the `CronJob` of the schedule in its label.
    /// What was once verified stays so, also when the schedule is deleted before its Jobs are.
    pub(in crate::plan) fn owns(&self, job: &Job) -> bool {
        let Some(run) = &self.snapshot.spec.run else {
            return meta::controlled_by(&job.metadata, meta::uid(&self.snapshot.metadata));
        };
        let schedule = meta::label(&self.snapshot.metadata, key::SCHEDULE_UID).unwrap_or_default();
        let of_schedule = self.cron_job.as_ref().is_some_and(|cron| {
            let ours = meta::controlled_by(&cron.metadata, schedule);
            ours && meta::controlled_by(&job.metadata, meta::uid(&cron.metadata))
        });
        let verified = self.snapshot.status.as_ref().is_some_and(|s| s.started_at.is_some());
        meta::uid(&job.metadata) == run.uid && (verified || of_schedule)
    }

    /// The UID by which the store knows the snapshot: of the Job of a run, else of the snapshot itself.
    pub(in crate::plan) fn owner_uid(&self) -> &str {
        self.snapshot.spec.run.as_ref().map_or(meta::uid(&self.snapshot.metadata), |run| &run.uid)
    }

    /// What the status keeps of a Pod that did not run.
    pub(in crate::plan) fn held_up(&self) -> Option<HeldUp> {
        HeldUp::kept(self.snapshot.status.as_ref()?.held_up.as_ref())
    }
}

impl Inspection {
    /// Whether it is over, or was told to end: another one may ask.
    pub(in crate::plan) fn is_done(&self) -> bool {
        jobs::over(&self.job) || self.pods.last().is_some_and(|pod| meta::deleting(&pod.metadata))
    }
}

/// A Job that asks the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// How many had asked before.
    pub number: i32,
    /// The Job.
    pub job: Job,
    /// Its Pods, oldest first.
    pub pods: Vec<Pod>,
}

/// What is known for the deletion of an object whose stored snapshot goes along.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The Job that `status.removal` names. Another object may own it.
    pub job: Option<Inspection>,
    /// Keys of the snapshots that restores read, looked up after the object with its latch.
    pub restores: Vec<String>,
    /// Whether an `EtcdCluster` looks for its latest snapshot, which may be this one.
    pub searched: bool,
    /// Whether the namespace is being deleted: nothing can be made in it.
    pub terminating: bool,
}
