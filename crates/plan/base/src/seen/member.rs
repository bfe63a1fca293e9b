//! Facts of one pass over an `EtcdMember`: plain values, filled by `operator::observe::member`.

use holdfast_api::{EtcdCluster, EtcdMember};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::{Seen, Settings};

/// All values that a decision about a member depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The `EtcdMember`.
    pub member: EtcdMember,
    /// The member's cluster; `Known(None)`: no cluster with this name *and UID* exists.
    pub cluster: Seen<Option<EtcdCluster>>,
    /// The Pod with the member's name, of any owner.
    pub pod: Option<Pod>,
    /// The claim with the member's name, labelled for any member.
    pub claim: Option<PersistentVolumeClaim>,
    /// Settings from the operator's command line.
    pub settings: Settings,
}
