//! `status.heldUp` of every kind that has Jobs: what keeps the Pods of the current Job from running.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cause that keeps the Pods of a Job from running, or from ending. Kept until a Pod runs, also after kubelet has removed the Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockedPod {
    /// `PodHeldUp`: kubelet or the scheduler needs a person. `WriteRefused`: the API server rejects the Pod. `NodeSilent`:
    /// kubelet does not report the end of the Pod. `JobPending`: the Pod still waits for its volumes, Secrets or image.
    pub reason: String,
    /// Name of the Job.
    pub job: String,
    /// Name of the Pod; absent when the Job has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The cause, as kubelet, the scheduler or the API server reports it.
    pub message: String,
    /// Since when this has been the cause (RFC 3339).
    pub since: String,
}
