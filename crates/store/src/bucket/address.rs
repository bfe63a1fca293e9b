//! Refuses addresses that are never a store: those at which a cloud's node hands out its own identity.
//!
//! This file decides which names an endpoint may not have, and that no name may resolve to an address within
//! `contract::IDENTITY_NETWORKS`. A user who may write an EtcdSnapshot chooses the endpoint, and needs fewer rights than for a
//! Pod that can reach the node's identity. Loopback is allowed: in a Pod it is the Pod itself, and on a machine it is a tunnel.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use holdfast_contract::IDENTITY_NETWORKS;
use holdfast_contract::error::{Error, Result};
use holdfast_io::net::dns;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Names of that service inside a node (Google: "Access Compute Engine metadata").
const NAMES: [&str; 2] = ["metadata", "google.internal"];

/// Whether this is the address of an identity service.
fn is_identity(ip: IpAddr) -> bool {
    let same = |differing: u128, width: u32, length: u32| differing.checked_shr(width - length).unwrap_or(0) == 0;
    IDENTITY_NETWORKS.into_iter().any(|(network, length)| match (network, ip.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits() ^ b.to_bits()), 32, length),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits() ^ b.to_bits(), 128, length),
        _ => false,
    })
}

/// Refuses an endpoint that names such an address, in any spelling, before a request.
///
/// # Errors
///
/// [`ExitClass::Config`](holdfast_contract::ExitClass::Config), with the flag.
pub(crate) fn check(flag: &str, endpoint: &str) -> Result<()> {
    // The caller reports an unreadable URL.
    let Ok(url) = Url::parse(endpoint) else { return Ok(()) };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.');
    let named = NAMES.iter().any(|name| host == *name || host.strip_suffix(name).is_some_and(|h| h.ends_with('.')));
    if named || host.parse().is_ok_and(is_identity) {
        return Err(Error::config(format!("{flag}={endpoint:?}: {}", NoStore(host.to_owned()))));
    }
    Ok(())
}

/// A forbidden host of an endpoint.
#[derive(Debug)]
pub(crate) struct NoStore(String);

impl fmt::Display for NoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is the address of the metadata service with the node's identity, not of a store", self.0)
    }
}

impl std::error::Error for NoStore {}

/// Resolves names, and refuses such addresses.
#[derive(Debug)]
pub(super) struct Resolver {
    /// Name of the provider's own identity service, which may resolve there and is never part of an endpoint ([`check`]).
    pub(super) identity: Option<&'static str>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let trusted = self.identity == Some(name.as_str());
        Box::pin(async move {
            let found = dns::look_up(name.as_str()).await?;
            match found.iter().find(|ip| !trusted && is_identity(**ip)) {
                // Refuses all addresses: an attacker who can add one address to a name can replace the others.
                Some(ip) => Err(NoStore(format!("{} leads to {ip}, and that", name.as_str())).into()),
                None => Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_contract::ExitClass;

    use super::*;

    #[test]
    fn a_nodes_identity_is_no_store_however_it_is_written() {
        for host in [
            "169.254.169.254",
            "169.254.170.2:80",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "[fe80::1]",
            "[fd00:ec2::254]:80",
            "[fd20:ce::254]",
            "[::ffff:169.254.169.254]",
            "metadata",
            "metadata.google.internal",
            "METADATA.google.internal.",
            "google.internal",
        ] {
            let refused = check("--s3-endpoint", &format!("http://{host}")).expect_err(host);
            assert_eq!(refused.class(), ExitClass::Config, "{host}");
            assert!(refused.message().starts_with("--s3-endpoint="), "{refused}");
        }
        for host in
            ["s3.example.com", "10.0.0.1:9000", "127.0.0.1:7070", "[::1]:7070", "[fd00::1]", "metadata.example.com"]
        {
            check("--s3-endpoint", &format!("http://{host}")).unwrap();
        }
    }

    #[test]
    fn what_is_beside_such_a_network_is_not_in_it() {
        for (ip, refused) in [
            ("169.253.255.255", false),
            ("169.254.0.0", true),
            ("169.254.255.255", true),
            ("169.255.0.0", false),
            ("100.100.100.199", false),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("168.63.129.17", false),
            ("fe7f:ffff::1", false),
            ("febf:ffff::1", true),
            ("fec0::", false),
            ("fd00:ec2:ffff::", true),
            ("fd00:ec3::", false),
            ("::ffff:100.100.100.200", true),
        ] {
            assert_eq!(is_identity(ip.parse().unwrap()), refused, "{ip}");
        }
    }

    /// Endpoints appear in errors, and errors in objects, events and logs.
    #[test]
    fn a_password_on_the_way_there_is_not_told() {
        for url in ["http://user:canary@169.254.169.254", "https://canary@metadata.google.internal/path"] {
            let refused = super::super::http::endpoint("--s3-endpoint", url, true).unwrap_err();
            assert_eq!(refused.class(), ExitClass::Config);
            assert!(!refused.message().contains("canary"), "{refused}");
        }
    }

    /// reqwest resolves numbers like names, so this is a name that leads there.
    #[tokio::test]
    async fn a_name_that_leads_there_is_given_to_nobody() {
        let name = || "169.254.169.254".parse::<Name>().unwrap();
        let Err(error) = Resolver { identity: None }.resolve(name()).await else { panic!("resolved") };
        assert!(error.downcast_ref::<NoStore>().is_some(), "{error}");
        assert!(Resolver { identity: Some("169.254.169.254") }.resolve(name()).await.is_ok());
        let local = Resolver { identity: None }.resolve("localhost".parse().unwrap()).await.unwrap();
        assert!(local.count() > 0);
    }
}
