//! A member's Pod.
//!
//! Decides the containers and their probes. The member's pass decides whether the operator creates a Pod, and whether the Pod
//! may start on an empty volume or restore, and passes both in [`Start`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_api::agent::{Agent, PodMetadata};
use holdfast_api::cluster::Placement;
use holdfast_api::restore::{RestorePoint, Restoring};
use holdfast_api::store::Location;
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdMember, component, key, name, role};
use holdfast_contract::{
    DEFAULT_RESTORE_STALL_SECONDS, GateRequest, IdentityFlags, Point, Request, RestoreRequest, StoreFlags,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvVar, HTTPGetAction,
    ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodAffinityTerm, PodAntiAffinity, PodSpec, Probe,
    Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::etcd_args::{CERTIFICATES, VOLUME, etcd_args};
use super::request::with_request;
use super::resources::of_member;
use super::store::{Opened, Use, mount, open, proxies, secret_volume};
use super::{container, container_port, port, progress_port};

use crate::certificate::{Files, files};
use crate::valid::{Server, Version};
use crate::{Settings, meta, template};

/// Folder for the copy of Holdfast's binary.
pub(in crate::objects) const BIN_FOLDER: &str = "/holdfast-bin";
/// Holdfast's binary, inside etcd's image.
pub(in crate::objects) const BIN: &str = "/holdfast-bin/holdfast";
/// etcd, inside its image.
const ETCD: &str = "/usr/local/bin/etcd";
/// etcdutl, inside etcd's image.
const ETCDUTL: &str = "/usr/local/bin/etcdutl";
/// Folder of the file with the Pod's annotations.
const PODINFO: &str = "/etc/holdfast/podinfo";
/// Volume of the member's certificates.
pub(crate) const TLS: &str = "tls";
/// The file with the Pod's annotations.
const ANNOTATIONS: &str = "/etc/holdfast/podinfo/annotations";

/// Permissions of the Pod beyond running etcd on the member's own data.
#[derive(Clone, Debug, PartialEq)]
pub struct Start<'a> {
    /// UID of the member's claim; for a member in memory the member's own UID.
    pub claim_uid: &'a str,
    /// etcd's `--initial-cluster`.
    pub initial_cluster: &'a str,
    /// Whether the gate may start on an empty volume, or the restore may fill an empty volume: only before the member has
    /// joined (I3).
    pub may_start_empty: bool,
    /// Whether an empty volume founds a new cluster: only for a seed, before the cluster has formed (I2).
    pub found: bool,
    /// The restore that rebuilds the data first: only for a seed, before the cluster has formed (I9).
    pub restore: Option<(&'a Restoring, &'a Location)>,
}

