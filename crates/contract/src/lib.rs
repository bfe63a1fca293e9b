//! The contract between operator and agent: requests and reports as JSON, exit codes as classes.
//!
//! This file decides the wire format only. It opens no file and sends no request, so the operator's pure part may depend on it.
//! `request.rs` has the JSON of a container; clap parses the same requests from the flags of a person.

mod build_info;
mod compact;
mod compared;
mod defrag;
mod drilled;
pub mod error;
mod failure;
mod log;
mod log_report;
mod outcome;
mod probed;
mod progress;
mod prune;
mod recall;
mod request;
mod restore;
mod s3;
mod save;
mod stored;
mod survey;
mod to_store;
mod undelete;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

pub use build_info::BuildInfo;
pub use compact::CompactRequest;
pub use compared::{
    CompareRequest, ComparedMember, ComparedReport, DEFAULT_COMPARE_SECONDS, DEFAULT_MEMBER_SECONDS, DifferenceKind,
    MemberDifference,
};
pub use defrag::{DefragMember, DefragOutcome, DefragReport, DefragRequest};
pub use drilled::{DrilledReport, KubernetesReport};
pub use failure::{ExitClass, FAILURES, Failure, Origin, Retry};
pub use log::{
    DEFAULT_CHECK_SECONDS, DEFAULT_EVERY_SECONDS, DEFAULT_LOG_SPOOL_MIB, DEFAULT_SEGMENT_MIB, LogRequest,
    LogStatusRequest,
};
pub use log_report::{LAG_STEP_SECONDS, LOG_PATH, LogGap, LogProblem, LogReport};
pub use outcome::{
    CameAlong, FailedReport, GateReport, Level, MAX_REPORT_BYTES, Report, RestoredReport, SavedReport, Verification,
};
pub use probed::{Finding, Outcome, Probed, Trial};
pub use progress::{PROGRESS_PATH, ProgressReport, STARTING};
pub use prune::{
    Announced, DEFAULT_ANNOUNCED_SECONDS, DEFAULT_PRUNE_DEADLINE_SECONDS, LockedPile, MAX_KEEP, MAX_KEEP_SUM,
    MAX_NAMED, MAX_REMOVED, MAX_REMOVED_SEGMENTS, Policy, PruneReport, PruneRequest, PrunedLog, RemovalReport,
    RemoveRequest, RemovedReport, Stopped, UTC,
};
pub use recall::{MAX_RECALLED, RecallReport, RecallRequest, RecalledRun};
pub use request::{CLUSTER_SPEC, OWNER_NAME, OWNER_UID, POD_UID, PodFacts, REQUEST, Request};
pub use restore::{
    DEFAULT_RESTORE_STALL_SECONDS, DEFAULT_REVISION_BUMP, Engine, LatestReport, LatestRequest, Point, PointProof,
    PointReport, RestoreRequest, parse_time,
};
pub use s3::{Lock, LockMode, S3Checksum, S3Sse};
pub use save::{
    AskMembers, Compression, DEFAULT_MIN_THROUGHPUT_KIB, DEFAULT_SAVE_DEADLINE_SECONDS, DEFAULT_SPOOL_MIB,
    MAX_CLUSTER_SPEC, SaveRequest, Verify,
};
pub use stored::{
    APISERVER, ContentsRequest, CopyRequest, DEFAULT_READ_DEADLINE_SECONDS, ProofLevel, SnapshotFlags, VerifyRequest,
};
pub use survey::{LogEnd, SurveyReport, SurveyRequest, SurvivorReport, VolumeOwner};
pub use to_store::ToStore;
pub use undelete::{Applied, KeyCount, Leases, MAX_NAMED_KEYS, REGISTRY, UndeleteReport, UndeleteRequest};

