//! The order of decisions about one snapshot.
//!
//! A snapshot is one Job, created once; the status repeats the report of its Pod. If the report is lost or leaves the outcome
//! open, other Jobs ask the store until it answers: a published manifest is the truth (I6). The agent, not this file, picks the
//! member that it reads.

use holdfast_api::backup_store::Right;
use holdfast_api::condition::{self, Reason, Type};
use holdfast_api::snapshot::{Failure, Phase};
use holdfast_api::{EtcdSnapshotStatus, key};
use holdfast_contract::{self as agent, ExitClass};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::doubt::{doubtful, stored_nothing};
use super::inquiry::{self, Answer};
use super::latch::{goes_along, holds};
use super::removal;
use super::stage::{Doubt, Inquiry, SETTLING, SLOW, Stage, witnessed};
use super::{Observed, job, place, sidecar, status, subject, unstarted};
use holdfast_base::jobs::{self, JobState};
use holdfast_base::pod_cause::PodCause;
use holdfast_base::saving::{self, Source};
use holdfast_base::{Act, Next, Plan, Waiting, Wake, ending, job_state, meta, pods};

/// A new object gets its first status within seconds. An older object without a status has lost its status, and the snapshot may
/// be stored.
const FIRST_STATUS: SignedDuration = SignedDuration::from_secs(60);

/// A finished Job stays for an hour. A Job that was latched less than this time ago and is absent was never created. A Job that
/// was latched earlier may have run and been removed.
const COME_AND_GONE: SignedDuration = SignedDuration::from_mins(10);

/// Decides the next act or wait of a snapshot.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotStatus> {
    let stage = stage(seen, now);
    if let Some(end) = removal::end(seen, &stage, now) {
        let status = status::ending(seen, &end, now);
        let waiting = end.condition.filter(|_| end.act.is_none());
        let waiting = waiting.map(|(reason, message)| Waiting { reason, message });
        let notes = end.note.into_iter().collect();
        return Plan { ensures: vec![], act: end.act, status, notes, waiting, wake: end.wake };
    }
    let status = status::whole(seen, &stage, now);
    let notes = status::notes(seen, &stage);
    let rests = stage == Stage::Rest;
    let next = sidecar::next(seen, now).filter(|_| rests).unwrap_or_else(|| next(stage));
    let (act, waiting, wake) = next.into_parts();
    Plan { ensures: vec![], act, status, notes, waiting, wake }
}

fn stage(seen: &Observed, now: Timestamp) -> Stage {
    let meta = &seen.snapshot.metadata;
    let final_already = seen.snapshot.status.as_ref().is_some_and(|s| s.phase.is_final());
    // The save of a snapshot that the deletion removes from the store continues to its end.
    if final_already || (meta::deleting(meta) && !(goes_along(&seen.snapshot) && holds(&seen.snapshot))) {
        return Stage::Rest;
    }
    if seen.snapshot.spec.run.is_none() && meta::label(meta, key::SCHEDULE_UID).is_some() {
        let message = format!(
            "the label {} marks a record of a run, and spec.run is absent: an outdated definition of EtcdSnapshot drops it. \
             Apply the definitions (holdfast manifests --only crds), then delete this EtcdSnapshot; Holdfast records the run again",
            key::SCHEDULE_UID
        );
        return Stage::Blocked(Reason::DefinitionsOutdated, message);
    }
    match &seen.job {
        Some(job) if !seen.owns(job) => conflict(seen, job),
        Some(job) => of_job(seen, job, now),
        None if seen.snapshot.spec.run.is_some() || began(seen, now) => without_job(seen, now),
        None => start(seen),
    }
}

fn conflict(seen: &Observed, job: &Job) -> Stage {
    if seen.snapshot.spec.run.is_some() {
        let message = format!(
            "spec.run: Job {} is no run of the EtcdSnapshotSchedule that the label {} names, so Holdfast takes nothing from \
             the Job. Delete this EtcdSnapshot; Holdfast records runs by itself",
            meta::name(&job.metadata),
            key::SCHEDULE_UID
        );
        return Stage::Blocked(Reason::InvalidSpec, message);
    }
    taken(job)
}

fn taken(job: &Job) -> Stage {
    let message = format!(
        "the Job {} does not belong to this snapshot. Delete the Job, or create the snapshot under another name",
        meta::name(&job.metadata)
    );
    Stage::Blocked(Reason::NameConflict, message)
}

