//! The CAs of a cluster: which one signs, and when one counts as lost.
//!
//! A CA is made once. A lost one is reported and never replaced, since members and clients trust the old one (I15).

use super::{Observed, cluster_name, is_foreign, secret, trusts, wanted};
use crate::api::name;
use crate::plan::certificate::{Certificates, Kept, Known, Plane, files};

/// A CA that signs.
pub(super) fn ca<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a Known> {
    certificates.cas.get(&plane).filter(|_| !lost(seen, certificates, plane))?.leaf(files::CA)
}

/// A CA that is gone or exchanged although certificates of it are in use: those who trust it would trust no other.
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

/// Name of the Secret with a CA.
pub(super) fn ca_name(seen: &Observed, plane: Plane) -> String {
    match plane {
        Plane::Client => name::client_ca(cluster_name(seen)),
        Plane::Peer => name::peer_ca(cluster_name(seen)),
    }
}
