//! The Jobs that run the agent: to save a snapshot, to look for a snapshot, for the latest snapshot or for a schedule's runs,
//! to remove the snapshots that a schedule drops or the snapshot of a deleted object, or to probe a store.
//!
//! Decides the shape of the Job and its Pod. `plan::snapshot` and its siblings decide the request; the agent decides its own
//! steps. The agent needs no Kubernetes API and gets no token.

mod apiserver;
mod kind;
mod rehearsal;
pub mod undelete;

use std::collections::BTreeMap;

use holdfast_api::agent::{Agent, PodMetadata};
use holdfast_api::backup_store::StoreRecord;
use holdfast_api::cluster::Placement;
use holdfast_api::drill::KubernetesDrill;
use holdfast_api::key;
use holdfast_api::name::{LocalRef, label_value};
use holdfast_api::pod_security::RunAs;
use holdfast_api::snapshot::{External, Spool};
use holdfast_api::store::Location;
use holdfast_contract::{
    CLUSTER_SPEC, CompareRequest, Failure, OWNER_NAME, OWNER_UID, POD_UID, ProbeRequest, Request, Retry,
};
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec, PodTemplateSpec, ResourceRequirements, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;

use super::request::{self, with_request};
use super::store;
use super::{container_port, container_security, external, pod_security_as, port, progress_port, spool};
use crate::{Proxies, fingerprint};

pub use apiserver::{ENCRYPTION_CONFIG, PROGRAMS};
pub use kind::{BACKOFF_LIMIT, KEPT_SECONDS, Kind};
pub use rehearsal::{SCRATCH, compares};

/// Name of the agent's container: its termination message holds the report.
pub const CONTAINER: &str = "agent";

/// Name of the init container that compares the members' databases with etcd's member list before a rehearsal.
pub const COMPARE: &str = "compare";

/// Name and UID of the Job for the agent of a `CronJob`, and the labels that hold the values.
const OWNER: [(&str, &str); 2] =
    [(OWNER_NAME, "batch.kubernetes.io/job-name"), (OWNER_UID, "batch.kubernetes.io/controller-uid")];

/// Slack of the Job beyond the agent's own deadline: scheduling, pulling the image, attaching a volume. The agent gives up
/// first and leaves a report; the Job's deadline is for a Pod that never ran (I22).
pub const DEADLINE_SLACK_SECONDS: i64 = 120;

/// Time between SIGTERM and SIGKILL: enough to abort a multipart upload.
const GRACE_SECONDS: i64 = 30;

/// Memory request of the agent: about the need for a database of 1 GiB.
const REQUESTED_MIB: u64 = 128;

/// Memory limit of the agent: a base, and an addition for each GiB of the database, with which the number of parts grows.
/// Measurements show a need of about half (docs/bench.md).
const OWN_MIB: u64 = 128;
const MIB_FOR_EACH_GIB: u64 = 16;

/// Least memory limit: a lower limit gains nothing.
const LEAST_MIB: u64 = 256;

/// Largest database without a warning of etcd (etcd: "System limits").
const SUGGESTED_MOST: u64 = 8 << 30;

/// Returns the spec of a Job's Pod.
pub fn pod_spec(job: &Job) -> Option<&PodSpec> {
    job.spec.as_ref()?.template.spec.as_ref()
}

/// Returns the request of a Job's agent.
pub fn request_of(job: &Job) -> Option<Request> {
    request::of_container(pod_spec(job), CONTAINER)
}

