//! `restore plan|create CLUSTER`: the data that a restore of a snapshot brings back and leaves out, and the new cluster that restores it.
//!
//! Decides the snapshot, and the spec of the new cluster: that of the saved one, with the snapshot and the point in time.
//! `restore/in_place.rs` decides the object of a return in place.

use clap::{Args, Subcommand};
use holdfast_api::condition::{self, Type};
use holdfast_api::restore::{Bootstrap, Restore};
use holdfast_api::snapshot::{EtcdSnapshot, Phase};
use holdfast_api::{EtcdCluster, EtcdClusterSpec, EtcdSnapshotSchedule, name};
use holdfast_io::clock;
use holdfast_kube::requests;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, PostParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::access::{Access, MANAGER, Only, Session, refused};
use super::end::{DONE, print, wrong_use};
use super::progress::Live;
use super::screen::{Output, Screen};
use super::time::parse;
use super::wait::{Look, Wait};
use crate::point::PointFlags;
use holdfast_manifests::names::object;

pub mod in_place;
mod log_end;
pub mod plan;

use plan::Plan;

/// Verbs of `restore`.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum RestoreVerb {
    /// Print what comes back and what is lost, and the YAML of the new cluster. Changes nothing. The saved cluster may be gone.
    Plan(Box<PlanFlags>),
    /// Create the new cluster. The saved cluster may be gone.
    Create(Box<CreateFlags>),
    /// Take an existing cluster back in place, under its names and certificates: create the `EtcdRestore`, or print the plan.
    InPlace(Box<in_place::InPlaceFlags>),
}

/// The data to restore.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `EtcdCluster` that was saved.
    #[arg(value_parser = object)]
    pub cluster: String,
    /// `EtcdSnapshot` to restore. Default: the newest complete one of the cluster, before the point in time if one is given.
    #[arg(long, value_name = "NAME", value_parser = object)]
    pub snapshot: Option<String>,
    /// Point in time.
    #[command(flatten)]
    pub at: PointFlags,
    /// Secret with the age identity that decrypts an encrypted snapshot.
    #[arg(long, value_name = "SECRET", value_parser = object)]
    pub identity_secret: Option<String>,
}

/// The data and the new cluster.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Source.
    #[command(flatten)]
    pub source: Source,
    /// Name of the new `EtcdCluster`. Default: CLUSTER-restored.
    #[arg(long = "as", value_name = "NAME", value_parser = object)]
    pub new: Option<String>,
}

impl Source {
    /// Whether a snapshot is not later than the point in time.
    fn is_before_point(&self, snapshot: &EtcdSnapshot) -> bool {
        let Some(status) = &snapshot.status else { return false };
        let saved = status.artifact.as_ref().and_then(|artifact| artifact.revision);
        let completed = || status.completed_at.as_deref().and_then(parse);
        self.at.at_revision.is_none_or(|revision| saved.is_some_and(|saved| saved <= revision))
            && self.at.at_time.is_none_or(|time| completed().is_some_and(|completed| completed <= time))
    }
}

/// Flags of `restore plan`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct PlanFlags {
    /// Subject.
    #[command(flatten)]
    pub subject: Subject,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
    /// Output.
    #[command(flatten)]
    pub output: Output,
}

/// Flags of `restore create`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CreateFlags {
    /// Subject.
    #[command(flatten)]
    pub subject: Subject,
    /// Let the API server check the new cluster, and create nothing.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Wait.
    #[command(flatten)]
    pub wait: Wait,
    /// Kubernetes.
    #[command(flatten)]
    pub access: Access,
}

/// Carries out a verb.
pub async fn run(verb: RestoreVerb) -> anyhow::Result<u8> {
    match verb {
        RestoreVerb::Plan(flags) => {
            let session = flags.access.open().await?;
            let Prepared { snapshot, snapshots, saved, present, plan, new } = prepare(&session, &flags.subject).await?;
            let schedules = schedules(&session, &flags.subject.source).await?;
            let point = flags.subject.source.at.point();
            let plan = if is_of_present_etcd(present.as_deref(), &snapshot) {
                plan.with_log(&snapshot, &snapshots, (&schedules, point.as_ref()), saved.as_deref())
            } else {
                plan
            };
            let text = match flags.output.encoded(&plan)? {
                Some(text) => text,
                None => text(&plan, &yaml("EtcdCluster", &new.metadata, &new.spec)?, flags.output.screen())?,
            };
            print(&text)?;
            Ok(DONE)
        }
        RestoreVerb::Create(flags) => create(*flags).await,
        RestoreVerb::InPlace(flags) => in_place::run(*flags).await,
    }
}

