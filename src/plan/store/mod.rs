//! Decides what to do about one `EtcdBackupStore`: when it is probed, and what its probe means. See `plan.rs` for the
//! order of decisions, and [`usable`] for those who want to use a store.

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
