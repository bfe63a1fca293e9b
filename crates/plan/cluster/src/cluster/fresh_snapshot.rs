//! The snapshot before an upgrade, where none is recent enough.
//!
//! Decides whether the operator requests an `EtcdSnapshot`: only where an earlier one names the destination. Does not decide whether a
//! snapshot is recent enough (`preflight.rs`), and never saves: the snapshot's own controller does.

use holdfast_api::condition::Reason;
use holdfast_api::snapshot::Phase;
use holdfast_api::{EtcdCluster, EtcdSnapshot, name};

use super::Observed;
use super::intervals::POLL;
use holdfast_base::objects::requested;
use holdfast_base::{Act, Next, Wake, meta, rehearsal};

/// Interval while a snapshot is saved.
const WAITED_FOR: Wake = Wake::AfterMillis(2_000);

/// Returns the name of the snapshot: another version, image or value of the annotation `holdfast.dev/restart` has another one.
pub fn name_of(cluster: &EtcdCluster) -> String {
    let meta = &cluster.metadata;
    name::before_upgrade(meta::name(meta), meta::uid(meta), &rehearsal::question(cluster))
}

/// Returns the request, or the wait for its end, or for a person where no earlier snapshot names a destination. `missing` says why a
/// snapshot is needed.
pub(super) fn request(seen: &Observed, missing: String) -> Next {
    let ask = |message: String| Next::wait(Reason::SnapshotNeeded, message, POLL);
    let Some(requested) = &seen.requested else {
        return seen.backup.as_ref().map_or_else(|| ask(missing), |like| Next::act(build(&seen.cluster, like)));
    };
    let named = meta::name(&requested.metadata);
    match requested.status.as_ref().map_or(Phase::Pending, |status| status.phase) {
        Phase::Complete => ask(format!(
            "{missing}. Or delete the EtcdSnapshot {named}, which Holdfast requested earlier: Holdfast requests another, and the stored \
             snapshot stays"
        )),
        Phase::Failed => ask(format!(
            "{missing}. The EtcdSnapshot {named}, which Holdfast requested, has failed: correct the cause that its conditions name, \
             and delete it; Holdfast requests another"
        )),
        _ => {
            let message =
                format!("no member is touched before the EtcdSnapshot {named} is complete, which Holdfast requested");
            Next::wait(Reason::Upgrading, message, WAITED_FOR)
        }
    }
}

/// Builds a snapshot with the destination and the form of this one.
fn build(cluster: &EtcdCluster, like: &EtcdSnapshot) -> Act {
    Act::RequestSnapshot(Box::new(requested::snapshot(cluster, name_of(cluster), &like.spec.template)))
}
