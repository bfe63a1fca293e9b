//! The order in which all members of a cluster end, for parking and for a return in place: the leader comes last.
//!
//! Decides the next member, and when it waits for the Pods of the others: an etcd that leads and ends asks each connected voter to lead,
//! for seconds. The callers decide what is latched before a Pod ends.

use jiff::Timestamp;

use super::{Member, Observed};
use holdfast_base::pods;

/// The next member that ends.
pub(super) enum NextEnd<'a> {
    /// Its Pod may end.
    Now(&'a Member),
    /// The last member waits until the Pod of this one has ended.
    After(&'a Member),
}

/// Returns the next of the members that stand; `None`: none stands. `ending`: those whose end is decided. A Pod on a node that is silent is
/// not waited for.
pub(super) fn next<'a>(
    seen: &Observed,
    standing: impl Iterator<Item = &'a Member> + Clone,
    mut ending: impl Iterator<Item = &'a Member>,
    now: Timestamp,
) -> Option<NextEnd<'a>> {
    let member = standing.clone().min_by_key(|member| seen.leads(member))?;
    let going = |member: &&Member| member.pod.as_ref().is_some_and(|pod| !pods::lingers(pod, now));
    let other = if standing.count() == 1 { ending.find(going) } else { None };
    Some(other.map_or(NextEnd::Now(member), NextEnd::After))
}
