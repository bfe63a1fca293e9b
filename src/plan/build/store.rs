//! A store as an agent's container sees it: flags, volumes and mounts.
//!
//! Decides paths, once for the restore step and for the Job that saves. Secrets are mounted as files, never read here
//! and never in arguments or the environment (I14).

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeMount};
use snapshot_agent::contract::{IDENTITY_NETWORKS, StoreFlags};

use crate::api::name::LocalRef;
use crate::api::store::{Location, PvcLocation, StoredSnapshot};
use crate::plan::Proxies;

/// Where the credentials' Secret is mounted.
const CREDENTIALS: &str = "/etc/holdfast/credentials";
/// Where the Secret of those who read is mounted, where it is tried beside the other.
const READ_CREDENTIALS: &str = "/etc/holdfast/read-credentials";
/// Where the CA's Secret is mounted.
const CA: &str = "/etc/holdfast/ca";
/// Below this the Secrets with identities are mounted, each in a folder of its own: their keys may have the same names.
const IDENTITIES: &str = "/etc/holdfast/identities";
/// Where `s3.region` is absent.
const DEFAULT_REGION: &str = "us-east-1";
/// Where a backup volume is mounted.
const BACKUP: &str = "/backup";

/// `r--------`; kubelet adds the volume group's bit.
const OWNER_READS: i32 = 0o400;

/// A store, ready to be put into a Pod.
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
    /// With these Secrets to decrypt with. They are optional like the store's: the agent tells which is missing, and only
    /// if the snapshot is encrypted.
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
    /// It writes a snapshot: the Secrets have to be there, or the Pod waits for them.
    Save,
    /// It looks for one: the Secrets have to be there, and nothing is written.
    Inspect,
    /// It removes snapshots, and writes down which: the Secrets have to be there, and nothing is locked.
    Prune,
    /// It reads one, for a cluster that has no data yet. Its Secrets are optional: what is missing is told by the agent at
    /// once, and a member that reboots years later does not hang on a deleted one.
    Restore,
}

/// Where Google hands out an identity, by its name.
const IDENTITY: &str = "metadata.google.internal";

/// What the environment of whoever speaks to this store says of proxies, under the names that programs know. No password
/// stands there: the command line takes none. Where a cloud hands out a Pod's identity is asked without: a proxy would be
/// shown it, or be given its own.
pub fn proxies(store: &Location, Proxies { https, http, except }: &Proxies) -> Vec<EnvVar> {
    if matches!(store, Location::Pvc(_)) || (https.is_none() && http.is_none()) {
        return vec![];
    }
    let identity = IDENTITY_NETWORKS.iter().map(|(network, length)| format!("{network}/{length}"));
    let except: Vec<_> = except.iter().cloned().chain(identity).chain([IDENTITY.to_owned()]).collect();
    [("HTTPS_PROXY", https), ("HTTP_PROXY", http), ("NO_PROXY", &Some(except.join(",")))]
        .into_iter()
        .filter_map(|(name, value)| {
            let value = Some(super::literal(value.as_deref()?));
            Some(EnvVar { name: name.to_owned(), value, value_from: None })
        })
        .collect()
}

/// Flags, volumes and mounts for a store.
pub fn open(store: &Location, used: Use) -> Opened {
    match store {
        Location::S3(s3) => {
            // Who only reads locks nothing.
            let lock = s3.object_lock.as_ref().filter(|_| used == Use::Save);
            let (sse, kms_key_id) = s3.sse.clone().map(|sse| (sse.kind, sse.kms_key_id)).unzip();
            let flags = StoreFlags {
                url: url("s3", &s3.bucket, s3.prefix.as_deref()),
                s3_endpoint: s3.endpoint.clone(),
                // Named in each case: a workload identity's webhook sets AWS_REGION to the region of the nodes.
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

/// Where a stored snapshot is, for people: its folder, or its file. Holds no credentials.
pub fn uri(source: &StoredSnapshot) -> Option<String> {
    Some(format!("{}/{}", open(&source.place.location()?, Use::Restore).flags.url, source.key))
}

/// A place below a bucket, a container or a volume.
pub fn url(scheme: &str, name: &str, prefix: Option<&str>) -> String {
    prefix.map_or_else(|| format!("{scheme}://{name}"), |prefix| format!("{scheme}://{name}/{prefix}"))
}

/// The file that a CA's Secret is to hold.
fn ca_file(ca: Option<&LocalRef>) -> Option<PathBuf> {
    ca.map(|_| PathBuf::from(CA).join("ca.crt"))
}

/// A bucket, of whichever provider: its credentials and its CA are mounted.
fn bucket(flags: StoreFlags, credentials: Option<&LocalRef>, ca: Option<&LocalRef>, used: Use) -> Opened {
    let optional = (used == Use::Restore).then_some(true);
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

/// Credentials of those who read, beside a store that is opened to save: their folder, volume and mount. Like the other
/// Secret this one has to be there, or the Pod waits for it.
pub fn readers(secret: &LocalRef) -> (PathBuf, Volume, VolumeMount) {
    let name = "read-credentials";
    (PathBuf::from(READ_CREDENTIALS), secret_volume(name, &secret.name, None), mount(name, READ_CREDENTIALS, true))
}

fn volume(pvc: &PvcLocation, used: Use) -> Opened {
    let read_only = !matches!(used, Use::Save | Use::Prune);
    // The folder is opened beneath the mount by the agent: Kubernetes' own subPath would follow links.
    let url =
        pvc.sub_path.as_ref().map_or_else(|| format!("file://{BACKUP}"), |folder| format!("file://{BACKUP}/{folder}"));
    Opened {
        // Whatever UID a Pod has: kubelet gives the volume to its fsGroup.
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
                read_only: read_only.then_some(true),
            }),
            ..Volume::default()
        }],
        mounts: vec![mount("backup", BACKUP, read_only)],
        identity_dirs: vec![],
    }
}

/// A Secret as files that only the agent reads.
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

/// A mount.
pub fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}
