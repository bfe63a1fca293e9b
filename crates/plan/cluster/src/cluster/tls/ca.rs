//! Holdfast's CAs of a cluster: which CA signs, and when a CA counts as lost.
//!
//! Decides that Holdfast creates a CA once. Holdfast reports a lost CA and never replaces it silently, since members and clients
//! trust the old CA (I15). `rotation.rs` exchanges a CA.

use holdfast_api::transport::Transport;
use holdfast_api::{key, name};

use super::staged::staged_anchors;
use super::{Observed, cluster_name, holders, is_foreign, runs, secret, trusts, wanted};
use holdfast_base::certificate::{Certificates, Kept, Known, Plane, files};

/// Returns the CA that signs on a plane.
pub(super) fn ca<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a Known> {
    certificates.cas.get(&plane).filter(|_| !lost(seen, certificates, plane))?.leaf(files::CA)
}

/// Returns the Secret of a CA, if the cluster owns it.
pub(super) fn own<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a Kept> {
    certificates.cas.get(&plane).filter(|kept| !is_foreign(kept, &secret(seen, String::new())))
}

/// Whether a cluster in plaintext gets its CAs: no member serves with TLS before every member has certificates.
pub(super) fn begins(seen: &Observed) -> bool {
    let stands = seen.latches().transport == Some(Transport::Plaintext);
    stands && seen.cluster.spec.transport().has_certificates()
}

/// Whether a CA is gone or exchanged while its certificates are in use: members and clients would trust no other CA.
pub(super) fn lost(seen: &Observed, certificates: &Certificates, plane: Plane) -> bool {
    // Without TLS in the spec the source of the present certificates is not known any more, and none is issued.
    if !wanted::is_auto(&seen.cluster, plane) || !seen.cluster.spec.transport().has_certificates() {
        return false;
    }
    let used = trusts(seen, certificates, plane).next().is_some();
    let unusable = |ca: &Kept| ca.leaf(files::CA).is_none() || is_foreign(ca, &secret(seen, String::new()));
    let known = |anchor: &String| {
        trusts(seen, certificates, plane).any(|known| known == anchor)
            || staged_anchors(seen, certificates, plane).any(|known| known == anchor)
    };
    let exchanged = |ca: &Kept| used && !ca.leaf(files::CA).is_some_and(|ca| known(&ca.anchor));
    certificates.cas.get(&plane).is_some_and(|ca| unusable(ca) || exchanged(ca))
        || (!certificates.cas.contains_key(&plane)
            && (used || seen.latches().formed.is_some() && holders(seen).any(runs)))
}

pub(super) fn ca_lost(seen: &Observed, plane: Plane) -> String {
    format!(
        "the Secret {} is gone, unusable or exchanged. Members and clients go on with the certificates they have, and no certificate can \
         be issued or renewed. Put the Secret back from a backup, or let Holdfast exchange the CA: kubectl annotate etcdc {} \
         --overwrite {}={}/$(date +%s)",
        ca_name(seen, plane),
        cluster_name(seen),
        key::ROTATE_CA,
        plane.as_str()
    )
}

/// Returns the name of the CA's Secret.
pub(super) fn ca_name(seen: &Observed, plane: Plane) -> String {
    match plane {
        Plane::Client => name::client_ca(cluster_name(seen)),
        Plane::Peer => name::peer_ca(cluster_name(seen)),
    }
}