fn start(seen: &Observed) -> Stage {
    let to = match place::resolve(seen, Right::Write) {
        Ok(to) => to,
        Err((reason, why)) => return Stage::Blocked(reason, why),
    };
    let spec = &seen.snapshot.spec;
    let source = match (&spec.cluster_ref, &spec.external) {
        (Some(cluster), None) => ready_cluster(seen, &cluster.name),
        // The operator does not watch an external etcd; the agent reads its state during the save.
        (None, Some(_)) => Ok(Source::default()),
        (Some(_), Some(_)) | (None, None) => {
            let why = "spec: needs exactly one of clusterRef and external";
            return Stage::Blocked(Reason::InvalidSpec, why.to_owned());
        }
    };
    if !seen.missing_secrets.is_empty() {
        let why = format!(
            "spec names Secrets that do not exist in this namespace: Secret {}. Create them, and Holdfast starts the \
             snapshot within 15 s",
            seen.missing_secrets.join(", Secret ")
        );
        return Stage::Blocked(Reason::WaitingForReference, why);
    }
    match source {
        Ok(source) => Stage::Start(Box::new(job::save(seen, to, source))),
        Err((reason, why)) => Stage::Blocked(reason, why),
    }
}

/// The stage while the Job exists: from the Job, or, if the Job leaves the outcome open, from the store.
fn of_job(seen: &Observed, job: &Job, now: Timestamp) -> Stage {
    let before = seen.held_up().filter(|held| held.job == meta::name(&job.metadata));
    if let Some(failed) = unstarted::failure(seen, job, before.as_ref(), now) {
        return Stage::Job(failed);
    }
    let state = match jobs::read(job, &seen.pods, seen.refusal.as_deref(), before.as_ref(), now) {
        // The Job's time is over: its controller has deleted the Pod, and has not ended the Job yet.
        state @ (JobState::HeldUp(PodCause { pod: None, .. }) | JobState::Pending(_) | JobState::Running(_))
            if unstarted::has_ended(seen, now) =>
        {
            before.map_or(state, JobState::HeldUp)
        }
        JobState::HeldUp(held) => JobState::HeldUp(held.with_claim_users(&seen.pods, &seen.claim_users)),
        // The status keeps the cause until the outcome is known.
        JobState::Settling if jobs::never_ran(job, &seen.pods) => before.map_or(JobState::Settling, JobState::HeldUp),
        state => state,
    };
    let gone = subject::failure(seen, &state, now);
    let is_certain = gone.is_some() && stored_nothing(job, &seen.pods);
    let state = gone.unwrap_or(state);
    if is_certain || !doubtful(&state, job, &seen.pods) {
        return Stage::Job(state);
    }
    // The first failure stays: once the Pods are deleted, the Job alone shows less.
    let pod_failure = match &state {
        JobState::Failed { failure, message, .. } => Some(status::failure(*failure, message)),
        _ => None,
    };
    let (failed, at) = (failed_before(seen).or(pod_failure), jobs::ended(job));
    match inquiry::answer(seen, now) {
        Answer::Stored(stored) => Stage::Job(stored),
        Answer::Taken(job) => taken(&job),
        Answer::Nothing(why) => Stage::Job(match failed {
            Some(failed) => given_up(failed, at),
            None => not_stored("the Job succeeded", &why),
        }),
        Answer::Open(inquiry) => Stage::Doubt(Doubt { witnessed: true, failed, inquiry }),
    }
}

/// The stage after the Job: it was removed after its time, deleted, or lost with the cluster's state. If the Job has published a
/// manifest, the snapshot exists (I6). Only otherwise, and unless the Job is known to have failed, another Job starts.
fn without_job(seen: &Observed, now: Timestamp) -> Stage {
    let (failed, witnessed) = (failed_before(seen), witnessed(seen));
    let recorded = seen.snapshot.spec.run.is_some();
    if let Some(pod) = seen.strays.first() {
        // The Pod may still publish, also on a silent node: the store's state is not final, and another Job might save a second
        // time.
        let inquiry = if pods::lingers(pod, now) {
            let silent = PodCause::pod(Reason::NodeSilent, "", pod, pods::who_holds(pod));
            let words = format!("the Job is gone, and {}", silent.words());
            Inquiry { trouble: Some(Reason::NodeSilent), ..Inquiry::waits(words) }
        } else {
            let pod = meta::name(&pod.metadata);
            Inquiry::waits(format!(
                "the Job is gone, but its Pod {pod} has not ended. If the Pod stays, `kubectl describe pod {pod}` \
                 names the cause"
            ))
        };
        return Stage::Doubt(Doubt { witnessed, failed, inquiry });
    }
    match (inquiry::answer(seen, now), failed) {
        (Answer::Stored(stored), _) => Stage::Job(stored),
        (Answer::Taken(job), _) => taken(&job),
        (Answer::Nothing(_), Some(failed)) => Stage::Job(given_up(failed, None)),
        // A run is recorded, never started.
        (Answer::Nothing(why), None) if recorded => Stage::Job(not_stored("the Job of this run is gone", &why)),
        (Answer::Nothing(_), None) => match subject::cluster(seen).filter(|_| witnessed) {
            Some(why) => Stage::Job(given_up(status::failure(Some(subject::cluster_gone()), &why), None)),
            None => start(seen),
        },
        // Write-only credentials cannot read the store's state. No pass has seen a Job; if one ran, the Pod of the next Job
        // writes beside its objects, never over them (I7).
        (Answer::Open(inquiry), None) if inquiry.denied && !witnessed && !recorded => start(seen),
        (Answer::Open(inquiry), failed) => Stage::Doubt(Doubt { witnessed, failed, inquiry }),
    }
}