/// Input of the builder, already validated.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentJob {
    /// Name of the Job.
    pub name: String,
    /// Namespace of the Job; absent: the namespace of `kubectl apply`.
    pub namespace: Option<String>,
    /// Whether the Job is the template of a `CronJob`.
    pub recurring: bool,
    /// The Job's controller; absent in the template of a `CronJob`.
    pub owner: Option<OwnerReference>,
    /// Name of the `EtcdCluster` for the label; absent: the cluster of the snapshot.
    pub cluster: Option<String>,
    /// Name of the `EtcdSnapshot`, for the label.
    pub snapshot: Option<String>,
    /// Name of the `EtcdSnapshotSchedule`, for the label.
    pub schedule: Option<String>,
    /// Name of the probed `EtcdBackupStore`, for the label.
    pub store: Option<String>,
    /// The `EtcdBackupStore` of `destination`.
    pub record: Option<StoreRecord>,
    /// The etcd to save from, if not a plaintext cluster of Holdfast: for a save the builder fills in its flags and Secrets.
    pub external: Option<External>,
    /// The spool, in which the snapshot waits for a slow store, or the segments of a log; for a rehearsal or a drill the volume of its data.
    pub spool: Option<Spool>,
    /// The Secret for reading, if this Secret differs from the `destination`'s: a probe tries both.
    pub readers: Option<LocalRef>,
    /// Secrets with age identities, for a rehearsal or a drill of an encrypted snapshot.
    pub identities: Vec<LocalRef>,
    /// The comparison of the members that comes before the work; `external` has their certificates.
    pub compares: Option<CompareRequest>,
    /// The agent's request. The builder fills in the store, from `destination`.
    pub work: Request,
    /// The place of the backup.
    pub destination: Location,
    /// Image of the agent.
    pub image: String,
    /// Image of etcd in which the agent runs, with its pull policy; absent: the agent's own image.
    pub etcd_image: Option<(String, String)>,
    /// The kube-apiserver of a drill, in whose image the agent runs instead, with the programs of `etcd_image`.
    pub apiserver: Option<KubernetesDrill>,
    /// Proxies between the Pod and the store.
    pub proxies: Proxies,
    /// The snapshot's settings for the Pod.
    pub agent: Agent,
    /// The cluster's placement of Pods.
    pub placement: Placement,
    /// Number of Pods that earlier Jobs of the same snapshot tried.
    pub attempts_before: i32,
    /// Largest size of the database in bytes; absent: etcd's suggested maximum.
    pub most_bytes: Option<u64>,
    /// The user of the Pod, if neither agent nor cluster choose a user.
    pub run_as: RunAs,
}

impl AgentJob {
    /// Returns a minimal Job: without an owner, a namespace and labels of a cluster or snapshot.
    pub fn new(name: String, work: Request, destination: Location, image: String) -> Self {
        Self {
            name,
            namespace: None,
            recurring: false,
            owner: None,
            cluster: None,
            snapshot: None,
            schedule: None,
            store: None,
            record: None,
            external: None,
            spool: None,
            readers: None,
            identities: vec![],
            compares: None,
            work,
            destination,
            image,
            etcd_image: None,
            apiserver: None,
            proxies: Proxies::default(),
            agent: Agent::default(),
            placement: Placement::default(),
            attempts_before: 0,
            most_bytes: None,
            run_as: RunAs::default(),
        }
    }
}

