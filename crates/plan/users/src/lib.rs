//! PURE decisions about users of etcd clusters: no client, no tokio, no clock, no randomness, no environment.

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

mod given;
mod plan;
mod status;
#[cfg(test)]
mod tests;

pub use holdfast_base::seen::user::Observed;
pub use plan::plan;