/// The state of a run that should have a snapshot, which the store does not hold.
fn not_stored(what: &str, why: &str) -> JobState {
    JobState::Failed {
        failure: Some(agent::Failure::for_class(ExitClass::NotFound, None)),
        message: format!("{what}, but the store does not hold this snapshot: {why}"),
        at: None,
        held: None,
    }
}

/// The failure of the save, as recorded before the first question to the store.
fn failed_before(seen: &Observed) -> Option<Failure> {
    seen.snapshot.status.as_ref().filter(|s| s.phase == Phase::Running)?.error.clone()
}

/// The final state where the store holds nothing: the recorded failure.
fn given_up(failed: Failure, at: Option<Timestamp>) -> JobState {
    let failure = job_state::recorded(&failed.class, failed.origin.as_deref());
    JobState::Failed { failure, message: failed.message, at, held: None }
}

/// Whether a Job was created for this snapshot, as far as the status, Pods and the object's age show.
fn began(seen: &Observed, now: Timestamp) -> bool {
    match &seen.snapshot.status {
        _ if witnessed(seen) => true,
        // `Running` without a start: the status was lost, and Holdfast asks the store.
        Some(status) if status.phase == Phase::Running => true,
        // The status names the Job before the Job is created, and no pass has run since.
        Some(status) if status.job.is_some() => ready_since(status).is_none_or(|since| now >= since + COME_AND_GONE),
        Some(status) if !status.conditions.is_empty() => false,
        Some(_) | None => {
            let created = seen.snapshot.metadata.creation_timestamp.as_ref();
            created.is_some_and(|t| now >= t.0 + FIRST_STATUS)
        }
    }
}

/// When `Ready` changed last: the status named the Job at this time or later.
fn ready_since(status: &EtcdSnapshotStatus) -> Option<Timestamp> {
    condition::find(&status.conditions, Type::Ready).map(|c| c.last_transition_time.0)
}

fn next(stage: Stage) -> Next {
    match stage {
        Stage::Rest | Stage::Job(JobState::Stored { .. } | JobState::Failed { .. }) => Next::Settled(Wake::OnChange),
        Stage::Blocked(reason, message) => Next::wait(reason, message, SLOW),
        Stage::Job(JobState::HeldUp(held)) => Next::wait(held.reason, held.words(), SLOW),
        Stage::Start(job) => Next::act(Act::StartJob(job)),
        Stage::Doubt(doubt) => {
            let ((reason, message), wake) = (status::doubt(&doubt), doubt.inquiry.wake());
            doubt.inquiry.ask.map_or_else(|| Next::wait(reason, message, wake), |job| Next::act(Act::StartJob(job)))
        }
        Stage::Job(JobState::Pending(message)) => Next::wait(Reason::JobPending, message, SLOW),
        Stage::Job(JobState::Running(message)) => Next::wait(Reason::JobRunning, message, SLOW),
        // A lost Job becomes a question to the store before this point.
        Stage::Job(JobState::Settling | JobState::Lost) => {
            Next::wait(Reason::JobRunning, SETTLING, Wake::AfterMillis(jobs::PATIENCE_MILLIS))
        }
    }
}

/// Returns the cluster and its voters, or the missing object. A snapshot that was applied before its cluster waits, and does not
/// fail.
fn ready_cluster(seen: &Observed, wanted: &str) -> Result<Source, (Reason, String)> {
    let missing = |why: String| Err((Reason::WaitingForReference, why));
    let Some(cluster) = &seen.cluster else {
        return missing(format!("there is no EtcdCluster {wanted} in this namespace yet"));
    };
    if meta::deleting(&cluster.metadata) && !ending::awaits_snapshot(cluster) {
        return missing(format!("EtcdCluster {wanted} is being deleted"));
    }
    // I25: data under this snapshot's name comes from the cluster that the user meant.
    let saved_uid = seen.snapshot.status.as_ref().filter(|_| witnessed(seen)).and_then(|s| s.cluster_uid.as_deref());
    let meant = meta::label(&seen.snapshot.metadata, key::CLUSTER_UID).or(saved_uid);
    if let Some(gone) = meant.filter(|uid| *uid != meta::uid(&cluster.metadata)) {
        return missing(format!(
            "the EtcdCluster {wanted} of this snapshot is gone (UID {gone}), and another EtcdCluster has its name. \
             Create another EtcdSnapshot for the new cluster"
        ));
    }
    let formed = cluster.status.as_ref().is_some_and(|s| s.latches.formed.is_some());
    if formed && cluster.spec.replicas == 0 && !ending::awaits_snapshot(cluster) {
        let why = format!("EtcdCluster {wanted} is parked: spec.replicas is 0. The snapshot starts when it is larger");
        return Err((Reason::Parked, why));
    }
    saving::source(cluster)
}
