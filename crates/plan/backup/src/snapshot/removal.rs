//! The end of an `EtcdSnapshot` with `deletionPolicy: Delete`.
//!
//! Decides when the operator sets and removes the finalizer, when a Job removes the stored snapshot, and what blocks the
//! removal. In doubt the object goes and the snapshot stays in the store: each deletion ends, and the operator removes no
//! snapshot that is needed (I25).

use holdfast_api::backup_store::Right;
use holdfast_api::condition::Reason;
use holdfast_api::snapshot::{Artifact, Phase, Removal};
use holdfast_api::{key, name};
use holdfast_contract::{RemovedReport, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::latch::{goes_along, holds, live_removal};
use super::stage::{SLOW, Stage, witnessed};
use super::{Deletion, Inspection, Observed, job, place};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::objects::job::{CONTAINER, request_of};
use holdfast_base::removals::PATIENCE;
use holdfast_base::restores::is_read;
use holdfast_base::{Act, Note, Target, Wake, meta, pods};

/// A latch older than this starts no Job.
const STALE: SignedDuration = SignedDuration::from_mins(5);

/// The next step of a deletion.
#[derive(Debug)]
pub(super) struct End {
    /// The act.
    pub(super) act: Option<Act>,
    /// Reason and message of `Ready` until then.
    pub(super) condition: Option<(Reason, String)>,
    /// The removal that stays latched.
    pub(super) removal: Option<Removal>,
    /// The Event.
    pub(super) note: Option<Note>,
    /// When to run the next pass.
    pub(super) wake: Wake,
}

/// Returns the next step for the finalizer or the deletion; `None`: the usual plan goes on.
pub(super) fn end(seen: &Observed, stage: &Stage, now: Timestamp) -> Option<End> {
    let snapshot = &seen.snapshot;
    match (meta::deleting(&snapshot.metadata), goes_along(snapshot), holds(snapshot)) {
        (false, true, false) => {
            let act = Act::KeepArtifact { snapshot: Target::from(&snapshot.metadata) };
            let removal = snapshot.status.as_ref().and_then(|status| status.removal.clone());
            Some(End { act: Some(act), condition: None, removal, note: None, wake: Wake::Now })
        }
        // Releasing the object would delete a Job that has removed half of the snapshot.
        (true, false, true) if let Some(words) = still_removes(seen, now) => {
            Some(waits(words, snapshot.status.as_ref().and_then(|status| status.removal.clone())))
        }
        (_, false, true) => Some(release(seen, None)),
        (true, true, true) => ending(seen, seen.deletion.as_ref()?, stage, now),
        (false, ..) | (true, _, false) => None,
    }
}

/// Returns the progress of the Job that already removes the snapshot.
fn still_removes(seen: &Observed, now: Timestamp) -> Option<String> {
    let one = seen.deletion.as_ref()?.job.as_ref().filter(|_| may_remove_yet(seen, now))?;
    match read(one, now) {
        RemovalState::Nothing(words) => Some(words),
        RemovalState::Gone(_) | RemovalState::Refused(_) | RemovalState::Failed { .. } => None,
    }
}

/// Whether the latched Job may still remove objects, by its own time limit: a restore waits for the same time.
fn may_remove_yet(seen: &Observed, now: Timestamp) -> bool {
    live_removal(&seen.snapshot, now).is_some()
}

fn ending(seen: &Observed, deletion: &Deletion, stage: &Stage, now: Timestamp) -> Option<End> {
    if deletion.terminating {
        return Some(leave(seen, "the namespace is being deleted, so that no Job can remove it"));
    }
    let status = seen.snapshot.status.as_ref();
    let artifact = status.and_then(|status| status.artifact.as_ref());
    match (status.map(|status| status.phase).unwrap_or_default(), artifact) {
        (Phase::Complete, Some(artifact)) => return Some(remove(seen, deletion, artifact, now)),
        (Phase::Failed | Phase::Complete, _) => return Some(release(seen, None)),
        (Phase::Pending | Phase::Running, _) => {}
    }
    let late = now >= until(seen, now);
    match stage {
        Stage::Start(_) => Some(release(seen, None)),
        Stage::Blocked(..) if !witnessed(seen) => Some(release(seen, None)),
        // The Job has its own deadline, after which its result is known.
        Stage::Job(JobState::HeldUp(held)) if held.reason == Reason::NodeSilent && late => {
            Some(leave(seen, "the node of the Pod that saves it does not answer"))
        }
        Stage::Blocked(..) | Stage::Doubt(_) if late => {
            Some(leave(seen, "the store did not say in time whether it holds the snapshot"))
        }
        Stage::Rest | Stage::Blocked(..) | Stage::Job(_) | Stage::Doubt(_) => None,
    }
}

/// Returns when the deletion stops waiting.
fn until(seen: &Observed, now: Timestamp) -> Timestamp {
    let deleted = seen.snapshot.metadata.deletion_timestamp.as_ref().map_or(now, |at| at.0);
    let stored = seen.snapshot.status.as_ref().and_then(|status| status.completed_at.as_ref()?.parse().ok());
    // The clock of the agent's node may be wrong.
    let stored = stored.filter(|stored: &Timestamp| *stored <= now);
    stored.map_or(deleted, |stored| stored.max(deleted)) + PATIENCE
}

/// Removes a stored snapshot: the latch, then the Job, then the end.
fn remove(seen: &Observed, deletion: &Deletion, artifact: &Artifact, now: Timestamp) -> End {
    let latched = seen.snapshot.status.as_ref().and_then(|status| status.removal.clone());
    let (until, late) = (until(seen, now), now >= until(seen, now));
    let refuse = |why: &str, removal: Option<Removal>, wake: Wake| {
        if late {
            return leave(seen, why);
        }
        let message =
            format!("{why}. Otherwise this object goes at {until}, and the snapshot stays at {}", artifact.uri);
        End { removal, ..wait(Reason::RemovalRefused, message, wake) }
    };
    let own = |one: &&Inspection| meta::controlled_by(&one.job.metadata, meta::uid(&seen.snapshot.metadata));
    let stands = deletion.job.as_ref().filter(own);
    match stands.map(|one| read(one, now)) {
        None => {}
        Some(RemovalState::Gone(report)) => return release(seen, Some(removed(&report, artifact))),
        Some(RemovalState::Refused(stopped)) => {
            let overruled = stopped.reason == LAST_PROVEN && allow_last(seen);
            if !overruled || stands.is_some_and(|one| may_remove_last(&one.job)) {
                return refuse(&remedy(&stopped.reason, stopped.message), latched, SLOW);
            }
        }
        Some(RemovalState::Failed { why, again }) => {
            if let Some(wake) = Wake::at(again, now).filter(|_| !late) {
                return refuse(&why, latched, wake);
            }
            if late {
                return leave(seen, &why);
            }
        }
        // The Job's deadline ends the Job; a suspended Job, or a Job on a silent node, removes nothing after its latch has
        // expired.
        Some(RemovalState::Nothing(words)) if may_remove_yet(seen, now) => return waits(words, latched),
        Some(RemovalState::Nothing(words)) => return leave(seen, &words),
    }
    if seen.snapshot.spec.hold {
        return refuse("spec.hold is true. Set spec.hold to false", None, SLOW);
    }
    // Without the latch: the restore must not wait for this removal.
    if is_read(&deletion.restores, &artifact.key) {
        return refuse("an EtcdCluster restores this snapshot. Wait for the end of the restore", None, SLOW);
    }
    if deletion.searched {
        let why = "an EtcdCluster looks for its latest snapshot, which may be this one. Wait until it has found it";
        return refuse(why, None, SLOW);
    }
    let Some(sha256) = &artifact.manifest_sha256 else {
        return leave(seen, "an earlier version of Holdfast saved it, and its status has no manifestSha256");
    };
    let at = match place::resolve(seen, Right::Prune) {
        Ok(at) => at,
        Err((_, why)) => return refuse(&why, None, SLOW),
    };
    if at.record.as_ref().is_some_and(|record| record.id.is_none()) {
        return refuse("the store had no store ID when the snapshot was saved. Remove it by hand", None, SLOW);
    }
    if late {
        return leave(seen, "no Job removed it in time");
    }
    let meta = &seen.snapshot.metadata;
    let fresh = |latch: &Removal| latch.latched_at.parse::<Timestamp>().is_ok_and(|at| now < at + STALE);
    let act = match latched.clone().filter(|latch| deletion.job.is_none() && fresh(latch)) {
        Some(latch) => {
            Act::StartJob(Box::new(job::remove(seen, at, &latch, (&artifact.key, sha256), allow_last(seen))))
        }
        None => Act::LatchRemoval(Removal {
            job: name::removal(meta::name(meta), meta::uid(meta), &now.to_string()),
            latched_at: now.to_string(),
        }),
    };
    End {
        act: Some(act),
        wake: Wake::Now,
        removal: latched,
        ..wait(Reason::Removing, "Holdfast removes the stored snapshot".to_owned(), Wake::Now)
    }
}

/// Result of the Job that removes.
enum RemovalState {
    /// The store does not hold the snapshot any more.
    Gone(RemovedReport),
    /// The agent refused.
    Refused(holdfast_contract::Stopped),
    /// The Job failed; another Job may try at `again`.
    Failed { why: String, again: Timestamp },
    /// No result yet; the text is the Job's progress.
    Nothing(String),
}

fn read(one: &Inspection, now: Timestamp) -> RemovalState {
    if let Some(report) = one.pods.iter().rev().find_map(|pod| pods::removed_report(pod, CONTAINER)) {
        return match report.refused.clone() {
            None => RemovalState::Gone(report),
            Some(refused) => RemovalState::Refused(refused),
        };
    }
    let again = || {
        let ended = jobs::last_end(&one.job, &one.pods).unwrap_or(now);
        ended + jobs::pause(jobs::created(&one.job).unwrap_or(ended), ended)
    };
    match jobs::read(&one.job, &one.pods, None, None, now) {
        JobState::Failed { message, .. } => RemovalState::Failed { why: message, again: again() },
        JobState::Lost | JobState::Stored { .. } => {
            RemovalState::Failed { why: "the report of the Job that removes it is gone".to_owned(), again: again() }
        }
        JobState::HeldUp(held) => RemovalState::Nothing(held.words()),
        JobState::Pending(words) | JobState::Running(words) => RemovalState::Nothing(words),
        JobState::Settling => RemovalState::Nothing(super::stage::SETTLING.to_owned()),
    }
}

/// The agent's reason for a refusal that a user may overrule.
const LAST_PROVEN: &str = "LastProven";

/// Whether the agent of this Job may remove the last proven snapshot of a lineage.
fn may_remove_last(job: &Job) -> bool {
    matches!(request_of(job), Some(Request::Remove(request)) if request.allow_last)
}

fn allow_last(seen: &Observed) -> bool {
    meta::annotation(&seen.snapshot.metadata, key::REMOVE_LAST) == Some("true")
}

/// Returns the message for the user: the agent names its own flag, this message names the annotation with the same effect.
fn remedy(reason: &str, message: String) -> String {
    if reason != LAST_PROVEN {
        return message;
    }
    format!(
        "it is the last proven snapshot of its cluster. To remove it all the same, annotate this object with {}=true",
        key::REMOVE_LAST
    )
}

fn removed(report: &RemovedReport, artifact: &Artifact) -> Note {
    let unknown = if report.unknown_files.is_empty() {
        String::new()
    } else {
        format!("; files that Holdfast does not know stay: {}", report.unknown_files.join(", "))
    };
    let message = format!("the store does not hold {} any more{unknown}", artifact.uri);
    Note { warning: false, reason: "SnapshotRemoved".to_owned(), message }
}

/// Releases the object and leaves the snapshot in the store.
fn leave(seen: &Observed, why: &str) -> End {
    let artifact = seen.snapshot.status.as_ref().and_then(|status| status.artifact.as_ref());
    let place = artifact.map_or_else(String::new, |artifact| format!(" at {}", artifact.uri));
    let message = format!("the object goes, and the snapshot stays in the store{place}: {why}");
    release(seen, Some(Note { warning: true, reason: "SnapshotLeft".to_owned(), message }))
}

fn release(seen: &Observed, note: Option<Note>) -> End {
    let act = Act::ReleaseArtifact { snapshot: Target::from(&seen.snapshot.metadata) };
    End { act: Some(act), condition: None, removal: None, note, wake: Wake::OnChange }
}

fn wait(reason: Reason, message: String, wake: Wake) -> End {
    End { act: None, condition: Some((reason, message)), removal: None, note: None, wake }
}

fn waits(words: String, removal: Option<Removal>) -> End {
    End { removal, ..wait(Reason::Removing, words, SLOW) }
}
