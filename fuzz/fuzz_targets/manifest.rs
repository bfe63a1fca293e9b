//! Any bytes as a manifest.

#![no_main]

#[path = "../src/oracle.rs"]
#[allow(dead_code, reason = "the other target has its part")]
mod oracle;

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    oracle::manifest(json);
});
