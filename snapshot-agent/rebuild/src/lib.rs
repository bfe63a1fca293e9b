//! The verbs of `holdfast agent` that make data of stored snapshots: restore, verify, contents, survey. No verb imports
//! another one.
pub mod contents;
pub mod restore;
#[cfg(test)]
#[path = "../../verbs-store/src/sample.rs"]
mod sample;
pub mod survey;
pub mod verify;
