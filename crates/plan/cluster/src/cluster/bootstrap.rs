//! From no member to a cluster that has formed: one seed, empty or restored.
//!
//! Decides when the seed is created, when a failed restore attempt is cleared for a corrected one, and when the cluster
//! counts as formed. After that latch Holdfast never seeds or restores a member again (I2, I9).

use holdfast_api::cluster::{Formed, Latches};
use holdfast_api::condition::Reason;
use holdfast_api::member::{Birth, Joined};
use holdfast_api::restore::Restoring;
use holdfast_api::timeline::FIRST;
use holdfast_api::{key, role};
use holdfast_contract::hex_id;
use jiff::Timestamp;

use super::intervals::SOON;
use super::{Member, Membership, Observed, alarms, restore, silent};
use holdfast_base::removals::endangers;
use holdfast_base::restores::read_by;
use holdfast_base::{Act, Next, Seen, Target, Wake, meta, objects, pods};

/// Returns the next step towards a seed that serves, while no member has joined.
pub(super) fn seed(seen: &Observed, now: Timestamp) -> Next {
    let wanted = match restore::wanted(seen, now) {
        Ok(wanted) => wanted,
        Err(next) => return *next,
    };
    if let Some(next) = clear(seen, wanted.as_ref(), now) {
        return next;
    }
    let mut seeds = seen.members.iter().filter(|m| !m.deleting());
    let (seed, another) = (seeds.next(), seeds.next());
    let latches = seen.latches();
    match (seed, another) {
        (None, _) => {
            match latches.pending_member.filter(|name| latches.restoring == wanted && !was_prepared(seen, name)) {
                Some(pending) => {
                    if let Some(wait) = until_pruned(seen, wanted.as_ref()) {
                        return wait;
                    }
                    Next::act(Act::CreateMember(Box::new(objects::member::seed(&seen.cluster, &pending, wanted))))
                }
                None => latch(seen, &seen.fresh_name(), wanted),
            }
        }
        (Some(one), Some(two)) => {
            let message = format!(
                "there are two members, {} and {}, and the cluster has not formed: delete one of them",
                one.name(),
                two.name()
            );
            Next::wait(Reason::SafetyStop, message, Wake::AfterMillis(10_000))
        }
        // The latch was lost with the status; the seed carries the attempt.
        (Some(seed), None) if latches.restoring != wanted => latch(seen, seed.name(), wanted),
        (Some(seed), None) => serve(seen, seed, now),
    }
}

/// Whether a return has prepared the member of this name: a second one gets another name, and restores its data itself.
fn was_prepared(seen: &Observed, name: &str) -> bool {
    seen.latches().returning.is_some_and(|returning| returning.member.as_deref() == Some(name))
}

/// Returns the wait for volumes of an earlier cluster of this name, which may hold the only copy of its data. Holdfast founds
/// or restores a new cluster only when the volumes are gone or a person has removed their label. A cluster that came back
/// from a backup of the Kubernetes objects has another UID and no status, and looks exactly like this (I2).
pub(super) fn beside_foreign_volumes(seen: &Observed) -> Option<Next> {
    let (going, staying): (Vec<_>, Vec<_>) = seen.foreign.iter().partition(|f| f.going);
    let names = |of: &[&super::ForeignVolume]| of.iter().map(|f| f.claim.as_str()).collect::<Vec<_>>().join(", ");
    if !staying.is_empty() {
        let message = format!(
            "volumes of a cluster of this name are here: {}. Nothing is founded or restored beside them. Save what is needed of \
             their data; then delete them, or keep them and remove their label {}",
            names(&staying),
            key::CLUSTER
        );
        // A claim without its label does not name its cluster, so no watch event wakes this pass.
        return Some(Next::wait(Reason::ForeignVolumesFound, message, Wake::AfterMillis(5_000)));
    }
    (!going.is_empty()).then(|| {
        let message = format!(
            "volumes of a cluster of this name are going: {}. If one stays, its member says what it waits for: \
             kubectl describe etcdmembers -l {}={}",
            names(&going),
            key::CLUSTER,
            meta::name(&seen.cluster.metadata)
        );
        Next::wait(Reason::WaitingForReference, message, Wake::OnChange)
    })
}

