//! What stands of one store: the value between the decision and its status.

use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::Failure;

use crate::api::backup_store::Probe;
use crate::api::condition::Reason;
use crate::plan::fact;
use crate::plan::held::HeldUp;

/// What stands, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// It is being deleted: nothing is done and nothing changes.
    Rest,
    /// What has to be there first is not, or something stands in the way.
    Blocked(Reason, String),
    /// It is probed: this Job is made.
    Start(Box<Job>),
    /// It is being probed.
    Probing(String),
    /// No Pod of the probe's Job runs, or the last one is not seen to end.
    HeldUp(HeldUp),
    /// This is what was found of it as it is now.
    Found(Probe),
}

/// How the probe failed; `None`: the probe's Pod crashed, or the store is usable.
pub(super) fn failure(probe: &Probe) -> Option<&'static Failure> {
    fact::recorded(probe.class.as_deref()?, probe.origin.as_deref())
}
