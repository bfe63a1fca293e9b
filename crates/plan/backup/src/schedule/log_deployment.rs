//! The Deployment that records a schedule's log.
//!
//! Decides when there is one: from the moment when the `CronJob` of the backups has a place, and until `spec.log` is removed. It runs no
//! Pod while the schedule starts no run, and goes on while the store fails. Its Pod names the voters, so each change of the membership
//! replaces the Pod, and the log goes on a few seconds later; the Pod stays while its volume holds the only copy of segments. `log.rs`
//! reads the state.

use std::path::PathBuf;

use holdfast_api::agent::Agent;
use holdfast_api::backup_store::Right;
use holdfast_api::condition::Reason;
use holdfast_api::log::Log;
use holdfast_api::name;
use holdfast_api::snapshot::Spool;
use holdfast_api::store::Location;
use holdfast_contract::{DEFAULT_LOG_SPOOL_MIB, EtcdFlags, LogRequest, REQUEST, Request, StoreFlags};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Observed;
use super::arm::{self, Place};
use super::beside::{Armed, Live};
use holdfast_base::objects::deployment::{deployment, log_resources, with_spec};
use holdfast_base::objects::job::{AgentJob, CONTAINER};
use holdfast_base::objects::{port, request, spool};
use holdfast_base::saving;
use holdfast_base::{Act, Target, drift, meta, valid};

/// Room in the volume beside the waiting segments: the last one may be beyond their limit.
const BESIDE_MIB: u64 = 64;

/// Volumes with Secrets of the store.
const STORE_VOLUMES: [&str; 2] = ["credentials", "store-ca"];

/// Compares the standing Deployment with the spec.
pub(super) fn arm(seen: &Observed, log: &Log) -> Armed<Deployment> {
    if seen.log_forbidden {
        let why = "spec.log needs the rule for deployments (apiGroup apps), which the operator's Role lacks. Apply the Role of this \
                   version: holdfast manifests --only rbac";
        return Armed::wrong(Reason::RightsMissing, why.to_owned());
    }
    let live = Live { any: seen.log_deployment.as_ref(), own: seen.own_log_deployment() };
    let begins = (Reason::LogStarting, "Holdfast creates the Deployment of the log".to_owned());
    let replicas = |halted: bool| i32::from(!halted);
    let standing = |halted| standing(seen, replicas(halted));
    let armed = live.arm(seen, begins, standing, |halted| rendered(seen, log, replicas(halted)));
    let keeps = |want: &Deployment| armed.runs && live.own.is_some_and(|live| holds_segments(seen, want, live));
    Armed { apply: armed.apply.clone().filter(|want| !keeps(want)), ..armed }
}

/// Returns the name of the Deployment that stands, is about to be applied, or cannot be read. Later passes read the Deployment because the
/// status names it, also when `spec.log` is removed.
pub(super) fn named(seen: &Observed, apply: Option<&Deployment>) -> Option<String> {
    let before = seen.schedule.status.as_ref().and_then(|status| status.log.as_ref()?.deployment.clone());
    let stands = seen.own_log_deployment().or(apply).map(|log| meta::name(&log.metadata).to_owned());
    stands.or_else(|| before.filter(|_| seen.log_forbidden))
}

/// Returns the deletion of the Deployment, where the spec asks for no log any more.
pub(super) fn retire(seen: &Observed) -> Option<Act> {
    let live = seen.own_log_deployment().filter(|live| !meta::deleting(&live.metadata))?;
    let why = "spec.log is removed. The stored log stays".to_owned();
    Some(Act::DeleteDeployment { deployment: Target::from(&live.metadata), why })
}

/// Whether the Pod has to stay as it is: a new Pod would lose the segments that the store does not take, and etcd may have compacted
/// their revisions. Other ways to the store are applied: they may be the remedy.
fn holds_segments(seen: &Observed, want: &Deployment, live: &Deployment) -> bool {
    let waits = seen.log_report.known().is_some_and(|report| report.spool_bytes > 0 && report.problem.is_some());
    let ((to, want), (from, live)) = (way_to_store(want), way_to_store(live));
    waits
        && to == from
        && want.service_account_name == live.service_account_name
        && !drift::differs_by_name(&want, &live)
}