/// The etcd to read from. The flags have etcdctl's names; secrets come in files, never as values.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EtcdFlags {
    /// Client URLs of the members, comma separated; the agent picks one (a healthy, caught-up follower when there is one).
    ///
    /// `https://HOST:PORT`, `http://HOST:PORT`, or `HOST:PORT`, which is https when a TLS flag is given.
    #[arg(long, value_delimiter = ',', required = true, value_name = "URL")]
    pub endpoints: Vec<String>,
    /// PEM file with the CA certificates to trust for https, instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// PEM file with the client certificate, for an etcd that asks for client certificates. Needs --key.
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// PEM file with the private key of that certificate, not encrypted.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Host name in the members' certificates, when that name is not the endpoint's host.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// User to log in as, for an etcd with authentication: a snapshot needs the role root. Needs --password-file.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// File that holds this user's password. The agent ignores a line break at the end.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Folder with `ca.crt` and, for an etcd that asks for a client certificate, `tls.crt` and `tls.key` (a mounted
    /// Secret). Replaces --cacert, --cert and --key.
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,
    /// Folder with `username` and `password` (a mounted Secret). Replaces --user and --password-file.
    #[arg(long, value_name = "DIR")]
    pub auth_dir: Option<PathBuf>,
    /// HTTP/2 window in bytes; absent: 4 MiB, and 16 MiB for a member that answers in more than 5 ms. A smaller window
    /// saves memory and costs speed with every millisecond of distance.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(65_535..=0x7fff_ffff))]
    pub http2_window: Option<u32>,
}

/// A place for backups: a bucket of S3, Azure or Google, or a folder.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreFlags {
    /// URL of the store: `s3://bucket[/prefix]`, `azure://container[/prefix]`, `gs://bucket[/prefix]`, or
    /// `file:///mounted/folder` for a volume.
    #[arg(long = "store")]
    pub url: String,
    /// Mount point of the volume of a `file://` store: the agent follows no link out of this volume, and creates the
    /// store's folder. Absent: the folder has to exist.
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// Permit the group to read and write the files of a `file://` store (files 0660, folders 0770), for a volume that
    /// several users of one group share. Absent: only the owner (0600, 0700).
    #[arg(long)]
    pub group_access: bool,
    /// S3 endpoint URL; absent: AWS.
    #[arg(long)]
    pub s3_endpoint: Option<String>,
    /// S3 region; absent: AWS_REGION or AWS_DEFAULT_REGION of the environment, and without these `us-east-1`.
    #[arg(long)]
    pub s3_region: Option<String>,
    /// Whether requests name the bucket in the path (`endpoint/bucket`) instead of in the host name (`bucket.endpoint`).
    /// Default: in the path, except with AWS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub s3_force_path_style: Option<bool>,
    /// PEM file with the CA certificates to trust for the S3 endpoint, instead of the public CAs.
    #[arg(long)]
    pub s3_ca_file: Option<PathBuf>,
    /// Encryption at rest by the store; absent: the bucket's default. `SSE-C` encrypts with your own key: the
    /// credentials' `sseCustomerKey`, 32 bytes in base64. Without this key the snapshots cannot be read.
    #[arg(long, value_enum)]
    pub s3_sse: Option<S3Sse>,
    /// ID, ARN or alias of the KMS key; absent: the account's own key. Needs `--s3-sse=aws:kms`.
    #[arg(long)]
    pub s3_sse_kms_key_id: Option<String>,
    /// Storage class of the data; manifests stay in the default class. The agent refuses archive classes, which a
    /// restore cannot read at once.
    #[arg(long)]
    pub s3_storage_class: Option<String>,
    /// Tag of every object, as `key=value`; may be repeated. Needs the right s3:PutObjectTagging.
    #[arg(long, value_name = "KEY=VALUE")]
    pub s3_tag: Vec<String>,
    /// Lock the stored objects against removal and overwriting (S3 Object Lock) for `--s3-object-lock-days`. The bucket
    /// has to have Object Lock enabled.
    #[arg(long, value_enum)]
    pub s3_object_lock: Option<LockMode>,
    /// Days from now until the lock ends.
    #[arg(long, value_name = "DAYS")]
    pub s3_object_lock_days: Option<u32>,
    /// Checksum that the store keeps with every object; absent: only the signed sha256 of each request.
    #[arg(long, value_enum)]
    pub s3_checksum: Option<S3Checksum>,
    /// Azure storage account, unless the credentials name it.
    #[arg(long)]
    pub azure_account: Option<String>,
    /// Azure endpoint URL; absent: `https://ACCOUNT.blob.core.windows.net`. If an address serves several accounts, the
    /// URL's path is the account.
    #[arg(long)]
    pub azure_endpoint: Option<String>,
    /// PEM file with the CA certificates to trust for the Azure endpoint, instead of the public CAs.
    #[arg(long)]
    pub azure_ca_file: Option<PathBuf>,
    /// Google Cloud Storage endpoint URL; absent: `https://storage.googleapis.com`.
    #[arg(long)]
    pub gcs_endpoint: Option<String>,
    /// PEM file with the CA certificates to trust for the Google endpoint, instead of the public CAs.
    #[arg(long)]
    pub gcs_ca_file: Option<PathBuf>,
    /// Folder with the credentials' files (a mounted Secret). S3: `accessKeyID`, `secretAccessKey`, for temporary
    /// credentials `sessionToken`, and for `--s3-sse=SSE-C` `sseCustomerKey`. Azure: `accountName`, and `accountKey` or
    /// `sasToken`. Google: `serviceAccountJSON`. Absent: the environment's identity (a role or a workload identity).
    #[arg(long)]
    pub credentials_dir: Option<PathBuf>,
}

