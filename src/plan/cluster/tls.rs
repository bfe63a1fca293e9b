//! The certificates of a cluster: which Secret is written next.
//!
//! Decides what is issued, when it is renewed, and whose turn it is. Sees fingerprints, names and dates, never a key. A CA is
//! made once: a lost one is reported and never replaced, since members and clients trust the old one (I15).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pace::{COLLECTED, POLL};
use super::{Member, Observed};
use crate::api::condition::Reason;
use crate::api::name::{self, Scheme};
use crate::api::tls::{ClientPlane, PlaneStatus, TlsStatus};
use crate::plan::certificate::{Certificates, Contents, Files, Issue, Kept, Known, Leaf, Plane, files};
use crate::plan::{Act, Ensure, Next, Target, Wake, build, meta};

/// How long after a renewal a member may take to show its new certificate: kubelet refreshes the files, etcd reads them at
/// each handshake.
const SERVED_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// So long before its end a certificate is told of that was not renewed: ten days after it should have been.
const TOLD_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 20);

/// The user that etcd takes the operator for.
const ROOT: &str = "root";

/// The next step about certificates; `None` in plaintext and where nothing is to be done.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let certificates = seen.certificates.as_ref()?;
    let forming = seen.latches().formed.is_none();
    // A cluster that has formed goes on with its other Secrets; `trouble` tells.
    if let Some(wait) = conflict(seen, certificates, now).filter(|_| forming) {
        return Some(wait);
    }
    for plane in [Plane::Client, Plane::Peer] {
        if !certificates.cas.contains_key(&plane) && !lost(seen, certificates, plane) {
            let metadata = secret(seen, ca_name(seen, plane));
            return Some(issue(metadata, Contents::Ca(plane), None));
        }
    }
    let kept = |wanted: &Wanted<'_>| match wanted.of {
        Of::Operator => certificates.operator.as_ref(),
        Of::Applications => certificates.client.as_ref(),
        Of::Member(member) => certificates.members.get(member.name()),
    };
    let ours = |wanted: &Wanted<'_>| kept(wanted).is_none_or(|kept| !is_foreign(kept, &wanted.metadata));
    // With a lost CA everything goes on with the certificates that there are.
    let able: Vec<_> = wanted(seen)
        .into_iter()
        .filter(ours)
        .filter_map(|wanted| Some((signers(seen, certificates, &wanted.leaves)?, wanted)))
        .collect();
    // What is missing first: it holds others up. Then renewals, one member after the other, unless there is no time left.
    let missing = able.iter().find(|(_, w)| kept(w).is_none_or(|kept| !fits(seen, kept, w, certificates)));
    let due = || {
        let turn = |w: &Wanted<'_>, kept: &Kept| {
            let alone = certificates.unserved.is_empty() || !matches!(w.of, Of::Member(_));
            if alone { is_due(kept, now) } else { is_urgent(kept, now) }
        };
        able.iter().find(|(_, w)| kept(w).is_some_and(|kept| turn(w, kept)))
    };
    if let Some((cas, wanted)) = missing.or_else(due) {
        let contents = Contents::Leaves { leaves: wanted.leaves.clone(), cas: cas.clone() };
        return Some(issue(wanted.metadata.clone(), contents, kept(wanted).map(|kept| kept.target.clone())));
    }
    announce(seen, certificates)
}

/// Tells each member of the digest of its newest certificates; its own pass tells its Pod.
fn announce(seen: &Observed, certificates: &Certificates) -> Option<Next> {
    let stale = |m: &&Member| {
        let staged = m.object.spec.tls.as_ref().and_then(|tls| tls.staged.as_ref());
        let ours = |kept: &&Kept| kept.typed && kept.owner.as_deref() == Some(meta::uid(&m.object.metadata));
        certificates.members.get(m.name()).filter(ours).is_some_and(|kept| staged != Some(&kept.digest))
    };
    let member = holders(seen).find(stale)?;
    let digest = certificates.members.get(member.name())?.digest.clone();
    Some(Next::act(Act::AnnounceCertificates { member: Target::of(&member.object.metadata), digest }))
}

