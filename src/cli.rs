//! The command line: flags to plain structs.
//!
//! Decides names, defaults and help texts. Checks the names of Kubernetes objects; the commands decide the use of the values.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::{ArgPredicate, NonEmptyStringValueParser};
use clap::{Arg, ArgAction, Args, Parser, Subcommand, ValueEnum};
use holdfast_api::cluster::is_repository;
use holdfast_api::name::LocalRef;
use holdfast_api::pod_security::RunAs;
use holdfast_api::snapshot::{Age, Encryption, EtcdSnapshotSpec, SnapshotTemplate};
use holdfast_api::store::{Destination, Location, PvcLocation, S3Location};
use holdfast_contract::{
    CompactRequest, CompareRequest, Compression, ContentsRequest, CopyRequest, DefragRequest, Failure, GateRequest,
    InspectRequest, LatestRequest, ListRequest, ProbeRequest, PruneRequest, RecallRequest, RemoveRequest,
    RestoreRequest, SaveRequest, SurveyRequest, UndeleteRequest, VerifyRequest,
};
use holdfast_io::private::is_shared;
use holdfast_operator::Config;
use holdfast_plan::Proxies;
use holdfast_store::{no_proxy, proxy};
use snapshot_agent::format::crypt::Recipients;

use holdfast_manifests::jobs::Sample;
use holdfast_manifests::names::{allowed_name, domain, image, namespace, object};
use holdfast_manifests::{IMAGE, NAME, NAMESPACE, Options, Part, Scope};
use holdfast_plugin::Verb;
use holdfast_plugin::access::Access;
use holdfast_plugin::install::InstallFlags;
use holdfast_plugin::snapshots::SnapshotVerb;
use holdfast_plugin::{snapshot, upgrade};

/// Runs etcd clusters on Kubernetes and proves that their backups restore.
#[derive(Parser, Clone, Debug, PartialEq, Eq)]
#[command(name = "holdfast", version, propagate_version = true)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Format of log lines on standard error.
    #[arg(long, global = true, value_enum, default_value_t, env = "HOLDFAST_LOG_FORMAT", help_heading = "Logging")]
    pub log_format: LogFormat,
    /// Log level: `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,holdfast=debug`.
    #[arg(long, global = true, default_value = "info", env = "HOLDFAST_LOG_LEVEL", help_heading = "Logging")]
    pub log_level: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Command to run.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the operator, which reconciles Holdfast's custom resources.
    Operator(Box<OperatorFlags>),
    /// Print the Kubernetes manifests of the operator.
    ///
    /// For the whole Kubernetes cluster: `holdfast manifests --image I | kubectl apply --server-side -f -`. For one
    /// namespace: apply `--only crds` once (the definitions and the roles for people), then `--namespace NS`, whose
    /// objects all live in that namespace. A cluster administrator has to apply the manifests, because the operator
    /// gets rights that other users may not grant. `--server-side` is necessary because the definitions exceed the size
    /// of kubectl's last-applied annotation.
    Manifests(ManifestsFlags),
    /// Print sample Jobs that save snapshots without the operator, and a `CronJob` that requests snapshots from the
    /// operator.
    Jobs(JobsFlags),
    /// Request, list, hold and release snapshots, with your own rights.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Ask whether a cluster could go to another version, with your own rights.
    #[command(subcommand)]
    Upgrade(Upgrade),
    /// Move data between an etcd and a store, without Kubernetes.
    #[command(subcommand, after_help = exit_codes())]
    Agent(Agent),
    /// Check whether etcd may start on a volume, then become etcd.
    Gate(Box<GateRequest>),
    /// Apply the Kubernetes manifests of the operator; or, with `--to`, copy this binary to a path for another container.
    Install(Box<InstallFlags>),
    /// Verbs for people.
    #[command(flatten)]
    Plugin(Verb),
}

