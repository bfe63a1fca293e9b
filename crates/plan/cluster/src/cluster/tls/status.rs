//! Certificates in the status and the conditions.
//!
//! Decides which faults are reported: a lost CA, an unusable source, a certificate that expires soon, and a member that still
//! shows an old certificate.

use holdfast_api::condition::Reason;
use holdfast_api::tls::{PlaneStatus, Rotation, TlsStatus};
use jiff::{SignedDuration, Timestamp};

use super::wanted::{self, Provider};
use super::{
    Observed, ca, conflict, is_auto, lost, of_member, rotation, source, unreadable, wanted as all_wanted, written_at,
};
use holdfast_base::certificate::{Certificates, Leaf, Origin, Plane, files};
use holdfast_base::{Next, valid};

/// How long after a renewal a member may take to show its new certificate: kubelet refreshes the files, and etcd reads them at
/// each handshake.
const SERVED_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// Returns the most pressing fault.
pub(in crate::cluster) fn trouble(seen: &Observed, now: Timestamp) -> Option<(Reason, String)> {
    if let Some(why) = &seen.unread_certificates {
        return Some((Reason::RightsMissing, unreadable(why)));
    }
    let certificates = seen.certificates.as_ref()?;
    if let Some(Next::Wait(conflict, _)) = conflict(seen, certificates, now) {
        return Some((conflict.reason, conflict.message));
    }
    // The exchange of a lost CA is the remedy.
    let follows = |plane| ca::own(seen, certificates, plane).is_some_and(|kept| kept.leaf(files::NEXT).is_some());
    let gone = |plane: &Plane| lost(seen, certificates, *plane) && !follows(*plane);
    if let Some(plane) = Plane::ALL.into_iter().find(gone) {
        return Some((Reason::CaLost, ca::ca_lost(seen, plane)));
    }
    let managed = |plane| matches!(wanted::provider(&seen.cluster, plane), Provider::CertManager(_));
    if !certificates.cert_manager && Plane::ALL.into_iter().any(managed) {
        return Some((Reason::CertManagerMissing, source::MISSING.to_owned()));
    }
    let refused = Plane::ALL.into_iter().find_map(|plane| refused(seen, certificates, plane, now));
    let held = || rotation::held(seen, certificates, now);
    if let Some(refused) = refused.or_else(held).or_else(|| unsigned(seen)).or_else(|| ending(seen, certificates, now))
    {
        return Some(refused);
    }
    let late = |member: &&String| {
        let written = certificates.members.get(*member).and_then(written_at);
        written.is_some_and(|at| now >= at + SERVED_WITHIN)
    };
    let member = certificates.unserved.iter().find(late)?;
    let message = format!(
        "{member} does not show its new certificate {} s after the renewal. Holdfast renews no other member's certificates \
         meanwhile. Delete the Pod {member} so that kubelet mounts the files anew",
        SERVED_WITHIN.as_secs()
    );
    Some((Reason::CertificateNotServed, message))
}

/// Returns the additional name that a formed cluster's issuer may not sign.
fn unsigned(seen: &Observed) -> Option<(Reason, String)> {
    let refusal = valid::check_names(&seen.cluster, &seen.settings).err()?;
    let message =
        format!("{refusal}. Certificates that hold the name already keep it; new members' certificates lack it");
    Some((Reason::CertificateRejected, message))
}

/// Returns why Holdfast does not use a source's newest certificate while the cluster continues with its present certificate.
fn refused(seen: &Observed, certificates: &Certificates, plane: Plane, now: Timestamp) -> Option<(Reason, String)> {
    all_wanted(seen).iter().find_map(|wanted| {
        let kept = wanted.kept(certificates)?;
        wanted.leaves.iter().filter(|leaf| leaf.plane == plane).find_map(|leaf| {
            let hindered = source::supply(seen, certificates, leaf, leaf.copied_from()?, now).err()?;
            let own = wanted::provider(&seen.cluster, plane) == Provider::Own;
            let reason = match hindered.reason {
                // cert-manager writes a deleted Secret again.
                Reason::CertificatePending if own => Reason::CertificateRejected,
                reason => reason,
            };
            let until = kept.leaf(leaf.files)?.not_after;
            let message = format!("{}. Members go on with the certificate they have, until {until}", hindered.message);
            reason.needs_a_person().then_some((reason, message))
        })
    })
}

