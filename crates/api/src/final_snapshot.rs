//! The last snapshot of an `EtcdCluster`, saved between its deletion and its end.
//!
//! Decides the shape. `plan::cluster::last_snapshot` decides the steps.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::snapshot::SnapshotTemplate;

/// Where `deadlineSeconds` is absent.
const DEADLINE_SECONDS: u32 = 3600;

/// The last snapshot: destination and form, as in an EtcdSnapshot. `deadlineSeconds` (default 3600) limits the Job that saves, and
/// the time until it starts: afterwards `onFailure` decides. Store and credentials have to outlive the EtcdCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FinalSnapshot {
    /// Destination and form of the snapshot.
    #[serde(flatten)]
    pub template: SnapshotTemplate,
    /// The end of a deleted cluster whose last snapshot failed, or did not start within `deadlineSeconds`. `Hold`
    /// (default): the EtcdCluster, its members and their volumes stay, with the reason `FinalSnapshotHeld`, until the snapshot is
    /// complete, or a person sets the annotation `holdfast.dev/skip-final-snapshot=true`. `Proceed`: the cluster goes without the
    /// snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OnFailure")]
    pub on_failure: Option<OnFailure>,
}

/// The end of a deleted cluster without its last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The cluster stays.
    #[default]
    Hold,
    /// The cluster goes.
    Proceed,
}

impl FinalSnapshot {
    /// Seconds until `onFailure` decides.
    pub fn deadline_seconds(&self) -> u32 {
        self.template.deadline_seconds.unwrap_or(DEADLINE_SECONDS)
    }
}
