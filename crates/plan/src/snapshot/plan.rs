//! The order of decisions about one snapshot.
//!
//! A snapshot is one Job, made once; its Pod's report is what becomes the status. Where the report is lost, or leaves it
//! open, other Jobs ask the store until it answers: what is published there is the truth (I6). It decides nothing about
//! where the bytes come from: the agent picks the member.

use holdfast_api::backup_store::Right;
use holdfast_api::condition::{Reason, Type};
use holdfast_api::snapshot::{Failure, Phase};
use holdfast_api::{EtcdSnapshotStatus, key};
use holdfast_contract::{self as agent, ExitClass};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::doubt::doubtful;
use super::inquiry::{self, Answer};
use super::latch::{goes_along, holds};
use super::removal;
use super::stage::{Doubt, Inquiry, SETTLING, SLOW, Stage, witnessed};
use super::{Observed, job, place, sidecar, status, unstarted};
use crate::held::HeldUp;
use crate::jobs::{self, Fact};
use crate::saving::{self, Source};
use crate::{Act, Next, Plan, Waiting, Wake, fact, meta, pods};

/// A fresh object gets its first status within seconds. An older one without any has lost it, and the snapshot may be
/// stored all the same.
const FIRST_STATUS: SignedDuration = SignedDuration::from_secs(60);

/// A finished Job is kept for an hour. So where its start was latched less than this ago and it is not there, it was never
/// made; where that is longer ago it may have run and been removed.
const COME_AND_GONE: SignedDuration = SignedDuration::from_mins(10);

/// What to do next.
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
    // The save goes on to its end where what it stores is to be removed.
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
        // It is asked for what it is when it is saved; nothing of it is watched here.
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