/// `agent inspect`: find the snapshot that an object asked for and report it again, from what its manifest says.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InspectRequest {
    /// Where to look.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Expected store ID, as `agent probe` reports: the agent refuses another store.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Namespace part of the key.
    #[arg(long)]
    pub namespace: String,
    /// Cluster part of the key.
    #[arg(long)]
    pub cluster: String,
    /// UID of the `EtcdCluster`; absent: the agent reads every lineage of this namespace and name.
    #[arg(long)]
    pub cluster_uid: Option<String>,
    /// UID of the object that asked for the snapshot.
    #[arg(long)]
    pub owner_uid: String,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// `agent list`: what a store holds of one cluster.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Where to look.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Namespace part of the key; absent: all of them.
    #[arg(long)]
    pub namespace: Option<String>,
    /// Cluster part of the key; absent: all of the namespace's.
    #[arg(long, requires = "namespace")]
    pub cluster: Option<String>,
    /// UID of the `EtcdCluster`: list only the snapshots of this incarnation.
    #[arg(long, requires = "cluster")]
    pub cluster_uid: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// Two minutes: the slowest store returns fifty pages of a thousand folders each in less time.
pub const DEFAULT_INSPECT_DEADLINE_SECONDS: u32 = 120;

/// `agent probe`: tries the operations of a store in a folder of its own, which it removes again. A usable store without a store
/// ID gets one at its root, which stays.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProbeRequest {
    /// The store to try.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Folder with separate credentials for reading (`credentials.read` of an EtcdBackupStore, the name in error
    /// messages). The agent then reads and lists with these credentials, and writes and removes with those of
    /// --credentials-dir, which may lack the right to read. Absent: --credentials-dir serves all operations.
    #[arg(long, value_name = "DIR")]
    pub read_credentials_dir: Option<PathBuf>,
    /// Expected store ID: the agent does not try a store with another ID or without an ID. Absent: the agent reports
    /// the store ID, and creates an ID if the store has none.
    #[arg(long, value_name = "ID")]
    pub expect_store_id: Option<String>,
    /// Second accepted store ID, for a store that replaces the expected store; `new`: a store without an ID, which gets
    /// an ID.
    #[arg(long, value_name = "ID", requires = "expect_store_id")]
    pub accept_store_id: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = DEFAULT_PROBE_DEADLINE_SECONDS)]
    pub deadline_seconds: u32,
}

/// Value for an accepted store without an ID.
pub const NEW_STORE: &str = "new";

