//! The certificates of a cluster: which Secret is written next.
//!
//! Decides which certificates are issued or copied, when they are renewed, and in which order. Sees fingerprints, names and dates,
//! never a key. `wanted` decides which certificates the cluster needs, `ca` which CA signs, `trust` which CAs the files hold,
//! `rotation` when a CA is exchanged, and `source` which certificates of a user or of cert-manager are usable (I15).

mod ca;
mod flaw;
mod rotation;
mod source;
mod staged;
mod status;
mod trust;
mod wanted;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use self::ca::{ca, ca_name, lost};
use super::intervals::{COLLECTED, POLL};
use super::{Member, Observed};
use holdfast_base::FirstCertificates;
use holdfast_base::certificate::{CaPlace, Certificates, Contents, Issue, Kept, Known, Leaf, Origin, Plane, files};
use holdfast_base::{Act, Ensure, Next, Target, Wake, drift, meta, objects, pods, valid};
use serde_json::Value;

use holdfast_api::condition::Reason;
use holdfast_api::tls::{MemberTls, Trusts};
use holdfast_api::transport::Transport;
use holdfast_api::{EtcdCluster, key, name};
pub(super) use status::{doing, hindrance, status, trouble};
pub(super) use wanted::of_member;
pub use wanted::{is_auto, requests, sources};

/// Returns the next step about certificates; `None` in plaintext and when no step is left.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let forming = seen.latches().formed.is_none();
    if let Some(why) = seen.unread_certificates.as_ref().filter(|_| forming) {
        return Some(Next::wait(Reason::RightsMissing, unreadable(why), POLL));
    }
    let certificates = seen.certificates.as_ref()?;
    // A formed cluster continues with its other Secrets; `trouble` reports the conflict.
    if let Some(wait) = conflict(seen, certificates, now).filter(|_| forming) {
        return Some(wait);
    }
    for plane in Plane::ALL {
        let founds = forming || ca::begins(seen);
        let none = founds && is_auto(&seen.cluster, plane) && !certificates.cas.contains_key(&plane);
        if none && !lost(seen, certificates, plane) {
            let metadata = secret(seen, ca_name(seen, plane));
            // A request in the manifest of a new cluster asks for this CA.
            let request = trust::request(seen, plane).map(str::to_owned);
            return Some(issue(metadata, Contents::Ca { plane, request }, None));
        }
    }
    if let Some(next) = rotation::next(seen, certificates, now) {
        return Some(next);
    }
    let is_own = |wanted: &Wanted<'_>| wanted.kept(certificates).is_none_or(|kept| !is_foreign(kept, &wanted.metadata));
    let cas = Plane::ALL.map(|plane| (plane, trust::places(seen, certificates, plane, now))).into();
    // With a lost CA or a flawed source the cluster continues with the present certificates.
    let supplied = |wanted| supply(seen, certificates, wanted, &cas, now);
    let able: Vec<_> = wanted(seen).into_iter().filter(is_own).filter_map(supplied).collect();
    // Missing certificates come first: other acts wait for them. Then renewals, one member after the other, unless time runs out.
    let missing = able.iter().find(|it| it.kept.is_none_or(|kept| !it.fits(kept)));
    let due = || {
        let turn = |it: &Supplied<'_>, kept: &Kept| {
            let alone = certificates.unserved.is_empty() || !matches!(it.of, Of::Member(_));
            it.is_due(seen, certificates, kept, now) && (alone || it.is_urgent(kept, now)) || it.has_other_cas
        };
        able.iter().find(|it| it.kept.is_some_and(|kept| turn(it, kept)))
    };
    if let Some(it) = missing.or_else(due) {
        // A file of CAs changes nothing before etcd starts, so the present certificates stay.
        let all = it.kept.is_none_or(|kept| !it.fits(kept) || it.is_due(seen, certificates, kept, now));
        let (leaves, cas, copies) =
            if all { (it.leaves.clone(), it.cas.clone(), it.copies.clone()) } else { (vec![], [].into(), [].into()) };
        let exchanges = it.kept.is_some_and(|kept| exchanges(seen, certificates, kept, &leaves));
        let contents = Contents::Leaves { leaves, trusts: it.trusts.clone(), cas, copies, exchanges };
        return Some(issue(it.metadata.clone(), contents, it.kept.map(|kept| kept.target.clone())));
    }
    announce(seen, certificates).or_else(|| forming.then(|| await_sources(seen, certificates, now)).flatten())
}

