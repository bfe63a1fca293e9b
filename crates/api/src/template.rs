//! Template: the part of a cluster's spec that a member's process runs with.
//!
//! Decides the shape. `plan::template` compares templates, and `plan::cluster::roll` decides which member gets a new template next.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::transport::Transport;

/// Settings of a member's etcd process and container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// etcd version.
    pub version: String,
    /// Source of etcd's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Settings of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// Resources of etcd's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// ServiceAccount of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Value of the annotation `holdfast.dev/restart` of the `EtcdCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<String>,
    /// Which ports speak TLS, unless both do. Absent also on a member in plaintext that an earlier Holdfast created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
}

/// Whether Holdfast takes a template back with which a member did not start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rollback {
    /// The member gets the template back with which it last served.
    #[default]
    Automatic,
    /// The member keeps the new template until a person edits the spec.
    Manual,
}

/// A template with which a member did not start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedTemplate {
    /// Fingerprint of the template.
    pub template: String,
    /// Name of the member.
    pub member: String,
    /// Why the member did not start.
    pub why: String,
    /// Time of the decision (RFC 3339).
    pub at: String,
    /// Number of failures in a row, where the cause may pass by itself, such as a registry that does not answer: Holdfast tries the
    /// template again. Absent where only a person ends the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub attempts: Option<u32>,
    /// Whether a member tries the template again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
}

impl FailedTemplate {
    /// Whether this is the fingerprint of the template, and no member gets it at this time.
    pub fn bars(&self, fingerprint: &str) -> bool {
        self.template == fingerprint && !self.retrying
    }
}

/// Source of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Repository without tag and digest, for example of a mirror: `registry.example.com:5000/etcd`. Default: the
    /// operator's `--etcd-image-repository`. The tag is always `v<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[a-z0-9][A-Za-z0-9._:/-]*$"))]
    #[x_kube(validation = Rule::new("self.matches('^([^/:@]+(:[0-9]+)?/)?([^/:@]+/)*[^/:@]+$')").message("image.repository must be a repository only, such as registry.example.com:5000/etcd: leave out the tag (always v<version>), the digest (set image.digest) and a slash at the end; a colon may only precede a port"))]
    pub repository: Option<String>,
    /// Digest `sha256:...`, used instead of the tag. The digest has to belong to `version`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80), regex(pattern = r"^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Pull policy: `Always`, `IfNotPresent` (default) or `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "PullPolicy")]
    pub pull_policy: Option<PullPolicy>,
}

/// When kubelet pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// When the node lacks the image.
    IfNotPresent,
    /// Never.
    Never,
}

/// Whether this names a repository alone, as the rule beside [`Image::repository`] says it: no tag, no digest, and a colon
/// only before a port.
pub fn is_repository(text: &str) -> bool {
    let part = |part: &str| !part.is_empty() && !part.contains([':', '@']);
    let port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('/') {
        Some((registry, path)) => {
            let registry = registry.split_once(':').map_or_else(|| part(registry), |(host, n)| part(host) && port(n));
            registry && path.split('/').all(part)
        }
        None => part(text),
    }
}

