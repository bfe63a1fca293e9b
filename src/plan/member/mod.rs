//! Decides what to do about one `EtcdMember`. See `plan.rs` for the order of decisions.

mod end;
mod evidence;
mod facts;
mod fence;
mod memory;
mod observed;
mod park;
mod plan;
mod pod;
mod status;
#[cfg(test)]
mod tests;
mod volume;

pub use observed::*;
pub use plan::plan;
