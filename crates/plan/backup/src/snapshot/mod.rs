//! Decides the next step for one `EtcdSnapshot`. `plan.rs` holds the order of decisions.

mod doubt;
mod inquiry;
mod job;
mod latch;
mod place;
mod plan;
mod removal;
mod sidecar;
mod stage;
mod status;
mod subject;
mod unstarted;

pub use holdfast_base::seen::snapshot::*;
pub use job::inspection;
pub use latch::{holds, live_removal};
pub use place::secrets;
pub use plan::plan;

#[cfg(test)]
mod tests;
