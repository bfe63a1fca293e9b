//! Rules for the end of a cluster: each member has the newest `storage.retention` before the cluster is released (I4).

use holdfast_api::cluster::Retention;
use holdfast_api::{CLUSTER_FINALIZER, EtcdMember};

use super::{Verdict, is, last_snapshot, rule};
use holdfast_base::seen::cluster::Observed;
use holdfast_base::{Target, meta};

/// Checks that a new member has the cluster's value, and that the cluster has its finalizer.
pub(super) fn create(seen: &Observed, member: &EtcdMember, formed: bool) -> Verdict {
    rule("I4", member.spec.storage.retention == newest(seen), "a new member has the cluster's storage.retention")?;
    let held = meta::has_finalizer(&seen.cluster.metadata, CLUSTER_FINALIZER);
    rule("I4", held || formed, "a cluster has its finalizer before it has a member")
}

/// Checks that the finalizer may be put on the cluster.
pub(super) fn hold(seen: &Observed, cluster: &Target) -> Verdict {
    rule("I12", is(cluster, &seen.cluster.metadata), "the cluster is the one that was seen")?;
    rule("I4", !meta::deleting(&seen.cluster.metadata), "a deleted cluster gets no finalizer")
}

/// Checks that a member gets the cluster's value.
pub(super) fn copy(seen: &Observed, retention: Retention) -> Verdict {
    rule("I4", retention == newest(seen), "a member gets the cluster's own value of storage.retention")
}

/// Checks that the finalizer may be removed.
pub(super) fn release(seen: &Observed, cluster: &Target) -> Verdict {
    rule("I12", is(cluster, &seen.cluster.metadata), "the cluster is the one that was seen")?;
    rule("I4", meta::deleting(&seen.cluster.metadata), "a cluster that stays keeps its finalizer")?;
    last_snapshot::release(seen)?;
    let all =
        seen.members.iter().chain(&seen.others).all(|member| member.object.spec.storage.retention == newest(seen));
    rule("I4", all, "each member has the cluster's storage.retention before the cluster goes")
}

fn newest(seen: &Observed) -> Retention {
    seen.cluster.spec.storage.retention
}
