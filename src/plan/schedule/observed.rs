//! What one pass over an `EtcdSnapshotSchedule` has seen: plain values, filled by `operator::observe::schedule`.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use crate::api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, EtcdSnapshotSchedule};
use crate::plan::{Settings, meta};

/// Everything a decision about a schedule may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub schedule: EtcdSnapshotSchedule,
    /// The cluster it names, if it exists.
    pub cluster: Option<EtcdCluster>,
    /// The store that its template names, if it names one and it exists.
    pub store: Option<EtcdBackupStore>,
    /// What stands where its `CronJob` belongs, whoever owns it.
    pub cron_job: Option<CronJob>,
    /// Jobs that this `CronJob` controls (by UID).
    pub jobs: Vec<Job>,
    /// Records of its runs (by the label with its UID), and what else has the name of one of these Jobs.
    pub snapshots: Vec<EtcdSnapshot>,
    /// Jobs of the schedule itself, which ask the store for runs, or remove snapshots.
    pub recalls: Vec<Recall>,
    /// Keys of the snapshots that restores of this namespace read, looked at after the schedule itself; only where
    /// something may be removed.
    pub restores: Vec<String>,
    /// Keys of the snapshots of this namespace that people hold, whatever labels their objects have and wherever they lie;
    /// only where something may be removed.
    pub held: Vec<String>,
    /// What the operator was started with.
    pub settings: Settings,
}

/// A Job that asks the store for runs, or removes snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    /// The Job.
    pub job: Job,
    /// Its Pods, oldest first.
    pub pods: Vec<Pod>,
}

impl Observed {
    /// The schedule's UID.
    pub(super) fn uid(&self) -> &str {
        meta::uid(&self.schedule.metadata)
    }

    /// Its `CronJob`, if it is its own.
    pub(super) fn own_cron_job(&self) -> Option<&CronJob> {
        self.cron_job.as_ref().filter(|cron| meta::controlled_by(&cron.metadata, self.uid()))
    }
}
