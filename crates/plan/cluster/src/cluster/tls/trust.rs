//! CAs that the files of a cluster hold, and CAs that every member trusts.
//!
//! Decides from the sources and from the certificates in use which CAs belong into the files of a plane. A CA enters when a source
//! offers it, and leaves when no certificate of the cluster comes from it and applications had time to read their new certificates.
//! etcd loads its files of CAs when it starts, so a certificate of a CA is written only after a handshake has shown that each
//! member accepts the CA (I15). `rotation.rs` decides when Holdfast's own CA is exchanged, `roll.rs` which Pod ends.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::key;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::flaw::own_flaw;
use super::staged::{Placed, in_file, staged};
use super::wanted::{self, own_secret};
use super::{Member, Observed, ca, cluster_name, holders, is_auto, runs, written_at};
use holdfast_base::certificate::{Ca, CaPlace, Certificates, Kept, Known, Leaf, Plane, files};
use holdfast_base::{fingerprint, meta, pods};

/// A certificate of a user or of cert-manager, and the certificate that is copied from it.
pub(super) struct Source<'a> {
    pub(super) leaf: Leaf,
    pub(super) secret: &'a str,
    pub(super) known: &'a Known,
}

/// Returns the usable sources of the certificates of a plane that say which CA members trust.
pub(super) fn sources<'a>(seen: &'a Observed, certificates: &'a Certificates, plane: Plane) -> Vec<Source<'a>> {
    let own = own_secret(&seen.cluster, plane).is_some();
    // Before there is a member, a person's own certificate is judged for any.
    let none = (own && holders(seen).next().is_none()).then_some("member");
    let members = holders(seen).map(Member::name).chain(none);
    let members = members.flat_map(|name| wanted::of_member(&seen.cluster, name, None));
    let leaves = members.filter(|leaf| leaf.files == plane.shown());
    // The operator's certificate may come from the next CA first. A person's own says nothing about the members' CAs.
    let operators = (plane == Plane::Client && !own).then(|| wanted::of_operator(&seen.cluster));
    let source = |leaf: Leaf| {
        let (secret, known) = certificates.sources.get_key_value(leaf.copied_from()?)?;
        Some(Source { secret, known: known.as_ref().ok()?, leaf })
    };
    leaves.chain(operators).filter_map(source).collect()
}

/// Returns the CAs that the sources of a plane offer.
fn offered<'a>(seen: &'a Observed, certificates: &'a Certificates, plane: Plane, now: Timestamp) -> Vec<Placed<'a>> {
    if is_auto(&seen.cluster, plane) {
        let Some(kept) = ca::own(seen, certificates, plane) else { return vec![] };
        let signs = (!ca::lost(seen, certificates, plane)).then_some(files::CA);
        return signs.into_iter().chain([files::NEXT]).flat_map(|files| in_file(kept, files)).collect();
    }
    let fit = sources(seen, certificates, plane);
    let fit = fit.iter().filter(|source| own_flaw(seen, source.known, &source.leaf, now).is_none());
    let cas = |source: &Source<'a>| {
        let secret = source.secret;
        source.known.cas.iter().map(move |ca| Placed { ca, secret, file: files::CLIENT.ca })
    };
    let all: Vec<_> = fit.flat_map(cas).collect();
    // A CA that is renewed with the same key: its newest certificate stands for the others.
    let newest = |placed: &Placed<'_>| {
        let same = all.iter().filter(|other| other.ca.anchor == placed.ca.anchor);
        same.map(|other| other.ca).max() == Some(placed.ca)
    };
    all.iter().filter(|placed| newest(placed)).copied().collect()
}

/// Returns the CAs, by their anchors, that certificates in use come from.
pub(super) fn in_use<'a>(seen: &'a Observed, certificates: &'a Certificates, plane: Plane) -> BTreeSet<&'a str> {
    let of_members = holders(seen).filter_map(|m| certificates.members.get(m.name()));
    let client = plane == Plane::Client;
    let shown = of_members.flat_map(|kept| {
        [Some(plane.shown()), client.then_some(files::ETCDCTL)]
            .into_iter()
            .flatten()
            .filter_map(|files| kept.leaf(files))
    });
    let own = certificates.operator.iter().chain(&certificates.client).filter(|_| client);
    let leaves = shown.chain(own.filter_map(|kept| kept.leaf(files::CLIENT)));
    let users = certificates.users.iter().filter(|_| client).filter_map(|user| user.signed_by.as_deref());
    leaves.map(|known| known.anchor.as_str()).chain(users).collect()
}