/// Returns the wait for a Job that removes snapshots and does not know of this restore. The restore is latched before, so that
/// the next Job knows of it (I25).
pub(super) fn until_pruned(seen: &Observed, wanted: Option<&Restoring>) -> Option<Next> {
    let keys = read_by(wanted?);
    let (key, run) = keys.iter().find_map(|key| Some((key, seen.prunes.iter().find(|run| endangers(run, key))?)))?;
    let message = format!(
        "Job {} removes snapshots of {} and does not protect {key}; the restore starts when the Job has ended, in some \
         minutes",
        run.job, run.lineage
    );
    Some(Next::wait(Reason::WaitingForPrune, message, Wake::AfterMillis(5_000)))
}

fn latch(seen: &Observed, pending: &str, restoring: Option<Restoring>) -> Next {
    Next::act(Act::Latch(Box::new(Latches { pending_member: Some(pending.to_owned()), restoring, ..seen.latches() })))
}

/// Deletes members of another attempt than the wanted one, and waits for members that are being deleted.
///
/// I4: their claims may go with them only because Holdfast has read no cluster ID and has seen none of them serve.
fn clear(seen: &Observed, wanted: Option<&Restoring>, now: Timestamp) -> Option<Next> {
    // A prepared member serves first, and then gets the changed spec.
    let returns = seen.latches().returning.is_some();
    let wrong = |m: &&Member| {
        let spec = &m.object.spec;
        spec.role != Birth::Seed
            || spec.restore.as_ref() != wanted
            || (!returns && objects::member::is_outdated(&m.object, &seen.cluster))
    };
    if let Some(member) = seen.members.iter().filter(|m| !m.deleting()).find(wrong) {
        return Some(Next::act(Act::DeleteMember {
            member: Target::from(&member.object.metadata),
            why: "the spec was corrected before the cluster formed".to_owned(),
        }));
    }
    let going = seen.members.iter().find(|m| m.deleting())?;
    // No name is used twice, so the pending name must not be that of a member that is being deleted.
    if seen.latches().pending_member.as_deref() == Some(going.name()) {
        return Some(latch(seen, &seen.fresh_name(), wanted.cloned()));
    }
    let message = format!("Holdfast deletes the member {} of the earlier attempt", going.name());
    let leaving = going.pod.as_ref().filter(|pod| meta::deleting(&pod.metadata));
    Some(match leaving.and_then(|pod| Some((pod, Wake::at(pods::lingers_from(pod)?, now)))) {
        // The member's own pass reports the same and does not come any further.
        Some((pod, None)) => {
            Next::wait(Reason::NodeSilent, format!("{message}: {}", pods::who_holds(pod)), Wake::OnChange)
        }
        Some((_, Some(later))) => Next::wait(Reason::ClearingFailedRestore, message, later),
        None => Next::wait(Reason::ClearingFailedRestore, message, Wake::OnChange),
    })
}

/// Waits until the seed serves, then latches that the seed has joined.
fn serve(seen: &Observed, seed: &Member, now: Timestamp) -> Next {
    let Seen::Known(etcd) = &seen.etcd else {
        return silent::locked_out(seen).unwrap_or_else(|| until_it_serves(seen, seed, now));
    };
    let Some(joined) = serves_alone(seen, etcd, seed) else { return until_it_serves(seen, seed, now) };
    Next::act(Act::LatchJoined { member: Target::from(&seed.object.metadata), joined })
}

/// Returns the identity of a seed that serves, is the only member, and is the member that Holdfast created.
fn serves_alone(seen: &Observed, etcd: &Membership, seed: &Member) -> Option<Joined> {
    let listed = seen.listed(etcd, seed.name()).filter(|l| etcd.members.len() == 1 && !l.learner)?;
    seen.serving(etcd, listed, seed.name())?;
    seed.live_pod()?;
    Some(Joined { member_id: hex_id(listed.id), cluster_id: hex_id(etcd.cluster_id) })
}

/// Returns the step to the latch that the cluster has formed. A member that has joined is past the point of no return: for any
/// spec, only the latch is missing (or was lost with the status). Before the latch the Pod loses its permission to start on an
/// empty volume, and only after the latch clients come (I3).
pub(super) fn form(seen: &Observed, now: Timestamp) -> Option<Next> {
    let joined = seen.members.iter().find_map(|m| m.object.spec.joined.as_ref())?;
    Some(latch_formed(seen, joined, now))
}

