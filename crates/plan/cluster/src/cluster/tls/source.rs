//! Certificates of a user or of cert-manager: whether Holdfast can use one.
//!
//! Decides which certificates are copied to members, and why a certificate is not. etcd reads its files at each handshake: a wrong
//! certificate cuts a member off at its next restart, so Holdfast checks each certificate before the copy (I15).

use holdfast_api::condition::Reason;
use holdfast_api::name;
use jiff::Timestamp;

use super::flaw::{covers, is_server, own_flaw};
use super::wanted::{self, Provider};
use super::{Observed, cluster_name, rotation, trusts};
use holdfast_base::certificate::{Certificates, Known, Leaf, Plane, files};
use holdfast_base::objects;

/// The message where cert-manager is not installed.
pub(super) const MISSING: &str = "the API server does not serve Certificates of cert-manager.io/v1, and no controller issues or renews \
                                   certificates. Install cert-manager; Holdfast goes on by itself";

/// Why a certificate is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hindrance {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Returns the certificate that a leaf is copied from, or why there is no usable certificate.
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
            let known = good.map_err(|flaw| Hindrance {
                reason: Reason::CertificateRejected,
                message: format!("the certificate in the Secret {secret} is not used: {flaw}"),
            })?;
            untrusted(seen, certificates, known, leaf, now).map_or(Ok(known), |words| {
                let message = format!(
                    "the certificate in the Secret {secret} comes from another CA and is not used yet: {words}"
                );
                Err(Hindrance { reason: Reason::CaRotating, message })
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
        return hindered(Reason::CertManagerMissing, MISSING.to_owned());
    }
    let unready = certificates.requests.get(secret).and_then(|request| request.unready.as_ref());
    let message = match unready {
        Some(message) => format!("cert-manager has not issued the Certificate {secret} yet, and says: {message}"),
        None => format!(
            "cert-manager has not issued the Certificate {secret} yet, by {} {}",
            issuer.kind.as_deref().unwrap_or("Issuer"),
            issuer.name
        ),
    };
    hindered(Reason::CertificatePending, message)
}

/// Returns why members or clients of a running cluster do not trust the CA of a certificate yet.
fn untrusted(
    seen: &Observed,
    certificates: &Certificates,
    known: &Known,
    leaf: &Leaf,
    now: Timestamp,
) -> Option<String> {
    trusts(seen, certificates, leaf.plane).next()?;
    let obstacle = rotation::obstacle(seen, certificates, leaf.plane, &known.anchor, now)?;
    Some(obstacle.words)
}

/// Returns the first flaw of a certificate.
fn flaw(seen: &Observed, certificates: &Certificates, known: &Known, leaf: &Leaf, now: Timestamp) -> Option<String> {
    if let Some(flaw) = own_flaw(seen, known, leaf, now) {
        return Some(flaw);
    }
    if !is_server(leaf) && speaks_as_a_peer(seen, certificates, known) {
        return Some(
            "the CA of the peers has signed it, and it holds the name by which members know each other: a client could speak as \
             a member. Issue it without the names of members"
                .to_owned(),
        );
    }
    let server = wanted::own_secret(&seen.cluster, Plane::Client).filter(|_| leaf.plane == Plane::Client);
    let servers = server.and_then(|secret| certificates.sources.get(&secret.name)?.as_ref().ok());
    let formed = seen.latches().formed.is_some();
    if servers.is_some_and(|servers| formed && !servers.cas.iter().any(|ca| ca.anchor == known.anchor)) {
        let name = server.map(|secret| secret.name.as_str()).unwrap_or_default();
        return Some(format!(
            "another CA has signed it than those in ca.crt of the Secret {name}, and members accept the clients of these CAs. Add its CA there"
        ));
    }
    let runs = trusts(seen, certificates, leaf.plane).next().is_some();
    let trusted = trusted(seen, certificates, leaf).filter(|_| !runs)?;
    if *trusted == known.anchor {
        return None;
    }
    let remedy = match wanted::provider(&seen.cluster, leaf.plane) {
        Provider::CertManager(_) => {
            let operators = name::operator_request(cluster_name(seen));
            format!(". Delete the older of this Secret and {operators}: cert-manager issues its certificate anew")
        }
        Provider::Own | Provider::Auto => String::new(),
    };
    Some(format!(
        "another CA than that of the other certificates has signed it. All certificates of a plane come from one CA{remedy}"
    ))
}

/// Whether members would accept the client as a peer.
fn speaks_as_a_peer(seen: &Observed, certificates: &Certificates, known: &Known) -> bool {
    let own = own_anchor(seen, certificates, Plane::Peer);
    let peers = trusts(seen, certificates, Plane::Peer).next().or(own);
    covers(known, &objects::member::peer_marker(&seen.cluster)) && peers == Some(&known.anchor)
}

/// Returns the CA that members trust; before there are members, the CA of the servers, or of the operator where cert-manager
/// issues.
fn trusted<'a>(seen: &'a Observed, certificates: &'a Certificates, leaf: &Leaf) -> Option<&'a String> {
    let running = trusts(seen, certificates, leaf.plane).next();
    let client = leaf.plane == Plane::Client;
    let servers = || own_anchor(seen, certificates, Plane::Client).filter(|_| client);
    // The operator connects with the certificate that it has read from its Secret, which may be older than the Secret's source.
    // In a formed cluster both come from the CA that members trust.
    let counts = client && (leaf.files != files::CLIENT || seen.latches().formed.is_some());
    let operators = || Some(&certificates.operator.as_ref().filter(|_| counts)?.leaf(files::CLIENT)?.anchor);
    running.or_else(servers).or_else(operators)
}

/// Returns the CA of a user's own certificates on a plane.
fn own_anchor<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a String> {
    let secret = &wanted::own_secret(&seen.cluster, plane)?.name;
    Some(&certificates.sources.get(secret)?.as_ref().ok()?.anchor)
}