/// Returns the request's store and its expected ID, and the part of the Pod that leads to the store: Secrets, proxies, identity.
fn way_to_store(log: &Deployment) -> (Option<(StoreFlags, Option<String>)>, PodSpec) {
    let pod = log.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).cloned().unwrap_or_default();
    let store = match request::of_container(Some(&pod), CONTAINER) {
        Some(Request::Log(LogRequest { store, expect_store_id, .. })) => Some((store, expect_store_id)),
        _ => None,
    };
    let kept = |variable: &EnvVar| variable.name != REQUEST && variable.value.is_some();
    let container = |agent: Container| Container {
        name: agent.name,
        env: agent.env.map(|env| env.into_iter().filter(kept).collect()),
        ..Container::default()
    };
    let volumes = pod.volumes.into_iter().flatten().filter(|volume| STORE_VOLUMES.contains(&volume.name.as_str()));
    let way = PodSpec {
        service_account_name: pod.service_account_name,
        containers: pod.containers.into_iter().map(container).collect(),
        volumes: Some(volumes.collect()),
        ..PodSpec::default()
    };
    (store, way)
}

/// Returns the standing Deployment with this number of Pods.
fn standing(seen: &Observed, replicas: i32) -> Option<Deployment> {
    let spec = seen.own_log_deployment()?.spec.clone()?;
    Some(with_spec(agent(seen, None), DeploymentSpec { replicas: Some(replicas), ..spec }))
}

fn rendered(seen: &Observed, log: &Log, replicas: i32) -> Result<Deployment, (Reason, String)> {
    let spec = &seen.schedule.spec;
    let Place { location, record } = arm::place(seen, Right::Write)?;
    if matches!(location, Location::Pvc(_)) {
        let why = "spec.log needs an object store: two Pods on two nodes cannot share the volume of the store. Name a store with s3, \
                   azure or gcs";
        return Err((Reason::InvalidSpec, why.to_owned()));
    }
    let source = arm::source(seen)?;
    let endpoints = source.endpoints.clone();
    let encryption = spec.snapshot_template.encryption.as_ref();
    let spool_mib = log.spool.as_ref().and_then(valid::bytes).map_or(DEFAULT_LOG_SPOOL_MIB, |bytes| bytes >> 20);
    let request = LogRequest {
        etcd: EtcdFlags { endpoints: source.endpoints, ..EtcdFlags::default() },
        // The store and the etcd behind these names must be the intended ones (I25).
        expect_store_id: record.as_ref().and_then(|record| record.id.clone()),
        expect_cluster_id: source.cluster_id,
        namespace: seen.schedule.metadata.namespace.clone().unwrap_or_default(),
        cluster: saving::filed_under(spec.cluster_ref.as_ref()),
        cluster_uid: source.cluster_uid,
        every_seconds: log.every(),
        check_seconds: log.checks_every(),
        age_recipients: encryption.map(|e| e.age.recipients.clone()).unwrap_or_default(),
        spool_dir: PathBuf::from(spool::FOLDER),
        spool_mib,
        metrics_port: u16::try_from(port::PROGRESS).ok(),
        ..LogRequest::default()
    };
    let want = AgentJob {
        work: Request::Log(request),
        destination: location,
        record,
        external: spec.external.clone().or_else(|| saving::with_certificates(seen.cluster.as_ref(), endpoints)),
        spool: Some(Spool {
            size: Quantity(format!("{}Mi", spool_mib.saturating_add(BESIDE_MIB))),
            storage_class_name: None,
        }),
        ..agent(seen, Some(log))
    };
    Ok(deployment(&want, seen.uid(), replicas))
}

/// Returns the settings that the Deployment shares with the backups' `CronJob`.
fn agent(seen: &Observed, log: Option<&Log>) -> AgentJob {
    let shared = arm::agent_job(seen);
    let meta = &seen.schedule.metadata;
    let resources = log.and_then(|log| log.resources.clone()).unwrap_or_else(log_resources);
    AgentJob {
        name: name::log_deployment(meta::name(meta), meta::uid(meta)),
        work: Request::Log(LogRequest::default()),
        agent: Agent { resources: Some(resources), ..shared.agent.clone() },
        ..shared
    }
}