fn latch_formed(seen: &Observed, joined: &Joined, now: Timestamp) -> Next {
    if let Some(next) = super::promote::forbid_empty_starts(seen) {
        return next;
    }
    let Seen::Known(etcd) = &seen.etcd else {
        let wait = || seen.members.first().map_or(Next::Settled(SOON), |m| until_it_serves(seen, m, now));
        return silent::locked_out(seen).or_else(|| silent::data_lost(seen)).unwrap_or_else(wait);
    };
    let mut others = seen.members.iter().filter_map(|m| m.object.spec.joined.as_ref());
    if hex_id(etcd.cluster_id) != joined.cluster_id || others.any(|j| j.cluster_id != joined.cluster_id) {
        let message = format!(
            "the members have served cluster {} and now answer for cluster {:x}. Holdfast changes nothing. Find out \
             which etcd answers",
            joined.cluster_id, etcd.cluster_id
        );
        return Next::wait(Reason::SafetyStop, message, Wake::AfterMillis(10_000));
    }
    let seed = seen.members.iter().find(|m| m.object.spec.role == Birth::Seed);
    // Where the seed was removed and the status was lost, the other members remember the restore.
    let remembered = || seen.members.iter().find_map(|m| m.object.spec.restored_from.clone());
    let restored_from = seed.map_or_else(remembered, |m| m.object.spec.restore.clone());
    // A member with counted starts, a parked member, or a member whose Pod has the voter label has had clients: then the latch was
    // lost, and a changed spec does not matter.
    let learner =
        |m: &&Member| m.pod.as_ref().is_some_and(|p| meta::label(&p.metadata, key::ROLE) == Some(role::LEARNER));
    let first = |m: &&Member| seen.members.len() == 1 && m.object.spec.start_count == 0;
    // Only a formed cluster is parked.
    let returns = seen.latches().returning.is_some();
    let fresh = seed.filter(|m| first(m) && m.object.spec.parked.is_none() && !returns).filter(learner);
    if let Some(message) = fresh.and_then(|_| restore::corrected_too_late(seen, restored_from.as_ref())) {
        return Next::wait(Reason::InvalidSpec, message, Wake::OnChange);
    }
    if let Some(seed) = fresh.filter(|seed| objects::member::is_outdated(&seed.object, &seen.cluster)) {
        let message = format!(
            "the first member {} serves already, and spec.version, image, storage, options or resources were changed after \
             that: put back the earlier value (kubectl get etcdm {} -o yaml shows it); or delete this cluster, which no client \
             has reached, and create it anew with the change",
            seed.name(),
            seed.name()
        );
        return Next::wait(Reason::InvalidSpec, message, Wake::OnChange);
    }
    let corrupt_came_along = alarms::came_along(seen, etcd, restored_from.as_ref());
    Next::act(Act::Latch(Box::new(Latches {
        formed: Some(Formed {
            cluster_id: joined.cluster_id.clone(),
            at: now.to_string(),
            restored_from,
            corrupt_came_along,
            earlier_cluster_ids: earlier_cluster_ids(seen),
        }),
        pending_member: None,
        timeline: Some(seen.timeline()).filter(|timeline| *timeline > FIRST),
        ..seen.latches()
    })))
}

/// Returns etcd's cluster IDs in the earlier timelines: those of the record, and of the members that were set aside where the status was
/// lost.
fn earlier_cluster_ids(seen: &Observed) -> Vec<String> {
    let earlier = seen.latches().returning.and_then(|returning| returning.earlier);
    let aside = seen.others.iter().filter(|member| member.object.spec.aside.is_some());
    let joined = aside.filter_map(|member| Some(&member.object.spec.joined.as_ref()?.cluster_id));
    Formed::earlier_ids(earlier.as_ref(), joined)
}

fn until_it_serves(seen: &Observed, seed: &Member, now: Timestamp) -> Next {
    let restoring = seed.object.spec.restore.is_some() && !seed.joined() && !was_prepared(seen, seed.name());
    let Some(pod) = seed.live_pod() else {
        return Next::wait(Reason::WaitingForPod, "the first member has no Pod yet", Wake::AfterMillis(1_000));
    };
    if pods::runs(pod) {
        // etcd serves about a second after its start; later a check each second is enough.
        let wake = if pods::starting(Some(pod), now) { SOON } else { Wake::AfterMillis(1_000) };
        return Next::wait(Reason::WaitingForEtcd, "the first member starts and does not serve yet", wake);
    }
    if restoring {
        let log = restore::log_words(seed.object.spec.restore.as_ref());
        let message = format!("the agent restores the first member's data from the snapshot{log}");
        return Next::wait(Reason::Restoring, message, Wake::AfterMillis(1_000));
    }
    Next::wait(Reason::WaitingForPod, "the first member's Pod does not run yet", Wake::AfterMillis(1_000))
}
