//! Flaws of a certificate of a user or of cert-manager, whatever its CA.
//!
//! Decides from dates, names and usages. `source.rs` decides whether the CA is trusted.

use holdfast_api::name;
use holdfast_api::tls::is_address;
use jiff::Timestamp;

use super::{Observed, cluster_name, wanted};
use holdfast_base::certificate::{Known, Leaf, Plane, files};

/// Whether a member shows the certificate.
pub(super) fn is_server(leaf: &Leaf) -> bool {
    leaf.files != files::CLIENT && leaf.files != files::ETCDCTL
}

/// Returns the first flaw of a certificate in itself, whatever its CA.
pub(super) fn own_flaw(seen: &Observed, known: &Known, leaf: &Leaf, now: Timestamp) -> Option<String> {
    if now >= known.not_after {
        return Some(format!("it ended at {}", known.not_after));
    }
    if now < known.not_before {
        return Some(format!("it is valid from {} on", known.not_before));
    }
    if let Some(name) = wanted::needed(leaf).iter().find(|name| !covers(known, name)) {
        let namespace = seen.cluster.metadata.namespace.as_deref().unwrap_or_default();
        let every = format!("*.{}.{namespace}.svc", name::peer_service(cluster_name(seen)));
        return Some(format!(
            "the DNS name {name} is missing among its subject alternative names. One certificate for all members needs {every}"
        ));
    }
    let server = is_server(leaf);
    if server && !known.for_servers {
        return Some("its extended key usage lacks serverAuth. Issue it with serverAuth and clientAuth".to_owned());
    }
    // A formed cluster with such certificates continues: only etcd's gateway needs the usage.
    let gateway_alone = server && leaf.plane == Plane::Client && seen.latches().formed.is_some();
    if !known.for_clients && !gateway_alone {
        let why = match (server, leaf.plane) {
            (true, Plane::Client) => {
                ", and etcd's gateway (/v3) shows it to its own member. Issue it with serverAuth and clientAuth"
            }
            (true, Plane::Peer) => {
                ", and members show it when they dial each other. Issue it with serverAuth and clientAuth"
            }
            (false, _) => ". Issue it with clientAuth",
        };
        return Some(format!("its extended key usage lacks clientAuth{why}"));
    }
    None
}

/// Whether a certificate is valid for this host.
pub(super) fn covers(known: &Known, host: &str) -> bool {
    let matches = |name: &String| {
        name.eq_ignore_ascii_case(host)
            || !is_address(host)
                && matches!((name.strip_prefix("*."), host.split_once('.')),
                    (Some(parent), Some((first, rest))) if !first.is_empty() && parent.eq_ignore_ascii_case(rest))
    };
    known.names.iter().any(matches)
}