/// The `ConfigMap` with the CA for clients, where it has to be applied. Its contents are filled in from the CA's Secret.
pub(super) fn bundle(seen: &Observed) -> Option<Ensure> {
    let certificates = seen.certificates.as_ref()?;
    let ca = ca(seen, certificates, Plane::Client)?.fingerprint.clone();
    let own = build::owned_by_cluster(name::ca_bundle(cluster_name(seen)), &seen.cluster);
    let stands = certificates.bundle.as_ref().is_some_and(|(there, holds)| {
        !meta::controlled_by(there, meta::uid(&seen.cluster.metadata)) || holds.as_ref() == Some(&ca)
    });
    (!stands).then(|| Ensure::CaBundle { metadata: Box::new(own), secret: ca_name(seen, Plane::Client), ca })
}

/// What a person has to know: a lost CA, and a member that goes on showing an old certificate.
pub(super) fn trouble(seen: &Observed, now: Timestamp) -> Option<(Reason, String)> {
    let certificates = seen.certificates.as_ref()?;
    if let Some(Next::Wait(conflict, _)) = conflict(seen, certificates, now) {
        return Some((conflict.reason, conflict.message));
    }
    if let Some(plane) = [Plane::Client, Plane::Peer].into_iter().find(|plane| lost(seen, certificates, *plane)) {
        return Some((Reason::CaLost, ca_lost(seen, plane)));
    }
    if let Some((secret, known)) = ending(certificates, now) {
        let message = format!(
            "a certificate in the Secret {secret} ends at {}, and was not renewed. Holdfast renews certificates 30 days before \
             their end: look at the other conditions and at the operator's log",
            known.not_after
        );
        return Some((Reason::CertificateExpiring, message));
    }
    let late = |member: &&String| {
        let issued = certificates.members.get(*member).and_then(|kept| kept.leaf(files::PEER)).map(issued_at);
        issued.is_some_and(|at| now >= at + SERVED_WITHIN)
    };
    let member = certificates.unserved.iter().find(late)?;
    let message = format!(
        "{member} does not show its new certificate {} s after the renewal. Holdfast renews no other member's certificates \
         meanwhile. Delete the Pod {member} so that kubelet mounts the files anew",
        SERVED_WITHIN.as_secs()
    );
    Some((Reason::CertificateNotServed, message))
}

/// What is reported.
pub(super) fn status(seen: &Observed) -> Option<TlsStatus> {
    let certificates = seen.certificates.as_ref()?;
    let plane = |plane: Plane| {
        let ca = certificates.cas.get(&plane)?.leaf(files::CA)?.not_after;
        let all =
            [&certificates.operator, &certificates.client].into_iter().flatten().chain(certificates.members.values());
        let leaves = all.flat_map(|kept| kept.leaves.iter()).filter(|(file, _)| plane_of(file) == plane);
        let earliest = leaves.filter_map(|(_, leaf)| Some(leaf.as_ref().ok()?.not_after)).min()?;
        Some((earliest, ca))
    };
    let ((client, client_ca), (peer, peer_ca)) = (plane(Plane::Client)?, plane(Plane::Peer)?);
    let told = |leaf: Timestamp, ca: Timestamp| PlaneStatus {
        provider: "Auto".to_owned(),
        mutual: true,
        not_after: leaf.to_string(),
        ca_not_after: ca.to_string(),
    };
    Some(TlsStatus {
        earliest_expiry: client.min(client_ca).min(peer).min(peer_ca).to_string(),
        client: told(client, client_ca),
        peer: told(peer, peer_ca),
    })
}

fn plane_of(certificate: &str) -> Plane {
    if certificate == files::PEER.certificate { Plane::Peer } else { Plane::Client }
}

/// A Secret that has to be there.
struct Wanted<'a> {
    of: Of<'a>,
    metadata: ObjectMeta,
    leaves: Vec<Leaf>,
}

enum Of<'a> {
    Operator,
    Applications,
    Member(&'a Member),
}

fn wanted(seen: &Observed) -> Vec<Wanted<'_>> {
    let cluster = cluster_name(seen);
    let client = |of, name, common_name: Option<&str>| Wanted {
        of,
        metadata: secret(seen, name),
        leaves: vec![leaf(files::CLIENT, Plane::Client, common_name, vec![])],
    };
    let mut all = vec![
        client(Of::Operator, name::operator_tls(cluster), Some(ROOT)),
        client(Of::Applications, name::client_tls(cluster), None),
    ];
    all.extend(holders(seen).map(|member| Wanted {
        of: Of::Member(member),
        metadata: owned_by(seen, member),
        leaves: of_member(seen, member.name()),
    }));
    all
}

