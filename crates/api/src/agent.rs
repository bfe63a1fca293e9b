//! The agent's Pod, wherever a spec may shape it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::OBJECT_NAME;
use crate::pod_security::PodSecurity;

/// Settings of the agent's Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Resources of the agent's container. Default for a Job: requests of 100m CPU and 128Mi memory, and a limit of
    /// 256Mi memory. When a saved cluster's quota is above 8 GiB, the limit is 128Mi plus 16Mi for each GiB of quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// ServiceAccount of the Pod. Set this field when the store accepts a workload identity instead of a Secret.
    /// Default: the namespace's `default`; the Pod gets no Kubernetes API token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub service_account_name: Option<String>,
    /// Labels and annotations to add to the Pod, for example for a service mesh or cost reports. Keys of Holdfast take
    /// precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_metadata: Option<PodMetadata>,
    /// Tolerations of a Job's Pod; at most 64. Default: those of the EtcdCluster, none for the probe of a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node needs for a Job's Pod. Default: those of the EtcdCluster, none for the probe of a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Secrets in this namespace to pull Holdfast's image for a Job's Pod; at most 16. Default: those of the EtcdCluster, for the
    /// probe of a store those of the ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// User of a Job's Pod. Default: that of the EtcdCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
}

/// Labels and annotations for Pods and other objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl PodMetadata {
    /// Without the keys that Holdfast writes itself.
    #[must_use]
    pub fn foreign(mut self) -> Self {
        let written = |name: &String| crate::key::is_own(name) || crate::key::ALL.contains(&name.as_str());
        self.labels.retain(|name, _| !written(name));
        self.annotations.retain(|name, _| !written(name));
        self
    }

    /// Adds the labels and annotations of `more`, which take precedence.
    #[must_use]
    pub fn with(mut self, more: Self) -> Self {
        self.labels.extend(more.labels);
        self.annotations.extend(more.annotations);
        self
    }

    /// Whether there is neither a label nor an annotation.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}
