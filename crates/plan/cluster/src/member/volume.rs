//! A member's claim, created once, before the member joins.
//!
//! Decides whether a volume to start on exists. The operator never replaces the claim of a member that has served: an empty
//! volume under an unchanged member loses acknowledged writes (I3, I5).

use holdfast_api::condition::Reason;
use holdfast_api::{key, name};
use jiff::Timestamp;

use super::facts::{cluster, own_pod};
use super::{Observed, pod};
use holdfast_base::{Act, Next, Target, Wake, meta, objects};

/// Returns the UID of the claim to start on, or the step that comes first.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Result<String, Box<Next>> {
    let member = &seen.member;
    let joined = member.spec.joined.is_some();
    let claim_name = name::claim(meta::name(&member.metadata));
    let Some(claim) = &seen.claim else {
        return Err(Box::new(if joined {
            lost(seen, &claim_name, "is gone")
        } else {
            Next::act(Act::CreateClaim(Box::new(objects::pvc::claim(member))))
        }));
    };
    if meta::label(&claim.metadata, key::MEMBER_UID) != Some(meta::uid(&member.metadata)) {
        // I13: the claim belongs to another owner, so the operator leaves the claim alone.
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
    // etcd acknowledged no write here: the operator deletes the Pod, the claim disappears, and the operator creates both again.
    let message = format!("the claim {claim_name} is being deleted; Holdfast creates a new claim afterwards");
    Err(Box::new(match own_pod(seen) {
        Some(there) if meta::deleting(&there.metadata) => pod::going(there, (Reason::WaitingForPod, &message), now),
        Some(there) => Next::act(Act::DeletePod {
            pod: Target::from(&there.metadata),
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

/// Returns the sentence that names how another member takes the place of a lost member.
pub(super) fn remedy(seen: &Observed) -> String {
    let name = meta::name(&seen.member.metadata);
    let found = cluster(seen).map(|c| (c.spec.replicas, c.spec.repairs_itself(), meta::name(&c.metadata)));
    match found {
        // A single member of two is no quorum, and its data ends with its Pod too.
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
