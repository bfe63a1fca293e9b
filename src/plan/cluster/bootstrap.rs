//! From nothing to a cluster that has formed: one seed, empty or restored.
//!
//! Decides when the seed is made, when a failed restore attempt is cleared for a corrected one, and when the cluster
//! counts as formed. After that latch no member is ever seeded or restored again (I2, I9).

use jiff::Timestamp;

use super::pace::SOON;
use super::{Member, Membership, Observed, alarms, restore};
use crate::api::cluster::{Formed, Latches};
use crate::api::condition::Reason;
use crate::api::member::{Birth, Joined};
use crate::api::restore::Restoring;
use crate::api::{key, name, role};
use crate::plan::schedule::endangers;
use crate::plan::{Act, Next, Seen, Target, Wake, build, meta, pods};
use snapshot_agent::contract::hex_id;

/// The next step towards a seed that serves, while no member has joined.
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
        (None, _) => match latches.pending_member.filter(|_| latches.restoring == wanted) {
            Some(pending) => {
                if let Some(wait) = until_pruned(seen, wanted.as_ref()) {
                    return wait;
                }
                Next::act(Act::CreateMember(Box::new(build::member::seed(&seen.cluster, &pending, wanted))))
            }
            None => latch(&seen.fresh_name(), wanted),
        },
        (Some(one), Some(two)) => {
            let message = format!(
                "there are two members, {} and {}, and the cluster has not formed: delete one of them",
                one.name(),
                two.name()
            );
            Next::wait(Reason::SafetyStop, message, Wake::AfterMillis(10_000))
        }
        // The latch was lost with the status; the seed carries the attempt.
        (Some(seed), None) if latches.restoring != wanted => latch(seed.name(), wanted),
        (Some(seed), None) => serve(seen, seed, now),
    }
}

/// Volumes of an earlier cluster of this name may hold the only copy of its data: a new one is founded, or restored,
/// only when they are gone or a person has taken their label off. A cluster that came back from a backup of the
/// Kubernetes objects has another UID and no status, and looks exactly like this (I2).
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
        // Without its label a claim no longer tells whom it concerns, so nothing wakes this pass.
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

/// A Job that removes snapshots and does not know of this restore ends first. The restore is latched by now, so that the
/// next one knows (I25).
fn until_pruned(seen: &Observed, wanted: Option<&Restoring>) -> Option<Next> {
    let key = &wanted?.source.key;
    let run = seen.prunes.iter().find(|run| endangers(run, key))?;
    let message = format!(
        "Job {} removes snapshots of {} and does not protect {key}; the restore starts when the Job has ended, in some \
         minutes",
        run.job, run.lineage
    );
    Some(Next::wait(Reason::WaitingForPrune, message, Wake::AfterMillis(5_000)))
}

fn latch(pending: &str, restoring: Option<Restoring>) -> Next {
    Next::act(Act::Latch(Box::new(Latches {
        pending_member: Some(pending.to_owned()),
        restoring,
        ..Latches::default()
    })))
}

/// Members of another attempt than the wanted one go first, and whatever is on its way out is waited for.
///
/// I4: their claims may go with them only because no cluster ID was ever read and none of them was ever seen serving.
fn clear(seen: &Observed, wanted: Option<&Restoring>, now: Timestamp) -> Option<Next> {
    let wrong = |m: &&Member| {
        let spec = &m.object.spec;
        spec.role != Birth::Seed
            || spec.restore.as_ref() != wanted
            || build::member::is_outdated(&m.object, &seen.cluster)
    };
    if let Some(member) = seen.members.iter().filter(|m| !m.deleting()).find(wrong) {
        return Some(Next::act(Act::DeleteMember {
            member: Target::of(&member.object.metadata),
            why: "the spec was corrected before the cluster formed".to_owned(),
        }));
    }
    let going = seen.members.iter().find(|m| m.deleting())?;
    // A name is never used twice, so one that is going must not be the next one.
    if seen.latches().pending_member.as_deref() == Some(going.name()) {
        return Some(latch(&seen.fresh_name(), wanted.cloned()));
    }
    let message = format!("Holdfast deletes the member {} of the earlier attempt", going.name());
    let leaving = going.pod.as_ref().filter(|pod| meta::deleting(&pod.metadata));
    Some(match leaving.and_then(|pod| Some((pod, Wake::at(pods::lingers_from(pod)?, now)))) {
        // As its own pass tells it: that one does not come any further.
        Some((pod, None)) => {
            Next::wait(Reason::NodeSilent, format!("{message}: {}", pods::who_holds(pod)), Wake::OnChange)
        }
        Some((_, Some(later))) => Next::wait(Reason::ClearingFailedRestore, message, later),
        None => Next::wait(Reason::ClearingFailedRestore, message, Wake::OnChange),
    })
}

