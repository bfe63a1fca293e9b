//! What the samples that save ask for, and where they save to.
//!
//! Decides the names in a sample and what a person has to change for each kind of store.

use snapshot_agent::contract::{DEFAULT_MIN_THROUGHPUT_KIB, DEFAULT_SAVE_DEADLINE_SECONDS, EtcdFlags, SaveRequest};

use crate::api::name::LocalRef;
use crate::api::store::{AzureLocation, GcsLocation, Location, PvcLocation, S3Location};

/// Where a Job saves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// S3.
    S3,
    /// Azure.
    Azure,
    /// Google.
    Gcs,
    /// A volume.
    Pvc,
}

impl To {
    pub(super) fn destination(self) -> Location {
        match self {
            Self::S3 => Location::S3(S3Location {
                bucket: "backups".to_owned(),
                prefix: Some("etcd".to_owned()),
                endpoint: Some("https://s3.example.com".to_owned()),
                credentials_secret_ref: Some(LocalRef { name: "s3-credentials".to_owned() }),
                ..S3Location::default()
            }),
            Self::Azure => Location::Azure(AzureLocation {
                container: "backups".to_owned(),
                prefix: Some("etcd".to_owned()),
                credentials_secret_ref: Some(LocalRef { name: "azure-credentials".to_owned() }),
                ..AzureLocation::default()
            }),
            Self::Gcs => Location::Gcs(GcsLocation {
                bucket: "backups".to_owned(),
                prefix: Some("etcd".to_owned()),
                credentials_secret_ref: Some(LocalRef { name: "gcs-credentials".to_owned() }),
                ..GcsLocation::default()
            }),
            Self::Pvc => {
                Location::Pvc(PvcLocation { claim_name: "backups".to_owned(), sub_path: Some("etcd".to_owned()) })
            }
        }
    }

    pub(super) const fn to_change(self) -> &'static str {
        match self {
            Self::S3 => {
                "\
#   --store         s3://BUCKET or s3://BUCKET/PREFIX; the bucket must exist
#   --s3-endpoint   URL of the S3 server; leave it out for AWS, and name --s3-region instead
#                   (--s3-force-path-style=false for servers that want the bucket in the host name)
#   secretName      the Secret with the keys accessKeyID, secretAccessKey and, for temporary ones, sessionToken; for a role
#                   leave the volume, its mount and --credentials-dir out, and name serviceAccountName instead"
            }
            Self::Azure => {
                "\
#   --store         azure://CONTAINER or azure://CONTAINER/PREFIX; the container must exist
#   secretName      the Secret with the keys accountName, and accountKey or sasToken; for a workload's identity leave the
#                   volume, its mount and --credentials-dir out, and name --azure-account and serviceAccountName instead"
            }
            Self::Gcs => {
                "\
#   --store         gs://BUCKET or gs://BUCKET/PREFIX; the bucket must exist
#   secretName      the Secret with the key serviceAccountJSON; for a workload's identity leave the volume, its mount and
#                   --credentials-dir out, and name serviceAccountName instead"
            }
            Self::Pvc => {
                "\
#   --store         file:///backup or file:///backup/FOLDER; /backup is the volume
#   claimName       the claim the backups are kept on; it must exist and be writable for group 65532"
            }
        }
    }
}

/// What a sample asks of the agent.
pub(super) fn request() -> SaveRequest {
    SaveRequest {
        etcd: EtcdFlags {
            endpoints: (0..3).map(|i| format!("http://my-etcd-{i}.my-etcd.prod.svc:2379")).collect(),
            ..EtcdFlags::default()
        },
        namespace: "prod".to_owned(),
        cluster: "my-etcd".to_owned(),
        min_throughput_kib: DEFAULT_MIN_THROUGHPUT_KIB,
        deadline_seconds: DEFAULT_SAVE_DEADLINE_SECONDS,
        ..SaveRequest::default()
    }
}
