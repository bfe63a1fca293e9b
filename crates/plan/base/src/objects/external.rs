//! An external etcd as an agent's container sees the etcd: flags, volumes and mounts.
//!
//! Decides paths. kubelet mounts Secrets as files; this file never reads Secrets, and never puts Secrets into arguments or the
//! environment (I14).

use std::path::PathBuf;

use holdfast_api::snapshot::External;
use holdfast_contract::EtcdFlags;
use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::store::{mount, secret_volume};

/// Mount path of the Secret with certificates.
const TLS: &str = "/etc/holdfast/etcd-tls";
/// Mount path of the Secret with user and password.
const AUTH: &str = "/etc/holdfast/etcd-auth";

/// Names of the volumes of both.
pub(super) const VOLUMES: [&str; 2] = ["etcd-tls", "etcd-auth"];

/// An etcd's flags, volumes and mounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// The agent's flags.
    pub flags: EtcdFlags,
    /// Volumes of the Pod.
    pub volumes: Vec<Volume>,
    /// Mounts of the agent's container.
    pub mounts: Vec<VolumeMount>,
}

/// Returns flags, volumes and mounts for an etcd. The Pod waits for missing Secrets, and never connects without the Secrets
/// (I15).
pub fn reach(etcd: &External) -> Reached {
    let [tls, auth] = VOLUMES;
    let secrets = [(tls, etcd.tls_secret_ref.as_ref(), TLS), (auth, etcd.auth_secret_ref.as_ref(), AUTH)];
    let named: Vec<_> =
        secrets.into_iter().filter_map(|(volume, secret, path)| Some((volume, secret?, path))).collect();
    Reached {
        flags: EtcdFlags {
            endpoints: etcd.endpoints.clone(),
            server_name: etcd.server_name.clone(),
            tls_dir: etcd.tls_secret_ref.as_ref().map(|_| PathBuf::from(TLS)),
            auth_dir: etcd.auth_secret_ref.as_ref().map(|_| PathBuf::from(AUTH)),
            ..EtcdFlags::default()
        },
        volumes: named.iter().map(|(volume, secret, _)| secret_volume(volume, &secret.name, None)).collect(),
        mounts: named.iter().map(|(volume, _, path)| mount(volume, path, true)).collect(),
    }
}
