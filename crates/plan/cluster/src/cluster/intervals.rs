//! Intervals between two passes over a cluster.

use jiff::SignedDuration;

use holdfast_base::Wake;

/// Interval of a settled cluster: no watch reports a member's Maintenance.Status.
pub(super) const POLL: Wake = Wake::AfterMillis(10_000);

/// Interval while a member starts: a read costs a millisecond, and waiting costs the user's time.
pub(super) const SOON: Wake = Wake::AfterMillis(100);

/// How long after a cluster's creation objects of its predecessor may still exist: Kubernetes' garbage collector takes
/// seconds, and after its own restart a minute.
pub(super) const COLLECTED: SignedDuration = SignedDuration::from_mins(2);
