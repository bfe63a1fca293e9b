//! A member that leaves because its data is lost.
//!
//! Decides that its Pod ends, and that the operator creates no other Pod: no etcd serves from such a volume again (I29). The
//! cluster's pass removes the member from etcd afterwards.

use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::facts::own_pod;
use super::{Observed, pod};
use holdfast_base::{Act, Next, Target, Wake, meta};

/// Returns the next step for the Pod of a lost member that leaves; `None`: the member is not lost.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    if !seen.member.spec.is_lost() {
        return None;
    }
    let message = "the member's data are lost: etcd removes the member, and another member takes its place";
    let Some(there) = own_pod(seen) else {
        return Some(Next::wait(Reason::Replacing, message, Wake::OnChange));
    };
    if meta::deleting(&there.metadata) {
        return Some(pod::going(there, (Reason::Replacing, message), now));
    }
    let why = "the member's data are lost, and etcd removes the member".to_owned();
    Some(Next::act(Act::DeletePod { pod: Target::from(&there.metadata), why }))
}
