//! What one pass over an `EtcdSnapshot` has seen: plain values, filled by `operator::observe::snapshot`.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use crate::api::{EtcdBackupStore, EtcdCluster, EtcdSnapshot};
use crate::plan::held::HeldUp;
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
    /// What stands where its Job belongs, whoever owns it.
    pub job: Option<Job>,
    /// The Pods of its Job (by owner UID), oldest first.
    pub pods: Vec<Pod>,
    /// Why the API server takes no Pod of its Job, where it has made none for a while.
    pub refusal: Option<String>,
    /// Pods that save this snapshot for a Job that is gone, and have not ended.
    pub strays: Vec<Pod>,
    /// What stands where the Jobs belong that ask the store, one after the other, whoever owns it.
    pub inspections: Vec<Inspection>,
    /// What the operator was started with.
    pub settings: Settings,
}

impl Observed {
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