/// Its Job stands: what it says, or where it leaves that open, what the store says.
fn of_job(seen: &Observed, job: &Job, now: Timestamp) -> Stage {
    let before = seen.held_up().filter(|held| held.job == meta::name(&job.metadata));
    if let Some(failed) = unstarted::failure(seen, job, before.as_ref(), now) {
        return Stage::Job(failed);
    }
    let fact = match jobs::read(job, &seen.pods, seen.refusal.as_deref(), before.as_ref(), now) {
        // The Job's time is over: its controller has deleted the Pod, and has not ended the Job yet.
        fact @ (Fact::HeldUp(HeldUp { pod: None, .. }) | Fact::Pending(_) | Fact::Running(_))
            if unstarted::has_ended(seen, now) =>
        {
            before.map_or(fact, Fact::HeldUp)
        }
        Fact::HeldUp(held) => Fact::HeldUp(held.with_claim_users(&seen.pods, &seen.claim_users)),
        // What held the Pod up is told until it is known what came of it.
        Fact::Settling if jobs::never_ran(job, &seen.pods) => before.map_or(Fact::Settling, Fact::HeldUp),
        fact => fact,
    };
    if !doubtful(&fact, job, &seen.pods) {
        return Stage::Job(fact);
    }
    // The first word stands: when the Pods are gone, the Job itself says less.
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

/// A Job has stood, or may have, and is gone: cleaned away, deleted, or lost with the whole cluster's state. If it has
/// published, that is the snapshot (I6); only else, and where it is not known to have failed, another one is taken.
fn without_job(seen: &Observed, now: Timestamp) -> Stage {
    let (failed, witnessed) = (failed_before(seen), witnessed(seen));
    let recorded = seen.snapshot.spec.run.is_some();
    if let Some(pod) = seen.strays.first() {
        // It may publish yet, on a node that says nothing too: what the store shows meanwhile is no end, and another Job
        // might save a second time.
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
        // A run is recorded, never started.
        (Answer::Nothing(why), None) if recorded => Stage::Job(not_stored("the Job of this run is gone", &why)),
        (Answer::Nothing(_), None) => start(seen),
        // Credentials that may only write are never told what is there. Nobody has seen a Job; should there have been one
        // all the same, the next one's Pod writes beside what it stored, never over it (I7).
        (Answer::Open(inquiry), None) if inquiry.denied && !witnessed && !recorded => start(seen),
        (Answer::Open(inquiry), failed) => Stage::Doubt(Doubt { witnessed, failed, inquiry }),
    }
}

/// The store says that it does not hold what a run is said to have saved.
fn not_stored(what: &str, why: &str) -> Fact {
    Fact::Failed {
        failure: Some(agent::Failure::of(ExitClass::NotFound, None)),
        message: format!("{what}, but the store does not hold this snapshot: {why}"),
        at: None,
        held: None,
    }
}

/// How saving failed, as it was told when the store was first asked what came of it.
fn failed_before(seen: &Observed) -> Option<Failure> {
    seen.snapshot.status.as_ref().filter(|s| s.phase == Phase::Running)?.error.clone()
}

/// The store has nothing: what was told of the failure is the end.
fn given_up(failed: Failure, at: Option<Timestamp>) -> Fact {
    let failure = fact::recorded(&failed.class, failed.origin.as_deref());
    Fact::Failed { failure, message: failed.message, at, held: None }
}

/// Whether a Job was made for this snapshot, by all that is known.
fn began(seen: &Observed, now: Timestamp) -> bool {
    match &seen.snapshot.status {
        _ if witnessed(seen) => true,
        // `Running` without a start: the store is being asked, since the status was lost.
        Some(status) if status.phase == Phase::Running => true,
        // Its name is written before it is made, and nobody has looked since.
        Some(status) if status.job.is_some() => ready_since(status).is_none_or(|since| now >= since + COME_AND_GONE),
        Some(status) if !status.conditions.is_empty() => false,
        Some(_) | None => {
            let created = seen.snapshot.metadata.creation_timestamp.as_ref();
            created.is_some_and(|t| now >= t.0 + FIRST_STATUS)
        }
    }
}

/// Since when `Ready` has been what it is: the Job was named then or later.
fn ready_since(status: &EtcdSnapshotStatus) -> Option<Timestamp> {
    status.conditions.iter().find(|c| c.type_ == Type::Ready.as_str()).map(|c| c.last_transition_time.0)
}

fn next(stage: Stage) -> Next {
    match stage {
        Stage::Rest | Stage::Job(Fact::Stored { .. } | Fact::Failed { .. }) => Next::Settled(Wake::OnChange),
        Stage::Blocked(reason, message) => Next::wait(reason, message, SLOW),
        Stage::Job(Fact::HeldUp(held)) => Next::wait(held.reason, held.words(), SLOW),
        Stage::Start(job) => Next::act(Act::StartJob(job)),
        Stage::Doubt(doubt) => {
            let ((reason, message), wake) = (status::doubt(&doubt), doubt.inquiry.wake());
            doubt.inquiry.ask.map_or_else(|| Next::wait(reason, message, wake), |job| Next::act(Act::StartJob(job)))
        }
        Stage::Job(Fact::Pending(message)) => Next::wait(Reason::JobPending, message, SLOW),
        Stage::Job(Fact::Running(message)) => Next::wait(Reason::JobRunning, message, SLOW),
        // What is lost is asked of the store and does not come so far.
        Stage::Job(Fact::Settling | Fact::Lost) => {
            Next::wait(Reason::JobRunning, SETTLING, Wake::AfterMillis(jobs::PATIENCE_MILLIS))
        }
    }
}

/// The cluster and its members with a vote, or what is missing. Something missing is waited for: that a snapshot was
/// applied before its cluster is no failure.
fn ready_cluster(seen: &Observed, wanted: &str) -> Result<Source, (Reason, String)> {
    let missing = |why: String| Err((Reason::WaitingForReference, why));
    let Some(cluster) = &seen.cluster else {
        return missing(format!("there is no EtcdCluster {wanted} in this namespace yet"));
    };
    if meta::deleting(&cluster.metadata) {
        return missing(format!("EtcdCluster {wanted} is being deleted"));
    }
    // I25: what is stored under this snapshot's name is of the cluster that a person meant.
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