impl PullPolicy {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Settings of etcd, rendered for the minor version in use. The names are those of etcd's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.autoCompactionMode) == has(self.autoCompactionRetention)")
        .message("options.autoCompactionMode and options.autoCompactionRetention belong together: set both, or leave both out"),
    validation = Rule::new("!has(self.autoCompactionMode) || !has(self.autoCompactionRetention) || (self.autoCompactionMode == 'revision') == self.autoCompactionRetention.matches('^[0-9]+$')")
        .message("options.autoCompactionRetention does not fit options.autoCompactionMode: periodic takes a duration with its unit, such as 1h; revision takes a number of revisions, such as 1000"),
    validation = Rule::new("(has(self.electionTimeout) ? self.electionTimeout : 1000) >= 5 * (has(self.heartbeatInterval) ? self.heartbeatInterval : 100)")
        .message("options.electionTimeout (default 1000 ms) must be at least five times options.heartbeatInterval (default 100 ms), or etcd does not start")
)]
pub struct Options {
    /// Largest size of the database in bytes, at least 16 MiB, less than the volume. Default: half of the volume's size
    /// above 1 GiB (below 2 GiB: a quarter of the size), at most 8 GiB. The other half is for a snapshot that a lagging
    /// follower receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216))]
    pub quota_backend_bytes: Option<i64>,
    /// Automatic compaction: `periodic` (by age) or `revision` (by count); needs `autoCompactionRetention`. Default:
    /// none (Kubernetes API servers compact by themselves).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CompactionMode")]
    pub auto_compaction_mode: Option<CompactionMode>,
    /// History that automatic compaction keeps: a duration with its unit (`1h`; ms, s, m, h) for `periodic`, a number
    /// of revisions (`1000`) for `revision`. Needs `autoCompactionMode`; no default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[0-9]+(ms|s|m|h)?$"))]
    pub auto_compaction_retention: Option<String>,
    /// Raft log entries between two raft snapshots; etcd then drops older entries from memory. etcd's default is 100000
    /// in 3.5, and 10000 from 3.6 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub snapshot_count: Option<i64>,
    /// Milliseconds between heartbeats, 10 to 5000. etcd's default is 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 5000))]
    pub heartbeat_interval: Option<i64>,
    /// Milliseconds without a heartbeat until an election, 50 to 50000, at least five heartbeats. etcd's default is
    /// 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 50, max = 50_000))]
    pub election_timeout: Option<i64>,
    /// Largest request in bytes, at least 1024. etcd's default is 1.5 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024))]
    pub max_request_bytes: Option<i64>,
    /// Largest number of operations in one transaction. etcd's default is 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_txn_ops: Option<i64>,
    /// Largest number of streams of one client connection at the same time. etcd's default is 4294967295, no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub max_concurrent_streams: Option<i64>,
    /// Least severity of etcd's log lines: `debug`, `info`, `warn`, `error`, `panic` or `fatal`. etcd's default is `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogLevel")]
    pub log_level: Option<LogLevel>,
    /// More flags of etcd, each as `--name=value`; at most 32. Only flags that the version of the spec knows, that concern
    /// neither identity, addresses, data nor certificates, and that no other field sets: docs/rolling.md lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 512)))]
    pub extra_args: Option<Vec<String>>,
    /// More environment variables of etcd's container, such as `GOGC`; at most 32. No `ETCD_` variables: set the flag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub extra_env: Option<Vec<ExtraEnv>>,
}

/// An environment variable with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtraEnv {
    /// Name.
    #[schemars(length(max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Value. Anyone who may read Pods sees the value: no secrets.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Every line.
    Debug,
    /// Events of normal operation.
    Info,
    /// Trouble that etcd overcomes.
    Warn,
    /// Trouble that etcd reports.
    Error,
    /// Failures that end a part of etcd.
    Panic,
    /// Failures that end etcd.
    Fatal,
}

impl LogLevel {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Fatal => "fatal",
        }
    }
}

/// How automatic compaction selects old revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CompactionMode {
    /// By age.
    Periodic,
    /// By count.
    Revision,
}

impl CompactionMode {
    /// The flag's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Revision => "revision",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_repository;

    #[test]
    fn a_repository_has_neither_tag_nor_digest() {
        for fine in
            ["etcd", "quay.io/coreos/etcd", "localhost:5000/etcd", "r.example.com:443/a/b-c/etcd", "localhost/x"]
        {
            assert!(is_repository(fine), "{fine}");
        }
        let digest = "quay.io/coreos/etcd@sha256:0123";
        for wrong in [
            "",
            "/",
            "etcd/",
            "/etcd",
            "a//b",
            "etcd:v3.6.16",
            "quay.io/coreos/etcd:v3.6.16",
            "quay.io/a:1/etcd",
            digest,
        ] {
            assert!(!is_repository(wrong), "{wrong}");
        }
        for wrong in ["r:port/etcd", "r:/etcd", ":5000/etcd", "localhost:5000"] {
            assert!(!is_repository(wrong), "{wrong}");
        }
    }
}
