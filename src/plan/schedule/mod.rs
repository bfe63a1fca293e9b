//! Decides what to do about one `EtcdSnapshotSchedule`. See `plan.rs` for the order of decisions.

mod arm;
mod facts;
mod forecast;
mod health;
mod line;
mod observed;
mod plan;
mod prune;
mod recall;
mod record;
mod restores;
mod status;

pub use health::{Fresh, fresh, healthy, overdue_at};
pub use line::{Line, UTC};
pub use observed::*;
pub use plan::plan;
pub(in crate::plan) use prune::endangers;
pub use prune::live_run;
pub use restores::restores;

#[cfg(test)]
mod tests;
