//! One pass over one cluster.
//!
//! Decides the parts of the plan beside the one act that `steps.rs` chooses: Services and the budget, which are harmless; a formed
//! cluster's certificates, beside that act or in its place; and, without any of these, an act of the last table. The status
//! reports the wait of the earlier tables in each case.

use holdfast_api::EtcdClusterStatus;
use holdfast_api::condition::Reason;
use jiff::Timestamp;

use super::intervals::POLL;
use super::steps::{self, Pass};
use super::{Observed, client_services, last_snapshot, status, tls};
use holdfast_base::certificate::Issue;
use holdfast_base::valid::{self, Wanted};
use holdfast_base::{Act, Ensure, Next, Plan, Wake, ending};

/// Returns the plan of one pass.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdClusterStatus> {
    // A formed cluster goes on: `tls.rs` asks for no refused name, and reports it.
    let checks_names = seen.latches().formed.is_none();
    let names = || if checks_names { valid::check_names(&seen.cluster, &seen.settings) } else { Ok(()) };
    let wanted = valid::cluster(&seen.cluster).and_then(|wanted| names().map(|()| wanted));
    let Decision { mut ensures, next, certificates, announces } = decide(seen, wanted.as_ref(), now);
    let mut status = status::whole(seen, wanted.as_ref().ok(), &next, now);
    let (act, waiting, mut wake) = next.into_parts();
    // The copy of the retention comes last: the finalizer keeps a deleted cluster until each member has the copy.
    let act = act.or(announces).or_else(|| steps::IDLE.choose(&Pass::new(seen, now))?.into_parts().0);
    let act = match (act, certificates) {
        // A Secret that the API server refuses (a quota, a policy) must not block a member.
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
    let ends = matches!(act, Some(Act::ReleaseCluster { .. }));
    let notes = if ends { last_snapshot::note(seen).into_iter().collect() } else { vec![] };
    Plan { ensures, act, status, notes, waiting, wake }
}

/// The decisions of one pass, before the status is computed.
struct Decision {
    ensures: Vec<Ensure>,
    next: Next,
    /// Certificates of a formed cluster, which wait for no other act and block none.
    certificates: Option<Box<Issue>>,
    /// Announces certificates of a cluster that waits for its last snapshot.
    announces: Option<Act>,
}

fn decide(seen: &Observed, wanted: Result<&Wanted, &valid::Refusal>, now: Timestamp) -> Decision {
    let mut pass = Pass::new(seen, now);
    if let Some(next) = steps::STOPPED.choose(&pass) {
        // A deleted cluster may wait for its last snapshot longer than its certificates last.
        let waits = ending::awaits_snapshot(&seen.cluster) && matches!(next, Next::Wait(..));
        let renewal = waits.then(|| tls::next(seen, now)).flatten();
        let (certificates, announces) = match renewal.and_then(|next| next.into_parts().0) {
            Some(Act::Issue(issue)) => (Some(issue), None),
            announces => (None, announces),
        };
        return Decision { ensures: vec![], next, certificates, announces };
    }
    let mut ensures = vec![];
    match wanted {
        Ok(wanted) => {
            (ensures, pass.conflict) = client_services::ensures(seen, wanted, now);
            pass.wanted = Some(wanted).filter(|_| pass.conflict.is_none());
        }
        Err(refusal) => pass.refused = Some(Next::wait(Reason::InvalidSpec, refusal.to_string(), POLL)),
    }
    // Without the operator's certificate Holdfast cannot ask etcd, and without its own certificate no member starts.
    pass.certificates = tls::next(seen, now);
    let formed = seen.latches().formed.is_some();
    let rules = if formed { &steps::FORMED } else { &steps::FOUNDING };
    let next = rules.choose(&pass).unwrap_or(Next::Settled(POLL));
    // A formed cluster renews its certificates although another rule waits.
    let certificates = match pass.certificates {
        Some(Next::Do(Act::Issue(issue), _)) if formed => Some(issue),
        Some(_) | None => None,
    };
    Decision { ensures, next, certificates, announces: None }
}
