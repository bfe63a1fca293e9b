//! Stages of one store: the value between the decision and its status.

use holdfast_api::backup_store::Probe;
use holdfast_api::condition::Reason;
use holdfast_contract::Failure;
use k8s_openapi::api::batch::v1::Job;

use holdfast_base::job_state;
use holdfast_base::pod_cause::PodCause;

/// Stage of one store.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// The store is being deleted: no step and no change.
    Rest,
    /// A reference is missing, or an obstacle exists.
    Blocked(Reason, String),
    /// The operator creates this Job, which probes the store.
    Start(Box<Job>),
    /// A Job is probing the store.
    Probing(String),
    /// No Pod of the probe's Job runs, or the last Pod has no visible end.
    HeldUp(PodCause),
    /// Result of a probe of the current inputs.
    Found(Probe),
}

/// Returns the failure of the probe; `None`: the probe's Pod crashed, or the store is usable.
pub(super) fn failure(probe: &Probe) -> Option<&'static Failure> {
    job_state::recorded(probe.class.as_deref()?, probe.origin.as_deref())
}
