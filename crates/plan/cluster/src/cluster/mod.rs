//! Decides the next act for an `EtcdCluster`. `steps.rs` has the order of the rules.

#![allow(clippy::similar_names, reason = "`seen` and `seed` are words of this house")]

mod alarms;
mod backups;
mod bootstrap;
mod client_services;
mod defragment;
mod diverged;
mod enlarge;
mod fresh_snapshot;
mod grow;
mod hand_over;
mod health;
mod identity;
mod intervals;
mod last_snapshot;
mod latest;
mod lineage;
mod memberless;
mod move_leader;
mod orphan;
mod park;
mod plan;
mod preflight;
mod promote;
mod raise_quota;
mod read_access;
mod recorded;
mod release;
mod replace;
mod resize;
mod restore;
mod restored_pod;
mod retention;
mod risk;
mod roll;
mod rollback;
mod saved_place;
mod seed;
mod shrink;
mod silent;
mod space;
mod status;
mod steps;
mod stuck;
mod successor;
#[cfg(test)]
mod tests;
mod tls;
mod turn;
mod upgrade;
mod victim;

pub use backups::{newest, saving};
pub use diverged::asks_for_hashes;
pub use enlarge::claim_to_grow;
pub use fresh_snapshot::name_of as name_of_requested_snapshot;
pub use holdfast_base::seen::cluster::*;
pub use last_snapshot::name_of as name_of_final_snapshot;
pub use plan::plan;
pub use preflight::{Condition, State, conditions};
pub use restore::{How, Of, restore_uid};
pub use steps::{Step, TABLES, Table};
pub use successor::next_pods;
pub use tls::{is_auto, requests, sources, written_at};
pub use turn::has_turn;
pub use upgrade::asks_for_another_minor;
