//! The user of a Pod, wherever a spec may choose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Security settings of Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSecurity {
    /// User and groups of the Pods. `Fixed`: `runAsUser`, `runAsGroup` and `fsGroup` are 65532. `Unset`: an admission
    /// plugin sets them, as on OpenShift. Default: the operator's `--pod-run-as`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RunAs")]
    pub run_as: Option<RunAs>,
}

/// Where the user and the groups of a Pod come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
pub enum RunAs {
    /// User and groups 65532.
    #[default]
    Fixed,
    /// An admission plugin sets user and groups, as on OpenShift.
    Unset,
}
