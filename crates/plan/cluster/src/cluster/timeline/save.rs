//! The safety snapshot of a return: what is there now, before anything moves.
//!
//! Decides the steps between the prepared data and the set-aside: lead clients away, end their connections, request the EtcdSnapshot,
//! wait until it is complete. `lead_away.rs` decides the first two, `snapshot/` the save.

use holdfast_api::EtcdSnapshot;
use holdfast_api::snapshot::Phase;
use holdfast_api::timeline::{ReturnPhase, Returning};
use holdfast_api::{key, name};
use jiff::{SignedDuration, Timestamp};

use super::super::{Observed, lead_away};
use super::prepare::is_there;
use super::record::{self, fail, wait};
use holdfast_base::objects::requested;
use holdfast_base::{Act, Next, meta};

/// How long Pods are ended for their connections. Later the return counts for more.
const ENDS_CONNECTIONS: SignedDuration = SignedDuration::from_mins(3);

/// Returns the name of the safety snapshot.
pub(super) fn name_of(seen: &Observed, returning: &Returning) -> String {
    name::safety_snapshot(meta::name(&seen.cluster.metadata), &returning.uid)
}

/// Returns the next step.
pub(super) fn next(seen: &Observed, returning: &Returning, now: Timestamp) -> Next {
    let Some(asked) = seen.returns.as_ref().filter(|_| record::is_wanted(seen, returning)) else {
        return fail(seen, returning, "the EtcdRestore was deleted", now);
    };
    let Some(template) = &asked.spec.safety_snapshot else {
        return fail(seen, returning, "the EtcdRestore has no safetySnapshot any more", now);
    };
    if !is_there(seen, returning) {
        return fail(seen, returning, "the restored data is gone: its EtcdMember or its claim was deleted", now);
    }
    let since = returning.since().and_then(|at| at.parse::<Timestamp>().ok()).unwrap_or(now);
    if let Some(snapshot) = &seen.safety_snapshot {
        return await_snapshot(seen, returning, snapshot, (since, now));
    }
    if record::is_over(returning, asked.spec.safety_deadline(), now) {
        return fail(seen, returning, "the safety snapshot did not start within its deadlineSeconds", now);
    }
    match lead_away::prepare(seen, (since, since + ENDS_CONNECTIONS), true, now) {
        Ok(()) => {
            let mut snapshot = requested::snapshot(&seen.cluster, name_of(seen, returning), template);
            let uid = meta::uid(&seen.cluster.metadata).to_owned();
            snapshot.metadata.labels.get_or_insert_default().insert(key::CLUSTER_UID.to_owned(), uid);
            Next::act(Act::RequestSnapshot(Box::new(snapshot)))
        }
        Err(Next::Wait(waiting, _)) => wait(format!("{}: {}", record::waits_for(returning), waiting.message)),
        Err(step) => step,
    }
}

fn await_snapshot(
    seen: &Observed,
    returning: &Returning,
    snapshot: &EtcdSnapshot,
    (since, now): (Timestamp, Timestamp),
) -> Next {
    let named = meta::name(&snapshot.metadata);
    let status = snapshot.status.clone().unwrap_or_default();
    // An earlier snapshot lacks later writes (I25: and one of another cluster lacks all).
    let made = snapshot.metadata.creation_timestamp.as_ref();
    // The API server gives whole seconds.
    let later = made.is_some_and(|made| made.0 + SignedDuration::from_secs(1) > since);
    let own = status.cluster_uid.as_deref() == Some(meta::uid(&seen.cluster.metadata));
    if !later || (status.phase == Phase::Complete && !own) {
        let why = format!("an EtcdSnapshot {named} is there that is older, or of another cluster: delete it");
        return fail(seen, returning, &why, now);
    }
    match (status.phase, status.artifact) {
        (Phase::Complete, Some(artifact)) => {
            let revision = artifact.revision.unwrap_or_default();
            if returning.first_revision.is_none_or(|first| revision >= first) {
                let why = "the cluster has written more revisions than the restored data was raised by. Create another EtcdRestore";
                return fail(seen, returning, why, now);
            }
            let record = Returning {
                safety_snapshot: Some(named.to_owned()),
                earlier_revision: artifact.revision,
                open_connections: seen
                    .hosting()
                    .filter(|member| lead_away::is_open(member, since))
                    .map(|member| member.name().to_owned())
                    .collect(),
                ..returning.clone()
            };
            record::write(seen, record.entering(ReturnPhase::SettingAside, now))
        }
        (Phase::Failed, _) => {
            let why = status.error.map(|error| error.message).unwrap_or_default();
            fail(seen, returning, &format!("the safety snapshot {named} has failed: {why}"), now)
        }
        (Phase::Pending | Phase::Running | Phase::Complete, _) => {
            let limit = seen.returns.as_ref().map_or(0, |restore| restore.spec.safety_deadline());
            if record::is_over(returning, limit.saturating_mul(2), now) {
                return fail(seen, returning, &format!("the safety snapshot {named} is late"), now);
            }
            wait(format!("{}: EtcdSnapshot {named} is being saved", record::waits_for(returning)))
        }
    }
}