/// The seed is there: wait until it serves, then latch that it has joined.
fn serve(seen: &Observed, seed: &Member, now: Timestamp) -> Next {
    let Seen::Known(etcd) = &seen.etcd else {
        return seen.locked_out().unwrap_or_else(|| until_it_serves(seed, now));
    };
    let Some(joined) = serves_alone(seen, etcd, seed) else { return until_it_serves(seed, now) };
    Next::act(Act::LatchJoined { member: Target::of(&seed.object.metadata), joined })
}

/// The identity of a seed that serves, is the only member, and is the member we made.
fn serves_alone(seen: &Observed, etcd: &Membership, seed: &Member) -> Option<Joined> {
    let listed = seen.listed(etcd, seed.name()).filter(|l| etcd.members.len() == 1 && !l.learner)?;
    seen.serving(etcd, listed, seed.name())?;
    seed.live_pod()?;
    Some(Joined { member_id: hex_id(listed.id), cluster_id: hex_id(etcd.cluster_id) })
}

/// The step to the latch that the cluster has formed. A member that has joined is past the point of no return: whatever the spec says
/// now, only the latch is missing (or was lost with the status). Before it the Pod loses its permission to start on an empty
/// volume, and only after it clients come (I3).
pub(super) fn form(seen: &Observed, now: Timestamp) -> Option<Next> {
    let joined = seen.members.iter().find_map(|m| m.object.spec.joined.as_ref())?;
    Some(latch_formed(seen, joined, now))
}

fn latch_formed(seen: &Observed, joined: &Joined, now: Timestamp) -> Next {
    if let Some(next) = super::admit::forbid_empty_starts(seen) {
        return next;
    }
    let Seen::Known(etcd) = &seen.etcd else {
        let wait = || seen.members.first().map_or(Next::Settled(SOON), |m| until_it_serves(m, now));
        return seen.locked_out().or_else(|| seen.data_lost()).unwrap_or_else(wait);
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
    // Where the seed was removed since and the status was lost, the others remember.
    let remembered = || seen.members.iter().find_map(|m| m.object.spec.restored_from.clone());
    let restored_from = seed.map_or_else(remembered, |m| m.object.spec.restore.clone());
    // A member whose starts are counted, that was parked, or whose Pod is a voter's, has had clients: then the latch was lost, and what the
    // spec says by now means nothing.
    let learner =
        |m: &&Member| m.pod.as_ref().is_some_and(|p| meta::label(&p.metadata, key::ROLE) == Some(role::LEARNER));
    let first = |m: &&Member| seen.members.len() == 1 && m.object.spec.start_count == 0;
    // Only a cluster that has formed is parked.
    let fresh = seed.filter(|m| first(m) && m.object.spec.parked.is_none()).filter(learner);
    if let Some(message) = fresh.and_then(|_| restore::corrected_too_late(seen, restored_from.as_ref())) {
        return Next::wait(Reason::InvalidSpec, message, Wake::OnChange);
    }
    if let Some(seed) = fresh.filter(|seed| build::member::is_outdated(&seed.object, &seen.cluster)) {
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
        restoring: seen.latches().restoring,
        formed: Some(Formed {
            cluster_id: joined.cluster_id.clone(),
            at: now.to_string(),
            restored_from,
            corrupt_came_along,
        }),
        ..Latches::default()
    })))
}

fn until_it_serves(seed: &Member, now: Timestamp) -> Next {
    let restoring = seed.object.spec.restore.is_some() && !seed.joined();
    let Some(pod) = seed.live_pod() else {
        return Next::wait(Reason::WaitingForPod, "the first member has no Pod yet", Wake::AfterMillis(1_000));
    };
    if pods::runs(pod) {
        // etcd serves about a second after it starts; long after that a look now and then is enough.
        let wake = if pods::starting(Some(pod), now) { SOON } else { Wake::AfterMillis(1_000) };
        return Next::wait(Reason::WaitingForEtcd, "the first member starts and does not serve yet", wake);
    }
    if restoring {
        let message = "the agent restores the first member's data from the snapshot";
        return Next::wait(Reason::Restoring, message, Wake::AfterMillis(1_000));
    }
    Next::wait(Reason::WaitingForPod, "the first member's Pod does not run yet", Wake::AfterMillis(1_000))
}

impl Observed {
    /// The next member's name.
    pub(super) fn fresh_name(&self) -> String {
        name::member(meta::name(&self.cluster.metadata), &self.fresh_suffix)
    }
}
