//! Rules of the code and checked-in files, without a server. One program, because linking the library costs more than running
//! the tests.

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

mod ceiling;
mod charts;
mod charts_values;
mod columns;
mod command_line;
mod documents;
mod golden;
mod imports;
mod layering;
mod lockfile;
mod samples;
mod values;
mod words;