/// Returns the remedy for Secrets that the operator may not read.
pub(super) fn unreadable(why: &str) -> String {
    format!(
        "the operator may not read the Secrets of this cluster's certificates, so it cannot ask etcd: {why}. Give the operator its \
         Role again: holdfast manifests | kubectl apply --server-side -f -"
    )
}

/// Waits for the certificates of a user or of cert-manager, without which Holdfast creates no first member.
fn await_sources(seen: &Observed, certificates: &Certificates, now: Timestamp) -> Option<Next> {
    let absent = wanted(seen).into_iter().filter(|wanted| wanted.kept(certificates).is_none());
    let hindered = absent.flat_map(|wanted| wanted.leaves).filter_map(|leaf| {
        let secret = leaf.copied_from()?;
        source::supply(seen, certificates, &leaf, secret, now).err()
    });
    // A flaw before what may still be on its way.
    let hindered = hindered.min_by_key(|hindered| !hindered.reason.needs_a_person())?;
    // cert-manager takes a second; a person takes longer.
    let wake = if certificates.requests.is_empty() { POLL } else { Wake::AfterMillis(1_000) };
    Some(Next::wait(hindered.reason, hindered.message, wake))
}

/// Writes the digest of its newest certificates to each member; the member's own pass annotates the Pod.
fn announce(seen: &Observed, certificates: &Certificates) -> Option<Next> {
    let stale = |m: &&Member| {
        let staged = m.object.spec.tls.as_ref().and_then(|tls| tls.staged.as_ref());
        let is_owned = |kept: &&Kept| kept.belongs_to(meta::uid(&m.object.metadata));
        let trusts = trusted(m, certificates);
        let kept = certificates.members.get(m.name()).filter(is_owned);
        let known = m.object.spec.tls.as_ref().map(|tls| &tls.trusts);
        let differs = |plane: Plane| {
            let known = known.and_then(|known| plane.trusted(known));
            known.is_some() && known != plane.trusted(&trusts)
        };
        kept.is_some_and(|kept| {
            staged != Some(&kept.digest) || Plane::ALL.into_iter().any(differs) || takes_another_name(seen, m)
        })
    };
    // The template that a rollback would bring back names no transport yet.
    let waits = |m: &Member| m.object.spec.tls.is_none() && m.object.spec.served.is_some();
    let member = holders(seen).filter(|m| !waits(m)).find(stale)?;
    let kept = certificates.members.get(member.name())?;
    let first = || FirstCertificates { peer_name: objects::member::peer_name(&seen.cluster) };
    let first = (member.object.spec.tls.is_none() || takes_another_name(seen, member)).then(first);
    let trusts = trusted(member, certificates);
    let latched = member.object.spec.tls.as_ref();
    // The Pod of an earlier version of the operator names no CAs: it ends only for others than it was made with.
    let plain = runs(member)
        && latched.is_some_and(|tls| tls.cas.is_none())
        && trust::is_plain(kept, |plane| latched.and_then(|tls| plane.trusted(&tls.trusts)).cloned());
    let cas = if plain { None } else { trust::digest(kept) };
    let (member, digest) = (Target::from(&member.object.metadata), kept.digest.clone());
    Some(Next::act(Act::AnnounceCertificates { member, first, digest, trusts, cas }))
}

/// Whether a member in plaintext, whose etcd asks no peer for a name, is recorded with another name than it will require.
fn takes_another_name(seen: &Observed, member: &Member) -> bool {
    let name = objects::member::peer_name(&seen.cluster);
    !runs(member) && member.joined() && member.object.spec.tls.as_ref().is_some_and(|tls| tls.peer_name != name)
}

/// Whether a member has been given the certificates in its Secret, they are valid, and it requires of its peers the name that they
/// show.
pub(super) fn is_certified(seen: &Observed, all: Option<&Certificates>, member: &Member, now: Timestamp) -> bool {
    let Some(kept) = all.and_then(|all| all.members.get(member.name())) else { return false };
    let named = |tls: &MemberTls| {
        tls.staged.as_ref() == Some(&kept.digest) && tls.peer_name == objects::member::peer_name(&seen.cluster)
    };
    let valid = kept.earliest_end().is_some_and(|end| end > now) && kept.leaves.values().all(Result::is_ok);
    valid && member.object.spec.tls.as_ref().is_some_and(named)
}

