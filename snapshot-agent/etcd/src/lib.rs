//! etcd: its members over gRPC, its programs, its files on a volume.

pub mod auth_revision;
pub mod connect;
pub mod differences;
pub mod etcdutl;
pub mod feed;
pub mod folders;
pub mod hash_kv;
pub mod keys;
pub mod lists;
pub mod member;
pub mod members;
pub mod revisions;
pub mod server;
pub mod source;
pub mod stopped;
pub mod tls;
pub mod version;
