//! The Pod of a drill with a kube-apiserver: the agent in kube-apiserver's image, and before it a container of etcd's image that
//! copies etcd and etcdutl beside Holdfast's binary.
//!
//! Decides volumes, containers and their rights. `schedule/drill_job.rs` decides the agent's request.

use holdfast_api::drill::KubernetesDrill;
use k8s_openapi::api::core::v1::{Container, PodSpec, SecurityContext};

use super::super::pod::{BIN, BIN_FOLDER};
use super::super::store::{mount, secret_volume};

/// Folder of etcd and etcdutl in a container of kube-apiserver's image.
pub const PROGRAMS: &str = BIN_FOLDER;

/// The `EncryptionConfiguration` in the agent's container.
pub const ENCRYPTION_CONFIG: &str = "/etc/holdfast/encryption/encryption-config.yaml";

/// Folder and volume of that file.
const ENCRYPTION_FOLDER: &str = "/etc/holdfast/encryption";
const ENCRYPTION: &str = "encryption";

/// Name of the container that copies etcd's programs.
const INSTALL_ETCD: &str = "install-etcd";

/// A capability that the program's file in kube-apiserver's image asks for: the kernel does not start the program in a container
/// whose processes can never have it. `allowPrivilegeEscalation: false` keeps the program from getting it.
const BIND: &str = "NET_BIND_SERVICE";

/// Lets the agent of a Pod that runs in etcd's image run in kube-apiserver's image.
pub(super) fn in_apiservers_image(spec: PodSpec, apiserver: &KubernetesDrill) -> PodSpec {
    let install = |agent: &Container| Container {
        name: INSTALL_ETCD.to_owned(),
        command: Some(vec![BIN.to_owned()]),
        args: Some(vec!["install".to_owned(), format!("--etcd-to={PROGRAMS}")]),
        env: None,
        volume_mounts: Some(vec![mount("bin", BIN_FOLDER, false)]),
        ..agent.clone()
    };
    let secret = apiserver.encryption_config_secret_ref.as_ref();
    let mounts = secret.map(|_| mount(ENCRYPTION, ENCRYPTION_FOLDER, true));
    let inside = |agent: Container| Container {
        image: Some(apiserver.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        security_context: agent.security_context.map(with_bind),
        volume_mounts: Some(agent.volume_mounts.into_iter().flatten().chain(mounts.clone()).collect()),
        ..agent
    };
    let installs: Vec<Container> = spec.containers.iter().map(install).collect();
    // Optional: the agent reports a missing Secret, whereas kubelet would wait in silence until the Job's deadline.
    let volume = secret.map(|secret| secret_volume(ENCRYPTION, &secret.name, Some(true)));
    PodSpec {
        init_containers: Some(spec.init_containers.into_iter().flatten().chain(installs).collect()),
        containers: spec.containers.into_iter().map(inside).collect(),
        volumes: Some(spec.volumes.into_iter().flatten().chain(volume).collect()),
        ..spec
    }
}

fn with_bind(context: SecurityContext) -> SecurityContext {
    let capabilities = context.capabilities.map(|mut capabilities| {
        capabilities.add.get_or_insert_default().push(BIND.to_owned());
        capabilities
    });
    SecurityContext { capabilities, ..context }
}