/// Returns the CAs that a member is known to trust. A running etcd trusts the CAs that it has loaded: those that it was started with,
/// and those of which it has accepted a certificate.
fn trusted(member: &Member, certificates: &Certificates) -> Trusts {
    let known = member.object.spec.tls.as_ref().map(|tls| &tls.trusts).filter(|_| runs(member));
    let kept = certificates.members.get(member.name());
    let trust = |plane: Plane| {
        let anchor = kept.and_then(|kept| kept.leaf(plane.shown())).map(|known| known.anchor.clone());
        let proven = anchor.as_ref().is_some_and(|anchor| certificates.has_accepted(member.name(), plane, anchor));
        let known = known.and_then(|known| plane.trusted(known)).cloned().filter(|_| !proven);
        known.or(anchor)
    };
    Trusts { client: trust(Plane::Client), peer: trust(Plane::Peer) }
}

/// Whether a member's etcd may run, or has run, with the CAs that the member was given.
fn runs(member: &Member) -> bool {
    let has_certificates = || {
        let pod = member.pod.as_ref().map(pods::transport);
        member.object.spec.transport().max(pod.unwrap_or(Transport::Plaintext)).has_certificates()
    };
    (member.joined() || member.pod.is_some()) && has_certificates()
}

/// Returns the CAs that members trust on a plane.
fn trusts<'a>(seen: &'a Observed, certificates: &'a Certificates, plane: Plane) -> impl Iterator<Item = &'a String> {
    holders(seen).filter(|member| runs(member)).filter_map(move |member| {
        let latched = member.object.spec.tls.as_ref().and_then(|tls| plane.trusted(&tls.trusts));
        latched.or_else(|| Some(&certificates.members.get(member.name())?.leaf(plane.shown())?.anchor))
    })
}

/// Returns the `ConfigMap` with the CAs for clients, if it differs. The operator fills in its contents from the Secrets.
pub(super) fn bundle(seen: &Observed, now: Timestamp) -> Option<Ensure> {
    let certificates = seen.certificates.as_ref().filter(|_| is_auto(&seen.cluster, Plane::Client))?;
    let cas = trust::places(seen, certificates, Plane::Client, now);
    let own = objects::owned_by_cluster(name::ca_bundle(cluster_name(seen)), &seen.cluster);
    let stands = certificates.bundle.as_ref().is_some_and(|(there, holds)| {
        !meta::controlled_by(there, meta::uid(&seen.cluster.metadata)) || CaPlace::are_in_file(&cas, holds)
    });
    (!stands && !cas.is_empty()).then(|| Ensure::CaBundle { metadata: Box::new(own), cas })
}

/// Takes names that the issuer may not sign out of a Certificate's spec. Names that the Certificate has stay: clients use them.
fn withhold(spec: &mut Value, refused: &[String], there: Option<&Value>) {
    for list in ["dnsNames", "ipAddresses"] {
        let stands = |name: &Value| there.and_then(|spec| spec[list].as_array()).is_some_and(|has| has.contains(name));
        let is_refused = |name: &Value| name.as_str().is_some_and(|name| refused.iter().any(|refused| refused == name));
        // Not by index, which would write a null.
        if let Some(names) = spec.get_mut(list).and_then(Value::as_array_mut) {
            names.retain(|name| stands(name) || !is_refused(name));
        }
    }
    // cert-manager's API has no empty list.
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    }
}

/// Returns the Certificates that differ from those in the API server.
pub(super) fn asks(seen: &Observed, now: Timestamp) -> Vec<Ensure> {
    let Some(certificates) = seen.certificates.as_ref().filter(|all| all.cert_manager) else { return vec![] };
    let members = holders(seen).map(|member| &member.object);
    let asked = requests(&seen.cluster, members, seen.settings.cluster_domain.as_ref());
    let refused = valid::refused_names(&seen.cluster, &seen.settings);
    let wanted = asked.into_iter().filter_map(|(mut metadata, mut spec)| {
        let there = certificates.requests.get(meta::name(&metadata));
        withhold(&mut spec, &refused, there.map(|there| &there.spec));
        if let Some(there) = there {
            let mut owners = metadata.owner_references.iter().flatten();
            let is_owned = owners.any(|owner| meta::controlled_by(&there.metadata, &owner.uid));
            if !is_owned || !drift::differs(&spec, &there.spec) {
                return None;
            }
            metadata.uid.clone_from(&there.metadata.uid);
        }
        Some(Ensure::Certificate { metadata: Box::new(metadata), spec })
    });
    let again = rotation::outdated_requests(seen, certificates, now).into_iter().filter_map(|name| {
        let there = certificates.requests.get(name).filter(|there| !there.issuing)?;
        Some(Ensure::Reissue(Target::from(&there.metadata)))
    });
    wanted.chain(again).collect()
}

