//! A member of a cluster with `spec.replicas: 0`, or of an earlier timeline.
//!
//! Decides that the Pod ends after the cluster's pass latched `spec.parked` or `spec.aside`, and that the operator creates no Pod until the
//! cluster wants members again. The claim stays.

use holdfast_api::EtcdCluster;
use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::facts::{cluster, own_pod};
use super::{Observed, pod, volume};
use holdfast_base::{Act, Next, Target, Wake, ending, meta};

/// Whether the member is parked and stays parked. A deleted cluster starts once more for its last snapshot.
pub(super) fn is_parked(seen: &Observed) -> bool {
    let stays = |c: &EtcdCluster| c.spec.replicas == 0 && !ending::awaits_snapshot(c);
    seen.member.spec.parked.is_some() && cluster(seen).is_some_and(stays)
}

/// Returns the next step for the Pod of a parked member; `None`: the member is not parked.
pub(super) fn next(seen: &Observed, now: Timestamp) -> Option<Next> {
    let aside = seen.member.spec.aside.as_ref();
    if aside.is_none() && !is_parked(seen) {
        return None;
    }
    let why = match aside {
        Some(aside) => format!("EtcdRestore {} has set the member aside", aside.restore),
        None => "spec.replicas of the cluster is 0".to_owned(),
    };
    let Some(there) = own_pod(seen) else {
        // No Pod protects the claim: a person may have deleted the claim, and the data with it.
        let lost = volume::next(seen, now).err().filter(|_| seen.member.spec.joined.is_some() && aside.is_none());
        return Some(lost.map_or(Next::Settled(Wake::OnChange), |lost| *lost));
    };
    if meta::deleting(&there.metadata) {
        let reason = if aside.is_some() { Reason::SetAside } else { Reason::Parking };
        return Some(pod::going(there, (reason, &format!("its Pod ends: {why}")), now));
    }
    Some(Next::act(Act::DeletePod { pod: Target::from(&there.metadata), why }))
}
