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
const MAX_EARLIER: usize = 16;

impl Formed {
    /// Returns the IDs that count as earlier ones of the next timeline: those of the earlier latch, if it is known, and of the members that
    /// were set aside, each once, as many as the field takes.
    pub fn earlier_ids<'a>(earlier: Option<&'a Self>, aside: impl Iterator<Item = &'a String>) -> Vec<String> {
        let known = earlier.into_iter().flat_map(|it| std::iter::once(&it.cluster_id).chain(&it.earlier_cluster_ids));
        let mut ids: Vec<String> = Vec::new();
        for id in known.chain(aside) {
            if ids.len() < MAX_EARLIER && !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    }
}
