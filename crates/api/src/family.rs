//! Families of addresses of a cluster's Services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which families of addresses a cluster's Services have, in Kubernetes' own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamilyPolicy {
    /// One family: the first of the Kubernetes cluster.
    SingleStack,
    /// Both where the Kubernetes cluster has both.
    PreferDualStack,
    /// Both, or no Service.
    RequireDualStack,
}

impl IpFamilyPolicy {
    /// As in a Service.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SingleStack => "SingleStack",
            Self::PreferDualStack => "PreferDualStack",
            Self::RequireDualStack => "RequireDualStack",
        }
    }
}
