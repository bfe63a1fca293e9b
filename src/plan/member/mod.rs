//! Decides what to do about one `EtcdMember`. See `plan.rs` for the order of decisions.

mod observed;

pub use observed::*;

use jiff::Timestamp;

use crate::api::EtcdMemberStatus;
use crate::plan::Plan;

/// What to do next.
pub fn plan(seen: &Observed, now: Timestamp) -> Plan<EtcdMemberStatus> {
    let _ = now;
    Plan {
        ensures: vec![],
        act: None,
        status: seen.member.status.clone().unwrap_or_default(),
        notes: vec![],
        waiting: None,
        wake: crate::plan::Wake::OnChange,
    }
}
