//! Decides what to do about one `EtcdCluster`. See `plan.rs` for the order of decisions.

mod observed;

pub use observed::*;

use jiff::Timestamp;

use crate::api::EtcdClusterStatus;
use crate::plan::Plan;

/// What to do next.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdClusterStatus> {
    let _ = now;
    Plan {
        ensures: vec![],
        act: None,
        status: seen.cluster.status.clone().unwrap_or_default(),
        notes: vec![],
        waiting: None,
        wake: crate::plan::Wake::OnChange,
    }
}
