//! Connections to etcd and to stores: name resolution, TCP, TLS, and the causes of failures.
//!
//! The binary is static and contains musl's resolver and no other library of the system, so this layer implements the way from
//! a name to a connection. It knows neither etcd nor stores, and reads no flag.

pub mod connector;
pub mod dns;
pub mod dns_error;
pub mod no_proxy;
pub mod refusal;
pub mod trust;
