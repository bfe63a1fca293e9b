//! Calls to etcd: the status of each member, the membership, and the changes of both.
//!
//! Decides nothing about clusters. Every answer names its member and its etcd cluster, every silence is `Seen::Unknown` with
//! its cause, and every call ends within its deadline. Silent Pods and hashes take long, so they are asked beside the passes:
//! a dead cluster must not hold up others.

mod auth;
mod client;
mod hashes;
mod read;
mod silence;
mod users;

use std::net::IpAddr;
use std::sync::Arc;

use super::tls::Login;

pub(super) use auth::{has_user, is_auth_on};
use client::MemberStatus;
pub(super) use client::{Failure, Pool};
pub(super) use hashes::hashes;
pub(super) use read::{answers, membership};

/// Callback for a change that no watch reports.
pub(super) type News = Arc<dyn Fn() + Send + Sync>;

/// Address of one member's server: it names the Pod, so that only this member can answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    /// Name of the member.
    pub(super) member: String,
    /// UID of the Pod: another Pod may get the same IP address later.
    pub(super) pod_uid: String,
    /// IP address of the Pod.
    pub(super) ip: IpAddr,
    /// The operator's certificate, and the host name in the member's certificate; `None` in plaintext.
    pub(super) tls: Option<(Login, String)>,
}

impl Address {
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
