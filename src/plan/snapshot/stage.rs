//! What stands of one snapshot: the values between the decision, the Jobs and the status.

use k8s_openapi::api::batch::v1::Job;

use super::Observed;
use crate::api::EtcdSnapshotStatus;
use crate::api::condition::Reason;
use crate::api::snapshot::Failure;
use crate::plan::Wake;
use crate::plan::held::HeldUp;
use crate::plan::jobs::Fact;

/// While something is waited for that the operator watches anyway: against a missed event.
pub(super) const SLOW: Wake = Wake::AfterMillis(15_000);

/// What stands, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// Nothing is to be done and nothing changes: final (I18), or being deleted.
    Rest,
    /// What has to be there first is not, or something stands in the way.
    Blocked(Reason, String),
    /// No Job stands: this one is made.
    Start(Box<Job>),
    /// Its Job stands, or did, and this is known of it.
    Job(Fact),
    /// Only the store knows whether the snapshot is there, and it has not said.
    Doubt(Doubt),
}

/// An end that leaves open whether the snapshot is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Doubt {
    /// Whether a Job of the snapshot is known to have been made, or it is merely old enough for one.
    pub(super) witnessed: bool,
    /// How saving failed, where that is known.
    pub(super) failed: Option<Failure>,
    /// How far asking the store has come.
    pub(super) inquiry: Inquiry,
}

/// How far asking has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inquiry {
    /// The Job that is made now, and asks.
    pub(super) ask: Option<Box<Job>>,
    /// How far the Job is that asks, where one does; or what the store shows so far.
    pub(super) words: String,
    /// Why the store did not answer the last time.
    pub(super) silent: Option<String>,
    /// Whether that was because these credentials may not look.
    pub(super) denied: bool,
    /// When it is asked again, where that is not now.
    pub(super) pause: Option<Wake>,
    /// What keeps the Pod that asks from running.
    pub(super) held: Option<HeldUp>,
    /// What a person has to see to first, where the words tell of such a thing.
    pub(super) trouble: Option<Reason>,
}

impl Inquiry {
    /// Something else is waited for.
    pub(super) fn waits(words: String) -> Self {
        Self { words, ..Self::default() }
    }

    /// When to look again.
    pub(super) fn wake(&self) -> Wake {
        self.pause.unwrap_or(SLOW)
    }
}

/// Whether a Job of this snapshot, or a Pod of one, was ever seen.
pub(super) fn witnessed(seen: &Observed) -> bool {
    let told = |s: &EtcdSnapshotStatus| s.started_at.is_some() || s.attempts > 0 || s.error.is_some();
    !seen.strays.is_empty() || seen.snapshot.status.as_ref().is_some_and(told)
}

/// What is told of a Job that has just ended.
pub(super) const SETTLING: &str = "the Job has ended; its report is on its way";
