//! The order of decisions about one cluster.
//!
//! Services and budget first, since they are harmless; then at most one consequential act: certificates and finalizer of a cluster
//! that forms, form, park or wake, admit, promote, clear an alarm, shrink, replace, grow, end the Pod that
//! restored. A formed cluster's certificates are written beside that act, or in its place where there is none. While there is none of these, silent members are
//! released (`release.rs`); the status tells what is waited for all the same.

use jiff::Timestamp;

use super::pace::POLL;
use super::{
    Observed, admit, alarms, bootstrap, front, grow, park, release, replace, retention, seed, shrink, status, stuck,
    tls,
};
use crate::api::EtcdClusterStatus;
use crate::api::cluster::Formed;
use crate::api::condition::Reason;
use crate::plan::certificate::Issue;
use crate::plan::valid::{self, Wanted};
use crate::plan::{Act, Ensure, Next, Plan, Seen, Wake, meta};
use snapshot_agent::contract::hex_id;

/// What to do next.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdClusterStatus> {
    let wanted = valid::cluster(&seen.cluster);
    let Decision { mut ensures, next, certificates } = decide(seen, wanted.as_ref(), now);
    let mut status = status::whole(seen, wanted.as_ref().ok(), &next, now);
    let (act, waiting, mut wake) = next.into_parts();
    // The copy of the retention waits for everything else: the finalizer keeps a deleted cluster until each member has it.
    let act = act.or_else(|| release::next(seen, now)).or_else(|| retention::beside(seen));
    let act = match (act, certificates) {
        // A Secret that the API server refuses must not hold up a member (a quota, a policy).
        (Some(act), Some(issue)) => {
            ensures.push(Ensure::Secret(issue));
            Some(act)
        }
        (None, Some(issue)) => {
            wake = Wake::Now;
            Some(Act::Issue(issue))
        }
        (act, None) => act,
    };
    if matches!(act, Some(Act::CommitEntry { .. })) {
        status.last_empty_entry = Some(now.to_string());
    }
    Plan { ensures, act, status, notes: vec![], waiting, wake }
}

/// What one pass decides, before its status is known.
struct Decision {
    ensures: Vec<Ensure>,
    next: Next,
    /// Certificates of a formed cluster, which wait for nothing and hold nothing up.
    certificates: Option<Box<Issue>>,
}

impl From<Next> for Decision {
    fn from(next: Next) -> Self {
        Self { ensures: vec![], next, certificates: None }
    }
}

fn decide(seen: &Observed, wanted: Result<&Wanted, &valid::Refusal>, now: Timestamp) -> Decision {
    if meta::deleting(&seen.cluster.metadata) {
        return retention::release(seen).into();
    }
    if seen.cluster.spec.paused {
        return Next::wait(Reason::Paused, "spec.paused is set: Holdfast changes nothing", POLL).into();
    }
    let (ensures, wanted) = match wanted {
        Ok(wanted) => match front::ensures(seen, wanted, now) {
            (ensures, None) => (ensures, Ok(wanted)),
            (ensures, Some(hindered)) => (ensures, Err(hindered)),
        },
        Err(refusal) => (vec![], Err(Next::wait(Reason::InvalidSpec, refusal.to_string(), POLL))),
    };
    let formed = seen.latches().formed;
    let mut certificates = None;
    // Without the operator's certificate etcd cannot be asked, and without its own no member starts.
    // A cluster that has formed renews its certificates whatever hinders it otherwise.
    match tls::next(seen, now) {
        Some(next) if formed.is_none() && wanted.is_ok() => return Decision { ensures, next, certificates },
        Some(Next::Do(Act::Issue(issue), _)) if formed.is_some() => certificates = Some(issue),
        Some(next) if formed.is_some() => {
            let next = admitted(seen).unwrap_or(next);
            return Decision { ensures, next, certificates };
        }
        Some(_) | None => {}
    }
    let next = match (&formed, wanted) {
        // Nothing is there to be parked, and nothing is founded.
        (None, Ok(wanted)) if wanted.replicas == 0 && seen.members.is_empty() => Next::Settled(Wake::OnChange),
        // The latch was lost with the status: a cluster that has not formed yet forms before it is parked.
        (None, Ok(wanted)) if wanted.replicas == 0 && park::wakes(seen) => park::park(seen, now),
        (None, Ok(_)) => {
            retention::hold(seen).or_else(|| retention::copy(seen)).unwrap_or_else(|| bootstrap::next(seen, now))
        }
        (None, Err(hindered)) => hindered,
        (Some(formed), wanted) => formed_next(seen, wanted, formed, now),
    };
    Decision { ensures, next, certificates }
}

/// The next step of a member that serves: clients come before everything that only renews.
fn admitted(seen: &Observed) -> Option<Next> {
    let etcd = seen.own_etcd().filter(|_| seen.cluster.spec.replicas > 0 && !park::wakes(seen))?;
    admit::next(seen, etcd).filter(|next| matches!(next, Next::Do(..)))
}

/// A cluster that has formed keeps its clients whatever hinders it to become what its spec wants.
fn formed_next(seen: &Observed, wanted: Result<&Wanted, Next>, formed: &Formed, now: Timestamp) -> Next {
    if seen.cluster.spec.replicas == 0 && !seen.members.is_empty() {
        return wanted.map_or_else(|hindered| hindered, |_| park::park(seen, now));
    }
    let etcd = match &seen.etcd {
        Seen::Known(etcd) => etcd,
        Seen::Unknown(why) if park::wakes(seen) => return park::silent(seen, why, now),
        // Without a linearizable view of the membership nothing about it is touched (I1).
        Seen::Unknown(why) => return seen.silent(why, now),
    };
    if hex_id(etcd.cluster_id) != formed.cluster_id {
        let message = format!(
            "the members answer for cluster {:x}, but this cluster formed as {}. Holdfast changes nothing. Find out \
             which etcd answers",
            etcd.cluster_id, formed.cluster_id
        );
        return Next::wait(Reason::SafetyStop, message, POLL);
    }
    if park::wakes(seen) {
        return park::wake(seen, etcd, now);
    }
    if let Some(next) = admit::next(seen, etcd) {
        return next;
    }
    match wanted {
        Ok(wanted) => alarms::next(seen, wanted, etcd)
            .or_else(|| match shrink::next(seen, wanted, etcd, now) {
                // A voter that cannot go may wait for the place of a lost one, or of one that never gets its vote.
                Some(wait @ Next::Wait(..)) => {
                    stuck::next(seen, etcd, now).or_else(|| replace::beside(seen, etcd, now)).or(Some(wait))
                }
                other => other,
            })
            .or_else(|| stuck::next(seen, etcd, now))
            .or_else(|| replace::next(seen, etcd, now))
            .or_else(|| grow::next(seen, wanted, etcd, now))
            .or_else(|| replace::waiting(seen, etcd, now))
            .or_else(|| seed::next(seen, wanted, etcd))
            .unwrap_or_else(|| seen.rest(etcd, now)),
        Err(hindered) => hindered,
    }
}
