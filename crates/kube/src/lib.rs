//! Kubernetes for the operator: the way to the API server, the kinds, their JSON, watches and caches, and the requests. Decides
//! nothing about objects.
//!
//! Functions that are generic over a kind are compiled where they are used. Here each kind is named, so that its JSON and its
//! watch are compiled once, and a change of the operator does not compile them again.

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
#![allow(clippy::disallowed_types, reason = "the operator's client passes through")]

pub mod api_server;
pub mod caches;
mod exec_login;
pub mod kinds;
pub mod port_forward;
pub mod requests;
pub mod slim;
