//! The order of decisions about one member.
//!
//! A member keeps one claim and one Pod. The cluster's pass decides about membership.

use holdfast_api::EtcdMemberStatus;
use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::facts::{cluster, own_pod};
use super::{Observed, end, fence, memory, park, pod, status, volume};
use holdfast_base::{Act, Next, Plan, Seen, Target, Wake, ending, meta, valid};

/// Returns the plan for one member.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdMemberStatus> {
    let next = decide(seen, now);
    let status = status::whole(seen, &next, now);
    let (act, waiting, wake) = next.into_parts();
    Plan { ensures: vec![], act, status, notes: vec![], waiting, wake }
}

fn decide(seen: &Observed, now: Timestamp) -> Next {
    let member = &seen.member;
    let joined = member.spec.joined.is_some();
    if end::stays(seen) {
        return kept(seen, now);
    }
    if meta::deleting(&member.metadata) {
        return end::next(seen, now);
    }
    if member.spec.removed.is_some() {
        // Immediately: etcd exits when etcd removes the member, and kubelet would restart the container.
        let paused = cluster(seen).is_some_and(|cluster| cluster.spec.paused);
        if let Some(pod) = own_pod(seen).filter(|pod| !paused && !meta::deleting(&pod.metadata)) {
            let why = "etcd does not list the member any more".to_owned();
            return Next::act(Act::DeletePod { pod: Target::from(&pod.metadata), why });
        }
        let message = "etcd does not list this member any more; Holdfast deletes the member";
        return Next::wait(Reason::Deleting, message, Wake::OnChange);
    }
    match &seen.cluster {
        Seen::Known(None) if !meta::controlled_by(&member.metadata, &member.spec.cluster_ref.uid) => {
            let message = "its EtcdCluster was deleted without this member (kubectl delete --cascade=orphan). The Pod \
                           runs on, and Holdfast does not manage this member. Save the data if needed, then delete \
                           this EtcdMember. Its volume is deleted too unless storage.retention is Retain";
            return Next::wait(Reason::ClusterGone, message, Wake::OnChange);
        }
        Seen::Known(None) => {
            let message = "its EtcdCluster is gone; Kubernetes' garbage collector deletes this member";
            return Next::wait(Reason::Deleting, message, Wake::OnChange);
        }
        Seen::Known(Some(cluster)) if meta::deleting(&cluster.metadata) && !ending::awaits_snapshot(cluster) => {
            return Next::wait(Reason::Deleting, "its EtcdCluster is being deleted", Wake::OnChange);
        }
        Seen::Known(Some(cluster)) if cluster.spec.paused && !ending::awaits_snapshot(cluster) => {
            let wait = || Next::wait(Reason::Paused, "spec.paused of its EtcdCluster is set", Wake::OnChange);
            // A roll has ended the Pod: a pause takes no member away.
            let ended = joined && member.spec.served.is_some() && seen.pod.is_none();
            let created = Some(seen).filter(|_| ended).map(|seen| upkeep(seen, now));
            return created.filter(|next| matches!(next, Next::Do(Act::CreatePod(_), _))).unwrap_or_else(wait);
        }
        // The operator founds or restores only a cluster that is known not to have formed (I2, I9).
        Seen::Unknown(why) if !joined => {
            let message = format!("its EtcdCluster cannot be read: {why}");
            return Next::wait(Reason::WaitingForReference, message, Wake::AfterMillis(1_000));
        }
        Seen::Known(Some(_)) | Seen::Unknown(_) => {}
    }
    upkeep(seen, now)
}

/// Keeps one claim and one Pod on the claim; for a parked member the claim alone.
fn upkeep(seen: &Observed, now: Timestamp) -> Next {
    if let Some(next) = park::next(seen, now).or_else(|| fence::next(seen, now)) {
        return next;
    }
    let server = match valid::member(&seen.member) {
        Ok(server) => server,
        Err(refusal) => return Next::wait(Reason::InvalidSpec, refusal.to_string(), Wake::OnChange),
    };
    let volume = if seen.member.spec.storage.in_memory() { memory::next(seen, now) } else { volume::next(seen, now) };
    match volume {
        Ok(claim_uid) => pod::next(seen, &server, &claim_uid, now),
        Err(next) => *next,
    }
}

/// Keeps the Pod of a voter whose EtcdMember a user deleted by mistake: without its Pod the cluster loses a vote, and after
/// more such deletions its quorum (I1). The condition names the mistake, unless a worse problem needs a person.
fn kept(seen: &Observed, now: Timestamp) -> Next {
    let paused = cluster(seen).is_some_and(|c| c.spec.paused && !ending::awaits_snapshot(c));
    let next = if paused { Next::Settled(Wake::OnChange) } else { upkeep(seen, now) };
    let wait_for_end = |wake| Next::wait(Reason::MemberStillListed, end::STAYS, wake);
    match next {
        Next::Settled(wake) => wait_for_end(wake),
        Next::Wait(waiting, wake) if !waiting.reason.needs_a_person() => wait_for_end(wake),
        other => other,
    }
}
