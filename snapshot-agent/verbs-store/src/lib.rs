//! The verbs of `holdfast agent` that work on a store alone. No verb imports another one.

pub mod copy;
pub mod inspect;
pub mod latest;
pub mod list;
pub mod probe;
pub mod prune;
pub mod recall;
pub mod remove;
pub mod report;
#[cfg(test)]
mod sample;
