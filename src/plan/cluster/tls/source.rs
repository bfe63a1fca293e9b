//! Certificates of a person's or of cert-manager's: whether one can be used.
//!
//! Decides what is copied to members, and why something is not. etcd reads its files at each handshake: a certificate that
//! is copied by mistake cuts a member off at its next restart, so each is judged before (I15).

use jiff::Timestamp;

use super::wanted::{self, Provider};
use super::{Observed, cluster_name};
use crate::api::condition::Reason;
use crate::api::name;
use crate::api::tls::is_address;
use crate::plan::certificate::{Certificates, Known, Leaf, Origin, Plane, files};

/// Why a certificate cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hindrance {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// The certificate that a leaf is copied from, or why there is none that can be used.
pub(super) fn supply<'a>(
    seen: &Observed,
    certificates: &'a Certificates,
    leaf: &Leaf,
    secret: &str,
    now: Timestamp,
) -> Result<&'a Known, Hindrance> {
    match certificates.sources.get(secret) {
        None => Err(missing(seen, certificates, leaf, secret)),
        Some(read) => {
            let known = read.as_ref().map_err(Clone::clone);
            let good = known.and_then(|known| flaw(seen, certificates, known, leaf, now).map_or(Ok(known), Err));
            good.map_err(|flaw| Hindrance {
                reason: Reason::CertificateRejected,
                message: format!("the certificate in the Secret {secret} is not used: {flaw}"),
            })
        }
    }
}

fn missing(seen: &Observed, certificates: &Certificates, leaf: &Leaf, secret: &str) -> Hindrance {
    let hindered = |reason, message| Hindrance { reason, message };
    let Provider::CertManager(issuer) = wanted::provider(&seen.cluster, leaf.plane) else {
        let message = format!("the Secret {secret} with your certificate does not exist. Create the Secret");
        return hindered(Reason::CertificatePending, message);
    };
    if !certificates.cert_manager {
        let message =
            "the API server does not serve Certificates of cert-manager.io/v1. Install cert-manager; Holdfast \
                       goes on by itself"
                .to_owned();
        return hindered(Reason::CertManagerMissing, message);
    }
    let unready = certificates.requests.get(secret).and_then(|request| request.unready.as_ref());
    let message = match unready {
        Some(said) => format!("cert-manager has not issued the Certificate {secret} yet, and says: {said}"),
        None => format!(
            "cert-manager has not issued the Certificate {secret} yet, by {} {}",
            issuer.kind.as_deref().unwrap_or("Issuer"),
            issuer.name
        ),
    };
    hindered(Reason::CertificatePending, message)
}

/// The first thing that is wrong with a certificate.
fn flaw(seen: &Observed, certificates: &Certificates, known: &Known, leaf: &Leaf, now: Timestamp) -> Option<String> {
    if now >= known.not_after {
        return Some(format!("it ended at {}", known.not_after));
    }
    if now < known.not_before {
        return Some(format!("it is valid from {} on", known.not_before));
    }
    if let Some(name) = leaf.names.iter().find(|name| !covers(known, name)) {
        let namespace = seen.cluster.metadata.namespace.as_deref().unwrap_or_default();
        let every = format!("*.{}.{namespace}.svc", name::peer_service(cluster_name(seen)));
        return Some(format!(
            "the DNS name {name} is missing among its subject alternative names. One certificate for all members needs {every}"
        ));
    }
    let (server, client) = match (leaf.files == files::CLIENT || leaf.files == files::ETCDCTL, leaf.plane) {
        (true, _) => (false, true),
        (false, Plane::Client) => (true, false),
        (false, Plane::Peer) => (true, true),
    };
    if server && !known.for_servers {
        return Some("its extended key usage lacks serverAuth".to_owned());
    }
    if client && !known.for_clients {
        return Some("its extended key usage lacks clientAuth".to_owned());
    }
    let trusted = trusted(seen, certificates, leaf);
    trusted.is_some_and(|ca| *ca != known.ca).then(|| {
        "another CA than that of the other certificates has signed it. All certificates of a plane come from one CA, and a \
         change of the CA is not supported yet"
            .to_owned()
    })
}

/// The CA that members trust; before there are any, that of the servers.
fn trusted<'a>(seen: &Observed, certificates: &'a Certificates, leaf: &Leaf) -> Option<&'a String> {
    let files = if leaf.plane == Plane::Peer { files::PEER } else { files::SERVER };
    let running = certificates.members.values().find_map(|kept| Some(&kept.leaf(files)?.ca));
    let servers = || {
        let plane = seen.cluster.spec.tls.as_ref()?.client.as_ref()?;
        let server = &plane.server_secret_ref.as_ref().filter(|_| leaf.plane == Plane::Client)?.name;
        Some(&certificates.sources.get(server)?.as_ref().ok()?.ca)
    };
    running.or_else(servers)
}

/// Whether a certificate is for this host.
pub(super) fn covers(known: &Known, host: &str) -> bool {
    let matches = |name: &String| {
        name.eq_ignore_ascii_case(host)
            || !is_address(host)
                && matches!((name.strip_prefix("*."), host.split_once('.')),
                    (Some(parent), Some((first, rest))) if !first.is_empty() && parent.eq_ignore_ascii_case(rest))
    };
    known.names.iter().any(matches)
}

/// The Secret that a leaf is copied from.
pub(super) fn secret_of(leaf: &Leaf) -> Option<&str> {
    match &leaf.origin {
        Origin::Issued => None,
        Origin::Copied(secret) => Some(secret),
    }
}