/// A Secret that the cluster needs.
struct Wanted<'a> {
    of: Of<'a>,
    metadata: ObjectMeta,
    leaves: Vec<Leaf>,
}

#[derive(Clone, Copy)]
enum Of<'a> {
    Operator,
    Applications,
    Member(&'a Member),
}

impl Wanted<'_> {
    /// Returns the existing Secret.
    fn kept<'k>(&self, certificates: &'k Certificates) -> Option<&'k Kept> {
        match self.of {
            Of::Operator => certificates.operator.as_ref(),
            Of::Applications => certificates.client.as_ref(),
            Of::Member(member) => certificates.members.get(member.name()),
        }
    }
}

fn wanted(seen: &Observed) -> Vec<Wanted<'_>> {
    let (cluster, named) = (&seen.cluster, cluster_name(seen));
    let operator = Wanted {
        of: Of::Operator,
        metadata: secret(seen, name::operator_tls(named)),
        leaves: vec![wanted::of_operator(cluster)],
    };
    let applications = wanted::of_applications(cluster).map(|leaf| Wanted {
        of: Of::Applications,
        metadata: secret(seen, name::client_tls(named)),
        leaves: vec![leaf],
    });
    let members = holders(seen).map(|member| Wanted {
        of: Of::Member(member),
        metadata: owned_by(seen, member),
        leaves: of_member(cluster, member.name(), seen.settings.cluster_domain.as_ref()),
    });
    [operator].into_iter().chain(applications).chain(members).collect()
}

/// Whether a member has certificates, or gets them.
pub fn holds_certificates(cluster: &EtcdCluster, member: &Member) -> bool {
    cluster.has_certificates() || runs(member)
}

/// Returns the members whose Pods need certificates.
fn holders(seen: &Observed) -> impl Iterator<Item = &Member> {
    let stays = |m: &&Member| m.object.spec.removed.is_none() && (!m.deleting() || m.joined());
    seen.members.iter().filter(|m| holds_certificates(&seen.cluster, m)).filter(stays)
}

/// A Secret with the certificates that are available now.
struct Supplied<'a> {
    of: Of<'a>,
    metadata: ObjectMeta,
    kept: Option<&'a Kept>,
    leaves: Vec<Leaf>,
    cas: BTreeMap<Plane, (String, String)>,
    copies: BTreeMap<String, String>,
    /// CAs of each file of CAs.
    trusts: BTreeMap<&'static str, Vec<CaPlace>>,
    /// Whether a file of the existing Secret holds other CAs.
    has_other_cas: bool,
}

/// Returns the Secret with the certificates that are available; `None` where none is available. Holdfast writes a new Secret with
/// all its certificates or not at all. In an existing Secret the unavailable certificates stay as they are.
fn supply<'a>(
    seen: &'a Observed,
    certificates: &'a Certificates,
    wanted: Wanted<'a>,
    in_files: &BTreeMap<Plane, Vec<CaPlace>>,
    now: Timestamp,
) -> Option<Supplied<'a>> {
    let kept = wanted.kept(certificates);
    let (all, mut leaves) = (wanted.leaves.len(), wanted.leaves);
    let (mut cas, mut copies, mut trusts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut has_other_cas = false;
    // etcdctl's certificate shares the file of the server's.
    for leaf in leaves.iter().filter(|leaf| leaf.files != files::ETCDCTL) {
        let known = kept.and_then(|kept| kept.leaf(leaf.files));
        match (in_files.get(&leaf.plane).filter(|places| !places.is_empty()), known) {
            // A certificate without its CA is of no use.
            (None, None) => return None,
            (None, Some(_)) => {}
            (Some(places), known) => {
                has_other_cas |= known.is_some_and(|it| !CaPlace::are_in_file(places, it.fingerprints_of_cas()));
                trusts.insert(leaf.files.ca, places.clone());
            }
        }
    }
    leaves.retain(|leaf| match &leaf.origin {
        // I15: a member that restarts meanwhile is asked again whether it trusts the CA.
        Origin::Issued => ca(seen, certificates, leaf.plane).is_some_and(|ca| {
            if trust::unaware(seen, certificates, leaf.plane, &ca.anchor).is_some() {
                return false;
            }
            cas.insert(leaf.plane, (ca_name(seen, leaf.plane), ca.fingerprint.clone()));
            true
        }),
        Origin::Copied(secret) => source::supply(seen, certificates, leaf, secret, now).is_ok_and(|known| {
            copies.insert(secret.clone(), known.contents.clone());
            true
        }),
    });
    let enough = if kept.is_some() { !leaves.is_empty() || has_other_cas } else { leaves.len() == all };
    let (of, metadata) = (wanted.of, wanted.metadata);
    enough.then_some(Supplied { of, metadata, kept, leaves, cas, copies, trusts, has_other_cas })
}

