//! Rules for the certificates of a cluster (I15): no CA is replaced in place, a certificate comes from a CA that every running member
//! trusts, and a CA stays in the files while a certificate in use comes from it.

use std::collections::BTreeMap;

use holdfast_api::tls::Trusts;
use holdfast_api::transport::Transport;

use super::facts::latches;
use super::{Verdict, rule};
use holdfast_base::certificate::{CaPlace, Certificates, Contents, Files, Issue, Kept, Leaf, Origin, Plane, files};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{Target, meta, pods};

/// Checks the certificates that are written to a member's spec.
pub(super) fn announce(seen: &Observed, object: &Member, digest: &str, trusts: &Trusts) -> Verdict {
    let all = seen.certificates.as_ref();
    let name = object.name();
    let old = object.object.spec.certificates().map(|tls| &tls.trusts).filter(|_| object.joined());
    let proven = |plane: Plane, anchor: &str| all.is_some_and(|all| all.has_accepted(name, plane, anchor));
    let keeps = |old: &Trusts, plane: Plane| {
        let new = plane.trusted(trusts);
        plane.trusted(old).is_none_or(|old| new == Some(old) || new.is_some_and(|new| proven(plane, new)))
    };
    let same = old.is_none_or(|old| Plane::ALL.into_iter().all(|plane| keeps(old, plane)));
    rule(
        "I15",
        same,
        "a member that has joined trusts the CAs that it was started with, or has accepted in a handshake",
    )?;
    let kept = all.and_then(|all| all.members.get(name));
    rule("I15", kept.is_some_and(|kept| kept.digest == digest), "a member is given the certificates in its Secret")
}

/// Checks a Secret of certificates.
pub(super) fn certify(seen: &Observed, issue: &Issue) -> Verdict {
    let Some(all) = &seen.certificates else { return rule("I15", false, "a cluster in plaintext has no certificates") };
    let owner = |uid: &str| meta::controlled_by(&issue.metadata, uid);
    let own =
        owner(meta::uid(&seen.cluster.metadata)) || seen.members.iter().any(|m| owner(meta::uid(&m.object.metadata)));
    rule("I13", own, "a Secret of certificates is owned by the cluster or by a member")?;
    let formed = latches(seen).formed.is_some();
    let stands = |plane: &Plane| all.cas.get(plane).map(|kept| &kept.target.uid);
    let replaced = issue.replaces.as_ref().map(|target| &target.uid);
    match &issue.contents {
        Contents::Ca { plane, .. } => {
            let unused = issue.replaces.is_none() && !all.cas.contains_key(plane);
            rule("I15", unused, "a CA is never replaced")?;
            let begins = latches(seen).transport == Some(Transport::Plaintext);
            rule("I15", !formed || begins, "a cluster that has formed gets no other CA, unless it is in plaintext")
        }
        Contents::NextCa { plane, .. } => {
            let none = all.cas.get(plane).is_none_or(|kept| kept.leaf(files::NEXT).is_none());
            rule("I15", formed && none, "one CA follows in a cluster that has formed")?;
            rule("I13", stands(plane) == replaced, "the CA that follows stands beside the present CA")
        }
        Contents::PromoteCa { plane, next } => {
            let follows = all.cas.get(plane).and_then(|kept| kept.leaf(files::NEXT));
            let follows = follows.filter(|known| known.fingerprint == *next);
            rule(
                "I13",
                follows.is_some() && stands(plane) == replaced,
                "the CA that follows is the one that was seen",
            )?;
            let trusted = follows.is_some_and(|known| is_trusted(seen, all, *plane, &known.anchor, false));
            rule("I15", trusted, "every member trusts the CA that follows before it signs")
        }
        Contents::Leaves { leaves, trusts, cas, copies, .. } => {
            let signs = |(plane, (_, ca)): (&Plane, &(String, String))| {
                let known = all.cas.get(plane).and_then(|kept| kept.leaf(files::CA));
                known
                    .is_some_and(|known| known.fingerprint == *ca && is_trusted(seen, all, *plane, &known.anchor, true))
            };
            rule("I15", cas.iter().all(signs), "the cluster's own CAs sign, and every member trusts them")?;
            let sourced = |leaf: &Leaf| match &leaf.origin {
                Origin::Issued => cas.contains_key(&leaf.plane),
                Origin::Copied(secret) => {
                    let source = all.sources.get(secret).and_then(|known| known.as_ref().ok());
                    source.is_some_and(|it| {
                        copies.get(secret) == Some(&it.contents) && is_trusted(seen, all, leaf.plane, &it.anchor, false)
                    })
                }
            };
            rule(
                "I15",
                leaves.iter().all(sourced),
                "each certificate comes from the cluster's CA, or from a source whose CA the members trust",
            )?;
            trust(seen, all, trusts)
        }
    }
}

