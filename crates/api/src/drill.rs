//! Drills of a schedule: the user's settings, and the results.
//!
//! Decides fields, defaults and CEL. `plan::schedule::drill` decides what a drill proves, and when one is overdue.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::CronJobRef;
use crate::name::LocalRef;
use crate::snapshot::Spool;

/// Where `spec.drill.maxAgeSeconds` is absent: two days.
const MAX_AGE_SECONDS: u32 = 172_800;

/// Regular restores of the newest snapshot into a scratch folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// Due times of the drills, as in `spec.schedule`.
    #[schemars(length(min = 1, max = 120))]
    #[x_kube(validation = Rule::new(crate::cron::LINE).message(crate::cron::LINE_WORDS))]
    pub schedule: String,
    /// Time zone of these due times, by its name in the IANA database. Default: `spec.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = crate::cron::ZONE))]
    #[x_kube(validation = Rule::new(crate::cron::NAMED_ZONE).message(crate::cron::NAMED_ZONE_WORDS))]
    pub time_zone: Option<String>,
    /// Volume for the data of the drill: twice the size of the database, and 128Mi. Default: an `emptyDir` on the node's
    /// disk, without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Spool>,
    /// Secrets in this namespace with age identities (private keys) for encrypted snapshots, at most 10; a single matching
    /// identity is enough. Every key of a Secret has to be an identity file as `age-keygen` writes. The operator never
    /// reads the Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub identity_secret_refs: Vec<LocalRef>,
    /// Seconds after the last passed drill from which drills count as overdue, 60 to 31536000; default 172800 (two days).
    /// Without a passed drill the time counts from the beginning of the drills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 31_536_000))]
    pub max_age_seconds: Option<u32>,
    /// Resources of the agent's container, in which etcd and kube-apiserver run too. Default: requests of 50m CPU and 256Mi
    /// memory, with `kubernetes` 768Mi; no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// For the etcd of a Kubernetes: after the other comparisons a kube-apiserver starts on the restored etcd, and decodes every
    /// object. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesDrill>,
}

/// The kube-apiserver of a drill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesDrill {
    /// Image of kube-apiserver with a tag or a digest, of the version of the Kubernetes whose etcd is backed up:
    /// `registry.k8s.io/kube-apiserver:v1.36.3`. The program lies in PATH or `/usr/local/bin`. The agent runs in this image, as
    /// the user of all Pods of Holdfast.
    #[schemars(length(min = 1, max = 400))]
    #[x_kube(validation = Rule::new(IMAGE).message(IMAGE_WORDS))]
    pub image: String,
    /// Secret in this namespace with the `EncryptionConfiguration` of that Kubernetes in the key `encryption-config.yaml`, for
    /// values that are encrypted in etcd. A provider `kms` does not work: its plugin is not in the Pod. The operator never reads
    /// the Secret. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_config_secret_ref: Option<LocalRef>,
}

/// CEL rule of an image with a tag or a digest.
const IMAGE: &str = "self.matches('^([A-Za-z0-9.-]+(:[0-9]+)?/)?([a-z0-9._-]+/)*[a-z0-9._-]+(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$') && self.matches('(:[^/:@]+|@sha256:[0-9a-f]+)$')";

/// Message of that rule.
const IMAGE_WORDS: &str = "drill.kubernetes.image needs an image with a tag or a digest: name one of the version of the Kubernetes that is backed up, such as registry.k8s.io/kube-apiserver:v1.36.3";

impl Drill {
    /// Seconds after the last passed drill from which drills count as overdue.
    pub fn max_age(&self) -> u32 {
        self.max_age_seconds.unwrap_or(MAX_AGE_SECONDS)
    }
}

/// Results of the drills.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillStatus {
    /// The `CronJob` that runs the drills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron_job: Option<CronJobRef>,
    /// Next due time (RFC 3339, UTC). Absent while no drill starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_time: Option<String>,
    /// Since when the `CronJob` has started drills: its creation, or the end of a suspension (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<String>,
    /// The newest drill that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_passed: Option<PassedDrill>,
    /// The newest drill that found broken bytes, or objects that kube-apiserver cannot decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<FailedDrill>,
    /// The newest drill without a result: out of memory, evicted, a full disk, a store that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_incomplete: Option<FailedDrill>,
}

/// A drill that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PassedDrill {
    /// End of the drill (RFC 3339).
    pub at: String,
    /// Folder of the restored snapshot below the store's prefix.
    pub key: String,
    /// Name of the Job.
    pub job: String,
    /// Revision of the key space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Keys at that revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Version of the etcd that served the restored data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    /// Seconds from the first byte of the store to the restored data directory, rounded up.
    pub restore_seconds: u64,
    /// Seconds from the start of etcd to its first answer, rounded up.
    pub serve_seconds: u64,
    /// All together, the start of kube-apiserver included: the time that a restore of this snapshot takes.
    pub rto_seconds: u64,
    /// Objects that a kube-apiserver decoded. Absent without `spec.drill.kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<DecodedObjects>,
    /// Whether authentication is on: no EtcdCluster can be restored from the snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_enabled: bool,
    /// Why the store has no proof of the drill. The Secret for reading then lacks the right to put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_not_kept: Option<String>,
}

/// Objects that a kube-apiserver decoded from the restored data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecodedObjects {
    /// Version of kube-apiserver.
    pub version: String,
    /// Seconds from the start of kube-apiserver until it was ready, rounded up.
    pub ready_seconds: u64,
    /// Number of decoded objects.
    pub objects: u64,
    /// Number of objects of each resource, such as `pods` and `deployments.apps`: the 20 largest. The proof in the store has
    /// all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, u64>,
    /// Keys of resources that this kube-apiserver does not serve; absent: none. The proof in the store names their folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_keys: Option<u64>,
}

/// A drill that did not pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedDrill {
    /// End of the drill (RFC 3339).
    pub at: String,
    /// Folder of the snapshot below the store's prefix. Absent: the drill ended before it had chosen a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name of the Job.
    pub job: String,
    /// Reason of the condition `Rehearsed`: `DrillFailed` or `DrillIncomplete`.
    pub reason: String,
    /// Class of the error, as in `status.error` of an `EtcdSnapshot`.
    pub class: String,
    /// Problem and remedy.
    pub message: String,
    /// etcd's keys of objects that kube-apiserver cannot decode; the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undecodable: Vec<String>,
    /// Resources with values that kube-apiserver cannot decrypt, each with the provider that the value names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypted: Vec<String>,
}