/// Whether this text can be a store ID, usually a UUID. Excludes [`NEW_STORE`], and every character that a shell, a label or a
/// log interprets.
pub fn is_store_id(id: &str) -> bool {
    (8..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Two minutes: about thirty requests, and 9 MiB up and down at 0.2 MiB/s.
pub const DEFAULT_PROBE_DEADLINE_SECONDS: u32 = 120;

/// The owner of a data volume.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IdentityFlags {
    /// etcd's cluster token: unique for one incarnation of one cluster.
    #[arg(long)]
    pub cluster_token: String,
    /// Name of the member.
    #[arg(long)]
    pub member_name: String,
    /// UID of the `EtcdMember`.
    #[arg(long)]
    pub member_uid: String,
    /// UID of the claim behind the volume.
    #[arg(long)]
    pub claim_uid: String,
}

/// `gate`: decide whether etcd may start on this volume, then become etcd.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GateRequest {
    /// The volume's mount point; the data directory is the folder `data` below it.
    #[arg(long)]
    pub volume: PathBuf,
    /// The expected owner of the volume.
    #[command(flatten)]
    pub identity: IdentityFlags,
    /// Whether an empty volume, when allowed, founds a new cluster (`--initial-cluster-state=new`).
    #[arg(long)]
    pub seed: bool,
    /// The restore whose data this volume must hold: an empty volume is then never startable.
    #[arg(long)]
    pub restore_uid: Option<String>,
    /// File with the Pod's annotations (a downward API volume).
    #[arg(long)]
    pub annotations: PathBuf,
    /// Number of this Pod among the starts of its member, 1 for the first; 0: not counted (a Pod made before there was
    /// a count). The volume keeps the highest, so that an older copy of it is known.
    #[arg(long, default_value_t)]
    pub start: u64,
    /// Peer URLs of members whose `/version` must answer before a *first* start; after 30 s it starts anyway. Two joiners
    /// that boot at the same moment wait 7 s for each other's answers. A member that has started before does not wait.
    #[arg(long, value_delimiter = ',')]
    pub after: Vec<String>,
    /// etcd and its flags, after `--exec`.
    #[arg(long, num_args = 1.., allow_hyphen_values = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub exec: Vec<String>,
}

/// Time that a first start waits for `--after`: longer than a Pod with a new volume needs to start. Afterwards etcd starts
/// anyway; a missing peer refuses connections immediately and costs no time.
pub const AFTER_PATIENCE_SECONDS: u64 = 30;

/// Name of the data directory below the volume's mount point. A folder of its own, because a volume's root may hold
/// `lost+found`, and because a rename of this folder makes restored data startable.
pub const DATA_DIR: &str = "data";

/// Annotation of a member's Pod: UID of the claim on whose empty volume etcd may start. The operator removes it before the
/// member may acknowledge a write.
pub const MAY_START_EMPTY: &str = "holdfast.dev/may-start-empty";

/// Annotation of a member's Pod: number (decimal) of the member's latest Pod that served. A volume on which that Pod has not
/// run is an older copy. Absent or 0: no Pod has served.
pub const STARTED: &str = "holdfast.dev/started";

/// Annotation of a member's Pod: the IDs with which the member has joined etcd, see [`joined_as`]. A log with other IDs belongs
/// to another member. Absent: the operator has not seen the member in etcd.
pub const JOINED: &str = "holdfast.dev/joined";

/// Returns the value of [`JOINED`]: the IDs of cluster and member as etcdctl prints them, separated by a slash.
pub fn joined_as(cluster_id: &str, member_id: &str) -> String {
    format!("{cluster_id}/{member_id}")
}

/// Formats an ID as etcdctl prints it.
pub fn hex_id(id: u64) -> String {
    format!("{id:x}")
}

/// Networks of the services that give a cloud's node its identity: first address and prefix length. Holdfast sends nothing
/// there. Link-local networks (most clouds), Alibaba's, Azure's `WireServer`, Amazon's (EC2: "Instance metadata service", with
/// the containers' credentials beside it) and Google's for IPv6.
pub const IDENTITY_NETWORKS: [(IpAddr, u32); 6] = [
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0)), 32),
    (IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0)), 32),
];
