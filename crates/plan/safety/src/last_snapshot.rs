//! Rules for a deleted cluster with `spec.finalSnapshot`: the data stay until the snapshot is complete (I4).

use holdfast_api::cluster::Latches;
use holdfast_api::final_snapshot::OnFailure;
use holdfast_api::snapshot::{DeletionPolicy, Phase};
use holdfast_api::{CLUSTER_FINALIZER, EtcdCluster, EtcdClusterStatus, EtcdSnapshot, key, role};
use jiff::Timestamp;

use super::facts::{formed_as, is_healthy, known, latches, may_start_empty, owner_of, voters};
use super::{Verdict, rule};
use holdfast_base::seen::cluster::{Member, Observed};
use holdfast_base::{Act, Ensure, Plan, meta};

/// Whether the spec asks for a snapshot, and no person has given it up.
fn is_asked(cluster: &EtcdCluster) -> bool {
    let skipped = meta::annotation(&cluster.metadata, key::SKIP_FINAL_SNAPSHOT) == Some("true");
    cluster.spec.final_snapshot.is_some() && !skipped
}

/// Whether the last snapshot keeps a deleted cluster. Of a cluster that never formed, no member has joined.
pub(super) fn is_kept(cluster: &EtcdCluster) -> bool {
    meta::deleting(&cluster.metadata) && meta::has_finalizer(&cluster.metadata, CLUSTER_FINALIZER) && is_asked(cluster)
}

/// Whether the members of a deleted cluster run on, for the last snapshot.
pub(super) fn needs_members(cluster: &EtcdCluster) -> bool {
    is_kept(cluster) && cluster.status.as_ref().is_some_and(|status| status.latches.formed.is_some())
}

/// Whether a deleted cluster may have these acts before its end: the steps to its last snapshot, and its certificates.
pub(super) fn permits(seen: &Observed, plan: &Plan<EtcdClusterStatus>) -> bool {
    let quiet = plan.ensures.iter().all(|ensure| matches!(ensure, Ensure::Secret(_)));
    let renews = matches!(plan.act, None | Some(Act::Issue(_) | Act::AnnounceCertificates { .. }));
    needs_members(&seen.cluster) && quiet && (renews || plan.act.as_ref().is_some_and(is_step))
}

const fn is_step(act: &Act) -> bool {
    matches!(act, Act::Latch(_) | Act::DismissClients { .. } | Act::DeletePod { .. } | Act::RequestSnapshot(_))
}

/// Checks a step to the last snapshot; `None`: the act is none.
pub(super) fn check_step(seen: &Observed, act: &Act) -> Option<Verdict> {
    (needs_members(&seen.cluster) && is_step(act)).then(|| match act {
        Act::Latch(new) => {
            let old = latches(seen);
            let first = old.final_snapshot_since.is_none();
            let same = **new == Latches { final_snapshot_since: new.final_snapshot_since.clone(), ..old };
            rule("I4", first && same, "the begin of the last snapshot is written once")
        }
        Act::DismissClients { pod } => owner_of(seen, pod).map(drop),
        Act::DeletePod { pod, .. } => end_pod(seen, owner_of(seen, pod)?),
        Act::RequestSnapshot(snapshot) => request(seen, snapshot),
        _ => rule("I13", false, "a deleted cluster is left alone"),
    })
}

/// Checks the release of the cluster.
pub(super) fn release(seen: &Observed) -> Verdict {
    let mut members = seen.members.iter().chain(&seen.others);
    let served = latches(seen).formed.is_some() || members.any(|m| m.object.spec.joined.is_some());
    // A return saved the whole data before it set the members aside.
    let returned = latches(seen).returning.is_some_and(|it| it.safety_snapshot.is_some() && !it.phase().is_final());
    let proceeds = seen.cluster.spec.final_snapshot.as_ref().and_then(|wanted| wanted.on_failure);
    let facts = seen.ending.as_ref();
    let ends =
        facts.is_some_and(|facts| facts.terminating || facts.snapshot.as_ref().is_some_and(|s| is_saved(seen, s)));
    let proceeds = proceeds == Some(OnFailure::Proceed) && latches(seen).final_snapshot_since.is_some();
    let may = !is_asked(&seen.cluster) || !served || proceeds || ends || returned;
    rule("I4", may, "the cluster goes after its last snapshot is complete")
}

fn is_saved(seen: &Observed, snapshot: &EtcdSnapshot) -> bool {
    let uid = meta::uid(&seen.cluster.metadata);
    let made = snapshot.metadata.creation_timestamp.as_ref();
    let later = made.zip(seen.cluster.metadata.deletion_timestamp.as_ref()).is_some_and(|(made, at)| made.0 >= at.0);
    later
        && snapshot.status.as_ref().is_some_and(|status| {
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
    let since = latches(seen).final_snapshot_since.and_then(|at| at.parse::<Timestamp>().ok());
    let old = made.zip(since).is_some_and(|(made, since)| made.0 <= since);
    rule("I1", old, "a Pod ends once for the last snapshot")?;
    rule("I1", voters(etcd).iter().all(|l| is_healthy(seen, etcd, l)), "every voter answers and keeps up")
}
