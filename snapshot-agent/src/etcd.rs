//! Layer 5: etcd: its members over gRPC, its program etcdutl, its files on a volume.

pub(crate) mod auth_revision;
pub mod connect;
pub(crate) mod data_dir;
pub(crate) mod differences;
pub(crate) mod etcdutl;
pub(crate) mod feed;
mod folders;
pub(crate) mod hash_kv;
pub(crate) mod lists;
pub mod member;
pub(crate) mod members;
pub mod pod_annotations;
pub(crate) mod revisions;
pub mod source;
pub(crate) mod tls;
pub(crate) mod version;
pub mod volume_identity;
pub mod wal;
