//! The code that each start of etcd trusts, small enough to audit: no store, no database reader, no client of etcd. Its only
//! requests ask other members over plain HTTP whether they listen (`gate/run.rs`).
//!
//! [`gate`] decides whether etcd may start. [`volume_identity`] and [`wal`] read the volume.

pub mod data_dir;
pub mod gate;
pub mod install;
pub mod pod_annotations;
pub mod volume_identity;
pub mod wal;