/// Returns why a member has no certificates yet, where the cause is a source of a user or of cert-manager.
pub(in crate::cluster) fn hindrance(seen: &Observed, member: &str, now: Timestamp) -> Option<(Reason, String)> {
    let certificates = seen.certificates.as_ref()?;
    of_member(&seen.cluster, member, seen.settings.cluster_domain.as_ref()).iter().find_map(|leaf| {
        let Some(secret) = leaf.copied_from() else {
            let words = rotation::unsigned(seen, certificates, leaf.plane, now)?;
            return Some((Reason::CaRotating, words));
        };
        source::supply(seen, certificates, leaf, secret, now).err().map(|it| (it.reason, it.message))
    })
}

/// Returns the exchange of a CA in words.
pub(in crate::cluster) fn doing(seen: &Observed, now: Timestamp) -> Option<(Reason, String)> {
    let certificates = seen.certificates.as_ref().filter(|_| seen.latches().formed.is_some())?;
    Plane::ALL.into_iter().find_map(|plane| {
        let (_, words) = rotation::state(seen, certificates, plane, now)?;
        Some((Reason::CaRotating, format!("the {} CA is exchanged: {words}", plane.as_str())))
    })
}

/// Returns a certificate that missed its renewal.
fn ending(seen: &Observed, certificates: &Certificates, now: Timestamp) -> Option<(Reason, String)> {
    all_wanted(seen).iter().find_map(|wanted| {
        let kept = wanted.kept(certificates)?;
        let end_of =
            |leaf: &Leaf| kept.leaf(leaf.files).filter(|known| known.ends_soon(now)).map(|known| known.not_after);
        let (leaf, not_after) = wanted.leaves.iter().find_map(|leaf| Some((leaf, end_of(leaf)?)))?;
        let remedy = match (&leaf.origin, wanted::provider(&seen.cluster, leaf.plane)) {
            (Origin::Issued, _) => {
                "Holdfast renews certificates 30 days before their end: look at the other conditions and \
                                    at the operator's log"
                    .to_owned()
            }
            (Origin::Copied(source), Provider::CertManager(_)) => {
                format!("cert-manager renews it: look at `kubectl describe certificate {source}`")
            }
            (Origin::Copied(source), _) => format!("put a newer certificate into the Secret {source}"),
        };
        let secret = &kept.target.name;
        let message =
            format!("a certificate in the Secret {secret} ends at {not_after}, and was not renewed. {remedy}");
        Some((Reason::CertificateExpiring, message))
    })
}

/// Returns `status.tls`.
pub(in crate::cluster) fn status(seen: &Observed, now: Timestamp) -> Option<TlsStatus> {
    let certificates = seen.certificates.as_ref()?;
    let step = |plane| -> Option<Rotation> {
        seen.latches().formed.as_ref()?;
        Some(rotation::state(seen, certificates, plane, now)?.0)
    };
    let plane = |plane: Plane| {
        let ca = certificates.cas.get(&plane).and_then(|kept| Some(kept.leaf(files::CA)?.not_after));
        if is_auto(&seen.cluster, plane) && ca.is_none() {
            return None;
        }
        let all =
            [&certificates.operator, &certificates.client].into_iter().flatten().chain(certificates.members.values());
        let leaves = all.flat_map(|kept| kept.leaves.iter()).filter(|(file, _)| plane_of(file) == plane);
        let earliest = leaves.filter_map(|(_, leaf)| Some(leaf.as_ref().ok()?.not_after)).min()?;
        let status = PlaneStatus {
            provider: wanted::provider(&seen.cluster, plane).as_str().to_owned(),
            refused: refused(seen, certificates, plane, now).map(|(_, message)| message),
            rotation: step(plane),
            rotated_for: certificates.cas.get(&plane).and_then(|kept| kept.rotated_for.clone()),
            mutual: true,
            not_after: earliest.to_string(),
            ca_not_after: ca.map(|ca| ca.to_string()),
        };
        Some((ca.map_or(earliest, |ca| earliest.min(ca)), status))
    };
    let ((client_ends, client), (peer_ends, peer)) = (plane(Plane::Client)?, plane(Plane::Peer)?);
    Some(TlsStatus { earliest_expiry: client_ends.min(peer_ends).to_string(), client, peer })
}

/// Returns the plane of a certificate file.
fn plane_of(certificate: &str) -> Plane {
    if certificate == files::PEER.certificate { Plane::Peer } else { Plane::Client }
}
