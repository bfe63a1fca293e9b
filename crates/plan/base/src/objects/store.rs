//! A store as an agent's container sees the store: flags, volumes and mounts.
//!
//! Decides paths, for the restore step and for the agent's Jobs. kubelet mounts Secrets as files; this file never reads
//! Secrets, and never puts Secrets into arguments or the environment (I14).

use std::path::PathBuf;

use holdfast_api::name::LocalRef;
use holdfast_api::store::{Location, PvcLocation, StoredSnapshot};
use holdfast_contract::{IDENTITY_NETWORKS, StoreFlags};
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount};

use crate::Proxies;

/// Mount path of the credentials' Secret.
const CREDENTIALS: &str = "/etc/holdfast/credentials";
/// Mount path of the Secret for reading, if a probe tries this Secret beside the other.
const READ_CREDENTIALS: &str = "/etc/holdfast/read-credentials";
/// Mount path of the CA's Secret.
const CA: &str = "/etc/holdfast/ca";
/// Parent folder of the Secrets with identities, each in its own folder: their keys may have the same names.
const IDENTITIES: &str = "/etc/holdfast/identities";
/// The region if `s3.region` is absent.
const DEFAULT_REGION: &str = "us-east-1";
/// Mount path of a backup volume.
const BACKUP: &str = "/backup";

/// `r--------`; kubelet adds the volume group's bit.
const OWNER_READS: i32 = 0o400;

/// A store's flags, volumes and mounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opened {
    /// The agent's flags.
    pub flags: StoreFlags,
    /// Volumes of the Pod.
    pub volumes: Vec<Volume>,
    /// Mounts of the agent's container.
    pub mounts: Vec<VolumeMount>,
    /// Folders with identities, for a restore.
    pub identity_dirs: Vec<PathBuf>,
}

impl Opened {
    /// Adds Secrets with identities. The Secrets are optional like the store's: the agent reports a missing Secret, and only if
    /// the snapshot is encrypted.
    #[must_use]
    pub fn with_identities(mut self, secrets: &[LocalRef]) -> Self {
        for (number, secret) in secrets.iter().enumerate() {
            let (volume, path) = (format!("identities-{number}"), format!("{IDENTITIES}/{number}"));
            self.volumes.push(secret_volume(&volume, &secret.name, Some(true)));
            self.mounts.push(mount(&volume, &path, true));
            self.identity_dirs.push(PathBuf::from(path));
        }
        self
    }
}

/// How the Pod uses the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The agent writes a snapshot: the Pod waits for missing Secrets.
    Save,
    /// The agent looks for a snapshot and writes nothing: the Pod waits for missing Secrets.
    Inspect,
    /// The agent removes snapshots, and records the removals; no lock is set, and the Pod waits for missing Secrets.
    Prune,
    /// The agent reads a snapshot for a cluster without data. The Secrets are optional: the agent reports a missing Secret at
    /// once, and a member that reboots years later does not wait for a deleted Secret.
    Restore,
    /// The agent reads the volume of a member whose cluster has lost its quorum.
    Survivor,
    /// The agent reads a snapshot, and writes a proof beside it. The Secrets are optional, as for a restore.
    Prove,
}

/// Name of Google's metadata server, which hands out identities.
const IDENTITY: &str = "metadata.google.internal";

/// Proxy variables for a container that connects to this store, under the names that programs know. The URLs contain no
/// password: the command line accepts none. The metadata servers of clouds bypass the proxy: a proxy would see the Pod's
/// identity, or receive its own.
pub fn proxies(store: &Location, Proxies { https, http, except }: &Proxies) -> Vec<EnvVar> {
    if matches!(store, Location::Pvc(_)) || (https.is_none() && http.is_none()) {
        return vec![];
    }
    let identity = IDENTITY_NETWORKS.iter().map(|(network, length)| format!("{network}/{length}"));
    let except: Vec<_> = except.iter().cloned().chain(identity).chain([IDENTITY.to_owned()]).collect();
    [("HTTPS_PROXY", https), ("HTTP_PROXY", http), ("NO_PROXY", &Some(except.join(",")))]
        .into_iter()
        .filter_map(|(name, value)| {
            let value = Some(literal(value.as_deref()?));
            Some(EnvVar { name: name.to_owned(), value, value_from: None })
        })
        .collect()
}

