//! Upgrade of a cluster to the next minor version: what a user may set, and what the operator writes down.
//!
//! Decides the shape. `plan::cluster::upgrade` decides when an upgrade may begin, and when there is a way back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::LocalRef;
use crate::snapshot::Spool;

/// Where `spec.upgrade.snapshotWithinSeconds` is absent: an hour.
const SNAPSHOT_WITHIN_SECONDS: u32 = 3600;

/// Conditions of an upgrade to the next minor version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Largest age in seconds of the newest complete `EtcdSnapshot` of this cluster when an upgrade begins, 60 to 604800;
    /// default 3600. Where there is an older one, Holdfast requests another of the same destination first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub snapshot_within_seconds: Option<u32>,
    /// Whether a Job first compares the member list in each member's database with etcd's (from 3.5 only), restores that
    /// snapshot with the next version, starts its etcd on the data, compares HashKV and the number of keys, and writes a
    /// key there; default true. The Job needs twice the database's size on its node. An encrypted snapshot needs
    /// `identitySecretRefs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearse: Option<bool>,
    /// Secrets in this namespace with age identities (private keys) to rehearse an encrypted snapshot with, at most 10; a
    /// single matching identity is enough. Every key of a Secret has to be an identity file as `age-keygen` writes. The
    /// operator never reads the Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Volume for the data of the rehearsal. Default: an `emptyDir` on the node's disk, without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Spool>,
}

impl Upgrade {
    /// Largest age of the snapshot in seconds.
    pub fn snapshot_within(&self) -> u32 {
        self.snapshot_within_seconds.unwrap_or(SNAPSHOT_WITHIN_SECONDS)
    }

    /// Whether the upgrade is rehearsed.
    pub fn rehearses(&self) -> bool {
        self.rehearse.unwrap_or(true)
    }
}

/// An upgrade to the next minor version that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRecord {
    /// Version of the members before.
    pub from: String,
    /// Version of the members afterwards.
    pub to: String,
    /// Whether a version of the earlier minor may be set again. Withdrawn before the last member gets the new minor: from
    /// then on etcd writes data that the earlier minor does not read.
    pub reversible: bool,
    /// Name of the `EtcdSnapshot` that was rehearsed; without a rehearsal, of the newest one when the upgrade began.
    pub snapshot: String,
    /// Key of that snapshot in its store. Absent in a record of an earlier version of Holdfast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Revision of that snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Seconds that the rehearsal took; absent without a rehearsal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsed_in_seconds: Option<i64>,
    /// Time at which the upgrade began (RFC 3339).
    pub at: String,
}
