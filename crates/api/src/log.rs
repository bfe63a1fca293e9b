//! The log of a schedule: every revision of the cluster, stored beside the snapshots.
//!
//! Decides fields, defaults and CEL. `plan::schedule::log` decides the Deployment that records, and when the log is behind.

use holdfast_contract::{DEFAULT_CHECK_SECONDS, DEFAULT_EVERY_SECONDS};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::CronJobRef;
use crate::name::LocalRef;
use crate::snapshot::Spool;

/// A Deployment that records every revision beside the snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// Seconds between two stored segments, 1 to 300; default 10. When the cluster is lost, the changes of so many seconds are
    /// lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 300))]
    pub every_seconds: Option<u32>,
    /// Size of the `emptyDir` for segments that the store has not taken yet, 16Mi to 64Gi; default 256Mi. When the volume is full,
    /// the agent waits for the store; revisions that etcd compacts meanwhile are missing from the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity('16Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Gi')) <= 0").message("log.spool must be 16Mi to 64Gi"))]
    pub spool: Option<Quantity>,
    /// Seconds between two checks, for each of which a member computes the HashKV of its keys, 60 to 86400; default 3600. `0`: no
    /// checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400))]
    #[x_kube(validation = Rule::new("self == 0 || self >= 60").message("log.checkSeconds must be 0 or at least 60: etcd reads all keys for each check"))]
    pub check_seconds: Option<u32>,
    /// Resources of the agent's container. Default: requests of 50m CPU and 96Mi memory, and a limit of 256Mi memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Regular merges of the newest snapshot and the log into a new snapshot of the same lineage, without reading the cluster. A
    /// restore then reads little of the log. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
}

/// Regular merges of the newest snapshot and the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Due times of the merges, as in `spec.schedule`.
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new(crate::cron::LINE).message(crate::cron::LINE_WORDS))]
    pub schedule: String,
    /// Time zone of these due times, by its name in the IANA database. Default: `spec.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = crate::cron::ZONE))]
    #[x_kube(validation = Rule::new(crate::cron::NAMED_ZONE).message(crate::cron::NAMED_ZONE_WORDS))]
    pub time_zone: Option<String>,
    /// Volume for the merge: the sizes of the snapshot and of the merged database, and 128Mi. Default: an `emptyDir` on the
    /// node's disk, without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Spool>,
    /// Secrets in this namespace with age identities (private keys) for an encrypted log and its snapshots, at most 10; a single
    /// matching identity is enough. Every key of a Secret has to be an identity file as `age-keygen` writes. The operator never
    /// reads the Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Resources of the agent's container. Default: requests of 50m CPU and 256Mi memory; no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

impl Log {
    /// Seconds between two stored segments.
    pub fn every(&self) -> u32 {
        self.every_seconds.unwrap_or(DEFAULT_EVERY_SECONDS)
    }

    /// Seconds between two checks; 0: no checks.
    pub fn checks_every(&self) -> u32 {
        self.check_seconds.unwrap_or(DEFAULT_CHECK_SECONDS)
    }
}

/// State of the log, as the agent that records last answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogStatus {
    /// Name of the Deployment that records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// Since when the Deployment records: its creation, or the end of a suspension (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<String>,
    /// The last stored revision. With the other numbers it is refreshed every five minutes, and with each change of a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Time up to which the stored log is complete (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Age of the end of the stored log in seconds, the largest of the last ten minutes, rounded up to five: so many seconds of
    /// changes would be lost with the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpo_seconds: Option<u64>,
    /// The newest revisions that are missing from the log: etcd had compacted them before the agent could record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
    /// The `CronJob` that merges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CronJobRef>,
    /// Results of its merges; absent before the first one has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merges: Option<Merges>,
}

/// Results of the merges of the newest snapshot and the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Merges {
    /// End of the newest merge that succeeded, also of one with nothing to merge (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_succeeded: Option<String>,
    /// The newest merge that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<FailedMerge>,
    /// Number of merges that failed since the newest one that succeeded. Merges before the first complete snapshot of the
    /// schedule do not count.
    #[serde(default)]
    pub consecutive_failures: u32,
}

/// A failed merge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedMerge {
    /// End of the Job (RFC 3339).
    pub at: String,
    /// Name of the Job.
    pub job: String,
    /// Class of the error, as in `status.error` of an `EtcdSnapshot`.
    pub class: String,
    /// Problem and remedy.
    pub message: String,
}

/// Revisions that are missing from a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interruption {
    /// The last recorded revision before.
    pub after: i64,
    /// The last missing revision. A snapshot of a later revision continues with the log.
    pub until: i64,
    /// Time at which etcd refused the watch (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}