/// Returns flags, volumes and mounts for a store.
pub fn open(store: &Location, used: Use) -> Opened {
    match store {
        Location::S3(s3) => {
            // Only a save sets locks.
            let lock = s3.object_lock.as_ref().filter(|_| used == Use::Save);
            let (sse, kms_key_id) = s3.sse.clone().map(|sse| (sse.kind, sse.kms_key_id)).unzip();
            let flags = StoreFlags {
                url: url("s3", &s3.bucket, s3.prefix.as_deref()),
                s3_endpoint: s3.endpoint.clone(),
                // Always set: a workload identity's webhook sets AWS_REGION to the region of the nodes.
                s3_region: Some(s3.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned())),
                s3_force_path_style: s3.force_path_style,
                s3_ca_file: ca_file(s3.ca_ref.as_ref()),
                s3_sse: sse.map(Into::into),
                s3_sse_kms_key_id: kms_key_id.flatten(),
                s3_storage_class: s3.storage_class.clone(),
                s3_tag: s3.tags.iter().map(|tag| format!("{}={}", tag.name, tag.value)).collect(),
                s3_object_lock: lock.map(|lock| lock.mode),
                s3_object_lock_days: lock.map(|lock| lock.days),
                s3_checksum: s3.checksum.map(Into::into),
                ..StoreFlags::default()
            };
            bucket(flags, s3.credentials_secret_ref.as_ref(), s3.ca_ref.as_ref(), used)
        }
        Location::Azure(azure) => {
            let flags = StoreFlags {
                url: url("azure", &azure.container, azure.prefix.as_deref()),
                azure_account: azure.account.clone(),
                azure_endpoint: azure.endpoint.clone(),
                azure_ca_file: ca_file(azure.ca_ref.as_ref()),
                ..StoreFlags::default()
            };
            bucket(flags, azure.credentials_secret_ref.as_ref(), azure.ca_ref.as_ref(), used)
        }
        Location::Gcs(gcs) => {
            let flags = StoreFlags {
                url: url("gs", &gcs.bucket, gcs.prefix.as_deref()),
                gcs_endpoint: gcs.endpoint.clone(),
                gcs_ca_file: ca_file(gcs.ca_ref.as_ref()),
                ..StoreFlags::default()
            };
            bucket(flags, gcs.credentials_secret_ref.as_ref(), gcs.ca_ref.as_ref(), used)
        }
        Location::Pvc(pvc) => volume(pvc, used),
    }
}

/// Returns the address of a stored snapshot for people: its folder, or its file. Contains no credentials.
pub fn uri(source: &StoredSnapshot) -> Option<String> {
    Some(format!("{}/{}", open(&source.place.location()?, Use::Restore).flags.url, source.key))
}

/// Returns the URL of a place below a bucket, a container or a volume.
pub fn url(scheme: &str, name: &str, prefix: Option<&str>) -> String {
    prefix.map_or_else(|| format!("{scheme}://{name}"), |prefix| format!("{scheme}://{name}/{prefix}"))
}

/// Returns the path of the file in a CA's Secret.
fn ca_file(ca: Option<&LocalRef>) -> Option<PathBuf> {
    ca.map(|_| PathBuf::from(CA).join("ca.crt"))
}

/// Opens a bucket of any provider: mounts its credentials and its CA.
fn bucket(flags: StoreFlags, credentials: Option<&LocalRef>, ca: Option<&LocalRef>, used: Use) -> Opened {
    let optional = matches!(used, Use::Restore | Use::Prove).then_some(true);
    let secrets: Vec<_> = credentials
        .map(|secret| ("credentials", secret.name.as_str(), CREDENTIALS))
        .into_iter()
        .chain(ca.map(|secret| ("store-ca", secret.name.as_str(), CA)))
        .collect();
    Opened {
        flags: StoreFlags { credentials_dir: credentials.map(|_| PathBuf::from(CREDENTIALS)), ..flags },
        volumes: secrets.iter().map(|(volume, secret, _)| secret_volume(volume, secret, optional)).collect(),
        mounts: secrets.iter().map(|(volume, _, path)| mount(volume, path, true)).collect(),
        identity_dirs: vec![],
    }
}

/// Returns folder, volume and mount of the credentials for reading, beside a store opened to save. The Pod waits for this
/// Secret too.
pub fn readers(secret: &LocalRef) -> (PathBuf, Volume, VolumeMount) {
    let name = "read-credentials";
    (PathBuf::from(READ_CREDENTIALS), secret_volume(name, &secret.name, None), mount(name, READ_CREDENTIALS, true))
}

fn volume(pvc: &PvcLocation, used: Use) -> Opened {
    let read_only = !matches!(used, Use::Save | Use::Prune | Use::Prove);
    // The agent opens the folder beneath the mount: Kubernetes' own subPath would follow links.
    let url =
        pvc.sub_path.as_ref().map_or_else(|| format!("file://{BACKUP}"), |folder| format!("file://{BACKUP}/{folder}"));
    Opened {
        // For any UID of a Pod: kubelet gives the volume to the Pod's fsGroup.
        flags: StoreFlags {
            url,
            mount: Some(PathBuf::from(BACKUP)),
            group_access: !read_only,
            ..StoreFlags::default()
        },
        volumes: vec![Volume {
            name: "backup".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: pvc.claim_name.clone(),
                // kubelet gives a volume that is read-only as a whole no fsGroup, and a member's files need it.
                read_only: (read_only && used != Use::Survivor).then_some(true),
            }),
            ..Volume::default()
        }],
        mounts: vec![mount("backup", BACKUP, read_only)],
        identity_dirs: vec![],
    }
}

/// Returns a Secret as files that only the agent reads.
pub(super) fn secret_volume(volume: &str, secret: &str, optional: Option<bool>) -> Volume {
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(OWNER_READS),
            optional,
            items: None,
        }),
        ..Volume::default()
    }
}

/// Returns a mount.
pub fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}
/// Escapes `$`: kubelet replaces `$(NAME)` in a variable by another variable's value, and `$$` by a dollar (I28).
pub(super) fn literal(value: &str) -> String {
    value.replace('$', "$$")
}
