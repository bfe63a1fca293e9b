//! The order of decisions about one snapshot.
//!
//! A snapshot is one Job, created once; the report of the Job's Pod becomes the status. If the report is lost or inconclusive,
//! other Jobs ask the store until the store answers: the manifest in the store is the truth (I6). The agent, not this plan,
//! picks the member to save from.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use snapshot_agent::contract::{self as agent, ExitClass};

use super::doubt::doubtful;
use super::inquiry::{self, Answer};
use super::latch::{goes_along, holds};
use super::removal;
use super::stage::{Doubt, Inquiry, SETTLING, SLOW, Stage, witnessed};
use super::{Observed, job, place, sidecar, status, unstarted};
use crate::api::backup_store::Right;
use crate::api::condition::{Reason, Type};
use crate::api::snapshot::{Failure, Phase};
use crate::api::{EtcdSnapshotStatus, key};
use crate::plan::held::HeldUp;
use crate::plan::jobs::{self, Fact};
use crate::plan::saving::{self, Source};
use crate::plan::{Act, Next, Plan, Waiting, Wake, fact, meta, pods};

/// A new object gets its first status within seconds. An older object without a status has lost its status, and its snapshot
/// may be stored.
const FIRST_STATUS: SignedDuration = SignedDuration::from_secs(60);

/// Kubernetes keeps a finished Job for an hour. So a missing Job whose start was latched less than this ago was never created;
/// after a longer time the Job may have run and may have been removed.
const COME_AND_GONE: SignedDuration = SignedDuration::from_mins(10);

/// When to check a Job without a Pod again: the operator asks the API server for the reason 5 s after the Job's creation, and
/// the status records the missing Pod within the first pause of the Job controller.
const FIRST_POD: Wake = Wake::AfterMillis(6_000);