/// Reads the schedules, whose statuses have the ends of the logs. Without a point in time the plan needs none.
async fn schedules(session: &Session, source: &Source) -> anyhow::Result<Vec<EtcdSnapshotSchedule>> {
    match source.at.point() {
        Some(_) => session.list::<EtcdSnapshotSchedule>(Only::default()).await,
        None => Ok(vec![]),
    }
}

/// Reads the snapshots of the saved cluster.
async fn snapshots(session: &Session, source: &Source) -> anyhow::Result<Vec<EtcdSnapshot>> {
    let fields = format!("spec.clusterRef.name={}", source.cluster);
    session.list::<EtcdSnapshot>(Only { fields: Some(&fields), ..Only::default() }).await
}

fn text(plan: &Plan, object: &Value, screen: Screen) -> anyhow::Result<String> {
    Ok(format!("{}{}", plan.render(screen), holdfast_manifests::yaml(std::slice::from_ref(object))?))
}

/// Returns the object as a person would write it: without empty fields of the metadata.
pub(crate) fn yaml(kind: &str, metadata: &ObjectMeta, spec: &impl Serialize) -> anyhow::Result<Value> {
    let mut object = json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": kind, "metadata": metadata});
    object["spec"] = serde_json::to_value(spec)?;
    Ok(object)
}

/// A decided restore.
struct Prepared {
    snapshot: EtcdSnapshot,
    snapshots: Vec<EtcdSnapshot>,
    /// UID of the saved cluster, if the object exists.
    saved: Option<String>,
    /// etcd's cluster ID in the saved cluster now.
    present: Option<String>,
    plan: Plan,
    new: EtcdCluster,
}

/// Reads the snapshots and the clusters, and decides the new cluster.
async fn prepare(session: &Session, subject: &Subject) -> anyhow::Result<Prepared> {
    let snapshots = snapshots(session, &subject.source).await?;
    let snapshot = choose(&snapshots, &subject.source).map_err(wrong_use)?.clone();
    let clusters = session.list::<EtcdCluster>(Only::default()).await?;
    let saved = clusters.iter().find(|cluster| cluster.name_any() == subject.source.cluster);
    let new = new_cluster(saved, &snapshot, subject, &session.namespace).map_err(wrong_use)?;
    if clusters.iter().any(|cluster| cluster.name_any() == new.name_any()) {
        return Err(wrong_use(format!("EtcdCluster {} exists: name the new cluster with --as", new.name_any())));
    }
    let point = subject.source.at.point();
    let plan = Plan::for_restore(&snapshot, &snapshots, &clusters, (&new.name_any(), point.as_ref()), clock::now());
    let present = saved.and_then(present_etcd);
    let saved = saved.and_then(|saved| saved.metadata.uid.clone());
    Ok(Prepared { snapshot, snapshots, saved, present, plan, new })
}

/// Returns etcd's cluster ID in a cluster.
fn present_etcd(cluster: &EtcdCluster) -> Option<String> {
    cluster.status.as_ref()?.cluster_id.clone()
}

/// Whether a snapshot is of the etcd cluster whose log a schedule's status describes: a return in place gives a cluster another one.
fn is_of_present_etcd(present: Option<&str>, snapshot: &EtcdSnapshot) -> bool {
    let saved = snapshot.status.as_ref().and_then(|status| status.source.as_ref()).map(|it| it.cluster_id.as_str());
    present.zip(saved).is_none_or(|(present, saved)| present == saved)
}

/// Chooses the snapshot.
fn choose<'a>(snapshots: &'a [EtcdSnapshot], source: &Source) -> Result<&'a EtcdSnapshot, String> {
    let cluster = &source.cluster;
    let phase = |snapshot: &EtcdSnapshot| snapshot.status.as_ref().map(|status| status.phase).unwrap_or_default();
    if let Some(name) = &source.snapshot {
        let named = snapshots.iter().find(|snapshot| snapshot.name_any() == *name);
        let named = named.ok_or_else(|| {
            format!("EtcdCluster {cluster} has no EtcdSnapshot {name}: kubectl holdfast snapshot list {cluster}")
        })?;
        return match phase(named) {
            Phase::Complete => Ok(named),
            other => Err(format!("EtcdSnapshot {name} is {}: choose a complete one", other.as_str())),
        };
    }
    let complete = snapshots.iter().filter(|snapshot| phase(snapshot) == Phase::Complete);
    let complete = complete.filter(|snapshot| source.is_before_point(snapshot));
    let newest = complete.max_by_key(|snapshot| snapshot.status.as_ref().and_then(|it| it.completed_at.clone()));
    newest.ok_or_else(|| match source.at.point() {
        Some(point) => format!(
            "no complete EtcdSnapshot of EtcdCluster {cluster} is earlier than {point}: kubectl holdfast snapshot list \
             {cluster}; the store may hold earlier ones: docs/restore.md"
        ),
        None => format!(
            "no complete EtcdSnapshot of EtcdCluster {cluster} exists; the store may hold snapshots: docs/restore.md"
        ),
    })
}