/// Flags of `operator`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct OperatorFlags {
    /// Image of this binary, for the gate in the members' Pods and for the agents. In a Pod, set this flag to the image
    /// of the operator's Pod.
    #[arg(long, env = "HOLDFAST_IMAGE", value_parser = image)]
    pub agent_image: String,
    /// Namespace to watch. Default: all namespaces.
    #[arg(long, env = "HOLDFAST_WATCH_NAMESPACE", value_name = "NS", value_parser = namespace)]
    pub watch_namespace: Option<String>,
    /// Repository of etcd's image, without tag and digest, for clusters that name no repository. The tag is `v` and the
    /// cluster's version.
    #[arg(long, env = "HOLDFAST_ETCD_IMAGE_REPOSITORY", default_value = ETCD_REPOSITORY, value_parser = repository)]
    pub etcd_image_repository: String,
    /// Proxy for every Pod that connects to a store with TLS. The URL must not contain a password, because the spec of
    /// each such Pod shows the URL.
    #[arg(long, env = "HOLDFAST_AGENT_HTTPS_PROXY", value_name = "URL", hide_env_values = true)]
    pub agent_https_proxy: Option<String>,
    /// Proxy for every Pod that connects to a store without TLS; no password either.
    #[arg(long, env = "HOLDFAST_AGENT_HTTP_PROXY", value_name = "URL", hide_env_values = true)]
    pub agent_http_proxy: Option<String>,
    /// Names, domains and networks to reach without a proxy, separated by commas: `.svc,10.0.0.0/8`.
    #[arg(long, env = "HOLDFAST_AGENT_NO_PROXY", value_name = "LIST")]
    pub agent_no_proxy: Option<String>,
    /// Domain of the Kubernetes cluster, for names in the certificates of servers. Default: out of /etc/resolv.conf.
    #[arg(long, env = "HOLDFAST_CLUSTER_DOMAIN", value_name = "DOMAIN", value_parser = domain)]
    pub cluster_domain: Option<String>,
    /// Names, separated by commas, that a ClusterIssuer may sign for every EtcdCluster in `additionalNames`, besides those of its
    /// own namespace: `etcd.example.org,*.example.org`; `*` allows all.
    #[arg(long, env = "HOLDFAST_ALLOWED_NAMES", value_name = "LIST", value_delimiter = ',', value_parser = allowed_name)]
    pub allowed_names: Vec<String>,
    /// User of the Pods of members and agents, where no spec chooses.
    #[arg(long, env = "HOLDFAST_POD_RUN_AS", value_enum, default_value_t)]
    pub pod_run_as: RunAs,
    /// Namespace of the Lease that elects the active operator.
    #[arg(long, env = "HOLDFAST_NAMESPACE", default_value = NAMESPACE, value_name = "NS", value_parser = namespace)]
    pub leader_election_namespace: String,
    /// Name of the Lease.
    #[arg(long, default_value = NAME, value_name = "NAME")]
    pub leader_election_name: String,
    /// Name of this process in the Lease: the Pod's name, or any name that no other operator has.
    #[arg(long, env = "HOLDFAST_IDENTITY", value_parser = NonEmptyStringValueParser::new())]
    pub identity: String,
    /// Address of `/healthz`, `/readyz` and `/metrics`. `[::]` serves IPv4 too, and IPv4 alone on a node without IPv6.
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// For crash tests: end hard after this many successful writes.
    #[arg(long, env = "HOLDFAST_DIE_AFTER_WRITES", hide = true)]
    pub die_after_writes: Option<u64>,
}

/// Repository of etcd's own releases.
const ETCD_REPOSITORY: &str = "gcr.io/etcd-development/etcd";

impl TryFrom<OperatorFlags> for Config {
    type Error = String;

    /// Reports an invalid proxy with its flag, without the value: the URL may contain a password.
    fn try_from(flags: OperatorFlags) -> Result<Self, String> {
        let OperatorFlags {
            agent_image,
            watch_namespace,
            etcd_image_repository,
            agent_https_proxy,
            agent_http_proxy,
            agent_no_proxy,
            cluster_domain,
            allowed_names,
            pod_run_as,
            leader_election_namespace,
            leader_election_name,
            identity,
            listen,
            die_after_writes,
        } = flags;
        let checked = |names: &str, value: Option<String>, check: fn(&str) -> Result<(), String>| {
            // An empty variable means that the flag is not set.
            let value = value.filter(|value| !value.is_empty());
            value.as_deref().map_or(Ok(()), check).map_err(|why| format!("{names}: {why}")).map(|()| value)
        };
        let proxies = Proxies {
            https: checked("--agent-https-proxy (HOLDFAST_AGENT_HTTPS_PROXY)", agent_https_proxy, proxy)?,
            http: checked("--agent-http-proxy (HOLDFAST_AGENT_HTTP_PROXY)", agent_http_proxy, proxy)?,
            except: checked("--agent-no-proxy (HOLDFAST_AGENT_NO_PROXY)", agent_no_proxy, no_proxy)?,
        };
        Ok(Self {
            watch_namespace,
            lease_namespace: leader_election_namespace,
            lease_name: leader_election_name,
            identity,
            agent_image,
            etcd_repository: etcd_image_repository,
            proxies,
            cluster_domain,
            // An empty variable means that the flag is not set.
            allowed_names: allowed_names.into_iter().filter(|name| !name.is_empty()).collect(),
            pod_run_as,
            listen,
            die_after_writes,
        })
    }
}

