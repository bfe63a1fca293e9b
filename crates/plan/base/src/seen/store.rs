//! Facts of one pass over an `EtcdBackupStore`: plain values, filled by `operator::observe::backup_store`.

use std::collections::BTreeMap;

use holdfast_api::EtcdBackupStore;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use crate::pod_cause::PodCause;
use crate::{Seen, Settings};

/// All values that a decision about a store depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The `EtcdBackupStore`.
    pub store: EtcdBackupStore,
    /// The version of each Secret in the spec: `Known(None)`: no such Secret exists; `Unknown`: the operator may not read the
    /// Secret. Never the Secret's contents.
    pub secrets: BTreeMap<String, Seen<Option<String>>>,
    /// The Job with the name of the wanted probe, of any owner.
    pub job: Option<Job>,
    /// The Job's Pods (by owner UID), oldest first.
    pub pods: Vec<Pod>,
    /// Other Holdfast Pods that mount a claim for which the Job's Pod waits. Only messages depend on these Pods.
    pub claim_users: Vec<Pod>,
    /// Why the API server refuses the Job's Pods, if the Job controller has created none for a while.
    pub refusal: Option<String>,
    /// Settings from the operator's command line.
    pub settings: Settings,
}

impl Observed {
    /// Returns the status's record of a Pod that did not run.
    pub fn held_up(&self) -> Option<PodCause> {
        PodCause::kept(self.store.status.as_ref()?.held_up.as_ref())
    }
}