/// Returns the data of a restore, as an EtcdCluster and an `EtcdRestore` name it.
fn data(snapshot: &EtcdSnapshot, source: &Source) -> Result<Restore, String> {
    let artifact = snapshot.status.as_ref().and_then(|status| status.artifact.as_ref());
    if artifact.is_some_and(|artifact| artifact.encrypted) && source.identity_secret.is_none() {
        return Err(
            "the snapshot is encrypted: name the Secret with its age identity with --identity-secret".to_owned()
        );
    }
    let identity = source.identity_secret.clone().map(|name| name::LocalRef { name });
    Ok(Restore {
        snapshot_ref: Some(name::LocalRef { name: snapshot.name_any() }),
        at: source.at.point(),
        identity_secret_refs: identity.into_iter().collect(),
        ..Restore::default()
    })
}

/// Makes the new cluster from the spec of the saved one, or from the snapshot where the object is gone.
fn new_cluster(
    saved: Option<&EtcdCluster>,
    snapshot: &EtcdSnapshot,
    subject: &Subject,
    namespace: &str,
) -> Result<EtcdCluster, String> {
    let restore = data(snapshot, &subject.source)?;
    let artifact = snapshot.status.as_ref().and_then(|status| status.artifact.clone()).unwrap_or_default();
    let mut spec = match saved {
        Some(saved) => saved.spec.clone(),
        None => minimal(&artifact.etcd_version, artifact.db_bytes),
    };
    // A parked cluster restores nothing.
    if spec.replicas == 0 {
        spec.replicas = 3;
    }
    // A cluster in memory refuses a restore.
    spec.storage.medium = holdfast_api::cluster::Medium::Disk;
    spec.paused = false;
    spec.bootstrap = Some(Bootstrap { restore: Some(restore) });
    let new = subject.new.clone().unwrap_or_else(|| format!("{}-restored", subject.source.cluster));
    let metadata = ObjectMeta { name: Some(new), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    Ok(EtcdCluster { metadata, spec, status: None })
}

fn minimal(version: &str, db_bytes: u64) -> EtcdClusterSpec {
    let mut spec = EtcdClusterSpec {
        replicas: 3,
        version: version.trim_start_matches('v').to_owned(),
        ..EtcdClusterSpec::default()
    };
    // Room for the default quota of twice the database.
    let gib = db_bytes.saturating_mul(4).div_ceil(1 << 30).saturating_add(1).max(8);
    spec.storage.size = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(format!("{gib}Gi")));
    spec
}

async fn create(flags: CreateFlags) -> anyhow::Result<u8> {
    let session = flags.access.open().await?;
    let Prepared { new, .. } = prepare(&session, &flags.subject).await?;
    let name = new.name_any();
    let params = PostParams { dry_run: flags.dry_run, field_manager: Some(MANAGER.to_owned()) };
    let made = requests::create(&session.client, &session.namespace, &params, &new).await;
    let made: EtcdCluster = made.map_err(|error| refused(&error, &format!("creating EtcdCluster {name}")))?;
    let note = if flags.dry_run { " (dry run)" } else { "" };
    print(&format!("etcdcluster.holdfast.dev/{} created{note}\n", made.name_any()))?;
    let check = async || {
        let cluster = session.named::<EtcdCluster>(&name).await?;
        Ok(restored(&cluster))
    };
    flags.wait.until_with(|| Live::of_restore(&session, &name), check).await
}

/// Whether the new cluster is whole.
fn restored(cluster: &EtcdCluster) -> Look {
    let status = cluster.status.clone().unwrap_or_default();
    let find = |kind| condition::find(&status.conditions, kind);
    let telling =
        [Type::Degraded, Type::Progressing].into_iter().find_map(|kind| find(kind).filter(|it| it.status == "True"));
    match telling.or_else(|| find(Type::Ready)) {
        _ if condition::is_true(&status.conditions, Type::Ready) => Look::Done,
        Some(it) => Look::Waits(format!("{}: {}", it.reason, it.message)),
        None => Look::Waits("no operator has seen the cluster yet".to_owned()),
    }
}

#[cfg(test)]
mod tests;
