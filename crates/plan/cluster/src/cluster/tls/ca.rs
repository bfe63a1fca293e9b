//! The CAs of a cluster: which CA signs, and when a CA counts as lost.
//!
//! Decides that Holdfast creates a CA once. Holdfast reports a lost CA and never replaces it, since members and clients trust the
//! old CA (I15).

use holdfast_api::name;

use super::{Observed, cluster_name, is_foreign, secret, trusts, wanted};
use holdfast_base::certificate::{Certificates, Kept, Known, Plane, files};

/// Returns the CA that signs on a plane.
pub(super) fn ca<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a Known> {
    certificates.cas.get(&plane).filter(|_| !lost(seen, certificates, plane))?.leaf(files::CA)
}

/// Whether a CA is gone or exchanged while its certificates are in use: members and clients would trust no other CA.
pub(super) fn lost(seen: &Observed, certificates: &Certificates, plane: Plane) -> bool {
    if !wanted::is_auto(&seen.cluster, plane) {
        return false;
    }
    let mut trusted = trusts(seen, certificates, plane).peekable();
    let used = trusted.peek().is_some();
    let unusable = |ca: &Kept| ca.leaf(files::CA).is_none() || is_foreign(ca, &secret(seen, String::new()));
    let mut exchanged =
        |ca: &Kept| used && trusted.all(|known| ca.leaf(files::CA).is_none_or(|ca| ca.anchor != *known));
    certificates.cas.get(&plane).is_some_and(|ca| unusable(ca) || exchanged(ca))
        || (!certificates.cas.contains_key(&plane) && (seen.latches().formed.is_some() || used))
}

pub(super) fn ca_lost(seen: &Observed, plane: Plane) -> String {
    format!(
        "the Secret {} is gone, unusable or exchanged. Members and clients go on with the certificates they have, and no certificate can \
         be issued or renewed. Put the Secret back from a backup",
        ca_name(seen, plane)
    )
}

/// Returns the name of the CA's Secret.
pub(super) fn ca_name(seen: &Observed, plane: Plane) -> String {
    match plane {
        Plane::Client => name::client_ca(cluster_name(seen)),
        Plane::Peer => name::peer_ca(cluster_name(seen)),
    }
}
