//! A member that keeps its data in the memory of its Pod.
//!
//! Decides that the member has no claim, and gets no second Pod after its etcd has run: a second Pod would start empty under an
//! identity that other members count on (I3, I5). A container that restarts in the same Pod finds its data. When the Pod is
//! gone, the member is lost, and another member takes its place (`cluster/replace.rs`).

use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::facts::own_pod;
use super::volume::remedy;
use super::{Observed, evidence, pod};
use holdfast_base::{Next, Wake, meta, pods};

/// Returns the UID that replaces a claim's UID, or the step that comes first.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Result<String, Box<Next>> {
    let uid = meta::uid(&seen.member.metadata);
    let joined = seen.member.spec.joined.is_some();
    // Includes a leaving member, for which the operator records no new evidence.
    let lost = evidence::received(seen).is_some() && own_pod(seen).is_none_or(pods::ended);
    if !joined && !lost && evidence::evidence(seen, &[], now).is_none() {
        return Ok(uid.to_owned());
    }
    match own_pod(seen) {
        Some(there) if meta::deleting(&there.metadata) => {
            let message = "its Pod is being deleted, and its data with it: another member takes its place";
            Err(Box::new(pod::going(there, (Reason::MemberRestarting, message), now)))
        }
        Some(there) if !pods::ended(there) => Ok(uid.to_owned()),
        _ if !joined => {
            let message =
                format!("its Pod is gone, and with it what etcd received before it got its vote. {}", remedy(seen));
            Err(Box::new(Next::wait(Reason::Replacing, message, Wake::OnChange)))
        }
        gone => {
            let ended = gone.map_or_else(|| "is gone".to_owned(), |pod| format!("has ended{}", pods::why_ended(pod)));
            let message = format!(
                "its Pod {ended}, and with it the data in its memory. Holdfast makes no second Pod for the same member: \
                 acknowledged writes could be lost. {} (runbook MemoryLost)",
                remedy(seen)
            );
            Err(Box::new(Next::wait(Reason::MemoryLost, message, Wake::AfterMillis(10_000))))
        }
    }
}
