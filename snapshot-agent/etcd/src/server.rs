//! Server processes that a verb starts on restored data, on loopback only.
//!
//! `server/child.rs` decides what every such process has in common, `server/etcd.rs` the flags of etcd and when it is ready.

pub mod child;
pub mod etcd;
