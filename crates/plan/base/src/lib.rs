//! The vocabulary of decisions. No client, no tokio, no clock, no randomness, no environment.
//!
//! Read this file first. `observe` (in `operator`) fills an `Observed` ([`seen`]), the `plan` function of a kind (in
//! `holdfast_cluster` and `holdfast_backup`) turns the `Observed` into a [`Plan`], `holdfast_safety` checks the plan, and `act`
//! (in `operator`) carries the plan out without a choice of its own. The operator remembers nothing between passes.
//!
//! Decides nothing about a cluster or a backup: what two rooms need stands here.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]

use std::fmt;

use holdfast_api::condition::Reason;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use crate::act::{Act, FirstCertificates, Unelectable, UserChange};
pub use crate::alarm::{Alarm, AlarmKind};
use crate::certificate::Issue;
pub use crate::settings::{Proxies, Settings};

mod act;
mod alarm;
pub mod certificate;
pub mod drift;
pub mod due_times;
pub mod ending;
pub mod failure;
pub mod fingerprint;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod job_state;
pub mod jobs;
pub mod live_reads;
pub mod meta;
pub mod objects;
pub mod patch;
pub mod pod_cause;
pub mod pods;
pub mod quota;
pub mod rehearsal;
pub mod removals;
pub mod restores;
pub mod retries;
pub mod saving;
pub mod seen;
mod settings;
pub mod store_identity;
pub mod stored_key;
pub mod template;
pub mod usable_store;
pub mod user_claim;
pub mod valid;
pub mod volumes;

/// A value that the operator tried to read. *Absent* is `Known(None)`. `Unknown` never satisfies a condition for something
/// destructive.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// The operator read the value.
    Known(T),
    /// The operator could not read the value, for this cause.
    Unknown(Unread),
}

/// Why the operator could not read a value. Displays as a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// etcd answers, and requires a login.
    LoginRequired(String),
    /// Every other cause.
    Other(String),
}

impl Unread {
    /// Returns the cause with this text.
    pub const fn new(login_required: bool, text: String) -> Self {
        if login_required { Self::LoginRequired(text) } else { Self::Other(text) }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::LoginRequired(text) | Self::Other(text)) = self;
        f.write_str(text)
    }
}

impl<T> Seen<T> {
    /// Returns `Unknown` with this cause.
    pub fn unknown(cause: impl Into<String>) -> Self {
        Self::Unknown(Unread::Other(cause.into()))
    }

    /// Returns the value, if the operator knows the value.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// The decisions of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// Idempotent server-side applies; only those that would change an object.
    pub ensures: Vec<Ensure>,
    /// At most one consequential step, guarded by the facts that must still hold when the operator carries out the step.
    pub act: Option<Act>,
    /// The whole status before the act. The operator writes the status only when it differs.
    pub status: S,
    /// Log lines and Events.
    pub notes: Vec<Note>,
    /// Why there is no act although the object is not as desired.
    pub waiting: Option<Waiting>,
    /// When the operator plans again, if no watch event comes before.
    pub wake: Wake,
}

/// An object that Holdfast owns alone and may apply at any time.
#[derive(Clone, Debug, PartialEq)]
pub enum Ensure {
    /// A Service.
    Service(Box<Service>),
    /// A disruption budget.
    Budget(Box<PodDisruptionBudget>),
    /// The `ConfigMap` with the certificates of a cluster's client CAs.
    CaBundle {
        /// Name, namespace, labels and owner.
        metadata: Box<ObjectMeta>,
        /// The certificates of the CAs.
        cas: Vec<certificate::CaPlace>,
    },
    /// Have cert-manager issue a Certificate again.
    Reissue(Target),
    /// A Certificate for cert-manager.
    Certificate {
        /// Name, namespace, labels and owner.
        metadata: Box<ObjectMeta>,
        /// Its spec.
        spec: serde_json::Value,
    },
    /// A Secret with certificates of a cluster that has formed.
    Secret(Box<Issue>),
    /// The `CronJob` of a schedule.
    CronJob(Box<CronJob>),
    /// The Deployment that records the log of a schedule.
    Deployment(Box<Deployment>),
    /// The disruption budget of a cluster with one voter left. Holdfast deletes the budget, which would block every drain.
    DropBudget(Target),
}

impl Act {
    /// Whether the operator writes the act with the status.
    pub const fn is_latch(&self) -> bool {
        matches!(self, Self::Latch(_) | Self::LatchPrune(_) | Self::LatchRemoval(_))
    }
}

/// The decision of a pass. `Settled` means that nothing is left to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Do this act, and plan again at the wake.
    Do(Act, Wake),
    /// Do nothing for this reason, and plan again at the wake.
    Wait(Waiting, Wake),
    /// The object is as desired; plan again at the wake.
    Settled(Wake),
}

impl Next {
    /// Returns an act, with the next pass right after it.
    pub const fn act(act: Act) -> Self {
        Self::Do(act, Wake::Now)
    }

    /// Returns a wait for this reason.
    pub fn wait(reason: Reason, message: impl Into<String>, wake: Wake) -> Self {
        Self::Wait(Waiting { reason, message: message.into() }, wake)
    }

    /// Returns the parts of a plan.
    pub fn into_parts(self) -> (Option<Act>, Option<Waiting>, Wake) {
        match self {
            Self::Do(act, wake) => (Some(act), None, wake),
            Self::Wait(waiting, wake) => (None, Some(waiting), wake),
            Self::Settled(wake) => (None, None, wake),
        }
    }
}

/// The object of an act. UID and resourceVersion become preconditions: Holdfast never touches a newer object (I12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name, in the namespace of the pass.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The version that the pass decided on.
    pub resource_version: String,
}

/// One sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether the Event has the type `Warning`.
    pub warning: bool,
    /// Event reason, CamelCase.
    pub reason: String,
    /// The change, and the remedy if there is one.
    pub message: String,
}

/// Why the pass has no act although the object is not as desired: a value that becomes a condition, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message: the missing fact, and what a person can do.
    pub message: String,
}

/// When the operator plans again, if no watch event comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Right after this pass's act.
    Now,
    /// After this many milliseconds (the operator adds jitter).
    AfterMillis(u64),
    /// Only after a change. The operator still plans every few minutes, against missed events.
    OnChange,
}

impl Wake {
    /// Returns the wake at this time; `None` when the time is past. Part of a millisecond counts as one: a rule that compares the
    /// exact times agrees.
    pub fn at(time: Timestamp, now: Timestamp) -> Option<Self> {
        let remaining = u128::try_from(time.duration_since(now).as_nanos()).ok().filter(|remaining| *remaining > 0)?;
        Some(Self::AfterMillis(u64::try_from(remaining.div_ceil(1_000_000)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_past_only_when_it_is() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |nanos: i64| Wake::at(now + jiff::SignedDuration::from_nanos(nanos), now);
        let wakes: Vec<_> = [-1, 0, 1, 999_999, 1_000_000, 1_000_001].into_iter().map(at).collect();
        let millis = |n| Some(Wake::AfterMillis(n));
        assert_eq!(wakes, [None, None, millis(1), millis(1), millis(1), millis(2)]);
    }
}
