//! Decides the next step for one `EtcdSnapshotSchedule`. `plan.rs` holds the order of decisions.

mod applied;
mod arm;
mod beside;
mod compaction;
mod drill;
mod drill_job;
mod facts;
mod forecast;
mod health;
mod log;
mod log_deployment;
mod log_pod;
mod merges;
mod out_of_turn;
mod plan;
mod prune;
mod recall;
mod record;
mod removal;
mod skipped;
mod status;
mod surplus;

pub use drill::{overdue_at as drill_overdue_at, standing_failure as standing_drill_failure};
pub use health::{Fresh, fresh, healthy, overdue_at};
pub use holdfast_base::due_times::{Line, UTC};
pub use holdfast_base::restores::{restores, searches};
pub use holdfast_base::seen::schedule::*;
pub use log_pod::{is_log_pod, running as running_log_pod};
pub use plan::plan;
pub use removal::{live_job, live_run};

#[cfg(test)]
mod tests;
