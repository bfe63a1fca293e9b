//! Talks to etcd: what its members say of themselves, what the membership is, and the two calls that change it.
//!
//! Decides nothing about clusters. Every answer says which member of which etcd cluster it came from, every silence is
//! `Seen::Unknown` with its cause, and every call ends within its deadline. What takes long, silence and hashes, is asked
//! beside the passes: a dead cluster must not hold up others.

mod client;
mod hashes;
mod read;
mod silence;

use std::net::IpAddr;
use std::sync::Arc;

use super::tls::Login;

use client::Said;
pub(super) use client::{Failure, Pool};
pub(super) use hashes::hashes;
pub(super) use read::{answers, membership};

/// Called when there is something new to look at that no watch tells of.
pub(super) type News = Arc<dyn Fn() + Send + Sync>;

/// Where one member's server is asked: its Pod, so that it is this member that answers and no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    /// Name of the member.
    pub(super) member: String,
    /// UID of its Pod: another Pod may get the same address later.
    pub(super) pod_uid: String,
    /// The Pod's address.
    pub(super) ip: IpAddr,
    /// The operator's certificate, and the host that the member's is for; `None` in plaintext.
    pub(super) tls: Option<(Login, String)>,
}

impl Address {
    /// The URL of its client port.
    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match self.ip {
            IpAddr::V4(ip) => format!("{scheme}://{ip}:2379"),
            IpAddr::V6(ip) => format!("{scheme}://[{ip}]:2379"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixth_version_addresses_get_brackets() {
        let at = |ip: &str| {
            Address { member: "m".to_owned(), pod_uid: "u".to_owned(), ip: ip.parse().unwrap(), tls: None }.url()
        };
        assert_eq!(at("10.0.0.7"), "http://10.0.0.7:2379");
        assert_eq!(at("fd00::7"), "http://[fd00::7]:2379");
    }
}
