//! Larger volumes: `spec.storage.size` of a formed cluster has grown.
//!
//! Decides which claim asks for the larger size, and when a member's spec gets the size: only after the claim's capacity has arrived,
//! so that no quota exceeds a volume. Neither needs a quorum, waits for another claim, or holds another step up. A refused claim is
//! reported and stays as it is. `roll.rs` restarts a member for a larger quota, or for a file system that grows when it is mounted.

use holdfast_api::EtcdCluster;
use holdfast_api::condition::Reason;
use holdfast_api::storage::Storage;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::intervals::POLL;
use super::{Member, Observed};
use holdfast_base::{Act, Next, Target, Wake, meta, valid, volumes};

/// Whether a member has a smaller volume than the spec asks for.
fn lags(cluster: &EtcdCluster, member: &Member) -> bool {
    let storage = &member.object.spec.storage;
    let (has, wanted) = (valid::bytes(&storage.size()), valid::bytes(&cluster.spec.storage.size()));
    member.stays() && !member.deleting() && !storage.in_memory() && has < wanted
}

/// Returns the claim of a member that has to ask for the larger size.
pub fn claim_to_grow<'a>(cluster: &EtcdCluster, member: &'a Member) -> Option<&'a PersistentVolumeClaim> {
    let formed = cluster.status.as_ref().is_some_and(|status| status.latches.formed.is_some());
    let idle = !formed || cluster.spec.paused || meta::deleting(&cluster.metadata);
    let claim = member.live_claim().filter(|claim| !idle && lags(cluster, member) && volumes::is_bound(claim))?;
    let asked = volumes::request(claim).and_then(valid::bytes)?;
    (Some(asked) < valid::bytes(&cluster.spec.storage.size())).then_some(claim)
}

/// Whether the volume of a member has the size of the spec.
fn has_arrived(cluster: &EtcdCluster, member: &Member) -> bool {
    let capacity = member.live_claim().and_then(volumes::capacity);
    capacity.is_some() && capacity >= valid::bytes(&cluster.spec.storage.size())
}

/// Returns the next act: first the claims, then the members' specs.
pub(super) fn beside(seen: &Observed, now: Timestamp) -> Option<Act> {
    let cluster = &seen.cluster;
    let idle = seen.latches().formed.is_none() || cluster.spec.paused || meta::deleting(&cluster.metadata);
    if idle || valid::cluster(cluster).is_err() {
        return None;
    }
    let size = cluster.spec.storage.size();
    let open = |m: &&Member| !seen.refused_growth.contains_key(m.name());
    if let Some(claim) = seen.staying().filter(open).find_map(|m| claim_to_grow(cluster, m)) {
        return Some(Act::GrowClaim { claim: Target::from(&claim.metadata), size, at: now.to_string() });
    }
    let member = seen.staying().find(|m| lags(cluster, m) && has_arrived(cluster, m))?;
    Some(Act::SetVolumeSize { member: Target::from(&member.object.metadata), size })
}

/// Words of drivers that grow a volume only while no node uses it.
const ATTACHED: &str = "attached";

/// The source of a refusal of a larger volume, with its words.
enum Refusal {
    Api(String),
    Driver(String),
    /// No program answers.
    Unanswered,
}

/// Why a member's volume does not get the size of the spec.
fn refusal(seen: &Observed, member: &Member, now: Timestamp) -> Option<Refusal> {
    if !lags(&seen.cluster, member) || has_arrived(&seen.cluster, member) {
        return None;
    }
    let asked = seen.refused_growth.get(member.name()).cloned().map(Refusal::Api);
    let driver = || volumes::refusal(member.live_claim()?, member.live_pod()).map(Refusal::Driver);
    let unanswered =
        || volumes::unanswered_at(member.live_claim()?).filter(|at| now >= *at).map(|_| Refusal::Unanswered);
    asked.or_else(driver).or_else(unanswered)
}

/// Whether the volume of a member is on its way to the size of the spec.
pub(super) fn is_growing(seen: &Observed, member: &Member, now: Timestamp) -> bool {
    lags(&seen.cluster, member) && refusal(seen, member, now).is_none()
}

/// Returns what refuses the larger volumes. The members serve as before.
pub(super) fn refused(seen: &Observed, now: Timestamp) -> Option<(Reason, String)> {
    let all: Vec<(&Member, Refusal)> = seen.staying().filter_map(|m| Some((m, refusal(seen, m, now)?))).collect();
    let (first, why) = all.first()?;
    let (words, remedy) = match why {
        Refusal::Unanswered => (
            "no program has begun to grow the volume within two minutes",
            "Install or repair the resizer of the volume driver (kubectl describe pvc names the program that Kubernetes waits for)",
        ),
        Refusal::Driver(words) if words.contains(ATTACHED) => {
            (words.as_str(), "Park the cluster (spec.replicas: 0) until the volumes have grown")
        }
        Refusal::Api(words) => {
            (words.as_str(), "Let its StorageClass or quota allow the growth (allowVolumeExpansion)")
        }
        Refusal::Driver(words) => (words.as_str(), "Make room for the volume driver"),
    };
    let message = format!(
        "{} of {} volumes do not get {}; claim {}: {words}. {remedy}, or set spec.storage.size back to {} or more. The members serve \
         with the volumes that they have",
        all.len(),
        seen.staying().count(),
        seen.cluster.spec.storage.size().0,
        first.live_claim().map_or("", |claim| meta::name(&claim.metadata)),
        smallest(seen).unwrap_or_default().0,
    );
    Some((Reason::ResizeRefused, message))
}

/// Returns the progress of volumes that grow, in words.
pub(super) fn doing(seen: &Observed, now: Timestamp) -> Option<(Reason, String)> {
    seen.staying().find(|m| is_growing(seen, m, now))?;
    let done = seen.staying().filter(|m| !lags(&seen.cluster, m)).count();
    let size = seen.cluster.spec.storage.size().0;
    Some((Reason::Resizing, format!("{done} of {} volumes have {size}", seen.staying().count())))
}

/// Returns the wait for volumes that grow; `None` where each volume has the size, or is refused.
pub(super) fn waits(seen: &Observed, now: Timestamp) -> Option<Next> {
    let (reason, message) = doing(seen, now)?;
    let remount = |m: &Member| volumes::remount_at(m.live_claim()?, m.live_pod()?);
    let answers = |m: &Member| volumes::unanswered_at(m.live_claim()?);
    let times = seen.staying().filter_map(remount).chain(seen.staying().filter_map(answers));
    let later = times.filter(|at| *at > now).min();
    Some(Next::wait(reason, message, later.and_then(|at| Wake::at(at, now)).unwrap_or(POLL)))
}

/// Returns the wait of a change that needs larger volumes.
pub(super) fn hold(seen: &Observed, now: Timestamp) -> Option<Next> {
    waits(seen, now).or_else(|| refused(seen, now).map(|(reason, message)| Next::wait(reason, message, POLL)))
}

/// Returns the size that the volume of each member has at least. The spec may return to this size: no volume shrinks.
pub(super) fn smallest(seen: &Observed) -> Option<Quantity> {
    let sizes = seen.staying().map(|m| &m.object.spec.storage).filter(|storage| !storage.in_memory());
    sizes.map(Storage::size).min_by_key(valid::bytes)
}