/// Returns the Job.
pub fn job(want: &AgentJob) -> Job {
    let attempts = (want.attempts_before > 0).then(|| (key::ATTEMPTS_BEFORE, want.attempts_before.to_string()));
    // JSON of our own types cannot fail.
    let record = want.record.as_ref().and_then(|r| Some((key::STORE_RECORD, serde_json::to_string(r).ok()?)));
    // For a `CronJob`: the operator records each run from the annotations of its Job.
    let cluster = match &want.work {
        Request::Save(request) if want.recurring => request.cluster_uid.clone(),
        _ => None,
    };
    let cluster = cluster.map(|uid| (key::CLUSTER_UID, uid));
    let annotations: BTreeMap<_, _> =
        attempts.into_iter().chain(record).chain(cluster).map(|(k, v)| (k.to_owned(), v)).collect();
    Job {
        metadata: ObjectMeta {
            name: Some(want.name.clone()),
            namespace: want.namespace.clone(),
            labels: Some(labels(want)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: want.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(Kind::for_request(&want.work).row().retries),
            active_deadline_seconds: Some(deadline_seconds(want)),
            pod_failure_policy: Some(failure_policy(want.compares.is_some())),
            ttl_seconds_after_finished: want
                .owner
                .is_some()
                .then_some(Kind::for_request(&want.work).row().kept_seconds),
            // At most one Pod at a time on a volume.
            pod_replacement_policy: Some("Failed".to_owned()),
            template: template(want),
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Returns the metadata of a `CronJob` or a Deployment, with the fingerprint of this spec.
pub(super) fn metadata(owner: AgentJob, spec: &impl Serialize) -> ObjectMeta {
    // JSON of Kubernetes' own types cannot fail.
    let rendered = fingerprint::hash_parts([serde_json::to_string(spec).unwrap_or_default()]);
    ObjectMeta {
        labels: Some(labels(&owner)),
        annotations: Some(BTreeMap::from([(key::RENDERED.to_owned(), rendered)])),
        name: Some(owner.name),
        namespace: owner.namespace,
        owner_references: owner.owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Returns the template of the Pod.
pub(super) fn template(want: &AgentJob) -> PodTemplateSpec {
    PodTemplateSpec { metadata: Some(pod_metadata(want, labels(want))), spec: Some(pod(want)) }
}

fn deadline_seconds(want: &AgentJob) -> i64 {
    let before = want.compares.as_ref().map_or(0, |request| i64::from(request.deadline_seconds));
    before + i64::from(want.work.deadline_seconds()) + DEADLINE_SLACK_SECONDS
}

/// Labels of the Job and its Pod. The component is never a member's, so no Service, budget or affinity of the cluster selects
/// this Pod.
pub(super) fn labels(want: &AgentJob) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (key::NAME.to_owned(), "etcd".to_owned()),
        (key::COMPONENT.to_owned(), Kind::for_request(&want.work).row().component.to_owned()),
        (key::MANAGED_BY.to_owned(), "holdfast".to_owned()),
    ]);
    let names = [
        (key::CLUSTER, want.cluster.as_deref().or_else(|| want.work.cluster())),
        (key::SNAPSHOT, want.snapshot.as_deref()),
        (key::SCHEDULE, want.schedule.as_deref()),
        (key::STORE, want.store.as_deref()),
    ];
    labels.extend(names.into_iter().filter_map(|(key, name)| Some((key.to_owned(), label_value(name?)))));
    labels
}

/// Returns the Pod's metadata: the user's labels and annotations, overridden by Holdfast's labels.
fn pod_metadata(want: &AgentJob, own: BTreeMap<String, String>) -> ObjectMeta {
    let PodMetadata { labels: mut all, annotations } = want.agent.pod_metadata.clone().unwrap_or_default().foreign();
    all.extend(own);
    ObjectMeta {
        labels: Some(all),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    }
}

fn pod(want: &AgentJob) -> PodSpec {
    let opened =
        store::open(&want.destination, Kind::for_request(&want.work).row().uses).with_identities(&want.identities);
    // Only for a save and a log: an etcd's Secrets may be gone when a Job asks the store.
    let etcd =
        want.external.as_ref().filter(|_| matches!(want.work, Request::Save(_) | Request::Log(_))).map(external::reach);
    let (mut request, beside) = beside(want);
    let (mut volumes, mut mounts) = (vec![], vec![]);
    if let Some(etcd) = etcd {
        request.set_etcd(etcd.flags);
        (volumes, mounts) = (etcd.volumes, etcd.mounts);
    }
    if let Some((volume, mount)) = beside {
        volumes.push(volume);
        mounts.push(mount);
    }
    let mut cluster_spec = None;
    match &mut request {
        Request::Save(request) => {
            request.progress_port = progress_port();
            cluster_spec = request.cluster_spec.take();
        }
        Request::Verify(request) => request.snapshot.identities.clone_from(&opened.identity_dirs),
        Request::Compact(request) => request.age_identity_dirs.clone_from(&opened.identity_dirs),
        _ => {}
    }
    request.set_store(opened.flags);
    let ports = matches!(request, Request::Save(_)).then(|| vec![container_port("progress", port::PROGRESS)]);
    // Without affinity and spread: a rule that separates members must not block a backup.
    let Placement {
        affinity: _,
        topology_spread_constraints: _,
        tolerations,
        node_selector,
        priority_class_name,
        image_pull_secrets,
        pod_security,
    } = want.placement.clone();
    let chosen = [want.agent.pod_security, pod_security].into_iter().flatten().find_map(|pods| pods.run_as);
    let run_as = chosen.unwrap_or(want.run_as);
    let spec = PodSpec {
        restart_policy: Some("Never".to_owned()),
        service_account_name: want.agent.service_account_name.clone(),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(pod_security_as(run_as)),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        // The agent's own settings override the settings of the cluster's members.
        tolerations: want.agent.tolerations.clone().or(tolerations),
        node_selector: want.agent.node_selector.clone().or(node_selector),
        priority_class_name,
        image_pull_secrets: want.agent.image_pull_secrets.clone().or(image_pull_secrets),
        containers: vec![with_request(
            Container {
                name: CONTAINER.to_owned(),
                image: Some(want.image.clone()),
                image_pull_policy: Some("IfNotPresent".to_owned()),
                env: Some(env(want, cluster_spec.as_deref())),
                ports,
                resources: Some(want.agent.resources.clone().unwrap_or_else(|| default_resources(want))),
                security_context: Some(container_security()),
                // Only the report: log lines never become a status.
                termination_message_policy: Some("File".to_owned()),
                volume_mounts: Some(opened.mounts.into_iter().chain(mounts).collect()),
                ..Container::default()
            },
            "/holdfast",
            &request,
        )],
        volumes: Some(opened.volumes.into_iter().chain(volumes).collect()),
        ..PodSpec::default()
    };
    let spec = match &want.etcd_image {
        Some(image) => rehearsal::in_etcds_image(spec, &want.image, image, want.spool.as_ref()),
        None => spec,
    };
    let spec = match &want.apiserver {
        Some(apiserver) => apiserver::in_apiservers_image(spec, apiserver),
        None => spec,
    };
    match &want.compares {
        Some(request) => rehearsal::after_comparison(spec, &want.image, request, want.external.as_ref()),
        None => spec,
    }
}

/// Returns the request with the flags of an additional volume, and the volume: a save's spool, the credentials for reading that a
/// probe tries too, or the scratch volume of a merge.
fn beside(want: &AgentJob) -> (Request, Option<(Volume, VolumeMount)>) {
    if let (Request::Save(request), Some(wanted)) = (&want.work, &want.spool)
        && let Some(request) = spool::flags(request.clone(), wanted)
    {
        return (Request::Save(request), Some(spool::volume(wanted)));
    }
    if let (Request::Log(_), Some(wanted)) = (&want.work, &want.spool) {
        return (want.work.clone(), Some(spool::volume(wanted)));
    }
    if let (Request::Probe(request), Some(secret)) = (&want.work, &want.readers) {
        let (folder, volume, mount) = store::readers(secret);
        let request = ProbeRequest { read_credentials_dir: Some(folder), ..request.clone() };
        return (Request::Probe(request), Some((volume, mount)));
    }
    let scratch = matches!(want.work, Request::Compact(_)).then(|| rehearsal::scratch(want.spool.as_ref()));
    (want.work.clone(), scratch)
}

fn env(want: &AgentJob, cluster_spec: Option<&str>) -> Vec<EnvVar> {
    // For a `CronJob`, whose Jobs have unpredictable names and UIDs.
    let owner = (want.recurring && matches!(want.work, Request::Save(_) | Request::Compact(_))).then_some(OWNER);
    let owner = owner.into_iter().flatten().map(|(name, label)| field(name, format!("metadata.labels['{label}']")));
    let spec = cluster_spec.map(|spec| EnvVar {
        name: CLUSTER_SPEC.to_owned(),
        value: Some(store::literal(spec)),
        value_from: None,
    });
    // The UID gives each Pod of a Job its own key (I7).
    let pod_uid = field(POD_UID, "metadata.uid".to_owned());
    std::iter::once(pod_uid).chain(owner).chain(spec).chain(store::proxies(&want.destination, &want.proxies)).collect()
}

/// Returns a variable with a field of the Pod.
fn field(name: &str, path: String) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path, api_version: None }),
            ..EnvVarSource::default()
        }),
        value: None,
    }
}

