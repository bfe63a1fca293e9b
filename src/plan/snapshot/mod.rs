//! Decides what to do about one `EtcdSnapshot`. See `plan.rs` for the order of decisions.

mod observed;

pub use observed::*;

use jiff::Timestamp;

use crate::api::EtcdSnapshotStatus;
use crate::plan::Plan;

/// What to do next.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdSnapshotStatus> {
    let _ = now;
    Plan {
        ensures: vec![],
        act: None,
        status: seen.snapshot.status.clone().unwrap_or_default(),
        notes: vec![],
        waiting: None,
        wake: crate::plan::Wake::OnChange,
    }
}