/// Flags of `manifests`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ManifestsFlags {
    /// Image of this binary, for the operator and its agents.
    #[arg(long, default_value = IMAGE, value_parser = image)]
    pub image: String,
    /// Install the operator into this namespace, and watch only this namespace.
    #[arg(long, value_name = "NS", value_parser = namespace)]
    pub namespace: Option<String>,
    /// User of the Pods of the operator, of members and of agents.
    #[arg(long, value_enum, default_value_t)]
    pub pod_run_as: RunAs,
    /// Print only this part.
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Option<Part>,
}

impl From<ManifestsFlags> for Options {
    fn from(ManifestsFlags { image, namespace, pod_run_as, only }: ManifestsFlags) -> Self {
        Self { image, scope: namespace.map_or(Scope::Cluster, Scope::Namespace), pod_run_as, only }
    }
}

/// Flags of `jobs`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct JobsFlags {
    /// Image of this binary.
    #[arg(long, default_value = IMAGE, value_parser = image)]
    pub image: String,
    /// Print only this sample.
    #[arg(long, value_enum)]
    pub only: Option<Sample>,
}

/// Verbs of `snapshot`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// Create an `EtcdSnapshot`; with `--wait`, wait until the snapshot is complete.
    Create(Box<CreateFlags>),
    /// Verbs about existing snapshots.
    #[command(flatten)]
    Existing(SnapshotVerb),
}

/// Verbs of `upgrade`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// Print the conditions of an upgrade to the next minor version, in the order in which the operator checks them. Changes
    /// nothing. Exit code 0: the upgrade could begin now; 3: it could not.
    Plan(PlanFlags),
}

/// Flags of `upgrade plan`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PlanFlags {
    /// `EtcdCluster` to upgrade.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// Version to go to: a later patch, or the next minor.
    #[arg(long, value_name = "VERSION", value_parser = NonEmptyStringValueParser::new())]
    pub to: String,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

impl From<PlanFlags> for upgrade::Question {
    fn from(PlanFlags { cluster, to, access }: PlanFlags) -> Self {
        Self { cluster, access, to }
    }
}

/// Flags of `snapshot create`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CreateFlags {
    /// `EtcdCluster` to save.
    #[arg(long, value_name = "NAME", value_parser = object)]
    pub cluster: String,
    /// Destination: `store://NAME` of an `EtcdBackupStore`, `s3://BUCKET`, `s3://BUCKET/PREFIX`, `pvc://CLAIM` or
    /// `pvc://CLAIM/FOLDER`. For Azure and Google, use an `EtcdBackupStore`.
    #[arg(long, value_name = "URL", value_parser = place)]
    pub to: Place,
    /// URL of the S3 server. Default: AWS.
    #[arg(long, value_name = "URL", help_heading = "S3")]
    pub s3_endpoint: Option<String>,
    /// Region. Default: us-east-1.
    #[arg(long, value_name = "REGION", help_heading = "S3")]
    pub s3_region: Option<String>,
    /// Whether requests name the bucket in the path instead of in the host name. Default: in the path, except with AWS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(help_heading = "S3")]
    pub s3_force_path_style: Option<bool>,
    /// Secret with the keys accessKeyID, secretAccessKey and, for temporary credentials, sessionToken. Default: the
    /// identity of the Pod's ServiceAccount or of the node.
    #[arg(long, value_name = "SECRET", value_parser = object, help_heading = "S3")]
    pub s3_credentials: Option<String>,
    /// Secret with the key ca.crt: the CA certificates to trust for the endpoint.
    #[arg(long, value_name = "SECRET", value_parser = object, help_heading = "S3")]
    pub s3_ca: Option<String>,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Name of the `EtcdSnapshot`. Default: a generated name. With a name, you can repeat the command safely.
    #[arg(long, env = "HOLDFAST_SNAPSHOT_NAME", value_parser = object)]
    pub name: Option<String>,
    /// Compression.
    #[arg(long, value_enum, default_value_t)]
    pub compression: Compression,
    /// Public age key (`age1...`) to encrypt for; repeatable. Default: no encryption.
    #[arg(long = "age-recipient", value_name = "RECIPIENT")]
    pub age_recipients: Vec<String>,
    /// Time limit of the save in seconds, 10 to 86400; default 3600.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(10..=86400))]
    pub deadline_seconds: Option<u32>,
    /// Wait until the snapshot is complete (exit code 0), has failed (3), or cannot start before you change something (2),
    /// and print each change. The wait for an EtcdCluster or a store that does not exist ends after 10 seconds.
    #[arg(long)]
    pub wait: bool,
    /// Time limit of --wait in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout_seconds: u64,
}

