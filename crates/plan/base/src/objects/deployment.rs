//! The Deployment that records the log of a schedule: one Pod, which runs with or without the operator.
//!
//! Decides the shape. `job.rs` decides the Pod that all agents share; `plan::schedule` decides the request, and when the Pod runs.

use std::collections::BTreeMap;

use holdfast_api::{component, key};
use holdfast_contract::LOG_PATH;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::job::{self, AgentJob};
use super::{container_port, port, resources};

/// Returns the Deployment. `uid`: UID of the schedule, the label by which the Deployment selects its Pod.
pub fn deployment(want: &AgentJob, uid: &str, replicas: i32) -> Deployment {
    let mut template = job::template(want);
    let own = [(key::SCHEDULE_UID.to_owned(), uid.to_owned())];
    template.metadata.get_or_insert_default().labels.get_or_insert_default().extend(own.clone());
    let mut pod = template.spec.take().unwrap_or_default();
    pod.restart_policy = Some("Always".to_owned());
    pod.containers.iter_mut().for_each(answer_state);
    template.spec = Some(pod);
    let component = (key::COMPONENT.to_owned(), component::SNAPSHOT_AGENT.to_owned());
    let spec = DeploymentSpec {
        replicas: Some(replicas),
        // Two Pods would do no harm, and would store each segment twice.
        strategy: Some(DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
        revision_history_limit: Some(1),
        selector: LabelSelector {
            match_labels: Some([component].into_iter().chain(own).collect()),
            match_expressions: None,
        },
        template,
        ..DeploymentSpec::default()
    };
    with_spec(want.clone(), spec)
}

/// Returns a Holdfast Deployment with this spec.
pub fn with_spec(owner: AgentJob, spec: DeploymentSpec) -> Deployment {
    Deployment { metadata: job::metadata(owner, &spec), spec: Some(spec), status: None }
}

/// Resources of the agent, where the spec has none: the agent holds one segment, and the memory does not grow with the load.
pub fn log_resources() -> ResourceRequirements {
    let limits = BTreeMap::from([("memory".to_owned(), Quantity("256Mi".to_owned()))]);
    ResourceRequirements { limits: Some(limits), ..resources::requests("50m", "96Mi") }
}

/// Opens the port of the state, and has kubelet restart an agent that does not answer on it. The answer needs neither etcd nor the
/// store: no restart mends an outage of these.
fn answer_state(container: &mut Container) {
    container.ports.get_or_insert_default().push(container_port("metrics", port::PROGRESS));
    container.liveness_probe = Some(Probe {
        http_get: Some(HTTPGetAction {
            path: Some(LOG_PATH.to_owned()),
            port: IntOrString::Int(port::PROGRESS),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(20),
        timeout_seconds: Some(5),
        failure_threshold: Some(6),
        ..Probe::default()
    });
}
