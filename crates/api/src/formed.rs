//! The latch of a cluster that has formed.
//!
//! Decides the shape. `plan::cluster::bootstrap` decides when a cluster has formed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::restore::Restoring;

/// First read of the cluster ID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Formed {
    /// etcd's cluster ID, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Time of that read (RFC 3339).
    pub at: String,
    /// Restore that the data came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<Restoring>,
    /// IDs (hexadecimal) in the `CORRUPT` alarms that the restored data brought along; never IDs of this cluster's
    /// members. The operator clears alarms with these IDs, except `0`, an alarm that names no member. Empty when
    /// unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupt_came_along: Vec<String>,
    /// etcd's cluster IDs in the earlier timelines, the newest first: their claims of users still count.
    #[serde(rename = "earlierClusterIDs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub earlier_cluster_ids: Vec<String>,
}

/// Maximum number of earlier cluster IDs.
const MAX_EARLIER: usize = 8;

impl Formed {
    /// Returns the IDs that count as earlier ones of the next timeline.
    pub fn into_earlier_ids(self) -> Vec<String> {
        std::iter::once(self.cluster_id).chain(self.earlier_cluster_ids).take(MAX_EARLIER).collect()
    }
}
