//! Decides what to do about one `EtcdSnapshot`. See `plan.rs` for the order of decisions.

mod doubt;
mod inquiry;
mod job;
mod observed;
mod place;
mod plan;
mod stage;
mod status;

pub use job::inspection;
pub use observed::*;
pub use place::secrets;
pub use plan::plan;

#[cfg(test)]
mod tests;