/// Whether every member whose etcd may run trusts a CA: it was started with the CA, or has accepted it in a handshake. A member without
/// a Pod starts with the CAs in its files. `signs`: the CA signs already, so a member whose Pod was made with it and does not serve blocks
/// no certificate of the others.
fn is_trusted(seen: &Observed, all: &Certificates, plane: Plane, anchor: &str, signs: bool) -> bool {
    let trusts = |m: &Member| {
        let shown = all.members.get(m.name()).and_then(|kept| kept.leaf(plane.shown()));
        let latched = m.object.spec.tls.as_ref().and_then(|tls| plane.trusted(&tls.trusts));
        let known = latched.or_else(|| shown.map(|known| &known.anchor));
        let made_so = |pod| signs && !pods::ready(pod) && !pods::has_other_cas(pod, &m.object);
        let starts = m.pod.as_ref().is_none_or(made_so)
            && shown.is_some_and(|known| known.cas.iter().any(|ca| ca.anchor == anchor));
        known.is_none_or(|known| known == anchor) || all.has_accepted(m.name(), plane, anchor) || starts
    };
    let runs = |m: &&Member| m.object.spec.certificates().is_some() && m.object.spec.removed.is_none() && m.joined();
    seen.members.iter().filter(runs).filter(|m| !m.deleting()).all(trusts)
}

/// Checks the CAs in files.
fn trust(seen: &Observed, all: &Certificates, trusts: &BTreeMap<&'static str, Vec<CaPlace>>) -> Verdict {
    for (file, cas) in trusts {
        let plane = if *file == files::PEER.ca { Plane::Peer } else { Plane::Client };
        placed(seen, cas)?;
        let uses =
            |m: &&Member| m.object.spec.removed.is_none() && m.joined() && m.object.spec.certificates().is_some();
        let shown = seen.members.iter().filter(uses);
        let shown = shown.filter_map(|m| all.members.get(m.name())?.leaf(plane.shown()));
        let anchors: Vec<&str> =
            all_cas(all).filter(|(place, _)| cas.contains(place)).map(|(_, anchor)| anchor).collect();
        let mut used = shown.map(|known| known.anchor.as_str());
        let stays = used.all(|anchor| anchors.contains(&anchor));
        rule("I15", stays, "a CA stays in the files while a member's certificate comes from it")?;
    }
    Ok(())
}

/// Checks that each CA stands where the plan has seen it, in a Secret.
pub(super) fn placed(seen: &Observed, cas: &[CaPlace]) -> Verdict {
    let Some(all) = &seen.certificates else { return rule("I15", false, "a cluster in plaintext has no CA") };
    let there = cas.iter().all(|wanted| all_cas(all).any(|(place, _)| place == *wanted));
    rule("I15", there && !cas.is_empty(), "each CA in a file stands in a Secret that was seen")
}

/// Returns each CA in a Secret, with its anchor.
fn all_cas(all: &Certificates) -> impl Iterator<Item = (CaPlace, &str)> {
    let own = all.cas.values().flat_map(|kept| [(kept, files::CA), (kept, files::NEXT)]);
    let clients = all.operator.iter().chain(&all.client).map(|kept| (kept, files::CLIENT));
    let members = all.members.values().flat_map(|kept| [(kept, files::PEER), (kept, files::SERVER)]);
    let kept = own.chain(clients).chain(members).flat_map(|(kept, files): (&Kept, Files)| {
        let cas = kept.leaf(files).into_iter().flat_map(|known| &known.cas);
        cas.map(move |ca| (place(&ca.fingerprint, &kept.target.name, files.ca), ca.anchor.as_str()))
    });
    let sources = all.sources.iter().filter_map(|(name, known)| Some((name, known.as_ref().ok()?)));
    let sources = sources.flat_map(|(name, known)| {
        known.cas.iter().map(move |ca| (place(&ca.fingerprint, name, files::CLIENT.ca), ca.anchor.as_str()))
    });
    kept.chain(sources)
}

fn place(fingerprint: &str, secret: &str, file: &'static str) -> CaPlace {
    CaPlace { fingerprint: fingerprint.to_owned(), secret: secret.to_owned(), file }
}

/// Checks that a Certificate that is issued again is the cluster's.
pub(super) fn reissue(seen: &Observed, request: &Target) -> Verdict {
    let there = seen.certificates.as_ref().and_then(|all| all.requests.get(&request.name));
    let own = |owner: &str| {
        owner == meta::uid(&seen.cluster.metadata)
            || seen.members.iter().any(|m| meta::uid(&m.object.metadata) == owner)
    };
    let is_own = there.is_some_and(|there| {
        let mut owners = there.metadata.owner_references.iter().flatten();
        owners.any(|owner| own(&owner.uid)) && meta::uid(&there.metadata) == request.uid
    });
    rule("I13", is_own, "a Certificate of another owner is not issued again")
}
