//! A snapshot's whole status, computed on every pass, and the Events of its changes.
//!
//! Decides what the status reports; `plan.rs` decides the step. A final status stays as it is (I18); the artifact is written
//! once, together with the final phase (I7).

use holdfast_api::condition::{self, Reason, Type, Wanted, merge};
use holdfast_api::snapshot::{Artifact, Failure, Phase, Source, Verification};
use holdfast_api::{EtcdSnapshotStatus, key};
use holdfast_contract::{self as agent, Level, SavedReport};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::removal::End;
use super::stage::{Doubt, Inquiry, SETTLING, Stage, witnessed};
use super::{Observed, job, place};
use holdfast_base::job_state::AUTH_ENABLED;
use holdfast_base::jobs::JobState;
use holdfast_base::pod_cause::PodCause;
use holdfast_base::{Note, job_state, meta};

/// Reason and message while neither the Job nor the store has answered whether the snapshot is stored: the known failure of the
/// save, and the progress of the question to the store.
pub(super) fn doubt(doubt: &Doubt) -> (Reason, String) {
    let Inquiry { ask, words, silent, trouble, .. } = &doubt.inquiry;
    let asking = trouble.unwrap_or(Reason::AskingStore);
    match (&doubt.failed, silent) {
        (None, None) if ask.is_some() && words.is_empty() => {
            let message = if doubt.witnessed {
                "The Job's report is gone. Holdfast asks the store whether the snapshot exists"
            } else {
                "No Job of this snapshot is known, but a Job may have run. Holdfast asks the store whether the \
                 snapshot exists"
            };
            (Reason::AskingStore, message.to_owned())
        }
        (None, None) => (asking, words.clone()),
        (Some(failed), None) => {
            let words = if words.is_empty() { String::new() } else { format!(": {words}") };
            let message = format!("{}. Holdfast asks the store whether the snapshot exists{words}", failed.message);
            (asking, message)
        }
        (None, Some(why)) if !doubt.witnessed => {
            let message = format!(
                "No Job of this snapshot is known, but a Job may have run, so Holdfast asks the store first. The store \
                 did not answer, and Holdfast asks again: {why}"
            );
            (Reason::AskingStore, message)
        }
        (None, Some(why)) => {
            let message = format!(
                "The Job's report is gone, and only the store knows whether the snapshot exists. The store did not answer, \
                 and Holdfast asks again: {why}"
            );
            (Reason::ReportLost, message)
        }
        (Some(failed), Some(why)) => {
            let message = format!(
                "{}. The store did not answer whether the snapshot exists, and Holdfast asks again: {why}",
                failed.message
            );
            (job_state::reason_of(job_state::recorded(&failed.class, failed.origin.as_deref())), message)
        }
    }
}

/// Converts an agent's failure into the status's failure.
pub(super) fn failure(failure: Option<&agent::Failure>, message: &str) -> Failure {
    let (class, origin) = job_state::names_of(failure);
    Failure { class, origin, message: message.to_owned() }
}

