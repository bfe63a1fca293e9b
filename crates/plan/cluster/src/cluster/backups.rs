//! The newest complete snapshot of a cluster, for `status.lastSnapshot`.
//!
//! Decides which `EtcdSnapshot` counts: by the cluster's UID, never by its name. The newest snapshot stays in the status when its
//! object is deleted, since the stored snapshot stays too.

use holdfast_api::EtcdSnapshot;
use holdfast_api::cluster::LastSnapshot;
use holdfast_api::snapshot::Phase;
use jiff::{SignedDuration, Timestamp};

use super::Saving;
use holdfast_base::meta;

/// Returns the newest complete snapshot of the cluster with this UID.
pub fn newest<'a>(cluster_uid: &str, all: impl IntoIterator<Item = &'a EtcdSnapshot>) -> Option<LastSnapshot> {
    all.into_iter().filter_map(|snapshot| complete(cluster_uid, snapshot)).reduce(later)
}

/// Where `deadlineSeconds` of a snapshot is absent: an hour.
const DEADLINE: SignedDuration = SignedDuration::from_hours(1);

/// Returns the snapshots of the cluster with this UID that are being saved, by name: a Pod may run, and its deadline is not over.
pub fn saving<'a>(cluster_uid: &str, all: impl IntoIterator<Item = &'a EtcdSnapshot>, now: Timestamp) -> Vec<Saving> {
    let running = |snapshot: &EtcdSnapshot| {
        let status = snapshot.status.as_ref().filter(|status| status.phase == Phase::Running)?;
        let since: Timestamp = status.started_at.as_ref()?.parse().ok()?;
        let own = status.cluster_uid.as_deref() == Some(cluster_uid) && status.held_up.is_none();
        let deadline = snapshot.spec.template.deadline_seconds;
        let deadline = deadline.map_or(DEADLINE, |seconds| SignedDuration::from_secs(seconds.into()));
        (own && now < since + deadline).then(|| Saving { name: meta::name(&snapshot.metadata).to_owned(), since })
    };
    let mut found: Vec<Saving> = all.into_iter().filter_map(running).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the newer of the recorded snapshot and the snapshot of this pass.
pub(super) fn last(recorded: Option<LastSnapshot>, seen: Option<LastSnapshot>) -> Option<LastSnapshot> {
    recorded.into_iter().chain(seen).reduce(later)
}

fn complete(cluster_uid: &str, snapshot: &EtcdSnapshot) -> Option<LastSnapshot> {
    let status = snapshot.status.as_ref().filter(|status| status.phase == Phase::Complete)?;
    if status.cluster_uid.as_deref() != Some(cluster_uid) {
        return None;
    }
    Some(LastSnapshot {
        name: meta::name(&snapshot.metadata).to_owned(),
        level: status.verification.as_ref().map(|proof| proof.level).unwrap_or_default(),
        completed_at: status.completed_at.clone()?,
    })
}

/// Returns the later of two snapshots. Names break ties, so that the result does not depend on the order.
fn later(one: LastSnapshot, other: LastSnapshot) -> LastSnapshot {
    let at = |last: &LastSnapshot| (last.completed_at.parse::<Timestamp>().ok(), last.name.clone());
    if at(&other) > at(&one) { other } else { one }
}