/// Destination in `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An `EtcdBackupStore`.
    Store(String),
    /// A bucket, and a prefix in it.
    S3(String, Option<String>),
    /// A claim, and a folder on its volume.
    Pvc(String, Option<String>),
}

impl CreateFlags {
    /// Returns the request, or names the flags that exclude each other.
    pub fn request(self) -> anyhow::Result<snapshot::Request> {
        let s3_flags = self.s3_endpoint.is_some()
            || self.s3_region.is_some()
            || self.s3_force_path_style.is_some()
            || self.s3_credentials.is_some()
            || self.s3_ca.is_some();
        // A private key given by mistake must not reach the API server.
        let recipients: Vec<_> = Recipients::parse(&self.age_recipients)?.iter().map(ToString::to_string).collect();
        let named = |name: String| LocalRef { name };
        let destination = match self.to {
            Place::Pvc(..) | Place::Store(_) if s3_flags => {
                anyhow::bail!("the --s3-... flags need --to=s3://BUCKET: leave the --s3-... flags out")
            }
            Place::Store(name) => Destination { store_ref: Some(named(name)), ..Destination::default() },
            Place::Pvc(claim_name, sub_path) => Location::Pvc(PvcLocation { claim_name, sub_path }).into(),
            Place::S3(bucket, prefix) => Location::S3(S3Location {
                bucket,
                prefix,
                endpoint: self.s3_endpoint,
                region: self.s3_region,
                force_path_style: self.s3_force_path_style,
                ca_ref: self.s3_ca.map(named),
                credentials_secret_ref: self.s3_credentials.map(named),
                ..S3Location::default()
            })
            .into(),
        };
        Ok(snapshot::Request {
            access: self.access,
            name: self.name,
            spec: EtcdSnapshotSpec {
                cluster_ref: Some(named(self.cluster)),
                template: SnapshotTemplate {
                    destination,
                    compression: self.compression,
                    encryption: (!recipients.is_empty()).then_some(Encryption { age: Age { recipients } }),
                    deadline_seconds: self.deadline_seconds,
                    ..SnapshotTemplate::default()
                },
                ..EtcdSnapshotSpec::default()
            },
            wait: self.wait.then(|| Duration::from_secs(self.timeout_seconds)),
        })
    }
}

/// Parses a place for backups. The API server checks the names.
fn place(text: &str) -> Result<Place, String> {
    let split = |rest: &str| match rest.trim_end_matches('/').split_once('/') {
        Some((name, below)) => (name.to_owned(), Some(below.to_owned())),
        None => (rest.trim_end_matches('/').to_owned(), None),
    };
    let named = |(name, below): (String, Option<String>), kind: fn(String, Option<String>) -> Place| {
        (!name.is_empty()).then(|| kind(name, below))
    };
    let place = match text.split_once("://") {
        Some(("s3", rest)) => named(split(rest), Place::S3),
        Some(("pvc", rest)) => named(split(rest), Place::Pvc),
        Some(("store", name)) => object(name).ok().map(Place::Store),
        Some((other @ ("azure" | "gs" | "gcs"), _)) => {
            return Err(format!(
                "{other}:// is not supported here: name the container or bucket in an EtcdBackupStore (spec.azure, spec.gcs), \
                 and use store://NAME"
            ));
        }
        Some(_) | None => None,
    };
    place.ok_or_else(|| "expected store://NAME, s3://BUCKET[/PREFIX] or pvc://CLAIM[/FOLDER]".to_owned())
}

