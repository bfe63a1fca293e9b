//! A member's claim: it is made once, before the member has joined.
//!
//! Decides whether there is a volume to start on. It never replaces the claim of a member that has served: an empty
//! volume under an unchanged member loses acknowledged writes (I3, I5).

use jiff::Timestamp;

use super::facts::{cluster, own_pod};
use super::{Observed, pod};
use crate::api::condition::Reason;
use crate::api::{key, name};
use crate::plan::{Act, Next, Target, Wake, build, meta};

/// The UID of the claim to start on, or what to do first.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Result<String, Box<Next>> {
    let member = &seen.member;
    let joined = member.spec.joined.is_some();
    let claim_name = name::claim(meta::name(&member.metadata));
    let Some(claim) = &seen.claim else {
        return Err(Box::new(if joined {
            lost(seen, &claim_name, "is gone")
        } else {
            Next::act(Act::CreateClaim(Box::new(build::pvc::claim(member))))
        }));
    };
    if meta::label(&claim.metadata, key::MEMBER_UID) != Some(meta::uid(&member.metadata)) {
        // I13: not ours, so nothing is done to it.
        let message = format!(
            "the claim {claim_name} does not belong to this member (its label {} names another UID). Move the claim \
             away",
            key::MEMBER_UID
        );
        return Err(Box::new(Next::wait(Reason::NameConflict, message, Wake::AfterMillis(10_000))));
    }
    if !meta::deleting(&claim.metadata) {
        return Ok(meta::uid(&claim.metadata).to_owned());
    }
    if joined {
        return Err(Box::new(lost(seen, &claim_name, "is being deleted, and disappears when the Pod stops")));
    }
    // Nothing was ever acknowledged here: the Pod lets go, the claim goes, and both are made anew.
    let message = format!("the claim {claim_name} is being deleted; Holdfast creates a new claim afterwards");
    Err(Box::new(match own_pod(seen) {
        Some(there) if meta::deleting(&there.metadata) => pod::going(there, (Reason::WaitingForPod, &message), now),
        Some(there) => Next::act(Act::DeletePod {
            pod: Target::of(&there.metadata),
            why: format!("its claim {claim_name} is being deleted before the member ever joined"),
        }),
        None => Next::wait(Reason::WaitingForPod, message, Wake::OnChange),
    }))
}

fn lost(seen: &Observed, claim: &str, what: &str) -> Next {
    let message = format!(
        "the claim {claim} {what}, and with it the data of a member that has served. Holdfast creates no new claim for \
         the same member: acknowledged writes could be lost. {} (runbook ClaimLost)",
        remedy(seen)
    );
    Next::wait(Reason::ClaimLost, message, Wake::AfterMillis(10_000))
}

/// How another member takes the place of a lost one.
pub(super) fn remedy(seen: &Observed) -> String {
    let name = meta::name(&seen.member.metadata);
    let found = cluster(seen).map(|c| (c.spec.replicas, c.spec.repairs_itself(), meta::name(&c.metadata)));
    match found {
        // One of two is no quorum, and its data end with its Pod too.
        Some((2, ..)) if seen.member.spec.storage.in_memory() => {
            "The other member has no quorum without this one. Save the \
            data of the other member before its Pod ends (`holdfast agent save --no-quorum`, runbook QuorumLost), and \
            restore them as a new cluster with claims"
                .to_owned()
        }
        Some((2.., true, _)) => {
            "Holdfast replaces the member while a quorum of the other members is healthy".to_owned()
        }
        Some((2.., false, cluster)) => format!(
            "spec.repair.mode is Manual. To replace the member: kubectl annotate etcdc {cluster} --overwrite {}={name}",
            key::REPLACE
        ),
        _ => "Restore the last snapshot as a new cluster".to_owned(),
    }
}
