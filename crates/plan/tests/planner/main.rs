//! The planner's stories, properties and model, in a simulated world. One program, because linking costs more than running the
//! tests.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_in_result,
    clippy::pedantic,
    clippy::collapsible_if,
    clippy::manual_div_ceil,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests end by panicking, read the environment, and favour plain words over idiom"
)]

mod exchanges;
mod histories;
mod interrupted;
mod model;
mod plan_props;
mod returns;
mod scenarios;
mod schedule_props;
mod transports;
mod world;

/// As in the operator itself: plans consist of many small strings, which musl's own allocator returns to the kernel at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