/// Verbs of `agent`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Save one snapshot of an etcd to a new folder of a store; the agent checks etcd's own hash before publishing the
    /// snapshot.
    #[command(
        after_help = SAVE_EXAMPLES,
        mut_arg("url", |url| {
            let url = url.visible_alias("to").required(false);
            // A dry run without a store connects to no store: the empty URL means no store.
            url.required_unless_present("dry_run").default_value_if("dry_run", "true", "")
        })
    )]
    Save(Box<SaveRequest>),
    /// Find the snapshot that an object requested, and print its report again from the manifest. (To show the data of a
    /// snapshot, use `agent contents`.)
    #[command(arg(json()))]
    Inspect(Box<InspectRequest>),
    /// List the complete, unfinished and broken snapshots in a store, of one cluster or of all clusters, newest first.
    List(Box<ListRequest>),
    /// Print the newest complete snapshot of one cluster according to the manifests: the snapshot that
    /// `bootstrap.restore.latest` restores.
    #[command(arg(json()))]
    Latest(Box<LatestRequest>),
    /// Print the complete snapshots that the runs of one EtcdSnapshotSchedule saved in a period, oldest first. The operator
    /// runs this verb after an outage, for the runs whose Jobs are gone.
    #[command(arg(json()))]
    Recall(Box<RecallRequest>),
    /// Verify a snapshot, in a store or in a local file, and write a proof beside a stored snapshot.
    #[command(after_help = VERIFY_EXAMPLES, override_usage = "holdfast agent verify [OPTIONS] <FILE | --store <URL> --key <KEY>>")]
    Verify(Box<VerifyRequest>),
    /// Show the contents of a snapshot, in a store or in a local file: keys by prefix, leases, users, members.
    #[command(after_help = CONTENTS_EXAMPLES, override_usage = "holdfast agent contents [OPTIONS] <FILE | --store <URL> --key <KEY>>")]
    Contents(Box<ContentsRequest>),
    /// Copy complete snapshots from one store to another, under the same keys, and verify the bytes on the way.
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyRequest>),
    /// Judge the snapshots of one EtcdSnapshotSchedule by a retention policy, announce the removals, and remove what was
    /// announced an hour ago or earlier, at most 20 snapshots at a time.
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(Box<PruneRequest>),
    /// Remove one snapshot from a store, unless the snapshot is held, locked or the last proven snapshot of its lineage.
    #[command(arg(json()))]
    Remove(Box<RemoveRequest>),
    /// Test which operations a store supports, and whether snapshots can be saved to and restored from the store.
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(Box<ProbeRequest>),
    /// Record every revision of an etcd beside its snapshots, until SIGTERM: from a snapshot and the log a later version
    /// restores any moment.
    #[command(after_help = LOG_EXAMPLES, subcommand_negates_reqs = true)]
    Log(Box<LogVerb>),
    /// Merge the newest snapshot and the log after it into a new snapshot of the same lineage, without reading etcd. A restore
    /// to a point in time then reads little of the log.
    #[command(after_help = COMPACT_EXAMPLES)]
    Compact(Box<CompactRequest>),
    /// Compare the member list in each member's database with etcd's member list, before an upgrade from etcd 3.5 to 3.6.
    #[command(after_help = COMPARE_EXAMPLES)]
    CompareMembers(Box<CompareRequest>),
    /// Give free space of the members' databases back: followers first, the leader last, one member at a time, each only
    /// while all members are well.
    #[command(after_help = DEFRAG_EXAMPLES)]
    Defrag(Box<DefragRequest>),
    /// Print an EtcdCluster that restores a stored snapshot, from its manifest alone, and the Secrets that the restore
    /// needs.
    #[command(after_help = RENDER_EXAMPLES)]
    RenderRestore(Box<RenderFlags>),
    /// Carry out the request of the environment variable HOLDFAST_REQUEST, as JSON: the command of the containers that
    /// Holdfast makes.
    #[command(hide = true)]
    Run(Box<RunFlags>),
    /// Rebuild a member's data directory from a stored snapshot. After every check, one rename makes the directory
    /// startable.
    #[command(
        after_help = RESTORE_EXAMPLES,
        mut_arg("url", |url| {
            // A restore from a survivor's volume connects to no store: the empty URL means no store.
            let url = url.required(false).required_unless_present("from_volume");
            url.default_value_if("from_volume", ArgPredicate::IsPresent, "")
        }),
        mut_arg("member_uid", of_the_operator),
        mut_arg("claim_uid", of_the_operator),
        mut_arg("restore_uid", of_the_operator)
    )]
    Restore(Box<RestoreRequest>),
    /// Read how far the data of a stopped member are: the terms and indexes of its log, the revision of its database. Changes
    /// nothing, and needs no etcd.
    #[command(after_help = SURVEY_EXAMPLES)]
    Survey(Box<SurveyRequest>),
    /// Compare the keys below a prefix at a point, a snapshot and the log after it, with a live etcd, and with --apply put
    /// back those that are missing. A newer write of another client always stays.
    #[command(after_help = UNDELETE_EXAMPLES)]
    Undelete(Box<UndeleteRequest>),
}