/// Returns the Pod.
pub fn pod(member: &EtcdMember, server: &Server, placement: &Placement, start: &Start<'_>, settings: &Settings) -> Pod {
    let restore = start.restore.map(|(restoring, store)| {
        let used = if restoring.survivor.is_some() { Use::Survivor } else { Use::Restore };
        let opened = open(store, used).with_identities(&restoring.identity_secret_refs);
        (restoring, opened, proxies(store, &settings.proxies))
    });
    let etcd_image =
        super::etcd_image(member.spec.process.image.as_ref(), &member.spec.process.version, &settings.etcd_repository);
    let pull = super::pull_policy(member.spec.process.image.as_ref());
    let in_etcds_image = Container {
        image: Some(etcd_image),
        image_pull_policy: Some(pull.to_owned()),
        resources: Some(of_member(member)),
        ..base()
    };
    let agent = start.restore.and_then(|(restoring, _)| restoring.agent.as_ref());
    let run_as = placement.pod_security.and_then(|pods| pods.run_as).unwrap_or(settings.pod_run_as);
    let mut init = vec![install(member, settings)];
    let mut volumes = volumes(member);
    if let Some((restoring, opened, proxies)) = &restore {
        init.push(restore_container(member, server, start, (restoring, opened, proxies), in_etcds_image.clone()));
        volumes.extend(opened.volumes.iter().cloned());
    }
    Pod {
        metadata: metadata(member, start, agent, settings),
        spec: Some(PodSpec {
            hostname: Some(meta::name(&member.metadata).to_owned()),
            subdomain: Some(name::peer_service(&member.spec.cluster_ref.name)),
            init_containers: Some(init),
            containers: vec![etcd_container(member, server, start, in_etcds_image)],
            volumes: Some(volumes),
            restart_policy: Some("Always".to_owned()),
            // etcd transfers leadership and closes its files in well under a second; a slow disk may need longer.
            termination_grace_period_seconds: Some(30),
            security_context: Some(super::pod_security_as(run_as)),
            // For a store that accepts a workload identity: a cloud role, never a token for the Kubernetes API.
            service_account_name: agent
                .and_then(|agent| agent.service_account_name.clone())
                .or_else(|| member.spec.process.service_account_name.clone()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            affinity: Some(placement.affinity.clone().unwrap_or_else(|| apart(member))),
            topology_spread_constraints: placement.topology_spread_constraints.clone(),
            tolerations: placement.tolerations.clone(),
            node_selector: placement.node_selector.clone(),
            priority_class_name: placement.priority_class_name.clone(),
            image_pull_secrets: placement.image_pull_secrets.clone(),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Returns the Pod that restores the data of a member that a return prepares, and has no etcd. Affinities of the present members hold
/// for members: neither theirs nor their labels are on this Pod, so that it finds a place beside them. Its node is the next member's, where
/// the volume binds it.
pub fn preparing(member: &EtcdMember, whole: Pod) -> Pod {
    let Pod { mut metadata, spec, .. } = whole;
    let spec = spec.map(|spec| {
        let (restore, init) =
            spec.init_containers.into_iter().flatten().partition(|container| container.name == container::RESTORE);
        let volumes = spec.volumes.into_iter().flatten().filter(|volume| volume.name != TLS).collect();
        let affinity = spec.affinity.and_then(|affinity| affinity.node_affinity);
        PodSpec {
            containers: restore,
            init_containers: Some(init),
            volumes: Some(volumes),
            restart_policy: Some("OnFailure".to_owned()),
            affinity: affinity.map(|nodes| Affinity { node_affinity: Some(nodes), ..Affinity::default() }),
            topology_spread_constraints: None,
            hostname: None,
            subdomain: None,
            ..spec
        }
    });
    let labels = [
        (key::MANAGED_BY, "holdfast"),
        (key::CLUSTER_UID, member.spec.cluster_ref.uid.as_str()),
        (key::COMPONENT, component::SNAPSHOT_AGENT),
        (key::ROLE, role::LEARNER),
    ];
    metadata.labels = Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    Pod { metadata, spec, status: None }
}

/// Labels that select a member's Pod in each of its states.
pub fn selected_by(member: &EtcdMember) -> BTreeMap<String, String> {
    let cluster = &member.spec.cluster_ref;
    let mut labels = super::labels(&cluster.name, &cluster.uid);
    labels.insert(key::MEMBER.to_owned(), meta::name(&member.metadata).to_owned());
    labels
}

fn metadata(member: &EtcdMember, start: &Start<'_>, agent: Option<&Agent>, settings: &Settings) -> ObjectMeta {
    let added = agent.and_then(|agent| agent.pod_metadata.clone()).unwrap_or_default().foreign();
    let PodMetadata { mut labels, mut annotations } = added;
    let own = &member.spec.pod_metadata;
    labels.extend(own.labels.clone());
    annotations.extend(own.annotations.clone());
    annotations.extend(template::fingerprint_metadata(own).map(|print| (key::POD_METADATA.to_owned(), print)));
    labels.extend(selected_by(member));
    // The cluster's pass sets the voter's label, so clients reach only admitted members.
    labels.insert(key::ROLE.to_owned(), role::LEARNER.to_owned());
    let permission = start.may_start_empty.then(|| (key::MAY_START_EMPTY.to_owned(), start.claim_uid.to_owned()));
    let count = member.spec.start_count;
    let started = (count > 0).then(|| (key::STARTED.to_owned(), count.to_string()));
    let joined = member.spec.joined.as_ref().map(|joined| (key::JOINED.to_owned(), joined.annotation()));
    // The operator version that created the Pod is the version that replaces the Pod later.
    let made_with = start.restore.map(|_| (key::AGENT_IMAGE.to_owned(), settings.agent_image.clone()));
    let staged = member.spec.certificates().and_then(|tls| Some((key::TLS.to_owned(), tls.staged.clone()?)));
    let cas = member.spec.certificates().and_then(|tls| Some((key::CAS.to_owned(), tls.cas.clone()?)));
    let transport = member.spec.transport();
    let between = matches!(transport, Transport::PeersPlaintext | Transport::ClientsPlaintext);
    let transport = between.then(|| (key::TRANSPORT.to_owned(), transport.as_str().to_owned()));
    let template = member.spec.template.as_ref().map(|template| (key::TEMPLATE.to_owned(), template.clone()));
    let storage = &member.spec.storage;
    let volume = (!storage.in_memory()).then(|| (key::VOLUME_SIZE.to_owned(), storage.size().0));
    annotations.extend(template.into_iter().chain(volume));
    annotations.insert(key::PROCESS.to_owned(), template::fingerprint_process(member));
    annotations.extend(permission.into_iter().chain(started).chain(joined).chain(made_with));
    annotations.extend(staged.into_iter().chain(cas).chain(transport));
    // So that `kubectl logs` and `kubectl exec` do not list the other containers.
    annotations.insert("kubectl.kubernetes.io/default-container".to_owned(), container::ETCD.to_owned());
    ObjectMeta {
        name: member.metadata.name.clone(),
        namespace: member.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: Some(vec![super::owner(member)]),
        ..ObjectMeta::default()
    }
}

/// The common part of all Holdfast containers.
fn base() -> Container {
    Container {
        security_context: Some(super::container_security()),
        // A gate or an agent that dies before its report leaves the last lines of its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// Has etcd's resources: Kubernetes counts the larger of both containers, and quotas, limit ranges and the quality of service
/// of a Pod depend on each container.
fn install(member: &EtcdMember, settings: &Settings) -> Container {
    Container {
        name: container::INSTALL.to_owned(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["/holdfast".to_owned()]),
        args: Some(vec!["install".to_owned(), format!("--to={BIN}")]),
        resources: Some(of_member(member)),
        volume_mounts: Some(vec![mount("bin", BIN_FOLDER, false)]),
        ..base()
    }
}

fn identity(member: &EtcdMember, start: &Start<'_>) -> IdentityFlags {
    IdentityFlags {
        cluster_token: member.spec.cluster_token.clone(),
        member_name: meta::name(&member.metadata).to_owned(),
        member_uid: meta::uid(&member.metadata).to_owned(),
        claim_uid: start.claim_uid.to_owned(),
    }
}

/// Runs in the etcd image of the target version, so that etcdutl matches the server.
fn restore_container(
    member: &EtcdMember,
    server: &Server,
    start: &Start<'_>,
    (restoring, opened, proxies): (&Restoring, &Opened, &[EnvVar]),
    in_etcds_image: Container,
) -> Container {
    // `valid::member` has refused a point that does not parse.
    let (at_revision, at_time) = match restoring.at.as_ref().map(RestorePoint::parse) {
        Some(Ok(Point::Revision(revision))) => (Some(revision), None),
        Some(Ok(Point::Time(time))) => (None, Some(time)),
        Some(Err(_)) | None => (None, None),
    };
    // Of a survivor the source is the claim itself, and no store on it.
    let from_volume = opened.flags.mount.clone().filter(|_| restoring.survivor.is_some());
    let from_store = from_volume.is_none();
    let request = RestoreRequest {
        store: if from_store { opened.flags.clone() } else { StoreFlags::default() },
        key: if from_store { restoring.source.key.clone() } else { String::new() },
        etcd: (!from_store).then(|| PathBuf::from(ETCD)),
        from_volume,
        at_revision,
        at_time,
        allow_auth_changed: restoring.at.as_ref().is_some_and(|at| at.allow_auth_changed),
        expect_sha256: restoring.sha256.clone(),
        expect_store_id: restoring.store_id.clone(),
        age_identity_dirs: opened.identity_dirs.clone(),
        allow_unverified: restoring.allow_unverified,
        // An early latch has no revision bump, and the restore keeps its decision.
        revision_bump: restoring.revision_bump.and_then(|bump| u64::try_from(bump).ok()).unwrap_or(0),
        volume: PathBuf::from(VOLUME),
        etcdutl: PathBuf::from(ETCDUTL),
        engine: restoring.engine.unwrap_or_default(),
        identity: identity(member, start),
        restore_uid: restoring.restore_uid.clone(),
        initial_cluster: start.initial_cluster.to_owned(),
        annotations: Some(PathBuf::from(ANNOTATIONS)),
        // The operator logs in by its certificate, and without one not at all.
        refuse_auth: !member.spec.transport().has_certificates(),
        // etcd's own quota: etcd would serve a database that fills the quota, and refuse each write.
        quota_backend_bytes: Some(server.quota),
        progress_port: progress_port(),
        json: false,
        deadline_seconds: restoring.deadline_seconds,
        stall_seconds: DEFAULT_RESTORE_STALL_SECONDS,
    };
    let container = Container {
        name: container::RESTORE.to_owned(),
        ports: Some(vec![container_port("progress", port::PROGRESS)]),
        env: Some([certificates()].into_iter().chain(proxies.iter().cloned()).collect()),
        volume_mounts: Some(mounts().into_iter().chain(opened.mounts.iter().cloned()).collect()),
        resources: restoring.agent.as_ref().and_then(|a| a.resources.clone()).or(in_etcds_image.resources),
        ..in_etcds_image
    };
    with_request(container, BIN, &Request::Restore(request))
}

/// etcd's image may have no CA certificates, and without certificates no HTTP client starts.
pub(in crate::objects) fn certificates() -> EnvVar {
    let value = Some(format!("{BIN_FOLDER}/ca-certificates.crt"));
    EnvVar { name: "SSL_CERT_FILE".to_owned(), value, value_from: None }
}

fn etcd_container(member: &EtcdMember, server: &Server, start: &Start<'_>, in_etcds_image: Container) -> Container {
    let request = GateRequest {
        volume: PathBuf::from(VOLUME),
        identity: identity(member, start),
        seed: start.found,
        restore_uid: member.spec.restore.as_ref().map(|r| r.restore_uid.clone()),
        annotations: PathBuf::from(ANNOTATIONS),
        // I27: the number after the latest Pod seen serving.
        start: member.spec.start_count.saturating_add(1),
        after: if start.may_start_empty { after(member, start.initial_cluster) } else { vec![] },
        exec: std::iter::once(ETCD.to_owned()).chain(etcd_args(member, server, start.initial_cluster)).collect(),
    };
    let container = Container {
        name: container::ETCD.to_owned(),
        // Without ETCDCTL_ENDPOINTS: etcdctl's default is right, and etcdctl panics if a flag shadows a variable.
        env: environment(member),
        ports: Some(vec![
            container_port("client", port::CLIENT),
            container_port("peer", port::PEER),
            container_port("metrics", port::METRICS),
        ]),
        startup_probe: Some(startup(server.version)),
        liveness_probe: Some(liveness(server.version)),
        readiness_probe: Some(readiness(server.version)),
        volume_mounts: Some(mounts().into_iter().chain(certificates_mount(member)).collect()),
        ..in_etcds_image
    };
    with_request(container, BIN, &Request::Gate(request))
}

/// Returns the variables of etcd's container: those of the user come last, and their names differ from Holdfast's.
fn environment(member: &EtcdMember) -> Option<Vec<EnvVar>> {
    let own = member.spec.certificates().into_iter().flat_map(|_| etcdctl_certificates());
    let chosen = member.spec.process.options.iter().flat_map(|options| options.extra_env.iter().flatten());
    let chosen = chosen.map(|v| EnvVar { name: v.name.clone(), value: Some(v.value.clone()), value_from: None });
    let all: Vec<EnvVar> = own.chain(chosen).collect();
    (!all.is_empty()).then_some(all)
}

/// Environment with which `kubectl exec MEMBER -- etcdctl` works without a flag.
fn etcdctl_certificates() -> Vec<EnvVar> {
    let Files { ca, certificate, key } = files::ETCDCTL;
    let variables = [("ETCDCTL_CACERT", ca), ("ETCDCTL_CERT", certificate), ("ETCDCTL_KEY", key)];
    let variable = |(name, file): (&str, &str)| EnvVar {
        name: name.to_owned(),
        value: Some(format!("{CERTIFICATES}/{file}")),
        value_from: None,
    };
    variables.map(variable).into()
}

fn certificates_mount(member: &EtcdMember) -> Option<VolumeMount> {
    member.spec.certificates().map(|_| mount(TLS, CERTIFICATES, true))
}

/// Peer URLs of the members that start before this member: two joiners that boot at the same moment would wait 7 s for each
/// other's answers. A running member answers at once.
fn after(member: &EtcdMember, initial_cluster: &str) -> Vec<String> {
    let own = meta::name(&member.metadata);
    let before = initial_cluster.split(',').filter_map(|entry| entry.split_once('=')).filter(|(name, _)| *name < own);
    let (cluster, namespace) =
        (&member.spec.cluster_ref.name, member.metadata.namespace.as_deref().unwrap_or_default());
    before
        .map(|(name, url)| match member.spec.transport() {
            Transport::Plaintext => url.to_owned(),
            // The gate has no certificate that a peer accepts.
            _ => format!("http://{}:{}", name::host(name, cluster, namespace), port::METRICS),
        })
        .collect()
}

fn mounts() -> Vec<VolumeMount> {
    vec![mount("data", VOLUME, false), mount("bin", BIN_FOLDER, true), mount("podinfo", PODINFO, true)]
}

fn volumes(member: &EtcdMember) -> Vec<Volume> {
    let name = meta::name(&member.metadata);
    let certificates = member.spec.certificates().map(|_| secret_volume(TLS, &name::member_tls(name), None));
    let annotations = DownwardAPIVolumeFile {
        path: "annotations".to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: Some("v1".to_owned()),
            field_path: "metadata.annotations".to_owned(),
        }),
        ..DownwardAPIVolumeFile::default()
    };
    let storage = &member.spec.storage;
    let memory = || EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: Some(storage.size()) };
    let claim = || PersistentVolumeClaimVolumeSource { claim_name: name::claim(name), read_only: None };
    let own = [
        Volume {
            name: "data".to_owned(),
            empty_dir: storage.in_memory().then(memory),
            persistent_volume_claim: (!storage.in_memory()).then(claim),
            ..Volume::default()
        },
        Volume { name: "bin".to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() },
        Volume {
            name: "podinfo".to_owned(),
            downward_api: Some(DownwardAPIVolumeSource { items: Some(vec![annotations]), default_mode: None }),
            ..Volume::default()
        },
    ];
    own.into_iter().chain(certificates).collect()
}

fn get(path: &str) -> HTTPGetAction {
    HTTPGetAction { path: Some(path.to_owned()), port: IntOrString::Int(port::METRICS), ..HTTPGetAction::default() }
}

/// Returns the request of a probe. `/livez` and `/readyz` exist since 3.5.11. `/health` fails for every alarm that its query
/// does not exclude (etcd: server/etcdserver/api/etcdhttp, `checkAlarms`), and an alarm must neither restart all members nor
/// remove them from the Service.
fn path(version: Version, modern: &'static str, old: &'static str) -> HTTPGetAction {
    get(if version >= (Version { minor: 5, patch: 11 }) { modern } else { old })
}

const OLD_LIVEZ: &str = "/health?serializable=true&exclude=NOSPACE&exclude=CORRUPT";

/// An hour: reading a long log, and waiting for earlier joiners, must not end in a restart from the beginning.
fn startup(version: Version) -> Probe {
    Probe {
        http_get: Some(path(version, "/livez", OLD_LIVEZ)),
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(3600),
        ..Probe::default()
    }
}

/// Whether the process is alive: a lost quorum or an alarm does not restart the process, and a defragmentation neither, during which
/// etcd answers no probe: 8 GiB at 30 MB/s take less than five minutes.
fn liveness(version: Version) -> Probe {
    Probe {
        http_get: Some(path(version, "/livez", OLD_LIVEZ)),
        period_seconds: Some(10),
        timeout_seconds: Some(10),
        failure_threshold: Some(30),
        ..Probe::default()
    }
}

/// Whether the Service may send clients here: a linearizable read works. Fast in both directions.
fn readiness(version: Version) -> Probe {
    Probe {
        http_get: Some(path(version, "/readyz", "/health?exclude=NOSPACE")),
        period_seconds: Some(1),
        timeout_seconds: Some(3),
        failure_threshold: Some(2),
        ..Probe::default()
    }
}

/// Members prefer nodes and zones without another member, and share a node if only one exists.
fn apart(member: &EtcdMember) -> Affinity {
    let cluster = &member.spec.cluster_ref;
    let labels = [(key::COMPONENT, component::MEMBER), (key::CLUSTER_UID, cluster.uid.as_str())];
    let labels = LabelSelector {
        match_labels: Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
        match_expressions: None,
    };
    let term = |weight, topology: &str| WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            label_selector: Some(labels.clone()),
            topology_key: topology.to_owned(),
            ..PodAffinityTerm::default()
        },
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                term(100, "kubernetes.io/hostname"),
                term(50, "topology.kubernetes.io/zone"),
            ]),
            required_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}
