//! Connections to etcd and to stores: names to addresses, TCP, TLS, and what a refusal of either means.
//!
//! The binary is static: musl's resolver and no other library of the system is in it, so the way from a name to a connection
//! is ours. Knows neither etcd nor stores, and reads no flag.

pub mod connector;
pub mod dns;
pub mod dns_error;
pub mod refusal;
pub mod trust;
