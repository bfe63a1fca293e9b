//! Which snapshots of a schedule are kept, and when nothing may be removed at all.
//!
//! Pure: values in, values out. The agent, the operator's forecast and `agent prune --dry-run` share it. What is read to
//! make an [`Entry`], and how anything is removed, is decided elsewhere (`catalog/`).

mod candidate;
mod entry;
mod judge;
mod period;
mod stop;
mod zone;

pub use candidate::{Whose, candidate};
pub use entry::{Candidate, Entry, Reason, Untouched, Verdict};
pub use judge::judge;
pub use stop::{Mark, Sight, Stop, find_stop};
pub use zone::time_zone;

#[cfg(test)]
mod retention_props;
#[cfg(test)]
mod tests;
