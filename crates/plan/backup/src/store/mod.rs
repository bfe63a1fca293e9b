//! Decides the next step for one `EtcdBackupStore`: when a Job probes the store, and the meaning of the probe. `plan.rs` holds
//! the order of decisions; snapshots and restores call [`usable`].

mod inputs;
mod plan;
mod probe;
mod stage;
mod status;
#[cfg(test)]
mod tests;

pub use holdfast_base::seen::store::*;
pub use holdfast_base::store_identity::{known, place, place_of};
pub use holdfast_base::usable_store::usable;
pub use inputs::{inputs, job_name, secrets};
pub use plan::plan;