/// Returns the status before the next step.
pub(super) fn whole(seen: &Observed, stage: &Stage, now: Timestamp) -> EtcdSnapshotStatus {
    if *stage == Stage::Rest {
        return at_rest(seen);
    }
    let old = seen.snapshot.status.clone().unwrap_or_default();
    let generation = seen.snapshot.metadata.generation;
    // Drops the old Degraded condition; the operator sets it again if the failure persists.
    let kept: Vec<_> = old.conditions.iter().filter(|c| c.type_ != Type::Degraded.as_str()).cloned().collect();
    let own_job = matches!(stage, Stage::Job(_) | Stage::Doubt(_)).then_some(seen.job.as_ref()).flatten();
    let made = own_job.and_then(|job| job.metadata.creation_timestamp.as_ref()).map(|t| t.0.to_string());
    let base = EtcdSnapshotStatus {
        observed_generation: generation,
        phase: phase(stage),
        // Of the first Job: the user's wait began then.
        started_at: old.started_at.or(made),
        attempts: job::attempts(seen),
        job: match stage {
            // Before the Job's creation: after an outage the operator must know that the Job may exist.
            Stage::Start(job) => Some(meta::name(&job.metadata).to_owned()),
            // The Job was not created, and is not created now: the name would only cause a question to the store.
            Stage::Blocked(reason, _) if *reason != Reason::NameConflict && !witnessed(seen) => None,
            Stage::Rest | Stage::Blocked(..) | Stage::Job(_) | Stage::Doubt(_) => {
                own_job.map(|job| meta::name(&job.metadata).to_owned()).or(old.job)
            }
        },
        cluster_uid: match stage {
            // Before the Job's creation, too.
            Stage::Start(_) => seen.cluster.as_ref().map(|cluster| meta::uid(&cluster.metadata).to_owned()),
            // Without a save the snapshot is bound to no cluster.
            Stage::Blocked(reason, _) if *reason != Reason::NameConflict && !witnessed(seen) => None,
            Stage::Rest | Stage::Blocked(..) | Stage::Job(_) | Stage::Doubt(_) => {
                old.cluster_uid.or_else(|| saved_cluster(seen, stage))
            }
        },
        store: place::recorded(seen).or_else(|| match stage {
            // Before the Job's creation: from then on the snapshot may be in this store.
            Stage::Start(job) => place::on(job),
            Stage::Doubt(doubt) => doubt.inquiry.ask.as_deref().and_then(place::on),
            Stage::Rest | Stage::Blocked(..) | Stage::Job(_) => None,
        }),
        conditions: merge(&kept, &wanted(stage), generation, now),
        held_up: held_up(seen, stage).map(|held| held.recorded(old.held_up.as_ref(), now)),
        completed_at: None,
        source: None,
        artifact: None,
        verification: None,
        removal: None,
        error: None,
    };
    match stage {
        Stage::Job(JobState::Stored { report, at }) => EtcdSnapshotStatus {
            completed_at: Some(at.unwrap_or(now).to_string()),
            source: Some(source(report)),
            artifact: Some(artifact(report)),
            verification: verification(report),
            ..base
        },
        Stage::Job(JobState::Failed { failure: failed, message, at, held: _ }) => EtcdSnapshotStatus {
            completed_at: Some(at.unwrap_or(now).to_string()),
            error: Some(failure(*failed, message)),
            ..base
        },
        // Kubernetes removes the Job and its Pods later; the status keeps their failure.
        Stage::Doubt(doubt) => EtcdSnapshotStatus { error: doubt.failed.clone(), ..base },
        Stage::Rest
        | Stage::Blocked(..)
        | Stage::Start(_)
        | Stage::Job(
            JobState::Pending(_) | JobState::Running(_) | JobState::HeldUp(_) | JobState::Settling | JobState::Lost,
        ) => base,
    }
}

/// Returns the status during the deletion: the stored snapshot's fields unchanged, and the wait.
pub(super) fn ending(seen: &Observed, end: &End, now: Timestamp) -> EtcdSnapshotStatus {
    let mut status = at_rest(seen);
    status.removal.clone_from(&end.removal);
    if let Some((reason, message)) = &end.condition {
        let wanted_now = [Wanted::no(Type::Ready, *reason, message)];
        status.conditions = merge(&status.conditions, &wanted_now, seen.snapshot.metadata.generation, now);
    }
    status
}

/// Returns the UID of the cluster that a recorded run saved, from the Job's annotation or from the UID prefix in the snapshot's
/// key.
fn saved_cluster(seen: &Observed, stage: &Stage) -> Option<String> {
    seen.snapshot.spec.run.as_ref()?;
    let job = seen.job.as_ref().filter(|job| seen.owns(job));
    let annotated = job.and_then(|job| meta::annotation(&job.metadata, key::CLUSTER_UID));
    let found = || {
        let Stage::Job(JobState::Stored { report, .. }) = stage else { return None };
        let uid = meta::uid(&seen.cluster.as_ref()?.metadata);
        (report.key.split('/').nth(2) == uid.get(..8)).then_some(uid)
    };
    annotated.or_else(found).map(str::to_owned)
}

/// Returns the hold-up of the Pod that saves or asks the store.
fn held_up(seen: &Observed, stage: &Stage) -> Option<PodCause> {
    match stage {
        Stage::Job(JobState::HeldUp(held)) => Some(held.clone()),
        Stage::Job(JobState::Pending(_) | JobState::Settling) => seen.held_up(),
        Stage::Doubt(doubt) => doubt.inquiry.held.clone(),
        Stage::Job(JobState::Failed { held, .. }) => held.clone(),
        Stage::Rest
        | Stage::Blocked(..)
        | Stage::Start(_)
        | Stage::Job(JobState::Running(_) | JobState::Lost | JobState::Stored { .. }) => None,
    }
}

