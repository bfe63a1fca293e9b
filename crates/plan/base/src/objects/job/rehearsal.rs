//! The Pod of a Job that rehearses an upgrade: the agent in etcd's image, and before it the comparison of the members.
//!
//! Decides volumes and containers. `cluster/upgrade.rs` decides when a Job rehearses, and on which snapshot.

use holdfast_api::snapshot::{External, Spool};
use holdfast_contract::{CompareRequest, Request};
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};

use super::super::pod::{BIN, BIN_FOLDER, certificates};
use super::super::request::with_request;
use super::super::store::mount;
use super::super::{container, external, spool};
use super::COMPARE;

/// Folder of a rehearsal's data.
pub const SCRATCH: &str = "/scratch";

/// Whether a Holdfast Pod compares the members before anything else.
pub fn compares(pod: &PodSpec) -> bool {
    pod.init_containers.iter().flatten().next().is_some_and(|first| first.name == COMPARE)
}

/// Returns the volume of a rehearsal's data or a merged database, and its mount.
pub(super) fn scratch(own: Option<&Spool>) -> (Volume, VolumeMount) {
    let folder =
        || Volume { name: "scratch".to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() };
    (own.map_or_else(folder, |own| spool::volume_named("scratch", own)), mount("scratch", SCRATCH, false))
}

/// Lets the agent run in an image of etcd, with a folder for data: an init container copies Holdfast's binary.
pub(super) fn in_etcds_image(
    spec: PodSpec,
    agent_image: &str,
    (image, pull): &(String, String),
    scratch: Option<&Spool>,
) -> PodSpec {
    let empty_dir = Some(EmptyDirVolumeSource::default());
    let bin = Volume { name: "bin".to_owned(), empty_dir, ..Volume::default() };
    let (scratch, scratch_mount) = self::scratch(scratch);
    let install = |agent: &Container| Container {
        name: container::INSTALL.to_owned(),
        command: Some(vec!["/holdfast".to_owned()]),
        args: Some(vec!["install".to_owned(), format!("--to={}", BIN)]),
        image: Some(agent_image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        env: None,
        volume_mounts: Some(vec![mount("bin", BIN_FOLDER, false)]),
        ..agent.clone()
    };
    let inside = |agent: Container| Container {
        image: Some(image.clone()),
        image_pull_policy: Some(pull.clone()),
        command: agent.command.map(|words| std::iter::once(BIN.to_owned()).chain(words.into_iter().skip(1)).collect()),
        env: Some(agent.env.into_iter().flatten().chain([certificates()]).collect()),
        volume_mounts: Some(
            agent
                .volume_mounts
                .into_iter()
                .flatten()
                .chain([mount("bin", BIN_FOLDER, true), scratch_mount.clone()])
                .collect(),
        ),
        ..agent
    };
    PodSpec {
        init_containers: Some(spec.containers.iter().map(install).collect()),
        containers: spec.containers.into_iter().map(inside).collect(),
        volumes: Some(spec.volumes.into_iter().flatten().chain([bin, scratch]).collect()),
        ..spec
    }
}

/// Puts the comparison of the members before all other containers. Its container has the resources of the agent, and none of its
/// mounts.
pub(super) fn after_comparison(
    spec: PodSpec,
    agent_image: &str,
    request: &CompareRequest,
    secured: Option<&External>,
) -> PodSpec {
    let reached = secured.map(external::reach).unwrap_or_default();
    let tls_dir = reached.flags.tls_dir.clone();
    let mut request = request.clone();
    request.etcd.tls_dir = tls_dir;
    let request = Request::CompareMembers(request);
    let compare = |agent: &Container| Container {
        name: COMPARE.to_owned(),
        image: Some(agent_image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        env: None,
        volume_mounts: Some(reached.mounts.clone()),
        ..agent.clone()
    };
    let first: Vec<Container> =
        spec.containers.iter().map(|agent| with_request(compare(agent), "/holdfast", &request)).collect();
    PodSpec {
        init_containers: Some(first.into_iter().chain(spec.init_containers.into_iter().flatten()).collect()),
        volumes: Some(spec.volumes.into_iter().flatten().chain(reached.volumes).collect()),
        ..spec
    }
}
