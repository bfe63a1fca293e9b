//! Rules for a deleted cluster with `spec.finalSnapshot`: the data stay until the snapshot is complete (I4).

use holdfast_api::final_snapshot::OnFailure;
use holdfast_api::snapshot::{DeletionPolicy, Phase};
use holdfast_api::{CLUSTER_FINALIZER, EtcdCluster, EtcdSnapshot, key, role};

use super::facts::{formed_as, is_healthy, known, latches, may_start_empty, owner_of, voters};
use super::{Verdict, rule};
use crate::cluster::{Member, Observed};
use crate::{Act, meta};

/// Whether the spec asks for a snapshot, and no person has given it up.
fn is_asked(cluster: &EtcdCluster) -> bool {
    let skipped = meta::annotation(&cluster.metadata, key::SKIP_FINAL_SNAPSHOT) == Some("true");
    cluster.spec.final_snapshot.is_some() && !skipped
}

/// Whether a deleted cluster still needs its members, for its last snapshot.
pub(super) fn needs_members(cluster: &EtcdCluster) -> bool {
    let formed = cluster.status.as_ref().is_some_and(|status| status.latches.formed.is_some());
    let held = meta::deleting(&cluster.metadata) && meta::has_finalizer(&cluster.metadata, CLUSTER_FINALIZER);
    held && formed && is_asked(cluster)
}

/// Whether a deleted cluster may have this act before its end.
pub(super) fn permits(seen: &Observed, act: &Act) -> bool {
    let is_step = matches!(act, Act::DismissClients { .. } | Act::DeletePod { .. } | Act::RequestSnapshot(_));
    is_step && needs_members(&seen.cluster)
}

/// Checks an act before the end of the cluster.
pub(super) fn check_act(seen: &Observed, act: &Act) -> Verdict {
    match act {
        Act::DismissClients { pod } => owner_of(seen, pod).map(drop),
        Act::DeletePod { pod, .. } => end_pod(seen, owner_of(seen, pod)?),
        Act::RequestSnapshot(snapshot) => request(seen, snapshot),
        _ => rule("I13", false, "a deleted cluster is left alone"),
    }
}

/// Checks the release of the cluster.
pub(super) fn release(seen: &Observed) -> Verdict {
    let served = latches(seen).formed.is_some() || seen.members.iter().any(|m| m.object.spec.joined.is_some());
    let proceeds = seen.cluster.spec.final_snapshot.as_ref().and_then(|wanted| wanted.on_failure);
    let facts = seen.ending.as_ref();
    let ends =
        facts.is_some_and(|facts| facts.terminating || facts.snapshot.as_ref().is_some_and(|s| is_saved(seen, s)));
    let may = !is_asked(&seen.cluster) || !served || proceeds == Some(OnFailure::Proceed) || ends;
    rule("I4", may, "the cluster goes after its last snapshot is complete")
}

fn is_saved(seen: &Observed, snapshot: &EtcdSnapshot) -> bool {
    let uid = meta::uid(&seen.cluster.metadata);
    snapshot.status.as_ref().is_some_and(|status| {
        status.phase == Phase::Complete && status.artifact.is_some() && status.cluster_uid.as_deref() == Some(uid)
    })
}

/// Checks the request: of this cluster, to the place that the spec names, after clients lost their way.
fn request(seen: &Observed, snapshot: &EtcdSnapshot) -> Verdict {
    formed_as(seen, known(seen)?.cluster_id)?;
    let (meta, spec) = (&seen.cluster.metadata, &snapshot.spec);
    let own = spec.cluster_ref.as_ref().is_some_and(|cluster| cluster.name == meta::name(meta));
    rule("I13", own && snapshot.metadata.namespace == meta.namespace, "a cluster requests snapshots of itself alone")?;
    let place = seen.cluster.spec.final_snapshot.as_ref().is_some_and(|wanted| wanted.template == spec.template);
    rule("I13", place, "the last snapshot goes where spec.finalSnapshot says")?;
    let kept = spec.run.is_none() && spec.deletion_policy == DeletionPolicy::Retain;
    let owned = snapshot.metadata.owner_references.iter().flatten().next().is_some();
    rule("I6", kept && !owned, "the last snapshot stays when its object or its cluster goes")?;
    let admitted =
        |m: &Member| m.live_pod().is_some_and(|pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER));
    rule("I16", !seen.members.iter().any(admitted), "clients are led away before the last snapshot")
}

/// Checks the end of a Pod with open connections: every voter keeps up, and no client is led to the Pod.
fn end_pod(seen: &Observed, member: &Member) -> Verdict {
    let etcd = known(seen)?;
    formed_as(seen, etcd.cluster_id)?;
    rule("I3", !may_start_empty(member), "a first start is forbidden before its Pod ends")?;
    rule("I3", !member.object.spec.storage.in_memory(), "the data of a member in memory end with its Pod")?;
    rule(
        "I4",
        member.object.spec.joined.is_some() && member.live_claim().is_some(),
        "the member's data are on its claim",
    )?;
    let made = member.pod.as_ref().and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    let old = made.zip(seen.cluster.metadata.deletion_timestamp.as_ref()).is_some_and(|(made, at)| made.0 <= at.0);
    rule("I1", old, "a Pod ends once for the last snapshot")?;
    rule("I1", voters(etcd).iter().all(|l| is_healthy(seen, etcd, l)), "every voter answers and keeps up")
}