/// Returns a final status unchanged, except for Degraded: the operator's own failures are no property of the snapshot.
fn at_rest(seen: &Observed) -> EtcdSnapshotStatus {
    let mut status = seen.snapshot.status.clone().unwrap_or_default();
    if status.phase.is_final() {
        // `hold` and `deletionPolicy` of a final snapshot may change, and tools wait for the generation.
        status.observed_generation = seen.snapshot.metadata.generation;
        status.conditions.retain(|c| c.type_ != Type::Degraded.as_str());
    }
    status
}

const fn phase(stage: &Stage) -> Phase {
    match stage {
        Stage::Rest | Stage::Blocked(..) | Stage::Start(_) => Phase::Pending,
        Stage::Doubt(_)
        | Stage::Job(
            JobState::Pending(_) | JobState::Running(_) | JobState::HeldUp(_) | JobState::Settling | JobState::Lost,
        ) => Phase::Running,
        Stage::Job(JobState::Stored { .. }) => Phase::Complete,
        Stage::Job(JobState::Failed { .. }) => Phase::Failed,
    }
}

fn wanted(stage: &Stage) -> Vec<Wanted> {
    let verified = match stage {
        Stage::Job(JobState::Stored { report, .. }) => verification(report).map(|found| match found.level {
            Level::HashKV => Wanted::yes(Type::Verified, Reason::MembersAgree, found.message),
            Level::Structure | Level::Trailer => Wanted::no(Type::Verified, Reason::NotCompared, found.message),
        }),
        _ => None,
    };
    std::iter::once(ready(stage)).chain(verified).collect()
}

fn ready(stage: &Stage) -> Wanted {
    let no = |reason, message: &str| Wanted::no(Type::Ready, reason, message);
    match stage {
        // Unreachable: a status at rest stays as it is.
        Stage::Rest => no(Reason::Deleting, "the snapshot is being deleted"),
        Stage::Blocked(reason, message) => no(*reason, message),
        Stage::Job(JobState::HeldUp(held)) => no(held.reason, &held.words()),
        Stage::Start(_) => no(Reason::JobPending, "Holdfast creates the Job"),
        Stage::Job(JobState::Pending(message)) => no(Reason::JobPending, message),
        Stage::Job(JobState::Running(message)) => no(Reason::JobRunning, message),
        Stage::Job(JobState::Settling | JobState::Lost) => no(Reason::JobRunning, SETTLING),
        Stage::Doubt(open) => match (doubt(open), &open.inquiry.silent) {
            ((reason, message), None) => no(reason, &message),
            ((reason, message), Some(_)) => Wanted::unknown(Type::Ready, reason, message),
        },
        Stage::Job(JobState::Stored { report, .. }) => Wanted::yes(Type::Ready, Reason::Stored, stored_words(report)),
        Stage::Job(JobState::Failed { failure, message, held, .. }) => {
            let unstarted = held.as_ref().map(|held| job_state::reason_of_unstarted(*failure, held));
            no(unstarted.unwrap_or_else(|| job_state::reason_of(*failure)), message)
        }
    }
}

fn stored_words(report: &SavedReport) -> String {
    let at = report.revision.map_or_else(String::new, |revision| format!(" at revision {revision}"));
    let unlocked = match &report.lock {
        Some(lock) if !lock.confirmed => "; a lock was requested, but the credentials may not read the lock",
        Some(_) | None => "",
    };
    let closed = if report.auth_enabled { format!("; {AUTH_ENABLED}") } else { String::new() };
    format!("{} of member {}{at} are stored at {}{unlocked}{closed}", size(report.db_bytes), report.member, report.uri)
}

/// Returns `None` for a snapshot of an earlier agent, whose report has no verification.
fn verification(report: &SavedReport) -> Option<Verification> {
    let found = report.verification.as_ref()?;
    let reason = found.reason.as_deref().unwrap_or("the agent gave no reason");
    let message = match found.level {
        Level::HashKV => {
            let (hash, revision) = (report.hash_kv.unwrap_or_default(), report.revision.unwrap_or_default());
            let others = found.agreed_by_reason.as_ref();
            let others = others.map(|why| format!("; not compared with another member: {why}")).unwrap_or_default();
            format!("HashKV {hash} at revision {revision} equals that of {}{others}", found.agreed_by.join(" and "))
        }
        Level::Structure => format!("the database is sound, and was not compared with a live member: {reason}"),
        Level::Trailer => format!("the bytes equal the bytes that etcd sent; the database was not checked: {reason}"),
    };
    let message = match &found.read_back_reason {
        _ if found.read_back => format!("{message}; the agent read back the stored bytes"),
        Some(why) => format!("{message}; the agent did not read back the stored bytes: {why}"),
        None => message,
    };
    let message = found.differences.iter().fold(message, |message, difference| format!("{message}; {difference}"));
    Some(Verification { level: found.level, agreed_by: found.agreed_by.clone(), read_back: found.read_back, message })
}

