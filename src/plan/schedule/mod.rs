//! Decides what to do about one `EtcdSnapshotSchedule`. See `plan.rs` for the order of decisions.

mod arm;
mod facts;
mod health;
mod line;
mod observed;
mod plan;
mod recall;
mod record;
mod status;

pub use health::{Fresh, fresh, healthy, overdue_at};
pub use line::{Line, UTC};
pub use observed::*;
pub use plan::plan;

#[cfg(test)]
mod tests;
