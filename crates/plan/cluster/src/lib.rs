//! PURE decisions about clusters and their members: no client, no tokio, no clock, no randomness, no environment.

#![cfg_attr(
    test,
    allow(
        missing_docs,
        unreachable_pub,
        clippy::pedantic,
        clippy::unwrap_in_result,
        reason = "tests favour plain words"
    )
)]

#[cfg(test)]
use holdfast_fixtures as fixtures;
#[cfg(test)]
use holdfast_safety as safety;

pub mod cluster;
pub mod member;
pub mod returns;
