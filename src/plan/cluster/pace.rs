//! How soon a cluster is looked at again.

use jiff::SignedDuration;

use crate::plan::Wake;

/// How often a settled cluster is looked at: member Status cannot be watched.
pub(super) const POLL: Wake = Wake::AfterMillis(10_000);

/// How often a member that starts is asked whether it serves: a look costs a millisecond, waiting costs the user's time.
pub(super) const SOON: Wake = Wake::AfterMillis(100);

/// So long after a cluster was made, what its predecessor owned may still be there: Kubernetes' garbage collector takes
/// seconds, and after its own restart a minute.
pub(super) const COLLECTED: SignedDuration = SignedDuration::from_mins(2);
