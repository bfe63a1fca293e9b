//! Rules that hold for every plan about a cluster or a member, whoever made it; checked in tests and, before anything is
//! done, in production. Snapshots and stores only start Jobs, each under a name that is taken once.
//!
//! Decides only yes or no, from what was seen and what is about to be done, with reasoning of its own: it shares no
//! decision with the plans it judges. A violation means that nothing is done and a person looks.

mod cluster;
mod member;
#[cfg(test)]
mod tests;

use std::fmt;

pub use cluster::cluster;
pub use member::member;

use crate::plan::Target;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A rule that a plan broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant (`I1` to `I28`).
    pub invariant: &'static str,
    /// What the plan wanted, and why not.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.message)
    }
}

type Verdict = Result<(), Violation>;

/// `holds`, or a violation of `invariant`.
fn rule(invariant: &'static str, holds: bool, message: &str) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { invariant, message: message.to_owned() }) }
}

/// Whether a target is exactly the object that was seen, with all that a precondition needs (I12).
fn is(target: &Target, seen: &ObjectMeta) -> bool {
    !target.uid.is_empty() && !target.resource_version.is_empty() && *target == Target::of(seen)
}
