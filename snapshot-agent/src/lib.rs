//! Streams etcd snapshots to stores and back, verified. Knows etcd's snapshot stream and object stores, not Kubernetes.

pub mod contract;
