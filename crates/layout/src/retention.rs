//! Decides which snapshots of a schedule are kept, and when nothing may be removed.
//!
//! Pure: values in, values out. The agent, the operator's forecast and `agent prune --dry-run` share this code. `catalog/`
//! reads the store to make an [`Entry`], and removes snapshots.

mod candidate;
mod entry;
mod judge;
mod log;
mod period;
mod stop;
mod zone;

pub use candidate::{Whose, candidate};
pub use entry::{Candidate, Entry, MadeOf, Reason, Untouched, Verdict};
pub use judge::judge;
pub use log::{KeptLog, LogAge, LogBase, LogCut, find_log_cut};
pub use stop::{Sight, Stop, StoreMatch, describe_usual_loss, find_stop};
pub use zone::time_zone;

#[cfg(test)]
mod retention_props;
#[cfg(test)]
mod tests;
