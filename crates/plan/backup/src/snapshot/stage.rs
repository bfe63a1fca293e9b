//! Stages of one snapshot: the values between the decision, the Jobs and the status.

use holdfast_api::EtcdSnapshotStatus;
use holdfast_api::condition::Reason;
use holdfast_api::snapshot::Failure;
use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use holdfast_base::Wake;
use holdfast_base::jobs::JobState;
use holdfast_base::pod_cause::PodCause;

/// Interval of passes during a wait that a watch ends, against a missed event.
pub(super) const SLOW: Wake = Wake::AfterMillis(15_000);

/// Stage of one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// No step, no change: the status is final (I18), or the object is being deleted.
    Rest,
    /// A reference is missing, or an obstacle exists.
    Blocked(Reason, String),
    /// No Job exists: the operator creates this Job.
    Start(Box<Job>),
    /// Result or progress of the snapshot's Job, which may be gone.
    Job(JobState),
    /// Only the store knows whether the snapshot is stored, and the store has not answered.
    Doubt(Doubt),
}

/// An end after which the snapshot may be stored or not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Doubt {
    /// Whether a Job of the snapshot was seen; else the object is only old enough to have had a Job.
    pub(super) witnessed: bool,
    /// The known failure of the save.
    pub(super) failed: Option<Failure>,
    /// Progress of the question to the store.
    pub(super) inquiry: Inquiry,
}

/// Progress of the question to the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inquiry {
    /// The Job that asks the store, to create now.
    pub(super) ask: Option<Box<Job>>,
    /// Progress of the asking Job, or the store's answer so far.
    pub(super) words: String,
    /// Why the store did not answer the last question.
    pub(super) silent: Option<String>,
    /// Whether the credentials may not read the store.
    pub(super) denied: bool,
    /// When to ask again; absent: the usual interval.
    pub(super) pause: Option<Wake>,
    /// The hold-up of the Pod that asks.
    pub(super) held: Option<PodCause>,
    /// Reason that needs a person, if `words` describe such a reason.
    pub(super) trouble: Option<Reason>,
}

impl Inquiry {
    /// Returns an inquiry that waits and asks nothing now.
    pub(super) fn waits(words: String) -> Self {
        Self { words, ..Self::default() }
    }

    /// When to run the next pass.
    pub(super) fn wake(&self) -> Wake {
        self.pause.unwrap_or(SLOW)
    }
}

/// Whether a Job of this snapshot, or a Pod of such a Job, was ever seen.
pub(super) fn witnessed(seen: &Observed) -> bool {
    let shows_attempt = |s: &EtcdSnapshotStatus| s.started_at.is_some() || s.attempts > 0 || s.error.is_some();
    !seen.strays.is_empty() || seen.snapshot.status.as_ref().is_some_and(shows_attempt)
}

/// Message for a Job that has just ended.
pub(super) const SETTLING: &str = "the Job has ended; its report is on its way";