impl Agent {
    /// Whether the group may read the files that this verb writes to a folder.
    pub fn is_for_group(&self) -> bool {
        let store = match self {
            Self::Save(request) => Some(&request.store),
            Self::Inspect(request) => Some(&request.store),
            Self::List(request) => Some(&request.store),
            Self::Latest(request) => Some(&request.store),
            Self::Recall(request) => Some(&request.store),
            Self::Verify(request) => request.snapshot.store.as_ref(),
            Self::Contents(request) => request.snapshot.store.as_ref(),
            Self::Copy(request) => Some(&request.to.0),
            Self::Prune(request) => Some(&request.store),
            Self::Remove(request) => Some(&request.store),
            Self::Probe(request) => Some(&request.store),
            Self::Compact(request) => Some(&request.store),
            Self::Log(verb) => match &**verb {
                LogVerb::Record(request) => Some(&request.store),
                LogVerb::Status(request) => Some(&request.store),
            },
            // These verbs write a member's data or nothing, and at most read the store.
            Self::CompareMembers(_)
            | Self::Defrag(_)
            | Self::RenderRestore(_)
            | Self::Restore(_)
            | Self::Run(_)
            | Self::Survey(_)
            | Self::Undelete(_) => None,
        };
        store.is_some_and(is_shared)
    }
}

/// A UID that only the operator knows. By hand the default is constant, so that a user can repeat a command.
fn of_the_operator(uid: Arg) -> Arg {
    uid.required(false).default_value("by-hand").hide(true)
}

/// `--json` of a verb whose report is always JSON: accepted from users who set the flag for every verb, and part of no request.
fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("No effect: the report is always JSON")
}

/// Returns the table of failures, for the help of `agent`.
fn exit_codes() -> String {
    let own = Failure::by_code().map(|row| format!("{}  {}", row.code, row.cause));
    let all: Vec<_> = ["1   any other error: see the output", "2   a flag is unknown, missing or invalid"]
        .map(str::to_owned)
        .into_iter()
        .chain(own)
        .collect();
    format!("Exit codes (0 is success; docs/exit-codes.md has the runbooks):\n  {}", all.join("\n  "))
}

/// Parses a repository of images, without a tag.
fn repository(text: &str) -> Result<String, String> {
    if !is_repository(text) || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(
            "name the repository that holds etcd's images, without tag, digest and a slash at the end, for example \
                    registry.example.com:5000/etcd"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

mod examples;
mod log;
mod render;
mod run;

use examples::{
    COMPACT_EXAMPLES, COMPARE_EXAMPLES, CONTENTS_EXAMPLES, COPY_EXAMPLES, DEFRAG_EXAMPLES, LOG_EXAMPLES,
    PROBE_EXAMPLES, PRUNE_EXAMPLES, RENDER_EXAMPLES, RESTORE_EXAMPLES, SAVE_EXAMPLES, SURVEY_EXAMPLES,
    UNDELETE_EXAMPLES, VERIFY_EXAMPLES,
};

pub use log::LogVerb;
pub use render::RenderFlags;
pub use run::RunFlags;

#[cfg(test)]
mod tests;
