//! Every test that needs no server: rules of the code, checked-in files, and the planner's stories. One program, because linking
//! the library costs more than running the tests.

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

mod columns;
mod command_line;
mod documents;
mod golden;
mod imports;
mod interrupted;
mod layering;
mod lockfile;
mod model;
mod plan_props;
mod samples;
mod scenarios;
mod schedule_props;
mod world;

/// As in the operator itself: plans consist of many small strings, which musl's own allocator returns to the kernel at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
