//! Any bytes as a segment.

#![no_main]

#[path = "../src/oracle.rs"]
#[allow(dead_code, reason = "the other target has its part")]
mod oracle;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    oracle::segment(bytes);
});
