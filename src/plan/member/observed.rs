//! What one pass over an `EtcdMember` has seen: plain values, filled by `operator::observe::member`.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::api::{EtcdCluster, EtcdMember};
use crate::plan::{Seen, Settings};

/// Everything a decision about a member may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub member: EtcdMember,
    /// The cluster it belongs to: `Known(None)` when no cluster of this name *and UID* exists.
    pub cluster: Seen<Option<EtcdCluster>>,
    /// What stands where its Pod belongs, whoever owns it.
    pub pod: Option<Pod>,
    /// What stands where its claim belongs, whoever it is labelled for.
    pub claim: Option<PersistentVolumeClaim>,
    /// What the operator was started with.
    pub settings: Settings,
}