/// Returns the plan for one snapshot.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotStatus> {
    let stage = stage(seen, now);
    if let Some(end) = removal::end(seen, &stage, now) {
        let status = status::ending(seen, &end, now);
        let waiting = end.told.filter(|_| end.act.is_none());
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
    // The save runs to its end even if the deletion then removes the stored snapshot.
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
    let to = match place::of(seen, Right::Write) {
        Ok(to) => to,
        Err((reason, why)) => return Stage::Blocked(reason, why),
    };
    let spec = &seen.snapshot.spec;
    let source = match (&spec.cluster_ref, &spec.external) {
        (Some(cluster), None) => ready_cluster(seen, &cluster.name),
        // The agent asks the external etcd during the save; the operator watches no external etcd.
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

/// Returns the stage from the Job's result, or from the store's answer if the Job's result is inconclusive.
fn of_job(seen: &Observed, job: &Job, now: Timestamp) -> Stage {
    let before = seen.held_up().filter(|held| held.job == meta::name(&job.metadata));
    if let Some(failed) = unstarted::failure(seen, job, before.as_ref(), now) {
        return Stage::Job(failed);
    }
    let fact = match jobs::read(job, &seen.pods, seen.refusal.as_deref(), before.as_ref(), now) {
        Fact::HeldUp(held) => Fact::HeldUp(held.with_claim_users(&seen.pods, &seen.claim_users)),
        // The hold-up stays in the message until the Job's result is known.
        Fact::Settling if jobs::never_ran(job, &seen.pods) => before.map_or(Fact::Settling, Fact::HeldUp),
        fact => fact,
    };
    if !doubtful(&fact, job, &seen.pods) {
        return Stage::Job(fact);
    }
    // The first failure stands: after the Pods are gone, the Job itself reports less.
    let told = match &fact {
        Fact::Failed { failure, message, .. } => Some(status::failure(*failure, message)),
        _ => None,
    };
    let (failed, at) = (failed_before(seen).or(told), jobs::ended(job));
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

/// Returns the stage of a snapshot whose Job is gone: removed, deleted, or lost with the state of Kubernetes. If the Job
/// published a snapshot, that snapshot counts (I6). Otherwise, and if no failure is known, the operator starts another save.
fn without_job(seen: &Observed, now: Timestamp) -> Stage {
    let (failed, witnessed) = (failed_before(seen), witnessed(seen));
    let recorded = seen.snapshot.spec.run.is_some();
    if let Some(pod) = seen.strays.first() {
        // The Pod may still publish, even on a silent node: the store's answer until then is not final, and another Job might
        // save a second time.
        let inquiry = if pods::lingers(pod, now) {
            let silent = HeldUp::pod(Reason::NodeSilent, "", pod, pods::who_holds(pod));
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
        // The operator records runs and never starts runs.
        (Answer::Nothing(why), None) if recorded => Stage::Job(not_stored("the Job of this run is gone", &why)),
        (Answer::Nothing(_), None) => start(seen),
        // Write-only credentials never get an answer. No Job was seen; if a Job did run, the Pod of the next Job writes beside
        // the stored objects and overwrites none (I7).
        (Answer::Open(inquiry), None) if inquiry.denied && !witnessed && !recorded => start(seen),
        (Answer::Open(inquiry), failed) => Stage::Doubt(Doubt { witnessed, failed, inquiry }),
    }
}

/// Failure of a run that reports a saved snapshot which the store does not hold.
fn not_stored(what: &str, why: &str) -> Fact {
    Fact::Failed {
        failure: Some(agent::Failure::of(ExitClass::NotFound, None)),
        message: format!("{what}, but the store does not hold this snapshot: {why}"),
        at: None,
        held: None,
    }
}

/// Returns the failure of the save, as recorded when the operator first asked the store.
fn failed_before(seen: &Observed) -> Option<Failure> {
    seen.snapshot.status.as_ref().filter(|s| s.phase == Phase::Running)?.error.clone()
}

/// Failure for a snapshot that the store does not hold: the recorded failure is final.
fn given_up(failed: Failure, at: Option<Timestamp>) -> Fact {
    let failure = fact::recorded(&failed.class, failed.origin.as_deref());
    Fact::Failed { failure, message: failed.message, at, held: None }
}

/// Whether a Job for this snapshot may exist or have existed.
fn began(seen: &Observed, now: Timestamp) -> bool {
    match &seen.snapshot.status {
        _ if witnessed(seen) => true,
        // `Running` without a start: the operator is asking the store, since the status was lost.
        Some(status) if status.phase == Phase::Running => true,
        // The operator writes the Job's name before the Job, and no pass has recorded anything since.
        Some(status) if status.job.is_some() => ready_since(status).is_none_or(|since| now >= since + COME_AND_GONE),
        Some(status) if !status.conditions.is_empty() => false,
        Some(_) | None => {
            let created = seen.snapshot.metadata.creation_timestamp.as_ref();
            created.is_some_and(|t| now >= t.0 + FIRST_STATUS)
        }
    }
}

/// Time of the last transition of `Ready`: the operator named the Job then or later.
fn ready_since(status: &EtcdSnapshotStatus) -> Option<Timestamp> {
    status.conditions.iter().find(|c| c.type_ == Type::Ready.as_str()).map(|c| c.last_transition_time.0)
}

fn next(stage: Stage) -> Next {
    match stage {
        Stage::Rest | Stage::Job(Fact::Stored { .. } | Fact::Failed { .. }) => Next::Settled(Wake::OnChange),
        Stage::Blocked(reason, message) => Next::wait(reason, message, SLOW),
        Stage::Job(Fact::HeldUp(held)) if held.pod.is_none() && held.reason == Reason::JobPending => {
            Next::wait(held.reason, held.words(), FIRST_POD)
        }
        Stage::Job(Fact::HeldUp(held)) => Next::wait(held.reason, held.words(), SLOW),
        Stage::Start(job) => Next::act(Act::StartJob(job)),
        Stage::Doubt(doubt) => {
            let ((reason, message), wake) = (status::doubt(&doubt), doubt.inquiry.wake());
            doubt.inquiry.ask.map_or_else(|| Next::wait(reason, message, wake), |job| Next::act(Act::StartJob(job)))
        }
        Stage::Job(Fact::Pending(message)) => Next::wait(Reason::JobPending, message, SLOW),
        Stage::Job(Fact::Running(message)) => Next::wait(Reason::JobRunning, message, SLOW),
        // A lost report leads to a question to the store and does not reach this branch.
        Stage::Job(Fact::Settling | Fact::Lost) => {
            Next::wait(Reason::JobRunning, SETTLING, Wake::AfterMillis(jobs::PATIENCE_MILLIS))
        }
    }
}

/// Returns the cluster's voters, or the missing reference. The operator waits for a missing reference: a snapshot may be
/// applied before its cluster.
fn ready_cluster(seen: &Observed, wanted: &str) -> Result<Source, (Reason, String)> {
    let missing = |why: String| Err((Reason::WaitingForReference, why));
    let Some(cluster) = &seen.cluster else {
        return missing(format!("there is no EtcdCluster {wanted} in this namespace yet"));
    };
    if meta::deleting(&cluster.metadata) {
        return missing(format!("EtcdCluster {wanted} is being deleted"));
    }
    // I25: data stored under this snapshot's name comes from the cluster that the user meant.
    let begun = seen.snapshot.status.as_ref().filter(|_| witnessed(seen)).and_then(|s| s.cluster_uid.as_deref());
    if let Some(gone) = begun.filter(|uid| *uid != meta::uid(&cluster.metadata)) {
        return missing(format!(
            "the EtcdCluster {wanted} of this snapshot is gone (UID {gone}), and another EtcdCluster has its name. \
             Create another EtcdSnapshot for the new cluster"
        ));
    }
    let formed = cluster.status.as_ref().is_some_and(|s| s.latches.formed.is_some());
    if formed && cluster.spec.replicas == 0 {
        let why = format!("EtcdCluster {wanted} is parked: spec.replicas is 0. The snapshot starts when it is larger");
        return Err((Reason::Parked, why));
    }
    saving::source(cluster)
}