/// Returns the Events of this pass, once for each change, so a repeated pass returns none.
pub(super) fn notes(seen: &Observed, stage: &Stage) -> Vec<Note> {
    let note = |warning: bool, reason: &str, message: String| Note { warning, reason: reason.to_owned(), message };
    match stage {
        Stage::Start(job) => {
            let name = meta::name(&job.metadata);
            vec![if witnessed(seen) {
                // Keys are unique for each Pod, so the next Job overwrites nothing that the earlier Pod stored (I7).
                note(
                    true,
                    "JobCreated",
                    format!(
                        "the Job is gone, and the store does not hold its snapshot: Holdfast creates Job {name} again"
                    ),
                )
            } else {
                note(false, "JobCreated", format!("Job {name} saves the snapshot"))
            }]
        }
        Stage::Job(JobState::Stored { report, .. }) => {
            let stored = note(false, "SnapshotStored", stored_words(report));
            let weak = verification(report).filter(|found| found.level < Level::HashKV);
            let weak = weak.map(|found| note(true, Reason::NotCompared.as_str(), found.message));
            std::iter::once(stored).chain(weak).collect()
        }
        Stage::Job(JobState::Failed { message, .. }) => vec![note(true, "SnapshotFailed", message.clone())],
        Stage::Blocked(reason, message) if reason.needs_a_person() && newly(seen, *reason) => {
            vec![note(true, reason.as_str(), message.clone())]
        }
        Stage::Doubt(open) if open.inquiry.silent.is_some() => {
            let (reason, message) = doubt(open);
            // The reason may be the same while the store was being asked.
            if newly(seen, reason) || !unknown(seen) { vec![note(true, reason.as_str(), message)] } else { vec![] }
        }
        Stage::Doubt(open) if open.inquiry.trouble.is_some_and(|reason| newly(seen, reason)) => {
            let (reason, message) = doubt(open);
            vec![note(true, reason.as_str(), message)]
        }
        Stage::Job(JobState::HeldUp(held)) if held.reason.needs_a_person() && newly(seen, held.reason) => {
            vec![note(true, held.reason.as_str(), held.words())]
        }
        Stage::Rest | Stage::Blocked(..) | Stage::Job(_) | Stage::Doubt(_) => vec![],
    }
}

fn ready_before(seen: &Observed) -> Option<&Condition> {
    condition::find(seen.snapshot.status.iter().flat_map(|s| &s.conditions), Type::Ready)
}

/// Whether `Ready` had another reason before.
fn newly(seen: &Observed, reason: Reason) -> bool {
    ready_before(seen).is_none_or(|ready| ready.reason != reason.as_str())
}

/// Whether `Ready` was already `Unknown`.
fn unknown(seen: &Observed) -> bool {
    ready_before(seen).is_some_and(|ready| ready.status == "Unknown")
}

fn source(report: &SavedReport) -> Source {
    Source { member: report.member.clone(), member_id: report.member_id.clone(), cluster_id: report.cluster_id.clone() }
}

fn artifact(report: &SavedReport) -> Artifact {
    Artifact {
        uri: report.uri.clone(),
        key: report.key.clone(),
        db_bytes: report.db_bytes,
        size: size(report.db_bytes),
        stored_bytes: report.stored_bytes,
        sha256: report.sha256.clone(),
        manifest_sha256: report.manifest_sha256.clone(),
        revision: report.revision,
        compact_revision: report.compact_revision,
        keys: report.keys.and_then(|keys| i64::try_from(keys).ok()),
        hash_kv: report.hash_kv.map(i64::from),
        compression: report.compression,
        encrypted: report.encrypted,
        auth_enabled: report.auth_enabled,
        locked_until: report.lock.as_ref().filter(|lock| lock.confirmed).map(|lock| lock.until.to_string()),
        etcd_version: report.etcd_version.clone(),
        storage_version: report.storage_version.clone(),
    }
}

/// Formats bytes: `812 B`, `1.2 GiB`. One digit after the point, rounded down.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut scale = 1024_u64;
    while unit + 1 < UNITS.len() && bytes / 1024 >= scale {
        scale *= 1024;
        unit += 1;
    }
    format!("{}.{} {}", bytes / scale, bytes % scale * 10 / scale, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_for_people() {
        for (bytes, said) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (20_480, "20.0 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (1024 * 1024, "1.0 MiB"),
            (1_288_490_189, "1.2 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
