//! The exchange of a CA: when Holdfast's own CA gets a successor, when the successor signs, and the words about each step.
//!
//! Decides on two writes to the CA's Secret: the next CA beside the present one, and the next CA in its place. `trust.rs` takes both
//! CAs into the files, `roll.rs` restarts the members with them, `mod` issues certificates of the CA that signs. All state stands in
//! Secrets, Pods and handshakes, so a crash anywhere goes on. For certificates of a user or of cert-manager the source decides.

use holdfast_api::condition::Reason;
use holdfast_api::key;
use holdfast_api::tls::Rotation;
use jiff::{SignedDuration, Timestamp};

use super::ca::{self, ca_name};
use super::staged::staged_anchors;
use super::trust::{self, distrusting, published_at, request, unpublished};
use super::wanted::{Provider, provider};
use super::{Member, Observed, cluster_name, holders, is_auto, issue, lost, secret};
use holdfast_base::certificate::{Certificates, Contents, Kept, Known, Plane, files};
use holdfast_base::{Next, pods};

/// Time for the members' new certificates before the present ones end.
const MARGIN: SignedDuration = SignedDuration::from_mins(30);

/// Returns the next write to the Secret of a CA of a cluster that has formed.
pub(super) fn next(seen: &Observed, certificates: &Certificates, now: Timestamp) -> Option<Next> {
    // A cluster without TLS in its spec keeps the CAs that it has until its members are in plaintext.
    seen.latches().formed.filter(|_| seen.cluster.spec.transport().has_certificates())?;
    Plane::ALL.into_iter().filter(|plane| is_auto(&seen.cluster, *plane)).find_map(|plane| {
        let there = certificates.cas.get(&plane);
        let own = ca::own(seen, certificates, plane);
        if there.is_some() && own.is_none() {
            return None;
        }
        let write = |contents| issue(secret(seen, ca_name(seen, plane)), contents, own.map(|kept| kept.target.clone()));
        match own.and_then(|kept| kept.leaf(files::NEXT)) {
            None if begins(seen, certificates, own, plane, now) => {
                let request = request(seen, plane).map(str::to_owned);
                Some(write(Contents::NextCa { plane, request }))
            }
            Some(next) if obstacle(seen, certificates, plane, &next.anchor, now).is_none() => {
                Some(write(Contents::PromoteCa { plane, next: next.fingerprint.clone() }))
            }
            None | Some(_) => None,
        }
    })
}

/// Whether Holdfast makes a CA that follows: a person asks, two thirds of the CA's life are over, or the CA is lost and a certificate is
/// due.
fn begins(seen: &Observed, certificates: &Certificates, own: Option<&Kept>, plane: Plane, now: Timestamp) -> bool {
    // A member in memory gets a successor instead of a restart, and no CA signs for the successor.
    if seen.cluster.spec.storage.in_memory() && lost(seen, certificates, plane) {
        return false;
    }
    let asked = request(seen, plane);
    // A lost Secret takes the answered token along, and an earlier request is none to exchange the lost CA.
    let recorded = || {
        let status = seen.cluster.status.as_ref()?.tls.as_ref()?;
        let plane = if plane == Plane::Client { &status.client } else { &status.peer };
        plane.rotated_for.as_deref()
    };
    let answered = own.map_or_else(recorded, |kept| kept.rotated_for.as_deref());
    if asked.is_some() && asked != answered {
        return true;
    }
    if lost(seen, certificates, plane) {
        let kept = holders(seen).filter_map(|m| certificates.members.get(m.name()));
        let mut shown = kept.filter_map(|kept| kept.leaf(plane.shown()));
        return shown.any(|known| now >= known.renewed_at());
    }
    let old = |known: &Known| {
        let many = seen.cluster.spec.replicas > 2;
        if many { now >= known.renewed_at() } else { known.ends_soon(now) }
    };
    ca::ca(seen, certificates, plane).is_some_and(old)
}

/// Why certificates do not come from a CA yet.
pub(super) struct Obstacle {
    step: Rotation,
    pub(super) words: String,
}

