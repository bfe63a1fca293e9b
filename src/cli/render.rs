//! Flags of `agent render-restore`: the snapshot, and the names in the new cluster.

use clap::Args;
use holdfast_contract::{DEFAULT_INSPECT_DEADLINE_SECONDS, StoreFlags};
use holdfast_layout::manifest::Manifest;

use super::{namespace, object};
use holdfast_manifests::restore::Wanted;
use holdfast_plugin::point::PointFlags;

/// Help heading of the flags about the new cluster.
const NEW: &str = "New cluster";

/// Flags of `agent render-restore`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RenderFlags {
    /// The store of the snapshot.
    #[command(flatten, next_help_heading = "Store")]
    pub store: StoreFlags,
    /// The stored snapshot's folder below the store's prefix, as `agent list` shows it.
    #[arg(long, help_heading = "Store")]
    pub key: String,
    /// Name of the new EtcdCluster; default: the name of the saved cluster.
    #[arg(long, value_parser = object, help_heading = NEW)]
    pub name: Option<String>,
    /// Namespace of the new EtcdCluster; default: the namespace of `kubectl apply`.
    #[arg(short, long, value_name = "NS", value_parser = namespace, help_heading = NEW)]
    pub namespace: Option<String>,
    /// PersistentVolumeClaim of the volume of a `file://` store.
    #[arg(long, value_name = "NAME", value_parser = object, help_heading = NEW)]
    pub claim: Option<String>,
    /// Name of the Secret with the bucket's credentials, if --credentials-dir is given; default: s3-credentials,
    /// azure-credentials or gcs-credentials.
    #[arg(long, value_name = "NAME", value_parser = object, help_heading = NEW)]
    pub credentials_secret: Option<String>,
    /// Name of the Secret with the CA of the bucket's endpoint, if a CA file is given (--s3-ca-file, --azure-ca-file,
    /// --gcs-ca-file); default: s3-ca, azure-ca or gcs-ca.
    #[arg(long, value_name = "NAME", value_parser = object, help_heading = NEW)]
    pub ca_secret: Option<String>,
    /// Name of the Secret with the age identities, if the snapshot is encrypted.
    #[arg(long, value_name = "NAME", default_value = "age-identity", value_parser = object, help_heading = NEW)]
    pub identity_secret: String,
    /// Point in time.
    #[command(flatten, next_help_heading = NEW)]
    pub at: PointFlags,
    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_INSPECT_DEADLINE_SECONDS, help_heading = NEW)]
    pub deadline_seconds: u32,
}

impl RenderFlags {
    /// Returns the input of the YAML: the flags, the manifest's values, and the names of the files in the folder of
    /// credentials, without opening these files.
    pub fn wanted(self, manifest: Manifest) -> Wanted {
        let folder = self.store.credentials_dir.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        let files = folder.flatten().filter_map(|file| file.ok()?.file_name().into_string().ok());
        Wanted {
            credential_files: files.collect(),
            name: self.name.unwrap_or(manifest.cluster),
            namespace: self.namespace,
            spec: manifest.cluster_spec,
            etcd_version: manifest.etcd_version,
            db_bytes: manifest.db_bytes,
            without_quorum: manifest.without_quorum,
            key: manifest.key,
            store: self.store,
            recipients: manifest.encryption.map(|encryption| encryption.recipients).unwrap_or_default(),
            claim: self.claim,
            credentials_secret: self.credentials_secret,
            ca_secret: self.ca_secret,
            identity_secret: self.identity_secret,
            at: self.at.point(),
        }
    }
}