/// Members whose Pods need certificates.
fn holders(seen: &Observed) -> impl Iterator<Item = &Member> {
    let stays = |m: &&Member| m.object.spec.removed.is_none() && (!m.deleting() || m.joined());
    seen.members.iter().filter(|m| m.object.spec.scheme() == Scheme::Https).filter(stays)
}

pub(super) fn of_member(seen: &Observed, member: &str) -> Vec<Leaf> {
    let (cluster, namespace) = (cluster_name(seen), seen.cluster.metadata.namespace.as_deref().unwrap_or_default());
    let host = name::host(member, cluster, namespace);
    let service = name::client_service(cluster);
    let mut server = vec![
        host.clone(),
        service.clone(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let more = seen.cluster.spec.tls.as_ref().and_then(|tls| tls.client.as_ref());
    server.extend(more.into_iter().flat_map(ClientPlane::spelt_names));
    let peer = vec![host, name::peer_marker(cluster, namespace)];
    vec![
        leaf(files::PEER, Plane::Peer, None, peer),
        leaf(files::SERVER, Plane::Client, None, server),
        leaf(files::ETCDCTL, Plane::Client, Some(ROOT), vec![]),
    ]
}

fn leaf(files: Files, plane: Plane, common_name: Option<&str>, names: Vec<String>) -> Leaf {
    Leaf { files, plane, common_name: common_name.map(str::to_owned), names }
}

/// Whether a Secret holds what is wanted, signed by the CAs that there are; a CA that is lost counts as the one that signed.
fn fits(seen: &Observed, kept: &Kept, wanted: &Wanted<'_>, certificates: &Certificates) -> bool {
    wanted.leaves.iter().all(|leaf| {
        let ca = ca(seen, certificates, leaf.plane);
        kept.leaf(leaf.files).is_some_and(|known| {
            let same_names =
                known.names.len() == leaf.names.len() && leaf.names.iter().all(|n| known.names.contains(n));
            same_names && known.common_name == leaf.common_name && ca.is_none_or(|ca| ca.fingerprint == known.ca)
        })
    })
}

/// What is left of a certificate's life when a renewal waits for no other any more: a sixth.
fn is_urgent(kept: &Kept, now: Timestamp) -> bool {
    let left = |known: &Known| known.not_after.duration_since(now);
    let urgent = |known: &Known| left(known) * 6 < known.not_after.duration_since(known.not_before);
    kept.leaves.values().filter_map(|leaf| leaf.as_ref().ok()).any(urgent)
}

/// A certificate that should have been renewed days ago, and the name of its Secret.
fn ending(certificates: &Certificates, now: Timestamp) -> Option<(&str, &Known)> {
    let all = certificates.operator.iter().chain(&certificates.client).chain(certificates.members.values());
    all.flat_map(|kept| kept.leaves.values().map(move |leaf| (kept.target.name.as_str(), leaf)))
        .filter_map(|(secret, leaf)| Some((secret, leaf.as_ref().ok()?)))
        .find(|(_, known)| now >= known.not_after - TOLD_BEFORE)
}

/// At two thirds of its life a certificate is renewed, members of one age not all at once.
fn is_due(kept: &Kept, now: Timestamp) -> bool {
    let spread = kept.target.uid.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 100;
    kept.leaves.values().filter_map(|leaf| leaf.as_ref().ok()).any(|known| {
        let life = known.not_after.duration_since(known.not_before);
        let jitter = life / 2_000 * i32::try_from(spread).unwrap_or(0);
        now >= known.not_before + life / 3 * 2 - jitter
    })
}

/// When a certificate was issued: Holdfast dates it back by an hour, for clocks that are behind.
pub fn issued_at(known: &Known) -> Timestamp {
    known.not_before + SignedDuration::from_hours(1)
}

/// A CA that signs.
fn ca<'a>(seen: &Observed, certificates: &'a Certificates, plane: Plane) -> Option<&'a Known> {
    certificates.cas.get(&plane).filter(|_| !lost(seen, certificates, plane))?.leaf(files::CA)
}

