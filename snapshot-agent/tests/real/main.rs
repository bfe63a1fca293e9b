//! The agent against a real etcd and a real S3 server. One program, because each test program links a whole agent.
//!
//! Tests that replace, signal or measure their own process run in a child of this program: see `support::child`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_in_result,
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "tests end by panicking, and read the clock and the environment"
)]

mod age;
mod agreement;
mod archived;
mod aws;
mod backends;
mod balancer;
mod bump;
mod came_along;
mod canaries;
mod checksums;
mod compaction;
mod compare;
mod contents;
mod copy;
mod crowd;
mod cuts;
mod defrag;
mod dns;
mod dump;
mod ear;
mod endless;
mod faults;
mod front;
mod gate;
mod graft;
mod inspect;
mod kills;
mod kubernetes;
mod locks;
mod log;
mod many;
mod marks;
mod members;
mod memory;
mod merge;
mod narrow;
mod orphans;
mod partition;
mod point;
#[path = "../common/ports.rs"]
mod ports;
mod progress;
mod proxied;
mod prune;
mod raw;
mod readers;
mod refused;
mod restore;
mod rewritten;
mod round_trip;
mod s3_faults;
mod s3_proxy;
mod saving;
mod scan;
mod siblings;
mod signal;
mod silent;
mod sizes;
mod slow;
#[path = "../common/soak.rs"]
mod soak;
mod space;
mod store_tls;
mod stores;
mod support;
mod survivor;
mod syncs;
mod tls;
mod tls_kinds;
mod trouble;
mod undelete;
mod verify;
mod volumes;

use scan::support as server;
use scan::support::bolt;

/// The allocator of the binary, so that measurements apply to the shipped agent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