/// Whether the CAs that a source offers may enter the files: members restart for them. A member in memory gets a successor instead, whose
/// certificates the earlier CA has to sign.
pub(super) fn goes_on(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> bool {
    let restarts = !seen.cluster.spec.storage.in_memory() && may_restart(seen, certificates, plane, now);
    let fresh = seen.latches().formed.is_none() || staged(seen, certificates, plane).is_empty();
    is_auto(&seen.cluster, plane) || fresh || restarts
}

/// Returns the CAs that belong into the files of a plane.
pub(super) fn wanted<'a>(
    seen: &'a Observed,
    certificates: &'a Certificates,
    plane: Plane,
    now: Timestamp,
) -> Vec<Placed<'a>> {
    let staged = staged(seen, certificates, plane);
    let has = |all: &[Placed<'_>], anchor: &str| all.iter().any(|placed| placed.ca.anchor == anchor);
    let mut offered = offered(seen, certificates, plane, now);
    let goes_on = goes_on(seen, certificates, plane, now);
    if !goes_on {
        offered.retain(|placed| staged.iter().any(|there| there.ca == placed.ca));
    }
    let used = in_use(seen, certificates, plane);
    // A member that shows its earlier certificate still needs its CA.
    let waits = !certificates.unserved.is_empty()
        || match plane {
            Plane::Client => retires_at(seen, certificates).is_some_and(|at| now < at),
            // Members restart once for both planes.
            Plane::Peer => {
                is_auto(&seen.cluster, Plane::Client) && wanted(seen, certificates, Plane::Client, now).len() > 1
            }
        };
    // A CA that has left one file leaves the others: each write of a file would begin the wait again.
    let files = staged.iter().map(|placed| (placed.secret, placed.file)).collect::<BTreeSet<_>>().len();
    let everywhere = |ca: &Ca| staged.iter().filter(|there| there.ca == ca).count() == files;
    let kept = staged.iter().filter(|placed| {
        let stays = offered.is_empty() || waits && everywhere(placed.ca);
        stays || used.contains(placed.ca.anchor.as_str())
    });
    let kept = kept.filter(|placed| !has(&offered, &placed.ca.anchor));
    let mut all: BTreeMap<&Ca, Placed<'a>> = BTreeMap::new();
    for placed in offered.iter().chain(kept) {
        all.entry(placed.ca).or_insert(*placed);
    }
    all.into_values().collect()
}

/// Whether a file holds a CA that no source offers any more.
pub(super) fn has_earlier(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> bool {
    let offered = offered(seen, certificates, plane, now);
    let staged = staged(seen, certificates, plane);
    let leaves = |there: &Placed<'_>| !offered.iter().any(|placed| placed.ca == there.ca);
    !offered.is_empty() && goes_on(seen, certificates, plane, now) && staged.iter().any(leaves)
}

/// Returns the places of the CAs that belong into the files of a plane.
pub(super) fn places(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> Vec<CaPlace> {
    wanted(seen, certificates, plane, now).iter().map(Placed::place).collect()
}

/// Returns the digest of the CAs in a member's files.
pub(super) fn digest(kept: &Kept) -> Option<String> {
    let mut all = vec![];
    for plane in Plane::ALL {
        let cas: BTreeSet<&str> = kept.leaf(plane.shown())?.cas.iter().map(|ca| ca.fingerprint.as_str()).collect();
        all.push(format!("{}:{}", plane.as_str(), cas.into_iter().collect::<Vec<_>>().join(",")));
    }
    Some(fingerprint::hash_parts(all))
}

/// Whether the files of a member hold one CA each, which the member trusts already.
pub(super) fn is_plain(kept: &Kept, trusted: impl Fn(Plane) -> Option<String>) -> bool {
    Plane::ALL.into_iter().all(|plane| {
        let cas = kept.leaf(plane.shown()).map(|known| known.cas.as_slice());
        matches!(cas, Some([alone]) if trusted(plane).is_none_or(|anchor| anchor == alone.anchor))
    })
}

/// Returns the first member that is not known to trust a CA; `None`: every member trusts the CA.
pub(super) fn distrusting<'a>(
    seen: &'a Observed,
    certificates: &Certificates,
    plane: Plane,
    anchor: &str,
) -> Option<&'a str> {
    let trusts = |m: &&Member| is_known_to_trust(m, certificates, plane, anchor);
    holders(seen).filter(|m| runs(m)).find(|m| !trusts(m)).map(Member::name)
}

/// Returns the first member that is not known to trust a CA that signs already: a member whose Pod does not serve, and was made with
/// the CA, blocks no certificate of the others.
pub(super) fn unaware<'a>(
    seen: &'a Observed,
    certificates: &Certificates,
    plane: Plane,
    anchor: &str,
) -> Option<&'a str> {
    let made_with = |m: &Member| {
        let is_down = |pod| !pods::ready(pod) && !pods::has_other_cas(pod, &m.object);
        holds(m, certificates, plane, anchor) && m.pod.as_ref().is_some_and(is_down)
    };
    let trusts = |m: &&Member| is_known_to_trust(m, certificates, plane, anchor) || made_with(m);
    holders(seen).filter(|m| runs(m)).find(|m| !trusts(m)).map(Member::name)
}