impl Supplied<'_> {
    /// Whether a Secret holds all wanted certificates.
    fn fits(&self, kept: &Kept) -> bool {
        self.leaves.iter().all(|leaf| {
            kept.leaf(leaf.files).is_some_and(|known| match leaf.origin {
                Origin::Copied(_) => wanted::needed(leaf).iter().all(|name| flaw::covers(known, name)),
                Origin::Issued => known.common_name == leaf.common_name,
            })
        })
    }

    /// Whether a certificate is due for renewal: at two thirds of the life of a certificate that Holdfast issues, spread over the
    /// members; when a person asks; when its names or the CA that signs change; or when its source holds another certificate.
    fn is_due(&self, seen: &Observed, certificates: &Certificates, kept: &Kept, now: Timestamp) -> bool {
        let asked = meta::annotation(&seen.cluster.metadata, key::RENEW).and_then(|at| at.parse::<Timestamp>().ok());
        let asked = asked.filter(|at| *at <= now);
        let sum = |sum: u32, byte: u8| sum.wrapping_mul(31).wrapping_add(byte.into());
        let spread = kept.target.uid.bytes().fold(0_u32, sum) % 100;
        self.leaves.iter().any(|leaf| {
            kept.leaf(leaf.files).is_some_and(|known| match &leaf.origin {
                Origin::Copied(secret) => certificates
                    .sources
                    .get(secret)
                    .and_then(|it| it.as_ref().ok())
                    .is_some_and(|source| source.fingerprint != known.fingerprint),
                Origin::Issued => {
                    let life = known.not_after.duration_since(known.not_before);
                    let jitter = life / 2_000 * i32::try_from(spread).unwrap_or(0);
                    let same_names =
                        known.names.len() == leaf.names.len() && leaf.names.iter().all(|n| known.names.contains(n));
                    let of_another = self.cas.get(&leaf.plane).is_some_and(|(_, ca)| *ca != known.ca);
                    let asked = asked.is_some_and(|at| issued_at(known) < at);
                    // A certificate that is not valid yet was issued by a clock that was ahead.
                    of_another || asked || !same_names || now < known.not_before || now >= known.renewed_at() - jitter
                }
            })
        })
    }

    /// Whether a certificate has less than a sixth of its life left: such a renewal does not wait for other members.
    fn is_urgent(&self, kept: &Kept, now: Timestamp) -> bool {
        self.leaves.iter().filter_map(|leaf| kept.leaf(leaf.files)).any(|known| known.ends_at_once(now))
    }
}

/// Whether a certificate is to come from another CA than the present one.
fn exchanges(seen: &Observed, certificates: &Certificates, kept: &Kept, leaves: &[Leaf]) -> bool {
    leaves.iter().any(|leaf| {
        let next = match &leaf.origin {
            Origin::Issued => ca(seen, certificates, leaf.plane),
            Origin::Copied(secret) => certificates.sources.get(secret).and_then(|known| known.as_ref().ok()),
        };
        kept.leaf(leaf.files).zip(next).is_some_and(|(known, next)| known.anchor != next.anchor)
    })
}

/// Returns when a certificate was issued: Holdfast dates a certificate back by an hour, for clocks that are behind.
fn issued_at(known: &Known) -> Timestamp {
    known.not_before + SignedDuration::from_hours(1)
}

/// Returns when the certificates in a Secret were written, as far as known.
pub fn written_at(kept: &Kept) -> Option<Timestamp> {
    let issued = || kept.leaf(files::PEER).or_else(|| kept.leaf(files::CLIENT)).map(issued_at);
    kept.written.or_else(issued)
}

/// Returns the wait for a Secret of another owner under a name of Holdfast's. Kubernetes deletes the Secrets of an earlier cluster.
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
    let owner = Some(vec![objects::owner(&member.object)]);
    ObjectMeta { owner_references: owner, ..secret(seen, name::member_tls(member.name())) }
}

fn issue(metadata: ObjectMeta, contents: Contents, replaces: Option<Target>) -> Next {
    Next::act(Act::Issue(Box::new(Issue { metadata, contents, replaces })))
}

fn secret(seen: &Observed, name: String) -> ObjectMeta {
    objects::owned_by_cluster(name, &seen.cluster)
}

fn cluster_name(seen: &Observed) -> &str {
    meta::name(&seen.cluster.metadata)
}
