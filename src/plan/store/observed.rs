//! What one pass over an `EtcdBackupStore` has seen: plain values, filled by `operator::observe::backup_store`.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use crate::api::EtcdBackupStore;
use crate::plan::held::HeldUp;
use crate::plan::{Seen, Settings};

/// Everything a decision about a store may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub store: EtcdBackupStore,
    /// The Secrets it names, and the version of each: `Known(None)` where there is none of that name, `Unknown` where the
    /// operator may not look. Never what is in them.
    pub secrets: BTreeMap<String, Seen<Option<String>>>,
    /// What stands where the Job of the probe belongs that is wanted now, whoever owns it.
    pub job: Option<Job>,
    /// The Pods of its Job (by owner UID), oldest first.
    pub pods: Vec<Pod>,
    /// Other Pods of ours that mount a claim which the Pod of its Job mounts and waits for. Only messages depend on them.
    pub claim_users: Vec<Pod>,
    /// Why the API server takes no Pod of its Job, where it has made none for a while.
    pub refusal: Option<String>,
    /// What the operator was started with.
    pub settings: Settings,
}

impl Observed {
    /// What the status keeps of a Pod that did not run.
    pub(in crate::plan) fn held_up(&self) -> Option<HeldUp> {
        HeldUp::kept(self.store.status.as_ref()?.held_up.as_ref())
    }
}
