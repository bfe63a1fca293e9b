//! The agent against a real etcd and a real S3 server. One program, because each is a whole agent to link.
//!
//! What replaces, signals or measures its own process runs in a child of this program: see `support::child`.

mod faults;
mod gate;
mod memory;
mod restore;
mod round_trip;
mod signal;
mod support;

/// The allocator of the binary: what is measured is what ships.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
