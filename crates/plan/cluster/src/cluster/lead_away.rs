//! Clients are led away from a cluster whose whole data is about to be saved.
//!
//! Decides the steps: take each Pod out of the client Service, then end each Pod once, because a client keeps an open connection to a
//! Pod that has left the Service. The caller decides whether, since when, and what follows.

use holdfast_api::condition::Reason;
use holdfast_api::{key, role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::health::{is_level, voters};
use super::{Member, Membership, Observed, identity, park};
use holdfast_base::{Act, Next, Seen, Target, Wake, meta, pods};

/// Interval while a Pod comes back: nothing reports a member's etcd.
const RETRY: Wake = Wake::AfterMillis(1_000);

/// Leads clients away. `Err`: the step or the wait before the members may be saved. `since`: Pods as old as this are ended, until
/// `until`; `volumes_stay`: whether the volumes outlive a Pod that does not come back.
pub(super) fn prepare(
    seen: &Observed,
    (since, until): (Timestamp, Timestamp),
    volumes_stay: bool,
    now: Timestamp,
) -> Result<(), Next> {
    if let Some(stop) = identity::another_etcd(seen) {
        return Err(stop);
    }
    let etcd = match &seen.etcd {
        Seen::Known(etcd) => etcd,
        Seen::Unknown(why) => return Err(park::silent(seen, why, now)),
    };
    if let Some(lags) = park::lag(seen, etcd, now) {
        return Err(lags);
    }
    let admitted = |pod: &&Pod| meta::label(&pod.metadata, key::ROLE) == Some(role::VOTER);
    if let Some(pod) = seen.members.iter().filter_map(Member::live_pod).find(admitted) {
        return Err(Next::act(Act::DismissClients { pod: Target::from(&pod.metadata) }));
    }
    if now < until { end_connections(seen, etcd, since, volumes_stay) } else { Ok(()) }
}

/// Ends each Pod that is older than the first step, one at a time while every voter follows the leader, the leader last. A voter
/// that does not come back leaves the quorum of the others for the snapshot.
fn end_connections(seen: &Observed, etcd: &Membership, since: Timestamp, volumes_stay: bool) -> Result<(), Next> {
    // The next Pod may never run, and then nothing is left to save: only where the volumes stay.
    if voters(etcd) < 3 && !volumes_stay {
        return Ok(());
    }
    for listed in etcd.members.iter().filter(|l| !l.learner) {
        let Some(member) = seen.standing_for(listed) else { return Ok(()) };
        if is_level(seen, etcd, listed, member) {
            continue;
        }
        // A voter that was down before is not waited for.
        let ended = member.live_pod().is_none_or(|pod| !made_by(pod, since));
        let message = || format!("{} comes back without clients", member.name());
        return if ended { Err(Next::wait(Reason::SavingFinalSnapshot, message(), RETRY)) } else { Ok(()) };
    }
    let leads = |member: &&Member| seen.listed(etcd, member.name()).is_some_and(|l| Some(l.id) == etcd.leader);
    let due = |member: &&Member| {
        // The data of a member in memory end with its Pod.
        let restarts = !member.object.spec.storage.in_memory() && member.joined();
        restarts && member.live_pod().is_some_and(|pod| !pods::may_start_empty(pod)) && is_open(member, since)
    };
    let Some(pod) = seen.hosting().filter(due).min_by_key(leads).and_then(Member::live_pod) else { return Ok(()) };
    let why = "open connections end before the whole data is saved".to_owned();
    Err(Next::act(Act::DeletePod { pod: Target::from(&pod.metadata), why }))
}

/// Whether a client may have an open connection to the member's Pod. A parked member starts without clients.
pub(super) fn is_open(member: &Member, since: Timestamp) -> bool {
    member.object.spec.parked.is_none() && member.live_pod().is_some_and(|pod| made_by(pod, since))
}

/// Whether a Pod was created by this time.
fn made_by(pod: &Pod, at: Timestamp) -> bool {
    pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 <= at)
}
