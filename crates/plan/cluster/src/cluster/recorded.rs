//! Evidence of loss that a member's own pass has written into its status.
//!
//! Decides whether the evidence still holds. `member/evidence.rs` collects it, and `replace.rs` decides what follows.

use holdfast_api::repair::{Evidence, Loss};

use super::Member;
use holdfast_base::pods;

/// Returns the evidence in the member's status, while the claim and the Pod do not contradict it.
pub(super) fn recorded_evidence(member: &Member) -> Option<&Evidence> {
    let recorded = member.object.status.as_ref()?.evidence.as_ref()?;
    if !member.joined() && recorded.kind != Loss::MemoryGone {
        return None;
    }
    let holds = match recorded.kind {
        Loss::ClaimGone => member.claim.is_none(),
        Loss::VolumeRefused | Loss::DataCorrupt => !member.live_pod().is_some_and(pods::ready),
        Loss::MemoryGone => !member.pod.as_ref().is_some_and(|pod| pods::runs(pod) && !pods::ended(pod)),
        Loss::Diverged => false,
    };
    holds.then_some(recorded)
}