/// Returns the default resources: the request, and the memory limit that a save keeps with the largest database; other work
/// needs less.
fn default_resources(want: &AgentJob) -> ResourceRequirements {
    let quantity = |name: &str, value: String| (name.to_owned(), Quantity(value));
    let gibs = want.most_bytes.unwrap_or(SUGGESTED_MOST).div_ceil(1 << 30);
    let limit = (OWN_MIB + gibs.saturating_mul(MIB_FOR_EACH_GIB)).max(LEAST_MIB);
    ResourceRequirements {
        requests: Some(BTreeMap::from([
            quantity("cpu", "100m".to_owned()),
            quantity("memory", format!("{REQUESTED_MIB}Mi")),
        ])),
        limits: Some(BTreeMap::from([quantity("memory", format!("{limit}Mi"))])),
        claims: None,
    }
}

/// Exit code of a Holdfast program with an unknown flag (clap's code).
pub const USAGE: i32 = 2;

/// Evictions and drains do not count; a failure that no retry can fix ends the Job at once. The first matching rule wins, so
/// the exit code of an agent that a drain interrupted does not count.
fn failure_policy(compares: bool) -> PodFailurePolicy {
    // The API server refuses an unsorted list.
    let ends = Failure::by_code().into_iter().filter(|failure| failure.retry != Retry::Again);
    let codes: Vec<i32> = std::iter::once(USAGE).chain(ends.map(|failure| i32::from(failure.code))).collect();
    let fails = |container: &str| PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: Some(container.to_owned()),
            operator: "In".to_owned(),
            values: codes.clone(),
        }),
        on_pod_conditions: None,
    };
    let disrupted = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
        }]),
        on_exit_codes: None,
    };
    let containers = std::iter::once(CONTAINER).chain(compares.then_some(COMPARE));
    PodFailurePolicy { rules: std::iter::once(disrupted).chain(containers.map(fails)).collect() }
}

#[cfg(test)]
mod tests;