/// Returns why certificates of a running cluster do not come from a CA yet: a member or a client does not trust it.
pub(super) fn obstacle(
    seen: &Observed,
    certificates: &Certificates,
    plane: Plane,
    anchor: &str,
    now: Timestamp,
) -> Option<Obstacle> {
    let trusting = |words| Some(Obstacle { step: Rotation::Trusting, words });
    if let Some(member) = distrusting(seen, certificates, plane, anchor) {
        let all = holders(seen).count();
        let ready = holders(seen).filter(|m| certificates.has_accepted(m.name(), plane, anchor)).count();
        return trusting(format!("{ready} of {all} members trust the next CA, and {member} does not yet"));
    }
    // Clients trust the CA of a certificate that members show already.
    if plane == Plane::Peer || trust::in_use(seen, certificates, plane).contains(anchor) {
        return None;
    }
    if let Some(lacks) = unpublished(seen, certificates, anchor) {
        return trusting(format!("{lacks} lacks the next CA"));
    }
    let kept = certificates.operator.iter().chain(&certificates.client).chain(certificates.members.values());
    let ends = kept.filter_map(Kept::earliest_end).min().unwrap_or(Timestamp::MAX);
    // Applications have no more time than the certificates in use.
    let until = published_at(seen, certificates).map(|at| at.min(ends - MARGIN)).filter(|at| now < *at)?;
    let words = format!("applications have until {until} to read the next CA (spec.tls.client.rotationGraceSeconds)");
    Some(Obstacle { step: Rotation::Waiting, words })
}

/// Returns the step of the exchange of a plane's CA, in words too; `None` while no CA is exchanged.
pub(super) fn state(
    seen: &Observed,
    certificates: &Certificates,
    plane: Plane,
    now: Timestamp,
) -> Option<(Rotation, String)> {
    let used = trust::in_use(seen, certificates, plane);
    let signs = ca::ca(seen, certificates, plane).map(|known| known.anchor.as_str());
    let target = if is_auto(&seen.cluster, plane) {
        let next = ca::own(seen, certificates, plane).and_then(|kept| kept.leaf(files::NEXT));
        next.map(|known| known.anchor.as_str()).or(signs)
    } else {
        newest(certificates, seen, plane)
    }?;
    // The members of a small cluster wait for a person.
    trust::wanted(seen, certificates, plane, now).iter().find(|placed| placed.ca.anchor == target)?;
    if let Some(obstacle) = obstacle(seen, certificates, plane, target, now).filter(|_| !used.contains(target)) {
        return Some((obstacle.step, obstacle.words));
    }
    if used.iter().any(|anchor| *anchor != target) {
        return Some((Rotation::Issuing, issuing_words(seen, certificates, plane, target)));
    }
    let earlier = trust::has_earlier(seen, certificates, plane, now);
    let loaded = || holders(seen).any(|m| m.live_pod().is_some_and(|pod| pods::has_other_cas(pod, &m.object)));
    // The Secret of a member holds its files before its `EtcdMember` names them.
    let unnamed = || {
        let named = |m: &Member| m.object.spec.certificates().and_then(|tls| tls.cas.clone());
        let held = |m: &Member| certificates.members.get(m.name()).and_then(trust::digest);
        holders(seen).any(|m| named(m).is_some() && held(m).is_some() && named(m) != held(m))
    };
    let words = || "the earlier CA leaves the files, and members start without it".to_owned();
    (earlier || loaded() || unnamed()).then(|| (Rotation::Retiring, words()))
}

