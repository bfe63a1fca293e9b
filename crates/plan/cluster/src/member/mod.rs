//! Decides the next step for one `EtcdMember`. `plan.rs` holds the order of decisions.

mod end;
mod evidence;
mod facts;
mod fence;
mod memory;
mod park;
mod plan;
mod pod;
mod pod_metadata;
mod status;
#[cfg(test)]
mod tests;
mod volume;

pub use holdfast_base::seen::member::*;
pub use plan::plan;