fn is_known_to_trust(m: &Member, certificates: &Certificates, plane: Plane, anchor: &str) -> bool {
    let shown = certificates.members.get(m.name()).and_then(|kept| kept.leaf(plane.shown()));
    let latched = m.object.spec.tls.as_ref().and_then(|tls| plane.trusted(&tls.trusts));
    let started_with = latched.or_else(|| shown.map(|known| &known.anchor));
    // A member of an earlier version of the operator, whose Secret is broken, names no CA.
    started_with.is_none_or(|known| known == anchor)
        || certificates.has_accepted(m.name(), plane, anchor)
        // A member without a Pod loads its files when it starts.
        || m.pod.is_none() && holds(m, certificates, plane, anchor)
}

/// Whether a member's file of CAs holds a CA.
fn holds(m: &Member, certificates: &Certificates, plane: Plane, anchor: &str) -> bool {
    let shown = certificates.members.get(m.name()).and_then(|kept| kept.leaf(plane.shown()));
    shown.is_some_and(|known| known.cas.iter().any(|ca| ca.anchor == anchor))
}

/// Returns the first file that lacks a CA of the clients' plane: of the operator, of applications or of an `EtcdUser`.
pub(super) fn unpublished(seen: &Observed, certificates: &Certificates, anchor: &str) -> Option<String> {
    let lacks =
        |kept: &&Kept| !kept.leaf(files::CLIENT).is_some_and(|known| known.cas.iter().any(|ca| ca.anchor == anchor));
    let mut kept = certificates.operator.iter().chain(&certificates.client);
    let secret = kept.find(lacks).map(|kept| format!("the Secret {}", kept.target.name));
    let user = || certificates.users.iter().find(|user| !user.trusts.iter().any(|known| known == anchor));
    // Holdfast does not write the ConfigMap of another owner.
    let own = |(there, _): &&(ObjectMeta, Vec<String>)| meta::controlled_by(there, meta::uid(&seen.cluster.metadata));
    let bundle = || {
        let known = certificates.operator.as_ref()?.leaf(files::CLIENT)?.cas.iter().find(|ca| ca.anchor == anchor)?;
        let (_, there) = certificates.bundle.as_ref().filter(|_| is_auto(&seen.cluster, Plane::Client)).filter(own)?;
        (!there.contains(&known.fingerprint)).then(|| format!("the ConfigMap {}-ca", cluster_name(seen)))
    };
    secret.or_else(bundle).or_else(|| user().map(|user| format!("the EtcdUser {}", user.name)))
}

/// Returns when applications have had the time to read the files that Holdfast wrote last for them.
pub(super) fn published_at(seen: &Observed, certificates: &Certificates) -> Option<Timestamp> {
    let kept = certificates.client.as_ref().or(certificates.operator.as_ref())?;
    Some(written_at(kept)? + grace(seen))
}

/// Returns when an unused CA leaves the files of the clients' plane: after the grace since a certificate of another CA was written last.
fn retires_at(seen: &Observed, certificates: &Certificates) -> Option<Timestamp> {
    let all = certificates.operator.iter().chain(&certificates.client).chain(certificates.members.values());
    Some(all.filter_map(|kept| kept.exchanged).max()? + grace(seen))
}

fn grace(seen: &Observed) -> SignedDuration {
    let seconds = seen.cluster.spec.client_tls().and_then(|client| client.rotation_grace_seconds);
    SignedDuration::from_secs(seconds.map_or(86_400, i64::from))
}

/// Returns the token with which a person asks for the exchange of a CA.
pub(super) fn request(seen: &Observed, plane: Plane) -> Option<&str> {
    let asked = meta::annotation(&seen.cluster.metadata, key::ROTATE_CA)?;
    // The last one of a plane counts.
    asked.rsplit(',').find_map(|one| {
        let (which, token) = one.trim().split_once('/')?;
        (which == plane.as_str() || which == "all").then_some(token).filter(|token| !token.is_empty())
    })
}

/// Whether members may restart for another CA. In a cluster of one or two members a restart stops every write, so a person asks for
/// it, or a certificate is about to end.
fn may_restart(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> bool {
    let ends = || {
        let kept = holders(seen).filter_map(|m| certificates.members.get(m.name()));
        kept.filter_map(|kept| kept.leaf(plane.shown())).any(|known| known.ends_soon(now))
    };
    seen.cluster.spec.replicas > 2 || request(seen, plane).is_some() || ends()
}
