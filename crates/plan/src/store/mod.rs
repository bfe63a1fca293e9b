//! Decides the next step for one `EtcdBackupStore`: when a Job probes the store, and the meaning of the probe. `plan.rs` holds
//! the order of decisions; snapshots and restores call [`usable`].

mod identity;
mod inputs;
mod observed;
mod plan;
mod probe;
mod stage;
mod status;
#[cfg(test)]
mod tests;
mod usable;

pub use identity::{known, place, place_of};
pub use inputs::{inputs, job_name, secrets};
pub use observed::Observed;
pub use plan::plan;
pub use usable::usable;
