//! `agent undelete`: the point, the live etcd, the keys, and the report.
//!
//! This file decides flags, defaults and which requests name too few facts; `undelete/rows.rs` the words of the report. `snapshot-agent/verbs-live/src/undelete.rs` decides what
//! goes back.

mod rows;

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::{EtcdFlags, Point, PointProof, StoreFlags, parse_time};

/// Heading of the flags for the point, in help texts.
const POINT: &str = "Point";

/// Heading of the other flags, in help texts.
const UNDELETING: &str = "Undeleting";

/// Keys of each sort that a report names.
pub const MAX_NAMED_KEYS: usize = 50;

/// The prefix below which a kube-apiserver keeps its objects by default.
pub const REGISTRY: &str = "/registry/";

/// `agent undelete`: compare the keys below a prefix at a point with a live etcd, and put back those that are missing.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct UndeleteRequest {
    /// The live etcd. A user with a role that may read the prefix is enough; with --apply the role has to write it too.
    #[command(flatten, next_help_heading = "etcd")]
    pub etcd: EtcdFlags,
    /// Store of the snapshots and the log.
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,
    /// Store ID that the store must have, as `agent probe` prints; the agent reads no data from another store. Default:
    /// any store.
    #[arg(long, value_name = "ID", help_heading = "Store")]
    pub expect_store_id: Option<String>,
    /// Key of the point below the store's prefix. With --at-revision or --at-time: the folder of the lineage,
    /// `<namespace>/<cluster>/<lineage>`, whose newest snapshot before the point the agent takes, or one snapshot of it.
    /// Otherwise one snapshot, or the key of a snapshot file without a manifest.
    #[arg(long, value_name = "KEY", help_heading = POINT)]
    pub from: String,
    /// Compare with the state at this revision: a snapshot before it, and the lineage's log from there on.
    #[arg(long, value_name = "REVISION", conflicts_with = "at_time", value_parser = clap::value_parser!(i64).range(1..), help_heading = POINT)]
    pub at_revision: Option<i64>,
    /// Compare with the state at this time (RFC 3339): the newest revision that the log had received by then.
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = POINT)]
    pub at_time: Option<Timestamp>,
    /// Accept a point of another etcd cluster, of the same cluster before a restore, or of an unknown cluster (a snapshot file
    /// without a manifest).
    #[arg(long, help_heading = POINT)]
    pub from_another_cluster: bool,
    /// Folder of identity files of `age-keygen` (a mounted Secret) to decrypt the snapshot and the log with; repeatable.
    #[arg(long = "age-identity-dir", value_name = "DIR", help_heading = POINT)]
    pub age_identity_dirs: Vec<PathBuf>,
    /// Folder for the restored point: the sizes of its database and of the selected keys, and 128 MiB.
    #[arg(long, value_name = "DIR", env = "TMPDIR", default_value = "/tmp", help_heading = POINT)]
    pub scratch: PathBuf,
    /// Prefix of the keys. The agent reads no value of another key.
    #[arg(long, value_name = "PREFIX", conflicts_with = "all_keys", help_heading = UNDELETING)]
    pub prefix: Option<String>,
    /// Compare every key of etcd instead of a prefix.
    #[arg(long, help_heading = UNDELETING)]
    pub all_keys: bool,
    /// Only objects of this resource of Kubernetes, by the key alone: `configmaps`, `deployments.apps`, `things.example.org`.
    /// Default of --prefix: /registry/.
    #[arg(long, value_name = "RESOURCE", help_heading = UNDELETING)]
    pub kind: Option<String>,
    /// Only objects in this namespace of Kubernetes, and the namespace itself, by the key alone. Default of --prefix: /registry/.
    #[arg(long, visible_alias = "namespace", value_name = "NAMESPACE", help_heading = UNDELETING)]
    pub object_namespace: Option<String>,
    /// Put the missing keys back. Without this flag the agent prints the differences and writes nothing.
    #[arg(long, help_heading = UNDELETING)]
    pub apply: bool,
    /// Put back also the keys whose value has changed since the point, unless another client writes them meanwhile.
    #[arg(long, requires = "apply", help_heading = UNDELETING)]
    pub changed: bool,
    /// Keys that had a lease at the point.
    #[arg(long, value_enum, default_value_t, help_heading = UNDELETING)]
    pub leases: Leases,
    /// Most keys to put back in a second. Default: as fast as etcd answers.
    #[arg(long, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..), help_heading = UNDELETING)]
    pub rate: Option<u32>,
    /// Answer GET /progress on this port with the numbers of the run as JSON, at every address of this machine. Default: no
    /// port.
    #[arg(long, value_name = "PORT", env = "HOLDFAST_PROGRESS_PORT", help_heading = UNDELETING)]
    pub progress_port: Option<u16>,
    /// Print JSON instead of text: one line for each difference, all of them, and the report as the last line.
    #[arg(long, help_heading = UNDELETING)]
    pub json: bool,
    /// Time limit in seconds. Default: none.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..), help_heading = UNDELETING)]
    pub deadline_seconds: Option<u32>,
}

