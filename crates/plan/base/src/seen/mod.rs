//! Facts of one pass, by kind: plain values, filled by `observe` (in `operator`).

pub mod cluster;
mod cluster_facts;
pub mod member;
pub mod restore;
pub mod schedule;
pub mod snapshot;
pub mod store;
pub mod user;
