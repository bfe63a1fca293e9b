//! Decides what to do about one `EtcdSnapshot`. See `plan.rs` for the order of decisions.

pub(in crate::plan) mod inquiry;
mod job;
mod observed;
mod place;
mod plan;
pub(in crate::plan) mod report;
mod status;

pub use job::{inspection, number};
pub use observed::*;
pub(in crate::plan) use place::on as made_for;
pub use plan::plan;
pub use report::over;

#[cfg(test)]
mod tests;