/// Treatment of keys that had a lease at the point: without the owner of the lease they would never end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Leases {
    /// Leave the keys out, and count them.
    #[default]
    Skip,
    /// Put a key back with its lease, if the lease still exists; otherwise leave the key out.
    Keep,
    /// Put the keys back without a lease.
    Drop,
}

impl UndeleteRequest {
    /// Returns the requested point; `None`: the snapshot itself.
    pub fn point(&self) -> Option<Point> {
        self.at_revision.map(Point::Revision).or(self.at_time.map(Point::Time))
    }

    /// Returns the prefix of all keys to compare; empty: every key.
    ///
    /// # Errors
    /// The request names no keys.
    pub fn checked_prefix(&self) -> Result<&str> {
        let of_kubernetes = self.kind.is_some() || self.object_namespace.is_some();
        match self.prefix.as_deref() {
            Some(prefix) if !prefix.is_empty() => Ok(prefix),
            None if self.all_keys => Ok(""),
            None if of_kubernetes => Ok(REGISTRY),
            Some(_) | None => Err(Error::config(
                "--prefix is missing or empty, and names no keys. Give --prefix PREFIX, or --all-keys to compare every key of etcd",
            )),
        }
    }

    /// Whether controllers of a Kubernetes act on the keys.
    pub fn is_of_kubernetes(&self) -> bool {
        let below = |prefix: &String| prefix.starts_with(REGISTRY.trim_end_matches('/'));
        self.kind.is_some() || self.object_namespace.is_some() || self.prefix.as_ref().is_some_and(below)
    }
}

impl UndeleteReport {
    /// Returns a title and a text for each line for a person. `size`: formats bytes.
    pub fn rows(&self, request: &UndeleteRequest, size: impl Fn(u64) -> String) -> Vec<(&'static str, String)> {
        rows::rows(self, request, &size)
    }
}

/// Number of keys, and the bytes of these keys and their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyCount {
    /// Keys.
    pub keys: u64,
    /// Bytes of the keys and their values.
    pub bytes: u64,
}

impl KeyCount {
    /// Counts a key.
    pub const fn add(&mut self, bytes: u64) {
        self.keys += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Result of `agent undelete`. Lists of keys hold the first [`MAX_NAMED_KEYS`]; bytes that are no text are written as `\xNN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndeleteReport {
    /// etcd cluster ID (hex) of the live etcd.
    pub cluster_id: String,
    /// Revision of the live etcd at which the agent compared.
    pub compared_at: i64,
    /// URI of the snapshot that the point begins with.
    pub uri: String,
    /// Revision of the point.
    pub revision: i64,
    /// Proof of a point with a log; absent: the snapshot itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<PointProof>,
    /// Keys of the point.
    pub point: KeyCount,
    /// Keys of the live etcd.
    pub live: KeyCount,
    /// Keys of the point that the live etcd lacks.
    pub missing: KeyCount,
    /// Keys with another value than at the point, with the bytes of the point.
    pub changed: KeyCount,
    /// Keys that the point lacks.
    pub added: KeyCount,
    /// Missing and changed keys that had a lease at the point.
    pub with_lease: KeyCount,
    /// The first missing keys.
    pub missing_keys: Vec<String>,
    /// The first changed keys.
    pub changed_keys: Vec<String>,
    /// The first added keys.
    pub added_keys: Vec<String>,
    /// Result of --apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
}

/// Keys that `agent undelete --apply` put back, and those that it left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// Keys that went back.
    pub put_back: KeyCount,
    /// Milliseconds for these keys.
    pub millis: u64,
    /// Keys that another client wrote or removed after the comparison: its write stays.
    pub outrun: KeyCount,
    /// The first of these keys.
    pub outrun_keys: Vec<String>,
    /// Keys with a lease at the point that stay out (--leases skip).
    pub leased: KeyCount,
    /// Keys that stay out because their lease has ended (--leases keep).
    pub lease_ended: KeyCount,
    /// Keys that etcd refuses because the request is larger than --max-request-bytes.
    pub too_large: KeyCount,
    /// The first of these keys.
    pub too_large_keys: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_to_be_named() {
        let prefix = |prefix: Option<&str>, all_keys, kind: Option<&str>| {
            let (prefix, kind) = (prefix.map(str::to_owned), kind.map(str::to_owned));
            let request = UndeleteRequest { prefix, all_keys, kind, ..UndeleteRequest::default() };
            request.checked_prefix().map(str::to_owned)
        };
        assert_eq!(prefix(Some("/a"), false, None).unwrap(), "/a");
        assert_eq!(prefix(None, true, None).unwrap(), "");
        assert_eq!(prefix(None, false, Some("configmaps")).unwrap(), "/registry/");
        for none in [prefix(None, false, None), prefix(Some(""), false, None), prefix(Some(""), false, Some("pods"))] {
            let error = none.unwrap_err();
            assert!(error.message().contains("--prefix") && error.message().contains("--all-keys"), "{error}");
        }
    }
}
