//! Rules that hold for every plan about a cluster, a member, a snapshot or a schedule. Tests check them, and the operator checks
//! each plan before it acts. A store only starts Jobs, each under a name that is used once.
//!
//! Decides only yes or no, from the observed facts and the intended act, with reasoning of its own: this crate depends on the
//! vocabulary alone, and shares no decision with the plans. After a violation the operator does nothing, and a person has to look.

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

mod alarms;
mod auth;
mod certificates;
mod cluster;
mod defragment;
mod facts;
mod last_snapshot;
mod leadership;
mod member;
mod replace;
mod retention;
mod roll;
mod schedule;
mod snapshot;
#[cfg(test)]
mod tests;
mod timeline;
mod transport;
mod upgrade;
mod user;
mod volumes;

use std::fmt;

pub use cluster::cluster;
use holdfast_api::{
    EtcdClusterStatus, EtcdMemberStatus, EtcdSnapshotScheduleStatus, EtcdSnapshotStatus, EtcdUserStatus,
};
pub use member::member;
pub use schedule::schedule;
pub use snapshot::snapshot;
pub use user::user;

use holdfast_base::{Act, Plan, Target, Wake};
#[cfg(test)]
use holdfast_fixtures as fixtures;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A rule that a plan broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant in docs/invariants.md.
    pub invariant: &'static str,
    /// The intended act, and the rule that forbids it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.message)
    }
}

type Verdict = Result<(), Violation>;

/// A plan that keeps the rules. Only this file creates this type, and the operator carries out no other plan.
#[derive(Clone, Debug)]
pub struct Checked<S>(Plan<S>);

/// A plan that breaks a rule.
pub type Broken<S> = (Box<Plan<S>>, Violation);

impl<S> Checked<S> {
    fn from_verdict(plan: Plan<S>, verdict: Verdict) -> Result<Self, Broken<S>> {
        match verdict {
            Ok(()) => Ok(Self(plan)),
            Err(violation) => Err((Box::new(plan), violation)),
        }
    }

    /// Checks the plan of a kind that only starts Jobs, each under a name that is used once.
    ///
    /// # Errors
    /// The plan has another act, or an object to apply.
    pub fn starts_jobs(plan: Plan<S>) -> Result<Self, Broken<S>> {
        let holds = plan.ensures.is_empty() && matches!(plan.act, None | Some(Act::StartJob(_)));
        Self::from_verdict(plan, rule("I12", holds, "a store does nothing but start Jobs"))
    }

    /// Checks the plan of a kind that only reports.
    ///
    /// # Errors
    /// The plan has an act, or an object to apply.
    pub fn reports(plan: Plan<S>) -> Result<Self, Broken<S>> {
        let holds = plan.ensures.is_empty() && plan.act.is_none();
        Self::from_verdict(plan, rule("I12", holds, "an EtcdRestore is carried out by its cluster's pass"))
    }

    /// Returns the status of a plan, without its act and its ensures.
    #[must_use]
    pub fn status_only(plan: Plan<S>) -> Self {
        Self(Plan { ensures: vec![], act: None, wake: Wake::OnChange, ..plan })
    }

    /// Returns the plan.
    pub fn into_plan(self) -> Plan<S> {
        self.0
    }
}

impl Checked<EtcdClusterStatus> {
    /// Checks the plan of a cluster.
    ///
    /// # Errors
    /// The plan breaks a rule.
    pub fn cluster(
        seen: &holdfast_base::seen::cluster::Observed,
        plan: Plan<EtcdClusterStatus>,
    ) -> Result<Self, Broken<EtcdClusterStatus>> {
        let verdict = cluster::cluster(seen, &plan);
        Self::from_verdict(plan, verdict)
    }
}

impl Checked<EtcdMemberStatus> {
    /// Checks the plan of a member.
    ///
    /// # Errors
    /// The plan breaks a rule.
    pub fn member(
        seen: &holdfast_base::seen::member::Observed,
        plan: Plan<EtcdMemberStatus>,
    ) -> Result<Self, Broken<EtcdMemberStatus>> {
        let verdict = member::member(seen, &plan);
        Self::from_verdict(plan, verdict)
    }
}

impl Checked<EtcdSnapshotStatus> {
    /// Checks the plan of a snapshot.
    ///
    /// # Errors
    /// The plan breaks a rule.
    pub fn snapshot(
        seen: &holdfast_base::seen::snapshot::Observed,
        plan: Plan<EtcdSnapshotStatus>,
        now: Timestamp,
    ) -> Result<Self, Broken<EtcdSnapshotStatus>> {
        let verdict = snapshot::snapshot(seen, &plan, now);
        Self::from_verdict(plan, verdict)
    }
}

impl Checked<EtcdUserStatus> {
    /// Checks the plan of a user.
    ///
    /// # Errors
    /// The plan breaks a rule.
    pub fn user(
        seen: &holdfast_base::seen::user::Observed,
        plan: Plan<EtcdUserStatus>,
    ) -> Result<Self, Broken<EtcdUserStatus>> {
        let verdict = user::user(seen, &plan);
        Self::from_verdict(plan, verdict)
    }
}

impl Checked<EtcdSnapshotScheduleStatus> {
    /// Checks the plan of a schedule.
    ///
    /// # Errors
    /// The plan breaks a rule.
    pub fn schedule(
        seen: &holdfast_base::seen::schedule::Observed,
        plan: Plan<EtcdSnapshotScheduleStatus>,
    ) -> Result<Self, Broken<EtcdSnapshotScheduleStatus>> {
        let verdict = schedule::schedule(seen, &plan);
        Self::from_verdict(plan, verdict)
    }
}

/// Returns a violation of `invariant` unless `holds`.
fn rule(invariant: &'static str, holds: bool, message: &str) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { invariant, message: message.to_owned() }) }
}

/// Whether a target is exactly the object of the pass, with all fields that a precondition needs (I12).
fn is(target: &Target, seen: &ObjectMeta) -> bool {
    !target.uid.is_empty() && !target.resource_version.is_empty() && *target == Target::from(seen)
}