/// A CA that is gone or exchanged although certificates of it are in use: those who trust it would trust no other.
fn lost(seen: &Observed, certificates: &Certificates, plane: Plane) -> bool {
    let used = || {
        let all = certificates.members.values().chain(&certificates.operator).chain(&certificates.client);
        all.flat_map(|kept| kept.leaves.keys()).any(|file| plane_of(file) == plane)
    };
    let unusable = |ca: &Kept| ca.leaf(files::CA).is_none() || is_foreign(ca, &secret(seen, String::new()));
    let exchanged = |ca: &Kept| {
        let files = if plane == Plane::Peer { files::PEER } else { files::SERVER };
        let mut signers = certificates.members.values().filter_map(|kept| Some(&kept.leaf(files)?.ca)).peekable();
        let own = ca.leaf(files::CA).map(|ca| &ca.fingerprint);
        signers.peek().is_some() && signers.all(|signer| Some(signer) != own)
    };
    certificates.cas.get(&plane).is_some_and(|ca| unusable(ca) || exchanged(ca))
        || (!certificates.cas.contains_key(&plane) && (seen.latches().formed.is_some() || used()))
}

fn ca_lost(seen: &Observed, plane: Plane) -> String {
    format!(
        "the Secret {} is gone, unusable or exchanged. Members and clients go on with the certificates they have, and no certificate can \
         be issued or renewed. Put the Secret back from a backup",
        ca_name(seen, plane)
    )
}

/// The CAs that sign these, if all are there.
fn signers(seen: &Observed, certificates: &Certificates, leaves: &[Leaf]) -> Option<BTreeMap<Plane, (String, String)>> {
    let signer = |plane: Plane| {
        let ca = ca(seen, certificates, plane)?;
        Some((plane, (ca_name(seen, plane), ca.fingerprint.clone())))
    };
    leaves.iter().map(|leaf| signer(leaf.plane)).collect()
}

/// Something of somebody else's where a Secret of ours belongs. What an earlier cluster of the name has left goes with it.
fn conflict(seen: &Observed, certificates: &Certificates, now: Timestamp) -> Option<Next> {
    let of_cluster = certificates.cas.values().chain(&certificates.operator).chain(&certificates.client);
    let own = secret(seen, String::new());
    let of_members = holders(seen).filter_map(|m| {
        let kept = certificates.members.get(m.name())?;
        is_foreign(kept, &owned_by(seen, m)).then_some(kept)
    });
    let kept = of_cluster.filter(|kept| is_foreign(kept, &own)).chain(of_members).next()?;
    let name = &kept.target.name;
    let made = seen.cluster.metadata.creation_timestamp.as_ref();
    if let Some(later) = made.and_then(|made| Wake::at(made.0 + COLLECTED, now)).filter(|_| kept.typed) {
        let message = format!("Kubernetes deletes the Secret {name} of the earlier cluster of this name");
        return Some(Next::wait(Reason::WaitingForReference, message, later));
    }
    let message = format!(
        "the Secret {name} does not belong to this cluster. Holdfast does not change the Secret, and issues and renews none in \
         its place. Delete the Secret, or use another name for the cluster"
    );
    Some(Next::wait(Reason::NameConflict, message, POLL))
}

fn is_foreign(kept: &Kept, own: &ObjectMeta) -> bool {
    !kept.typed || !kept.owner.as_deref().is_some_and(|owner| meta::controlled_by(own, owner))
}

fn owned_by(seen: &Observed, member: &Member) -> ObjectMeta {
    let owner = Some(vec![build::owner(&member.object)]);
    ObjectMeta { owner_references: owner, ..secret(seen, name::member_tls(member.name())) }
}

fn issue(metadata: ObjectMeta, contents: Contents, replaces: Option<Target>) -> Next {
    Next::act(Act::Issue(Box::new(Issue { metadata, contents, replaces })))
}

fn secret(seen: &Observed, name: String) -> ObjectMeta {
    build::owned_by_cluster(name, &seen.cluster)
}

fn ca_name(seen: &Observed, plane: Plane) -> String {
    match plane {
        Plane::Client => name::client_ca(cluster_name(seen)),
        Plane::Peer => name::peer_ca(cluster_name(seen)),
    }
}

fn cluster_name(seen: &Observed) -> &str {
    meta::name(&seen.cluster.metadata)
}
