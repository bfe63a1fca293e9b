//! Tests of the page scan: against real etcd of every supported minor, against flipped bits, and against garbage.
//!
//! `HOLDFAST_SOAK=1` runs the full counts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_in_result,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_docs,
    reason = "tests end by panicking, and know their numbers"
)]

mod corpus;
mod files;
mod flips;
mod memory;
/// The promises of the scan that the fuzzer checks.
#[path = "../../../../fuzz/src/oracle.rs"]
mod oracle;
mod props;
pub(crate) mod support;
mod truth;
