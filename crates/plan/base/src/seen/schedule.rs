//! Facts of one pass over an `EtcdSnapshotSchedule`: plain values, filled by `operator::observe::schedule`.

use holdfast_api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot, EtcdSnapshotSchedule};
use holdfast_contract::LogReport;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use crate::{Seen, Settings, meta};

/// All values that a decision about a schedule depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The `EtcdSnapshotSchedule`.
    pub schedule: EtcdSnapshotSchedule,
    /// The cluster in the spec, if the cluster exists.
    pub cluster: Option<EtcdCluster>,
    /// The `EtcdBackupStore` in the template, if the store exists.
    pub store: Option<EtcdBackupStore>,
    /// The `CronJob` with the name of the schedule's `CronJob`, of any owner.
    pub cron_job: Option<CronJob>,
    /// Jobs that this `CronJob` controls (by UID).
    pub jobs: Vec<Job>,
    /// The `CronJob` with the name of the drills' `CronJob`, of any owner.
    pub drill_cron_job: Option<CronJob>,
    /// Jobs that this `CronJob` controls (by UID).
    pub drills: Vec<Recall>,
    /// The `CronJob` with the name of the one that merges snapshots and the log, of any owner.
    pub compaction_cron_job: Option<CronJob>,
    /// Jobs that this `CronJob` controls (by UID).
    pub merges: Vec<Recall>,
    /// The Deployment with the name of the log's Deployment, of any owner.
    pub log_deployment: Option<Deployment>,
    /// Whether the operator may not read that Deployment: it is unknown then.
    pub log_forbidden: bool,
    /// Pods of the log's Deployment, oldest first.
    pub log_pods: Vec<Pod>,
    /// Answer of the agent that records the log.
    pub log_report: Seen<LogReport>,
    /// Records of the schedule's runs (by the label with its UID), and other snapshots with the name of such a Job.
    pub snapshots: Vec<EtcdSnapshot>,
    /// Jobs of the schedule itself, which ask the store for runs, or remove snapshots.
    pub recalls: Vec<Recall>,
    /// Keys of the snapshots that restores of this namespace read, looked up after the schedule; filled only if a Job may
    /// remove snapshots.
    pub restores: Vec<String>,
    /// Keys of the snapshots of this namespace with `spec.hold`, with any labels and in any store; filled only if a Job may
    /// remove snapshots.
    pub held: Vec<String>,
    /// Settings from the operator's command line.
    pub settings: Settings,
}

/// A Job that asks the store for runs, removes snapshots, drills one, or merges one with the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    /// The Job.
    pub job: Job,
    /// The Job's Pods, oldest first.
    pub pods: Vec<Pod>,
}

impl Observed {
    /// The schedule's UID.
    pub fn uid(&self) -> &str {
        meta::uid(&self.schedule.metadata)
    }

    /// Returns the `CronJob` if the schedule controls the `CronJob`.
    pub fn own_cron_job(&self) -> Option<&CronJob> {
        self.cron_job.as_ref().filter(|cron| meta::controlled_by(&cron.metadata, self.uid()))
    }

    /// Returns the `CronJob` of the drills if the schedule controls the `CronJob`.
    pub fn own_drill_cron_job(&self) -> Option<&CronJob> {
        self.drill_cron_job.as_ref().filter(|cron| meta::controlled_by(&cron.metadata, self.uid()))
    }

    /// Returns the `CronJob` that merges if the schedule controls the `CronJob`.
    pub fn own_compaction_cron_job(&self) -> Option<&CronJob> {
        self.compaction_cron_job.as_ref().filter(|cron| meta::controlled_by(&cron.metadata, self.uid()))
    }

    /// Returns the Deployment of the log if the schedule controls the Deployment.
    pub fn own_log_deployment(&self) -> Option<&Deployment> {
        self.log_deployment.as_ref().filter(|live| meta::controlled_by(&live.metadata, self.uid()))
    }
}
