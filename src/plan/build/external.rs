//! An etcd of somebody else's as an agent's container sees it: flags, volumes and mounts.
//!
//! Decides paths. Secrets are mounted as files, never read here and never in arguments or the environment (I14).

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use snapshot_agent::contract::EtcdFlags;

use super::store::{mount, secret_volume};
use crate::api::snapshot::External;

/// Where the Secret with certificates is mounted.
const TLS: &str = "/etc/holdfast/etcd-tls";
/// Where the Secret with user and password is mounted.
const AUTH: &str = "/etc/holdfast/etcd-auth";

/// An etcd, ready to be put into a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// The agent's flags.
    pub flags: EtcdFlags,
    /// Volumes of the Pod.
    pub volumes: Vec<Volume>,
    /// Mounts of the agent's container.
    pub mounts: Vec<VolumeMount>,
}

/// Flags, volumes and mounts for an etcd. Its Secrets have to be there, or the Pod waits: never without them (I15).
pub fn reach(etcd: &External) -> Reached {
    let secrets = [("etcd-tls", etcd.tls_secret_ref.as_ref(), TLS), ("etcd-auth", etcd.auth_secret_ref.as_ref(), AUTH)];
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
