//! `spec.auth`: etcd's authentication.
//!
//! Decides the field. `crates/plan/cluster/src/cluster/auth.rs` decides when the operator turns authentication on and off.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// etcd's authentication: each request then needs a user, and a user needs a role for the keys that it reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// `true`: Holdfast makes the user `root`, without a password, and turns authentication on; its own certificate is of that
    /// user. Add the users of your applications before: without one a client gets `permission denied`. `false`: Holdfast turns
    /// authentication off; users and roles stay. Holdfast asks etcd every five minutes, and puts a
    /// change by hand right.
    pub enabled: bool,
}
