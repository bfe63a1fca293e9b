//! What each start of etcd trusts: the gate's decision, the identity of a volume, etcd's log on it, and the copy of the program
//! into a Pod. Small enough to audit: no store, no client, no network.
//!
//! [`gate`] decides whether etcd may start. [`volume_identity`] and [`wal`] read what its volume holds.

pub mod data_dir;
pub mod gate;
pub mod install;
pub mod pod_annotations;
pub mod volume_identity;
pub mod wal;