/// Returns why Holdfast's own CA of a plane signs nothing while it is exchanged.
pub(super) fn unsigned(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> Option<String> {
    if let Some(signs) = ca::ca(seen, certificates, plane) {
        let member = trust::unaware(seen, certificates, plane, &signs.anchor)?;
        return Some(format!("{member} has not accepted a certificate of the next CA in a handshake yet"));
    }
    let next = ca::own(seen, certificates, plane)?.leaf(files::NEXT)?;
    obstacle(seen, certificates, plane, &next.anchor, now).map(|obstacle| obstacle.words)
}

/// Returns what the issue of certificates by the next CA waits for.
fn issuing_words(seen: &Observed, certificates: &Certificates, plane: Plane, target: &str) -> String {
    let wanted = super::wanted::of_operator(&seen.cluster);
    let own =
        wanted.copied_from().filter(|_| plane == Plane::Client && provider(&seen.cluster, plane) == Provider::Own);
    let earlier = own.filter(|secret| {
        let known = certificates.sources.get(*secret).and_then(|known| known.as_ref().ok());
        known.is_none_or(|known| known.anchor != target)
    });
    if let Some(secret) = earlier {
        return format!(
            "the certificate in the Secret {secret} still comes from the earlier CA. Put one of the next CA there"
        );
    }
    if let Some(member) = trust::unaware(seen, certificates, plane, target) {
        return format!("certificates come from the next CA when {member} has accepted one in a handshake");
    }
    "certificates come from the next CA, one member after the other".to_owned()
}

/// Returns the CA of the newest certificate of a user's or of cert-manager's.
pub(super) fn newest<'a>(certificates: &'a Certificates, seen: &'a Observed, plane: Plane) -> Option<&'a str> {
    let sources = trust::sources(seen, certificates, plane);
    let shown = sources.iter().filter(|source| source.leaf.files == plane.shown());
    Some(shown.map(|source| source.known).max_by_key(|known| known.not_before)?.anchor.as_str())
}

/// Returns the Certificates of cert-manager that an earlier CA has signed, while the issuer has another: cert-manager does not issue
/// them again by itself.
pub(super) fn outdated_requests<'a>(
    seen: &'a Observed,
    certificates: &'a Certificates,
    now: Timestamp,
) -> Vec<&'a str> {
    let mut all = vec![];
    for plane in
        Plane::ALL.into_iter().filter(|plane| matches!(provider(&seen.cluster, *plane), Provider::CertManager(_)))
    {
        let sources = trust::sources(seen, certificates, plane);
        let Some(last) = sources.iter().map(|source| source.known).max_by_key(|known| known.not_before) else {
            continue;
        };
        let (new, old): (Vec<_>, Vec<_>) = sources.iter().partition(|source| source.known.anchor == last.anchor);
        // An issuer that changes its CA to and fro is asked for nothing.
        let first = new.iter().map(|source| source.known.not_before).min();
        let is_clear = old.iter().all(|source| first.is_some_and(|first| source.known.not_before <= first));
        if is_clear && obstacle(seen, certificates, plane, &last.anchor, now).is_none() {
            all.extend(old.iter().map(|source| source.secret));
        }
    }
    all
}

/// Returns the wait of a small cluster whose source has another CA: its members restart when a person asks for it.
pub(super) fn held(seen: &Observed, certificates: &Certificates, now: Timestamp) -> Option<(Reason, String)> {
    let waits = |plane: &Plane| {
        let staged = || staged_anchors(seen, certificates, *plane);
        let another = |anchor: &str| staged().next().is_some() && !staged().any(|known| known == anchor);
        !is_auto(&seen.cluster, *plane)
            && !trust::goes_on(seen, certificates, *plane, now)
            && newest(certificates, seen, *plane).is_some_and(another)
    };
    let plane = Plane::ALL.into_iter().find(waits)?;
    if seen.cluster.spec.storage.in_memory() {
        let message = format!(
            "the {} certificates come from another CA now, and members that keep their data in memory cannot restart to trust it. Put \
             certificates of the earlier CA back, or save a snapshot and restore it as a new cluster",
            plane.as_str()
        );
        return Some((Reason::CaRotationWaits, message));
    }
    let message = format!(
        "the {} certificates come from another CA now, and members have to restart to trust it. With fewer than three members etcd \
         takes no write meanwhile, so Holdfast waits until 30 days before the present certificates end. To exchange the CA now: \
         kubectl annotate etcdc {} --overwrite {}={}/$(date +%s)",
        plane.as_str(),
        cluster_name(seen),
        key::ROTATE_CA,
        plane.as_str()
    );
    Some((Reason::CaRotationWaits, message))
}
