//! Rules for what the end of a cluster depends on: each member has the newest `storage.retention` before the cluster goes (I4).

use super::{Verdict, is, rule};
use crate::api::cluster::Retention;
use crate::api::{CLUSTER_FINALIZER, EtcdMember};
use crate::plan::cluster::Observed;
use crate::plan::{Target, meta};

/// Whether a new member may be made.
pub(super) fn create(seen: &Observed, member: &EtcdMember, formed: bool) -> Verdict {
    rule("I4", member.spec.storage.retention == newest(seen), "a new member has the cluster's storage.retention")?;
    let held = meta::has_finalizer(&seen.cluster.metadata, CLUSTER_FINALIZER);
    rule("I4", held || formed, "a cluster has its finalizer before it has a member")
}

/// Whether the finalizer may be put on the cluster.
pub(super) fn hold(seen: &Observed, cluster: &Target) -> Verdict {
    rule("I12", is(cluster, &seen.cluster.metadata), "the cluster is the one that was seen")?;
    rule("I4", !meta::deleting(&seen.cluster.metadata), "a deleted cluster gets no finalizer")
}

/// Whether a member may get this value.
pub(super) fn copy(seen: &Observed, retention: Retention) -> Verdict {
    rule("I4", retention == newest(seen), "a member gets the cluster's own value of storage.retention")
}

/// Whether the finalizer may be removed.
pub(super) fn release(seen: &Observed, cluster: &Target) -> Verdict {
    rule("I12", is(cluster, &seen.cluster.metadata), "the cluster is the one that was seen")?;
    rule("I4", meta::deleting(&seen.cluster.metadata), "a cluster that stays keeps its finalizer")?;
    let all = seen.members.iter().all(|member| member.object.spec.storage.retention == newest(seen));
    rule("I4", all, "each member has the cluster's storage.retention before the cluster goes")
}

fn newest(seen: &Observed) -> Retention {
    seen.cluster.spec.storage.retention
}
